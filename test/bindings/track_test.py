"""Tests shale.track with stand-ins for the clients of MLflow and Weights & Biases.

The stand-in of MLflow refuses what mlflow/utils/validation.py of MLflow 3.17 refuses: batches of more
than 1000 metrics or 100 params, values of params longer than 6000 bytes, a param that changes.
"""

import importlib.util
import io
import json
import os
import pathlib
import contextlib
import sys
import tempfile
import types
import unittest

SOURCE = pathlib.Path(os.environ["PYTHONPATH"]) / "shale" / "track.py"


class Entity:
    def __init__(self, key, value, timestamp=0, step=0):
        self.key, self.value, self.timestamp, self.step = key, value, timestamp, step


class MlflowClient:
    runs = {}

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name):
        return "1"

    def create_run(self, experiment_id, start_time, run_name):
        run_id = f"run{len(self.runs)}"
        self.runs[run_id] = types.SimpleNamespace(name=run_name, status="RUNNING", params={},
                                                  metrics=[], batches=0)
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=run_id))

    def update_run(self, run_id, status):
        self.runs[run_id].status = status

    def log_batch(self, run_id, metrics=(), params=()):
        assert len(metrics) <= 1000 and len(params) <= 100
        run = self.runs[run_id]
        run.batches += 1
        run.metrics += metrics
        for param in params:
            assert len(param.value) <= 6000 and param.key not in run.params
            run.params[param.key] = param.value

    def set_terminated(self, run_id, status):
        self.runs[run_id].status = status


class WandbRun:
    def __init__(self, run_id):
        self.id, self.rows, self.exit_code = run_id or "w0", [], None

    def log(self, row, step):
        assert not self.rows or step >= self.rows[-1][0]  # wandb drops rows of earlier steps
        self.rows.append((step, row))

    def finish(self, exit_code):
        self.exit_code = exit_code


class TrackTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.folder.name) / "out"
        self.out.mkdir()
        MlflowClient.runs = {}
        self.wandb_runs = []

        def init(project, name, id, resume, config):
            self.wandb_runs.append(WandbRun(id))
            return self.wandb_runs[-1]

        sys.modules["mlflow"] = types.SimpleNamespace(
            MlflowClient=MlflowClient, entities=types.SimpleNamespace(Metric=Entity, Param=Entity))
        sys.modules["wandb"] = types.SimpleNamespace(init=init)
        spec = importlib.util.spec_from_file_location("track", SOURCE)
        self.track = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.track)
        self.track.POLL_S = 0

    def tearDown(self):
        self.folder.cleanup()

    def write(self, steps, state, tail=""):
        rows = [{"step": step, "loss": 5 - step / 100, "loss_bits": "40a0", "mfu": None,
                 "step_ms": 10.0} for step in steps]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (self.out / "metrics.jsonl").write_text(text + tail)
        (self.out / "status.json").write_text(json.dumps({"state": state}))
        (self.out / "config.json").write_text(json.dumps(
            {f"option_{i}": "x" * 7000 for i in range(230)}))

    def run_track(self, *flags):
        sys.argv = ["track", str(self.out), *flags]
        with contextlib.redirect_stdout(io.StringIO()) as text:
            self.track.main()
        return text.getvalue()

    def refused(self, *flags):
        with self.assertRaises(SystemExit) as raised:
            self.run_track(*flags)
        return str(raised.exception)

    def test_mlflow_gets_each_row_once_in_batches(self):
        self.write(range(1, 801), "done")
        self.assertIn("sent 800 rows", self.run_track("--mlflow"))
        run = MlflowClient.runs["run0"]
        self.assertEqual((run.status, len(run.params), len(run.metrics)), ("FINISHED", 230, 1600))
        self.assertEqual(run.metrics[-1].timestamp - run.metrics[0].timestamp, 7990)
        self.assertEqual({metric.key for metric in run.metrics}, {"loss", "step_ms"})
        self.assertIn("sent 0 rows", self.run_track("--mlflow"))

    def test_a_resumed_run_sends_new_rows_alone(self):
        self.write([1, 2, 2, 3, 4], "failed")  # step 2 also has a validation row
        self.run_track("--mlflow")
        self.assertEqual(MlflowClient.runs["run0"].status, "FAILED")
        # The run was resumed from its checkpoint.
        self.write([1, 2, 2, 3, 4, 5], "running", tail='{"step": 6, "lo')
        self.assertIn("sent 1 rows", self.run_track("--mlflow", "--once"))
        run = MlflowClient.runs["run0"]
        self.assertEqual((len(MlflowClient.runs), run.status), (1, "RUNNING"))
        self.assertEqual([metric.step for metric in run.metrics if metric.key == "loss"],
                         [1, 2, 2, 3, 4, 5])

    def test_wandb(self):
        self.write([1, 2], "running")
        self.run_track("--wandb", "--once")
        self.write([1, 2, 3], "saved")
        self.run_track("--wandb")
        first, second = self.wandb_runs
        self.assertEqual([step for step, row in first.rows + second.rows], [1, 2, 3])
        self.assertEqual((second.id, second.exit_code), ("w0", 0))

    def test_wrong_input(self):
        self.assertIn("found no metrics.jsonl", self.refused("--mlflow"))
        self.write([1], "done", tail='{"loss": 1}\n')
        self.assertIn("metrics.jsonl:2: expected an object with the number 'step'",
                      self.refused("--mlflow"))
        self.write([1], "done")
        sys.modules["wandb"] = None
        self.assertIn("pip install wandb", self.refused("--wandb"))


unittest.main()
