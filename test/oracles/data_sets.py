"""What shale.data writes for files of pyarrow, datasets and webdataset, against their own readers.

    python data_sets.py            # prints a checksum of each output, which run.sh compares
    python data_sets.py FOLDER  # writes the files of test/fixtures/data_sets into FOLDER
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zlib

import datasets
import pyarrow
import pyarrow.parquet
import webdataset

MODULE = pathlib.Path(__file__).resolve().parents[2] / "bindings/python/shale/data.py"
TEXTS = ["Sea and sand.", 'Caf\u00e9 \u4e16\u754c "quoted" \\ back\n', "", None,
         "tab\there \U0001f600"]
# Characters that are read by another code path than TEXTS.
RARE = ["zero \0 in it", "bell \a", "feed \f and back \b", "\0"]
CHATS = [{"messages": [{"role": "user", "content": f"some words {i}"},
                       {"role": "assistant", "content": "more words"}], "source": "s"}
         for i in range(6)]
ALPACA = [{"instruction": "Say", "input": "some", "output": "words"},
          {"instruction": "Go", "input": "", "output": "on", "text": "all of it"}]
SHAREGPT = [{"id": "1", "conversations": [{"from": "human", "value": "q"},
                                          {"from": "gpt", "value": "a"}]},
            {"id": "2", "conversations": [{"from": "gpt", "value": "early"},
                                          {"from": "human", "value": "q"},
                                          {"from": "gpt", "value": "a"}]},
            {"id": "3", "conversations": []}]


def write_files():
    """Writes the files that are also fixtures, by the tools that people have them from."""
    table = pyarrow.table({"id": range(5), "text": TEXTS})
    pyarrow.parquet.write_table(table, "text.parquet")
    with pyarrow.OSFile("file.arrow", "wb") as sink:
        with pyarrow.ipc.new_file(sink, table.schema) as out:
            out.write_table(table)
    datasets.Dataset.from_list(CHATS).save_to_disk("chats")
    with webdataset.TarWriter("text.tar") as out:
        for i in range(3):
            out.write({"__key__": f"s{i}", "txt": f"text {i}", "json": {"text": f"json {i}"}})
    with webdataset.TarWriter("json.tar.gz", compress=True) as out:
        for i in range(3):
            out.write({"__key__": f"d/s{i}", "json": {"text": f"json {i}"}})
    for name, rows in (("alpaca.json", ALPACA), ("sharegpt.json", SHAREGPT)):
        pathlib.Path(name).write_text(json.dumps(rows, indent=1) + "\n")


def write_more():
    table = pyarrow.table({"doc": [{"body": {"text": text}, "n": 1} for text in TEXTS],
                           "a.b": pyarrow.array(TEXTS).dictionary_encode(),
                           "bytes": pyarrow.array([t and t.encode() for t in TEXTS]),
                           "turns": [chat["messages"] for chat in CHATS[:5]]})
    pyarrow.parquet.write_table(table, "nested.parquet", compression="zstd", row_group_size=2)
    pyarrow.parquet.write_table(pyarrow.table({"text": RARE}), "rare.parquet")
    os.makedirs("hub/data")
    pathlib.Path("hub/README.md").write_text("# A data set\n")
    parts = pyarrow.table({"text": [f"row {i} " * 50 for i in range(5000)]})
    for i in range(2):
        pyarrow.parquet.write_table(parts.slice(2500 * i, 2500),
                                    f"hub/data/train-0000{i}-of-00002.parquet")
    pyarrow.parquet.write_table(parts.slice(7, 5), "hub/data/validation-00000-of-00001.parquet")
    both = datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": ["a", "b"]}),
                                 "test": datasets.Dataset.from_dict({"text": ["c"]})})
    both.save_to_disk("both")
    mapped = datasets.load_from_disk("both/train").map(lambda row: {"text": row["text"] + "!"})
    # The cache file is in the folder of the data set.
    assert mapped.cache_files[0]["filename"].find("cache-") > 0
    tools = [{"messages": [{"role": "assistant", "content": None, "tool_calls": [
        {"function": {"name": "f", "arguments": {"x": 1}}}]}, {"role": "tool", "content": "2"}]}]
    datasets.Dataset.from_list(tools).to_parquet("tools.parquet")
    pathlib.Path("cut.parquet").write_bytes(pathlib.Path("text.parquet").read_bytes()[:-20])
    arrow = next(pathlib.Path("chats").glob("*.arrow")).read_bytes()
    for name, size in (("cut", -100), ("end", -8)):
        pathlib.Path(f"{name}.arrow").write_bytes(arrow[:size])
    tar = pathlib.Path("text.tar").read_bytes()
    end = tar.rstrip(b"\0")
    pathlib.Path("cut.tar").write_bytes(tar[:(len(end) + 511) // 512 * 512])
    pathlib.Path("two.tar").write_bytes(tar + tar)


def run(*arguments):
    return subprocess.run([sys.executable, MODULE, *arguments], capture_output=True)


def expect(rows, *arguments):
    """The module must write these objects, between its first and last line."""
    got = run(*arguments)
    assert got.returncode == 0, (arguments, got.stderr)
    lines = [json.loads(line) for line in got.stdout.decode().splitlines()]
    assert lines[0] == {"shale.data": "begin"}, arguments
    assert lines[-1] == {"shale.data": "end", "lines": len(rows)}, (arguments, lines[-1])
    assert lines[1:-1] == rows, (arguments, lines[:3])
    print("_".join(arguments).replace(" ", ""), zlib.crc32(got.stdout))


def refuse(code, words, *arguments):
    got = run(*arguments)
    error = got.stderr.decode()
    assert got.returncode == code and words in error, (arguments, got.returncode, error)
    assert len(error.splitlines()) == 1 and b'"end"' not in got.stdout, (arguments, error)
    print("_".join(arguments).replace(" ", ""), code)


def check():
    def text(rows):
        return [{"text": row} for row in rows if row is not None]

    def chats(rows):
        return [{"messages": row["messages"]} for row in rows]
    texts = text(TEXTS)
    expect(texts, "text.parquet")
    expect(texts, "file.arrow")
    expect(text(RARE), "rare.parquet")
    expect(texts[:2], "text.parquet", "--limit", "2")
    for column in ("doc.body.text", "a.b", "bytes"):
        expect(texts, "nested.parquet", "--column", column)
    expect(chats(CHATS[:5]), "nested.parquet", "--column", "turns")
    expect(CHATS, "chats")
    own = datasets.load_dataset("parquet", data_files="hub/data/train-*.parquet", split="train",
                                cache_dir="cache")
    expect(text(own["text"]), "hub", "--split", "train")
    expect(text(own["text"][7:12]), "hub", "--split", "validation")
    expect(text(["a", "b"]), "both/train")
    expect([{"messages": [{"role": "assistant", "tool_calls": [
        {"function": {"name": "f", "arguments": {"x": 1}}}]}, {"role": "tool", "content": "2"}]}],
        "tools.parquet")
    samples = list(webdataset.WebDataset("text.tar", shardshuffle=False).decode())
    expect(text([sample["txt"] for sample in samples]), "text.tar")
    expect(text([sample["json"]["text"] for sample in samples]), "text.tar", "--column",
           "json.text")
    expect(text(["json 0", "json 1", "json 2"]), "json.tar.gz")
    expect([{"messages": [{"role": "user", "content": "Say\n\nsome"},
                          {"role": "assistant", "content": "words"}]},
            {"messages": [{"role": "user", "content": "Go"},
                          {"role": "assistant", "content": "on"}]}],
           "alpaca.json", "--from", "alpaca")
    expect([{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}]
           * 2, "sharegpt.json", "--from", "sharegpt")
    refuse(64, "2 of train, 1 of validation; use --split", "hub")
    refuse(64, "1 of test, 1 of train; use --split", "both")
    refuse(64, "expected the column 'doc.x', found doc (struct", "nested.parquet", "--column",
           "doc.x")
    refuse(64, "use --column NAME", "nested.parquet")
    refuse(65, "cut.parquet: cannot be read", "cut.parquet")
    refuse(65, "cut.arrow: cannot be read", "cut.arrow")
    refuse(65, "end.arrow: is truncated", "end.arrow")
    refuse(65, "cut.tar: ", "cut.tar")
    refuse(65, "two.tar: has data after the archive's end", "two.tar")


def main():
    datasets.disable_progress_bars()
    if len(sys.argv) > 1:
        os.makedirs(sys.argv[1], exist_ok=True)
        os.chdir(sys.argv[1])
        write_files()
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_files()
        write_more()
        check()
        os.chdir("/")


if __name__ == "__main__":
    main()
