"""Writes data sets as JSON lines to standard output, for shale tokenize and train_lm.

    python3 -m shale.data fineweb/ | shale tokenize - --tokenizer tokenizer.json --out tokens
    python3 -m shale.data chats.parquet | train_lm --task sft --init model/ --data -
    python3 -m shale.data --from alpaca alpaca_data.json > alpaca.jsonl

Reads Parquet and Arrow files (which needs pyarrow), WebDataset tars with .txt or .json members,
JSON arrays and JSON lines, also as .gz and .zst, and folders of one kind of these files. It writes
{"text": ...} for text, and whole rows for conversations and preferences. The first line of output
is {"shale.data": "begin"}, and the last line has the number of lines between. Shale refuses a
stream without its last line, so a program that fails is noticed.

Exit codes: 64 options, 65 malformed data, 66 no such file, 69 no pyarrow, 74 output not written.
"""

import argparse
import fcntl
import gzip
import io
import json
import os
import re
import signal
import sys
import tarfile
import zlib

ROWS, ROWS_BYTES = 1000, 5 << 17  # maximum rows and bytes of a table to read at a time
WRITE_BYTES = 1 << 20  # bytes to collect before a write
ESCAPES = ((b"\\", b"\\\\"), (b'"', b'\\"'), (b"\n", b"\\n"), (b"\t", b"\\t"), (b"\r", b"\\r"),
           (b"\f", b"\\f"))  # escapes in JSON strings
RARE = bytes(set(range(1, 32)) - set(b"\n\t\r\f"))  # other characters that JSON must escape
# a row with one of these columns is written whole
CONVERSATIONS = ("messages", "completion", "chosen")
ENDINGS = {".parquet": "tables", ".arrow": "tables", ".tar": "tars", ".tgz": "tars",
           ".jsonl": "JSON lines", ".ndjson": "JSON lines", ".json": "JSON"}
ROLES = {"human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant",
         "assistant": "assistant", "bing": "assistant", "bard": "assistant", "system": "system"}
FETCH = (("s3://", "aws s3 cp --recursive {0} DIR"), ("gs://", "gcloud storage cp -r {0} DIR"),
         ("hf://datasets/", "hf download {1} --repo-type dataset --local-dir DIR"),
         ("https://huggingface.co/datasets/",
          "hf download {1} --repo-type dataset --local-dir DIR"),
         ("http://", "curl -LO {0}"), ("https://", "curl -LO {0}"))


class Refused(Exception):
    """Error for an input that cannot be read. `code` is the exit code."""

    def __init__(self, message, code=65):
        super().__init__(message)
        self.code = code


def need_pyarrow(path):
    """Imports pyarrow, which `path` needs, as pa, and two of its modules."""
    global pa, compute, parquet
    try:
        import pyarrow as pa
        from pyarrow import compute, parquet
    except ImportError:
        raise Refused(f"{path} needs pyarrow, which this Python does not have: pip install pyarrow",
                      69) from None
    pa.set_memory_pool(pa.system_memory_pool())  # keeps the memory of small batches


# ---- Files ----

def use_of(name):
    """Returns train, validation or test, by the words of a file's path, as train_lm --data does."""
    words = [word.lower() for word in re.findall("[A-Za-z\x80-\U0010ffff]+", name)]
    if any(word in ("val", "valid", "validation", "dev") for word in words):
        return "validation"
    return "test" if "test" in words else "train"


def files_in(folder, split, notes):
    """Files of a folder, sorted by name, that have one kind and are of one split."""
    found = {}
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            plain = re.sub(r"\.(gz|zst)$", "", name.lower())
            kind = ENDINGS.get(os.path.splitext(plain)[1])
            if kind is None or name.startswith("."):
                continue
            if re.fullmatch(r"cache-.*\.arrow", name):
                notes.add("left out: {} cached results of datasets.map (cache-*.arrow)")
            else:
                found.setdefault(kind, []).append(os.path.join(parent, name))
    if len(found) > 1:
        found.pop("JSON", None)  # descriptions of the data set, such as dataset_info.json
    if len(found) != 1:
        kinds = " and ".join(sorted(found)) or "none"
        raise Refused(f"{folder}: expected files of one kind (Parquet or Arrow; tar; JSON), found "
                      f"{kinds}; name the files")
    (paths,) = found.values()
    uses = {}
    for path in sorted(paths):
        uses.setdefault(use_of(os.path.relpath(path, folder)), []).append(path)
    counts = ", ".join(f"{len(some)} of {use}" for use, some in sorted(uses.items()))
    if split is None and list(uses) != ["train"]:
        raise Refused(f"{folder}: expected files of one split, found {counts}; use --split train, "
                      "and a second call for the others", 64)
    if split is not None and split not in uses:
        raise Refused(f"{folder}: expected files of {split} by their names, found {counts}", 64)
    return uses[split or "train"]


def missing(path):
    for prefix, command in FETCH:
        if path.startswith(prefix):
            name = "/".join(path[len(prefix):].split("/")[:2])
            return Refused(f"{path}: is an address; fetch it first: {command.format(path, name)}",
                           66)
    return Refused(f"{path}: no such file or folder; a data set of the Hugging Face hub is fetched "
                   "by: hf download OWNER/NAME --repo-type dataset --local-dir DIR", 66)


def open_bytes(path):
    """Opens a file, decompressed, and returns it with its first bytes."""
    file = open(path, "rb")
    if file.peek(2).startswith(b"\x1f\x8b"):
        file = io.BufferedReader(gzip.open(file))
    elif file.peek(4).startswith(b"\x28\xb5\x2f\xfd"):
        need_pyarrow(path)
        file = io.BufferedReader(pa.CompressedInputStream(file, "zstd"))
    return file, file.peek(1024)


# ---- Rows ----

class Notes(dict):
    """Counts of what was left out, for the end."""

    def add(self, text, count=1):
        self[text] = self.get(text, 0) + count

    def describe(self):
        return "".join("; " + text.format(count) for text, count in sorted(self.items())
                       if count)


def rows_at_a_time(rows, size):
    """Returns how many rows to read at a time, of a table of so many rows and bytes. Pieces that
    stay in the processor's cache are converted in two thirds of the time."""
    return max(1, min(ROWS, rows * ROWS_BYTES // max(size, 1)))


def open_table(path, start):
    """Returns the schema, and a function that yields record batches of the named columns."""
    need_pyarrow(path)
    if start.startswith(b"PAR1"):
        file = parquet.ParquetFile(path)
        size = sum(file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups))
        rows = rows_at_a_time(file.metadata.num_rows, size)
        # Its threads would take the tokenizer's cores.
        return file.schema_arrow, lambda names: file.iter_batches(batch_size=rows, columns=names,
                                                                  use_threads=False)
    source = pa.memory_map(path)
    is_stream = not start.startswith(b"ARROW1")
    file = pa.ipc.open_stream(source) if is_stream else pa.ipc.open_file(source)

    def read(names):
        for batch in (file if is_stream else
                      map(file.get_batch, range(file.num_record_batches))):
            rows = rows_at_a_time(batch.num_rows, batch.nbytes)
            for at in range(0, batch.num_rows, rows):
                yield batch.slice(at, rows).select(names)
        source.seek(max(source.size() - 8, 0))
        # pyarrow treats the end of the file as the end of the stream.
        if is_stream and source.read(8) != b"\xff\xff\xff\xff\0\0\0\0":
            raise Refused(f"{path}: is truncated: expected an end marker of an Arrow stream")

    return file.schema, read


def find_column(path, schema, column):
    """Returns a column's name, "a" of "a.b", the fields below it, and its type."""
    name, *fields = [column] if column in schema.names else column.split(".")
    kind = schema.field(name).type if name in schema.names else None
    for field in fields:
        is_there = kind and pa.types.is_struct(kind) and kind.get_field_index(field) >= 0
        kind = kind.field(field).type if is_there else None
    if kind is None:
        found = ", ".join(f"{name} ({kind})" for name, kind in zip(schema.names, schema.types))
        raise Refused(f"{path}: expected the column '{column}', found {found[:300]}", 64)
    return name, fields, kind


def rows_of_json(path, file, start):
    """Yields (place, object) of an array of objects, or of lines."""
    if start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        text = file.read().decode("utf-8-sig")
        decoder, space = json.JSONDecoder(), re.compile(r"\s*")
        at = space.match(text).end() + 1
        for number in range(1 << 62):
            at = space.match(text, at).end()
            if text[at:at + 1] == "]" and not text[at + 1:].strip():
                return
            if number > 0:
                if text[at:at + 1] != ",":
                    raise Refused(f"{path}: expected ',' or ']' after item {number}, at character "
                                  f"{at}")
                at = space.match(text, at + 1).end()
            row, at = decoder.raw_decode(text, at)
            yield f"{path}: item {number + 1}", row
    for number, line in enumerate(io.TextIOWrapper(file, "utf-8-sig", newline="\n"), 1):
        if line.strip():
            try:
                yield f"{path}:{number}", json.loads(line)
            except ValueError as error:
                raise Refused(f"{path}:{number}: not valid JSON: {error}") from None


def samples_of_tar(path, file):
    """Yields (place, {ending: value}) of consecutive members whose names differ only in ending."""
    tar = tarfile.open(fileobj=file, mode="r|")
    key, sample = None, {}
    for member in tar:
        if not member.isfile():
            continue
        folder, name = os.path.split(member.name)
        stem, _, ending = name.partition(".")
        if (folder, stem) != key and sample:
            yield f"{path}: {'/'.join(filter(None, key))}", sample
            sample = {}
        key, ending = (folder, stem), ending.lower()
        if ending in sample:
            raise Refused(f"{path}: two members are called {member.name}")
        decode = {"txt": bytes.decode, "json": json.loads}.get(ending)
        sample[ending] = decode(tar.extractfile(member).read()) if decode else None
    if sample:
        yield f"{path}: {'/'.join(filter(None, key))}", sample
    # For tarfile, the end of the file also ends the archive. A complete archive ends with a block
    # of zeros.
    if tar.fileobj.tell() - tar.offset < tarfile.BLOCKSIZE:
        raise Refused(f"{path}: is truncated: expected a block of zeros at the end of the archive")
    while rest := tar.fileobj.read(1 << 20):
        if rest.strip(b"\0"):
            raise Refused(f"{path}: has data after the archive's end; split it into archives")


# ---- Lines ----

def plain(value):
    """Returns the value without None entries, which Arrow has for all keys of a struct."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()
                if one is not None and one == one}  # NaN differs from itself
    return [plain(one) for one in value] if isinstance(value, list) else value


def from_alpaca(row, place, notes):
    """Converts instruction, input and output, with the system and history of LLaMA-Factory."""
    for key in ("instruction", "output"):
        if not isinstance(row.get(key), str):
            raise Refused(f"{place}: expected a string with the key '{key}', found {str(row)[:80]}")
    question = row["instruction"] + ("\n\n" + row["input"] if row.get("input") else "")
    for key in row.keys() - {"instruction", "input", "output", "system", "history"}:
        notes.add(f"left out: the key '{key}' of {{}} rows")
    messages = [{"role": "system", "content": row["system"]}] if row.get("system") else []
    for asked, answered in [*(row.get("history") or []), (question, row["output"])]:
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
    return {"messages": messages}


def from_sharegpt(row, place, notes):
    """Converts conversations of from and value. The assistant's turns before the first question,
    which begin the later parts of long conversations, are left out, as FastChat does."""
    turns = row.get("conversations")
    if not isinstance(turns, list):
        raise Refused(f"{place}: expected a list with the key 'conversations', found "
                      f"{str(row)[:80]}")
    if row.get("tools"):
        raise Refused(f"{place}: the key 'tools' is not converted; write lines with 'messages'")
    messages = [{"role": "system", "content": row["system"]}] if row.get("system") else []
    for turn in turns:
        role, content = turn.get("from", turn.get("role")), turn.get("value", turn.get("content"))
        if role not in ROLES or not isinstance(content, str):
            raise Refused(f"{place}: found a turn of {role!r}, expected from "
                          f"({', '.join(ROLES)}) and value")
        if ROLES[role] == "assistant" and (not messages or messages[-1]["role"] == "system"):
            notes.add("left out: {} turns of the assistant before the first question")
        else:
            messages.append({"role": ROLES[role], "content": content})
    if not any(message["role"] == "assistant" for message in messages):
        notes.add("left out: {} conversations without an answer")
        return None
    for key in row.keys() - {"conversations", "system", "tools"}:
        notes.add(f"left out: the key '{key}' of {{}} rows")
    return {"messages": messages}


CONVERTERS = {"alpaca": from_alpaca, "sharegpt": from_sharegpt}


def choose(names, path):
    """Returns "text" or "rows": what is written of rows with these keys."""
    has_conversation = any(name in names for name in CONVERSATIONS)
    if has_conversation and "text" in names:
        raise Refused(f"{path}: has 'text' and conversations; use --column text or messages", 64)
    if has_conversation:
        return "rows"
    if "text" in names:
        return "text"
    hint = ("--from sharegpt" if "conversations" in names else
            "--from alpaca" if "instruction" in names and "output" in names else
            "--column NAME (a.b for a field of a column)")
    raise Refused(f"{path}: expected 'text', 'messages', or 'prompt' with 'completion' or "
                  f"'chosen', found {', '.join(names)}; use {hint}", 64)


class Output:
    """Standard output, in large parts."""

    def __init__(self):
        self.parts, self.bytes = [], 0
        try:  # a pipe of 64 KiB would stop the writer more often than needed
            fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, WRITE_BYTES)
        except (AttributeError, OSError):
            pass  # older Python, or no pipe

    def __call__(self, part):
        self.parts.append(part)
        self.bytes += len(part)
        if self.bytes >= WRITE_BYTES:
            self.flush()

    def flush(self):
        rest = memoryview(b"".join(self.parts))
        self.parts, self.bytes = [], 0
        try:
            while rest:
                rest = rest[os.write(1, rest):]
        except OSError as error:
            raise Refused(f"standard output: {error.strerror}", 74) from None


class Lines:
    """Converts the rows of several files to lines."""

    def __init__(self, column, converter, limit, write):
        self.column, self.converter, self.limit, self.write = column, converter, limit, write
        self.encode = json.JSONEncoder(ensure_ascii=False, default=str).encode
        self.count, self.notes = 0, Notes()

    def line(self, value, place):
        try:
            return self.encode(value).encode() + b"\n"
        except UnicodeEncodeError:
            raise Refused(f"{place}: text with an unpaired surrogate, expected Unicode") from None

    def add(self, lines):
        """Writes lines. Returns false at the limit."""
        if self.limit is not None:
            lines = lines[:self.limit - self.count]
        self.count += len(lines)
        self.write(b"".join(lines))
        return self.count != self.limit

    def add_texts(self, texts, place):
        lines = []
        for at, text in enumerate(texts):
            if isinstance(text, str):
                lines.append(self.line({"text": text}, place(at)))
            elif text is None:
                self.notes.add("left out: {} rows without text")
            else:
                raise Refused(f"{place(at)}: expected text, found {type(text).__name__}")
        return self.add(lines)

    def add_strings(self, array, place):
        """Writes an Arrow array of texts as one block, which is faster than text by text."""
        texts = array.drop_null().cast(pa.large_binary()).to_pylist()
        joined = b"\0".join(texts)
        is_rare = joined.count(0) != len(texts) - 1 or joined.translate(None, RARE) != joined
        if is_rare or self.limit is not None:
            return self.add_texts(array.to_pylist(), place)
        for raw, escaped in ESCAPES:
            joined = joined.replace(raw, escaped)
        self.write(b'{"text": "' + joined.replace(b"\0", b'"}\n{"text": "') + b'"}\n')
        self.count += len(texts)
        self.notes.add("left out: {} rows without text", array.null_count)
        return True

    def add_value(self, value, place):
        """Writes the value of --column: a text, or a list of messages."""
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return self.add([self.line({"messages": plain(value)}, place)])
        return self.add_texts([value], lambda at: place)

    def add_row(self, row, place, of_tar=False):
        """Writes a row of JSON: an object."""
        if not isinstance(row, dict):
            raise Refused(f"{place}: expected an object, found {type(row).__name__}")
        if self.converter:
            row = self.converter(plain(row.get("json", {}) if of_tar else row), place, self.notes)
            return True if row is None else self.add([self.line(row, place)])
        if self.column:
            return self.add_value(value_at(row, self.column, place), place)
        if of_tar and "txt" in row:
            return self.add_texts([row["txt"]], lambda at: place)
        if of_tar and "json" in row:
            return self.add_row(row["json"], place)
        if choose(list(row), place) == "text":
            return self.add_texts([row["text"]], lambda at: place)
        return self.add([self.line(plain(row), place)])

    def add_table(self, path, start):
        schema, read = open_table(path, start)
        column = self.column
        if not column and not self.converter and choose(schema.names, path) == "text":
            column = "text"
        name, fields, kind = find_column(path, schema, column) if column else (None, None, None)
        number = 1
        for batch in read([name] if column else schema.names):
            def place(at):
                return f"{path}: row {number + at}"
            if not (self.add_column(batch.column(0), fields, kind, place) if column else
                    all(self.add_row(row, place(at)) for at, row in enumerate(batch.to_pylist()))):
                return False
            number += batch.num_rows
        return True

    def add_column(self, array, fields, kind, place):
        for field in fields:
            array = compute.struct_field(array, field)
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            array = array.cast(pa.large_string())  # older files do not mark bytes as text
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return all(self.add_value(value, place(at))
                       for at, value in enumerate(array.to_pylist()))
        if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
            return self.add_strings(array, place)
        return self.add_texts(array.to_pylist(), place)

    def add_file(self, path):
        file, start = open_bytes(path)
        if start.startswith((b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")):
            return self.add_table(path, start)
        if start[257:262] == b"ustar":
            return all(self.add_row(sample, place, of_tar=True)
                       for place, sample in samples_of_tar(path, file))
        if start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
            return all(self.add_row(row, place) for place, row in rows_of_json(path, file, start))
        raise Refused(f"{path}: expected Parquet, Arrow, tar, or JSON; shale tokenize and train_lm "
                      "read text")


def value_at(row, column, place):
    if column in row:
        return row[column]
    for name in column.split("."):
        if not isinstance(row, dict) or name not in row:
            raise Refused(f"{place}: expected the key '{column}', found {str(row)[:80]}", 64)
        row = row[name]
    return row


def convert(paths, lines, split):
    number = 0
    for path in paths:
        if not os.path.exists(path):
            raise missing(path)
        for file in files_in(path, split, lines.notes) if os.path.isdir(path) else [path]:
            number += 1
            try:
                if not lines.add_file(file):
                    return number
            except (OSError, EOFError, ValueError, NotImplementedError, tarfile.TarError,
                    zlib.error) as error:  # pyarrow raises ValueErrors and others of these
                what = " ".join(str(error).split()) or type(error).__name__
                raise Refused(f"{file}: cannot be read: {what}") from None
    return number


def main():
    parser = argparse.ArgumentParser(prog="python3 -m shale.data", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", metavar="PATH", nargs="+", help="file or folder")
    parser.add_argument("--column", metavar="NAME", help="column with the text or the "
                        "messages; a.b: field b of column a; of tar files: txt, or json.KEY")
    parser.add_argument("--from", dest="converter", choices=CONVERTERS,
                        help="convert conversations of this layout to 'messages'")
    parser.add_argument("--split", choices=("train", "validation", "test"),
                        help="read only files of a folder whose names say so")
    parser.add_argument("--limit", type=int, metavar="N", help="end after N lines")
    try:
        arguments = parser.parse_args()
        if arguments.column and arguments.converter:
            parser.error("--column and --from: use one of them")
        if arguments.limit is not None and arguments.limit < 1:
            parser.error("--limit: expected 1 or more")
    except SystemExit as error:
        sys.exit(64 if error.code else 0)
    # If a reader such as head ends early, this program ends without a message, like cat.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    lines = Lines(arguments.column, CONVERTERS.get(arguments.converter), arguments.limit, Output())
    try:
        lines.write(b'{"shale.data": "begin"}\n')
        files = convert(arguments.paths, lines, arguments.split)
        lines.write(b'{"shale.data": "end", "lines": %d}\n' % lines.count)
        lines.write.flush()
    except Refused as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.code)
    except KeyboardInterrupt:
        os._exit(130)
    print(f"shale.data: {lines.count} lines of {files} files{lines.notes.describe()}",
          file=sys.stderr)


if __name__ == "__main__":
    main()
