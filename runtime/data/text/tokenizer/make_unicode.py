#!/usr/bin/env python3
"""Writes unicode_classes.cpp, unicode_compositions.cpp and unicode_decompositions.cpp, the tables
that tokenizers split and normalise text by.

python3 make_unicode.py, with unicodedata of Unicode 16.0.0: that of Python 3.14, or the package
unicodedata2 16.0.0. tiktoken 0.14 and Hugging Face tokenizers 0.23 follow the same version; letters
of a newer one would be split otherwise than they split them.
"""

import pathlib
import sys

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

VERSION = "16.0.0"
CODE_POINTS = 0x110000
WHITE_SPACE = {*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B),
               0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
JOIN_CONTROLS = {0x200C, 0x200D}
# Other_Alphabetic besides marks: circled and squared Latin letters.
ALPHABETIC_SYMBOLS = {*range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A), *range(0x1F150, 0x1F16A),
                      *range(0x1F170, 0x1F18A)}

# In the order of CharClass in unicode.h, followed by the mark of an alternating run.
CLASSES = ["other", "space", "upper", "lower", "uncased", "mark", "number", "other_number",
           "word_symbol"]
ALTERNATING = len(CLASSES)


def class_of(code):
    category = unicodedata.category(chr(code))
    if code in WHITE_SPACE:
        return "space"
    if category in ("Lu", "Lt"):
        return "upper"
    if category == "Ll":
        return "lower"
    if category in ("Lm", "Lo"):
        return "uncased"
    if category[0] == "M":
        return "mark"
    if category in ("Nd", "Nl"):
        return "number"
    if category == "No":
        return "other_number"
    if category == "Pc" or code in JOIN_CONTROLS or code in ALPHABETIC_SYMBOLS:
        return "word_symbol"
    return "other"


def class_runs():
    """(first code point, class number) of each run, in order."""
    classes = [CLASSES.index(class_of(code)) for code in range(CODE_POINTS)]
    upper, lower = CLASSES.index("upper"), CLASSES.index("lower")
    runs, code = [], 0
    while code < CODE_POINTS:
        alike = code
        while alike < CODE_POINTS and classes[alike] == classes[code]:
            alike += 1
        pairs = code
        while classes[pairs:pairs + 2] == [upper, lower]:
            pairs += 2
        if pairs >= code + 4:
            runs.append((code, ALTERNATING))
            code = pairs
        else:
            runs.append((code, classes[code]))
            code = alike
    return runs


def combining_runs():
    """(first, last, canonical combining class) of characters whose class is not 0."""
    runs = []
    for code in range(CODE_POINTS):
        ccc = unicodedata.combining(chr(code))
        if ccc == 0:
            continue
        if runs and runs[-1][1] == code - 1 and runs[-1][2] == ccc:
            runs[-1] = (runs[-1][0], code, ccc)
        else:
            runs.append((code, code, ccc))
    return runs


def decompositions(composing):
    """Canonical decompositions; composing: those that NFC composes again, else the others."""
    rows = []
    for code in range(CODE_POINTS):
        mapping = unicodedata.decomposition(chr(code))
        if not mapping or mapping.startswith("<"):
            continue
        first, second = ([int(part, 16) for part in mapping.split()] + [0])[:2]
        if (unicodedata.normalize("NFC", chr(code)) == chr(code)) == composing:
            rows.append(f"{{{code:#x},{first:#x},{second:#x}}}")
    return rows


def wrapped(items):
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > 100:
            lines.append(line)
            line = "   "
        line += f" {item},"
    return "\n".join([*lines, line])


HEAD = f"""// Written by make_unicode.py from Unicode {VERSION}.
#include "shale/runtime/data/text/tokenizer/unicode_tables.h"

namespace shale::tokenizer_internal {{

// clang-format off
"""
TAIL = """// clang-format on

}  // namespace shale::tokenizer_internal
"""


def table(kind, name, items):
    return (f"const {kind} {name}[] = {{\n{wrapped(items)}\n}};\n"
            f"const size_t {name}Size = {len(items)};\n")


def main():
    if unicodedata.unidata_version != VERSION:
        sys.exit(f"unicodedata is of Unicode {unicodedata.unidata_version}, expected {VERSION}")
    folder = pathlib.Path(__file__).parent
    classes = [f"{code << 4 | kind:#x}" for code, kind in class_runs()]
    (folder / "unicode_classes.cpp").write_text(
        HEAD + table("uint32_t", "kClassRuns", classes) + TAIL)
    combining = [f"{{{a:#x},{b:#x},{c}}}" for a, b, c in combining_runs()]
    (folder / "unicode_compositions.cpp").write_text(
        HEAD + table("CombiningRun", "kCombiningRuns", combining) +
        table("Decomposition", "kCompositions", decompositions(composing=True)) + TAIL)
    (folder / "unicode_decompositions.cpp").write_text(
        HEAD + table("Decomposition", "kOneWayDecompositions", decompositions(composing=False)) +
        TAIL)



if __name__ == "__main__":
    main()
