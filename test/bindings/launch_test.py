"""Tests train() and spawn(), which start programs and processes from Python, and load()."""

import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import shale

TINY = {"data": __file__, "model": "llama-nano", "layers": 1, "width": 32, "heads": 2,
        "kv_heads": 1, "hidden": 48, "seq_len": 32, "micro_batch": 2, "threads": 1, "lr": 0.01}


def work(i, folder):
    """Work of a rank of spawn()."""
    with shale.init("cpu") as runtime:
        (pathlib.Path(folder) / f"{i}").write_text(
            json.dumps([runtime.rank, runtime.ranks, runtime.sum(i + 1)]))


def spawns(folder):
    shale.spawn(work, (folder,), nprocs=2)


def fails(i):
    with shale.init("cpu"):
        if i == 1:
            raise ValueError("rank one had enough")
        time.sleep(60)


class Folder(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)
        self.addCleanup(self._folder.cleanup)


class Train(Folder):
    def test_a_run_of_two_ranks(self):
        run = shale.train(TINY, steps=12, eval_every=6, ranks=2, out=self.folder / "run",
                          quiet=True)
        rows = run.wait().metrics()
        losses = [row["loss"] for row in rows if "loss" in row]
        self.assertEqual(len(losses), 12)
        self.assertLess(losses[-1], losses[0])
        self.assertEqual(len([row for row in rows if "val_loss" in row]), 2)
        self.assertRegex(repr(run), r"^shale\.Run\(.*run, ended with 0, step 12, loss \d")
        self.assertEqual(json.loads((run.out / "config.json").read_text())["micro_batch"], 2)

    def test_errors_are_those_of_the_program(self):
        with self.assertRaisesRegex(shale.MissingInputError, "nowhere.txt"):
            shale.train(data="nowhere.txt", out=self.folder / "run", quiet=True).wait()
        with self.assertRaisesRegex(shale.ConfigError, "did you mean"):
            shale.train(TINY, micro_bach=3, quiet=True).wait()
        with self.assertRaisesRegex(shale.ArgumentError, "ranks is 0"):
            shale.train(TINY, ranks=0)
        with self.assertRaisesRegex(shale.MissingInputError, "train_gpt: found no such program"):
            shale.train(TINY, program="train_gpt")
        os.environ["PMI_RANK"] = "0"
        self.addCleanup(os.environ.pop, "PMI_RANK")
        with self.assertRaisesRegex(shale.StateError, "a rank already"):
            shale.train(TINY)

    def test_stop_saves(self):
        run = shale.train(TINY, steps=1000000, ranks=2, out=self.folder / "run", quiet=True)
        self.assertIsNone(run.poll())
        while run.poll() is None and len(run.metrics()) < 3:
            time.sleep(0.1)
        run.stop().wait()
        status = json.loads((run.out / "status.json").read_text())
        self.assertEqual((status["state"], run.poll()), ("saved", 75))

    def test_output_is_printed(self):
        code = (f"import shale; shale.train({TINY!r}, steps=2, no_save=True, ranks=2, "
                f"out={str(self.folder / 'run')!r}).wait()")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"step 2/2 100%.* loss ")


class Load(Folder):
    def test_texts_are_those_of_the_tool(self):
        out = self.folder / "run"
        shale.train(TINY, steps=30, out=out, quiet=True).wait()
        model = shale.load(out)
        parts = []
        text = model.generate("import ", 40, temperature=0.5, seed=3, show=parts.append)
        self.assertEqual("".join(parts), text)
        self.assertEqual(text, model.generate("import ", 40, temperature=0.5, seed=3))
        self.assertNotEqual(text, model.generate("import ", 40, temperature=0.5, seed=4))
        tool = pathlib.Path(shale._c._name).resolve().parent.parent / "bin" / "shale"
        said = subprocess.run(
            [tool, "generate", out, "--prompt", "import ", "--tokens", "40", "--temperature", "0.5",
             "--top-k", "50", "--seed", "3"], capture_output=True, text=True, errors="replace")
        self.assertEqual(said.stdout, f"import {text}\n")
        self.assertEqual(repr(model), f"shale.TextModel('{out}')")
        stopped = model.generate("import ", 40, temperature=0.5, seed=3, stop=text[3:5])
        self.assertEqual(stopped, text[:text.index(text[3:5])])

    def test_errors(self):
        with self.assertRaisesRegex(shale.Error, "load: "):
            shale.load(self.folder)
        out = self.folder / "run"
        shale.train(TINY, steps=1, out=out, quiet=True).wait()
        model = shale.load(out)
        for name, value in (("max_tokens", 0), ("temperature", -1), ("top_p", 0), ("top_k", -1)):
            with self.assertRaisesRegex(shale.ArgumentError, name):
                model.generate("a", **{name: value})
        with self.assertRaisesRegex(shale.DataError, "the prompt has 500 tokens"):
            model.generate("a" * 500)
        # A byte-level model has no tokens that mark turns of a conversation.
        with self.assertRaises(shale.DataError):
            model.generate([{"role": "user", "content": "hello"}])
        with self.assertRaises(ZeroDivisionError):
            model.generate("a", show=lambda text: 1 / 0)


class Spawn(Folder):
    def check(self, ranks):
        for i in range(ranks):
            self.assertEqual(json.loads((self.folder / f"{i}").read_text()),
                             [i, ranks, sum(range(1, ranks + 1))])

    def test_processes_are_ranks(self):
        shale.spawn(work, (str(self.folder),), nprocs=3)
        self.check(3)

    def test_in_a_process_of_multiprocessing(self):
        process = multiprocessing.get_context("spawn").Process(
            target=spawns, args=(str(self.folder),))
        process.start()
        process.join()
        self.assertEqual(process.exitcode, 0)
        self.check(2)

    def test_a_rank_that_fails_ends_the_others(self):
        begin = time.monotonic()
        with self.assertRaisesRegex(shale.Error, "rank one had enough"):
            shale.spawn(fails, nprocs=2)
        self.assertLess(time.monotonic() - begin, 50)

    def test_without_join(self):
        run = shale.spawn(fails, nprocs=2, join=False)
        run.stop()
        self.assertIsNotNone(run.poll())
        with self.assertRaisesRegex(shale.StateError, "spawn"):
            run.metrics()

    def test_functions_of_notebooks(self):
        code = (f"import shale\ndef work(i):\n    with shale.init('cpu') as runtime:\n"
                f"        open({str(self.folder)!r} + f'/{{i}}', 'w').write("
                f"f'[{{i}}, 2, {{runtime.sum(i + 1)}}]')\n"
                f"shale.spawn(work, nprocs=2)")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        try:
            import cloudpickle  # noqa: F401
        except ModuleNotFoundError:
            self.assertIn("pip install cloudpickle", done.stderr)
        else:
            self.assertEqual(done.returncode, 0, done.stderr)
            self.check(2)


if __name__ == "__main__":
    unittest.main()
