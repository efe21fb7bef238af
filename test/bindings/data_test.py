"""shale.data without pyarrow: tars, JSON, conversations, its first and last line, and errors.

test/oracles/data_sets.py has Parquet and Arrow, which need pyarrow.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "test/fixtures/data_sets"


class DataTest(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = pathlib.Path(held.name)
        # pyarrow cannot be imported, and Shale's library is not available.
        (self.folder / "pyarrow.py").write_text("raise ImportError('no module')\n")
        self.environment = dict(os.environ, PYTHONPATH=f"{self.folder}:{ROOT / 'bindings/python'}",
                                SHALE_LIBRARY=str(self.folder / "none.so"))

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def run_data(self, *arguments, **more):
        return subprocess.run([sys.executable, "-m", "shale.data", *map(str, arguments)],
                              env=self.environment, cwd=self.folder, capture_output=True, text=True,
                              **more)

    def lines(self, *arguments):
        done = self.run_data(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(lines[0], {"shale.data": "begin"})
        self.assertEqual(lines[-1], {"shale.data": "end", "lines": len(lines) - 2})
        self.said = done.stderr
        return lines[1:-1]

    def refused(self, code, words, *arguments):
        done = self.run_data(*arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(words, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertNotIn('"end"', done.stdout)

    def test_tars_of_webdataset(self):
        expected = [{"text": f"text {i}"} for i in range(3)]
        self.assertEqual(self.lines(FIXTURES / "text.tar"), expected)
        expected = [{"text": f"json {i}"} for i in range(3)]
        self.assertEqual(self.lines(FIXTURES / "text.tar", "--column", "json.text"), expected)
        self.assertEqual(self.lines(FIXTURES / "json.tar.gz"), expected)
        self.assertEqual(self.lines(FIXTURES / "json.tar.gz", "--limit", 2), expected[:2])

    def test_conversations_of_alpaca(self):
        rows = [{"instruction": "a", "input": "b", "output": "c", "system": "s",
                 "history": [["q", "r"]], "id": 3}]
        (line,) = self.lines("--from", "alpaca", self.write("a.json", json.dumps(rows)))
        self.assertEqual([(turn["role"], turn["content"]) for turn in line["messages"]],
                         [("system", "s"), ("user", "q"), ("assistant", "r"), ("user", "a\n\nb"),
                          ("assistant", "c")])
        self.assertIn("the key 'id' of 1 rows", self.said)
        self.assertEqual(len(self.lines("--from", "alpaca", FIXTURES / "alpaca.json")), 2)
        self.refused(64, "use --from alpaca", FIXTURES / "alpaca.json")
        path = self.write("b.json", '[{"instruction": "a", "output": 3}]')
        self.refused(65, "b.json: item 1: expected a string with the key 'output'", "--from",
                     "alpaca", path)

    def test_conversations_of_sharegpt(self):
        lines = self.lines("--from", "sharegpt", FIXTURES / "sharegpt.json")
        self.assertEqual([[turn["role"] for turn in line["messages"]] for line in lines],
                         [["user", "assistant"]] * 2)
        self.assertIn("1 turns of the assistant before the first question", self.said)
        self.assertIn("1 conversations without an answer", self.said)
        self.refused(64, "use --from sharegpt", FIXTURES / "sharegpt.json")
        self.refused(65, "found a turn of 'moon'", "--from", "sharegpt", self.write(
            "a.jsonl", '{"conversations": [{"from": "moon", "value": "x"}]}\n'))

    def test_rows_are_written_whole_or_by_column(self):
        chat = {"messages": [{"role": "user", "content": "q", "name": None}], "source": "x"}
        path = self.write("a.jsonl", json.dumps(chat) + '\n\n{"prompt": "a", "completion": "b"}\n')
        del chat["messages"][0]["name"]
        self.assertEqual(self.lines(path), [chat, {"prompt": "a", "completion": "b"}])
        path = self.write("b.jsonl", '{"a": {"b": "deep"}, "text": "flat"}\n'
                                     '{"a": {}, "text": null}\n')
        self.assertEqual(self.lines(path), [{"text": "flat"}])
        self.assertIn("1 rows without text", self.said)
        self.refused(64, "b.jsonl:2: expected the key 'a.b'", path, "--column", "a.b")
        self.assertEqual(self.lines(path, "--column", "a.b", "--limit", 1), [{"text": "deep"}])
        path = self.write("c.jsonl", '{"text": 3}')
        self.refused(65, "c.jsonl:1: expected text, found int", path)
        self.refused(64, "has 'text' and conversations", self.write(
            "d.jsonl", '{"text": "a", "messages": []}'))

    def test_a_folder_has_one_kind_and_one_split(self):
        for name in ("data/train-0.jsonl", "data/test-0.jsonl", "README.md", "data/.hidden.jsonl",
                     "dataset_info.json"):
            self.write(f"hub/{name}", f'{{"text": "{name}"}}\n')
        self.refused(64, "hub: expected files of one split, found 1 of test, 1 of train", "hub")
        self.refused(64, "hub: expected files of validation by their names", "hub", "--split",
                     "validation")
        self.assertEqual(self.lines("hub", "--split", "train"), [{"text": "data/train-0.jsonl"}])
        self.write("hub/more.tar", b"")
        self.refused(65, "found JSON lines and tars; name the files", "hub")
        self.write("cache/cache-1.arrow", b"")
        self.refused(65, "found none", "cache")

    def test_what_is_cut_or_missing_is_an_error(self):
        tar = (FIXTURES / "text.tar").read_bytes()
        end = (len(tar.rstrip(b"\0")) + 511) // 512 * 512
        self.refused(65, "cut.tar: ", self.write("cut.tar", tar[:end]))
        self.refused(65, "half.tar: ", self.write("half.tar", tar[:end - 700]))
        path = self.write("two.tar", tar * 2)
        self.refused(65, "two.tar: has data after the archive's end", path)
        self.refused(65, "a.tar.gz: cannot be read", self.write(
            "a.tar.gz", (FIXTURES / "json.tar.gz").read_bytes()[:-20]))
        self.refused(65, "a.jsonl:2: not valid JSON", self.write("a.jsonl", '{"text":"a"}\n{"te'))
        self.refused(65, "a.json: cannot be read", self.write("a.json", '[{"text":"a"},'))
        self.refused(65, "b.json: expected ',' or ']'", self.write("b.json", '[{"text":"a"}] x'))
        self.refused(65, "c.jsonl:1: text with an unpaired surrogate", self.write(
            "c.jsonl", '{"text": "\\ud800"}'))
        self.refused(66, "hf download a/b --repo-type dataset", "hf://datasets/a/b/c.parquet")
        self.refused(66, "aws s3 cp --recursive s3://a/b DIR", "s3://a/b")
        self.refused(66, "none.parquet: no such file", "none.parquet")
        for name in ("text.parquet", "file.arrow"):
            self.refused(69, f"{name} needs pyarrow, which this Python does not have: pip install",
                         FIXTURES / name)

    def test_the_output_may_end_early(self):
        path = self.write("a.jsonl", '{"text": "some words"}\n' * 200000)
        command = [sys.executable, "-m", "shale.data", str(path)]
        with subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            self.assertEqual(process.stdout.readline(), b'{"shale.data": "begin"}\n')
            process.stdout.close()
            self.assertEqual(process.stderr.read(), b"")
            self.assertEqual(process.wait(), -signal.SIGPIPE)
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, env=self.environment, stdout=full,
                                  stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 74)
        self.assertIn(b"standard output: No space left", done.stderr)


if __name__ == "__main__":
    unittest.main()
