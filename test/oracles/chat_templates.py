"""Compares published chat templates rendered by transformers and by Shale.

The templates come from the packages below, and from folders that are given as arguments. Each is
rendered with transformers' own environment and with JinjaTemplate, on the conversations of this
file; texts, generation blocks and errors must agree. Differences go to stderr and fail the script.
Prints a line per template with its name and a hash of transformers' results: neither the templates
nor their output is kept.
"""

import datetime
import hashlib
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

from transformers.utils import chat_template_utils

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = [ROOT / "build" / preset / "test/render_templates" for preset in ("release", "dev")]
PACKAGES = {"trl": "1.16.0", "axolotl": "0.19.0", "llama-cpp-python": "0.3.16"}
NOW = 1_700_000_000

SYSTEM = {"role": "system", "content": "You are terse. Don't say \"sorry\" <ever> & never."}
USER = {"role": "user", "content": "  What is 2 + 2?\n"}
ANSWER = {"role": "assistant", "content": "4, of course.\n"}
THOUGHT = {"role": "assistant", "content": "<think>\nTwo and two.\n</think>\n\nFour."}
REASONED = {"role": "assistant", "content": "Four.", "reasoning_content": "Two and two."}
CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"id": "call12345", "type": "function", "function": {
        "name": "weather", "arguments": {"city": "Zürich", "days": 3, "metric": True,
                                         "at": [1.5, None, {"x": "it's"}]}}}]}
TEXT_CALL = {"role": "assistant", "content": "Let me look.", "tool_calls": [
    {"id": "abcdefghi", "type": "function", "function": {
        "name": "weather", "arguments": '{"city": "Bern"}'}}]}
RESULT = {"role": "tool", "name": "weather", "tool_call_id": "call12345",
          "content": '{"temperature": 21.5, "sky": "clear"}'}
PARTS = {"role": "user", "content": [{"type": "text", "text": "See "}, {"type": "image"},
                                     {"type": "text", "text": "this."}]}
UNICODE = {"role": "user", "content": "\u00a0Grüße, 世界 🌍 \u2028 e\u0301\u3000"}
TOOLS = [
    {"type": "function", "function": {
        "name": "weather", "description": "The weather of a 'city' & <more>.",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "Its name"},
            "days": {"type": "integer", "default": 1, "enum": [1, 2, 3]},
            "at": {"type": "array", "items": {"type": "number"}},
            "style": {"type": "object", "properties": {"unit": {"type": "string"}}}}},
        "return": {"type": "string", "description": "A forecast"}}},
    {"type": "function", "function": {
        "name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}}]

CONVERSATIONS = {
    "empty": ([], None),
    "user": ([USER], None),
    "system": ([SYSTEM, USER], None),
    "answer": ([USER, ANSWER], None),
    "turns": ([SYSTEM, USER, ANSWER, UNICODE, THOUGHT, USER], None),
    "thought": ([USER, THOUGHT, UNICODE, REASONED], None),
    "parts": ([PARTS, ANSWER], None),
    "unicode": ([UNICODE, {"role": "assistant", "content": "ÄÖ ß 🎉"}], None),
    "two users": ([USER, USER], None),
    "system only": ([SYSTEM], None),
    "unknown role": ([{"role": "narrator", "content": "Once."}], None),
    "tools": ([SYSTEM, USER], TOOLS),
    "tool call": ([USER, CALL, RESULT, ANSWER], TOOLS),
    "tool calls": ([SYSTEM, USER, TEXT_CALL, RESULT, RESULT, REASONED, USER, CALL, RESULT], TOOLS),
    "tool answer": ([USER, CALL, RESULT], None),
}
SWITCHES = [{}, {"enable_thinking": False}, {"enable_thinking": True, "documents": [
    {"title": "A", "text": "Some text.", "doc_id": 1}]}]


def cases():
    for name, (messages, tools) in CONVERSATIONS.items():
        for prompt in (False, True):
            for switches in SWITCHES:
                yield f"{name}, prompt {prompt}, {switches}", {
                    "messages": messages, "tools": tools, "documents": None,
                    "add_generation_prompt": prompt, "bos_token": "<s>", "eos_token": "</s>",
                    "pad_token": "<pad>", "unk_token": "<unk>", **switches}


def published():
    """Yields the name and text of each template in the packages."""
    with tempfile.TemporaryDirectory() as folder:
        for package, version in PACKAGES.items():
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest",
                            folder, *(["--no-binary", ":all:"] if package != "trl" else []),
                            f"{package}=={version}"], check=True)
        for archive in sorted(pathlib.Path(folder).iterdir()):
            package = archive.name.split("-")[0]
            data = archive.read_bytes()
            if archive.suffix == ".whl":
                files = zipfile.ZipFile(io.BytesIO(data))
                members = {name: files.read(name) for name in files.namelist()
                           if name.endswith(".jinja")}
            else:
                files = tarfile.open(fileobj=io.BytesIO(data))
                members = {m.name: files.extractfile(m).read() for m in files
                           if m.isfile() and m.name.endswith(".jinja")}
            for name in sorted(members):
                if "templates/" in name:
                    yield f"{package}/{pathlib.Path(name).stem}", members[name].decode()


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, tz)


def by_transformers(text, values):
    values = dict(values)
    fixed = [values.pop(key) for key in ("messages", "tools", "documents", "add_generation_prompt")]
    try:
        compiled = chat_template_utils._compile_jinja_template(text)
        rendered, ranges = chat_template_utils._render_with_assistant_indices(
            compiled, *fixed, **values)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"text": rendered, "generations": [list(r) for r in ranges]}


def by_shale(program, templates):
    questions = [json.dumps({"template": text, "now": NOW, "cases": [v for _, v in cases()]})
                 for text in templates]
    answers = subprocess.run([program], input="\n".join(questions) + "\n", check=True,
                             capture_output=True, text=True).stdout.split("\n")[:-1]
    for line in answers:
        results = json.loads(line)
        for result in results:
            if "text" in result:
                data = result["text"].encode()
                result["generations"] = [[len(data[:end].decode()) for end in ends]
                                         for ends in result["generations"]]
        yield results


def main():
    program = next((p for p in PROGRAMS if p.exists()), None)
    if program is None:
        sys.exit(f"no program {PROGRAMS[0]}; build the target render_templates")
    chat_template_utils.datetime = FixedTime
    templates = {} if len(sys.argv) > 1 else dict(published())
    for folder in sys.argv[1:]:
        for path in sorted(pathlib.Path(folder).glob("*.jinja")):
            templates[path.stem] = path.read_text()
    names = [name for name, _ in cases()]
    different = errors = 0
    for (name, text), ours in zip(templates.items(), by_shale(program, templates.values()), strict=True):
        theirs = [by_transformers(text, values) for _, values in cases()]
        for case, a, b in zip(names, theirs, ours, strict=True):
            if a != b and not ("error" in a and "error" in b):
                different += 1
                print(f"{name}: {case}:\n  transformers {a}\n  Shale        {b}", file=sys.stderr)
        kept = [result.get("text") for result in theirs]
        errors += sum(text is None for text in kept)
        digest = hashlib.sha256(json.dumps(kept).encode()).hexdigest()
        print(name, int(digest[:12], 16))
    total = len(templates) * len(names)
    print(f"{len(templates)} templates, {total} renderings, {errors} of them errors, "
          f"{different} different", file=sys.stderr)
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
