"""Sends a run's metrics to MLflow or Weights & Biases, with the installed Python client.

    python3 -m shale.track OUT --mlflow [--experiment NAME]
    python3 -m shale.track OUT --wandb [--experiment PROJECT]

Follows OUT/metrics.jsonl until the run ends; with --once it sends the existing rows and returns.
The client's own configuration sets server and account (MLFLOW_TRACKING_URI, WANDB_API_KEY, ...).
OUT/track.json stores which tracked run and which rows were sent, so that a second call, also after
the run was resumed, sends only new rows.
"""

import argparse
import json
import os
import pathlib
import sys
import time

POLL_S = 2.0
# Limits of one MLflow request: mlflow/utils/validation.py, MAX_METRICS_PER_BATCH and so on.
MOST_METRICS, MOST_PARAMS, LONGEST_PARAM = 1000, 100, 6000


class MlflowTracker:
    """A run of MLflow. Rows have no time, so it is the start plus the times of the steps so far."""

    def __init__(self, state, experiment, name, options):
        import mlflow
        self._entities = mlflow.entities
        self._client = mlflow.MlflowClient()
        if "id" in state:
            self._client.update_run(state["id"], status="RUNNING")
        else:
            found = self._client.get_experiment_by_name(experiment)
            experiment_id = (found.experiment_id if found is not None
                             else self._client.create_experiment(experiment))
            state["start_ms"] = int(time.time() * 1000)
            run = self._client.create_run(experiment_id, start_time=state["start_ms"],
                                          run_name=name)
            state["id"] = run.info.run_id
            params = [self._entities.Param(key, str(value)[:LONGEST_PARAM])
                      for key, value in options.items()]
            for at in range(0, len(params), MOST_PARAMS):
                self._client.log_batch(state["id"], params=params[at:at + MOST_PARAMS])
        self._id, self._start_ms = state["id"], state["start_ms"]
        self._metrics = []

    def add(self, row, passed_ms):
        metrics = [self._entities.Metric(key, float(value), self._start_ms + int(passed_ms),
                                         row["step"]) for key, value in numbers(row).items()]
        if len(self._metrics) + len(metrics) > MOST_METRICS:
            self.flush()
        self._metrics += metrics

    def flush(self):
        if self._metrics:
            self._client.log_batch(self._id, metrics=self._metrics)
        self._metrics = []

    def end(self, state):
        status = {"done": "FINISHED", "saved": "KILLED", "failed": "FAILED"}.get(state)
        if status is not None:
            self._client.set_terminated(self._id, status)


class WandbTracker:
    """A run of Weights & Biases."""

    def __init__(self, state, experiment, name, options):
        import wandb
        self._run = wandb.init(project=experiment, name=name, id=state.get("id"), resume="allow",
                               config=options)
        state["id"] = self._run.id

    def add(self, row, passed_ms):
        self._run.log(numbers(row), step=row["step"])

    def flush(self):
        pass  # the client sends in the background; finish() waits for it

    def end(self, state):
        self._run.finish(exit_code=1 if state == "failed" else 0)


def numbers(row):
    """Returns the numbers of a row of metrics.jsonl, without its step."""
    return {key: value for key, value in row.items()
            if key != "step" and isinstance(value, (int, float)) and not isinstance(value, bool)}


def read_json(path):
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return {}


def new_rows(path, state):
    """Returns rows that were not sent, with the total milliseconds of the steps up to each. Stores
    in `state` the last step and how many of its rows were sent, because a resumed run writes the
    rows after its checkpoint again. Leaves an incomplete last line for the next call."""
    rows, passed_ms, step, of_step = [], 0.0, -1, 0
    with open(path) as file:
        for number, line in enumerate(file, 1):
            if not line.endswith("\n"):
                break
            try:
                row = json.loads(line)
                of_step = of_step + 1 if row["step"] == step else 1
                step = row["step"]
                passed_ms += row.get("step_ms") or 0
            except (ValueError, KeyError, TypeError):
                sys.exit(f"error: {path}:{number}: expected an object with the number 'step'")
            if (step, of_step) > (state.get("step", -1), state.get("of_step", 0)):
                rows.append((row, passed_ms))
                state["step"], state["of_step"] = step, of_step
    return rows


def track(out, kind, experiment, once):
    state_path = out / "track.json"
    states = read_json(state_path)
    state = states.setdefault(kind, {})
    make = {"mlflow": MlflowTracker, "wandb": WandbTracker}[kind]
    tracker = make(state, experiment, out.resolve().name, read_json(out / "config.json"))
    sent = 0
    while True:
        # read it before the rows, so that no row is missed
        ended = read_json(out / "status.json").get("state", "running")
        rows = new_rows(out / "metrics.jsonl", state)
        for row, passed_ms in rows:
            tracker.add(row, passed_ms)
        tracker.flush()
        sent += len(rows)
        part = state_path.with_suffix(".part")
        part.write_text(json.dumps(states, indent=2) + "\n")
        os.replace(part, state_path)
        if once or ended != "running":
            break
        time.sleep(POLL_S)
    tracker.end(ended)
    print(f"sent {sent} rows to {kind} run {state['id']}; the run is {ended}")


def main():
    parser = argparse.ArgumentParser(prog="python3 -m shale.track", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="folder of a run (--out)")
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--mlflow", dest="kind", action="store_const", const="mlflow")
    kind.add_argument("--wandb", dest="kind", action="store_const", const="wandb")
    parser.add_argument("--experiment", default="shale",
                        help="experiment of MLflow, project of W&B (default: %(default)s)")
    parser.add_argument("--once", action="store_true", help="send the existing rows and return")
    arguments = parser.parse_args()
    if not (arguments.out / "metrics.jsonl").is_file():
        sys.exit(f"error: {arguments.out}: expected the folder of a run, found no metrics.jsonl")
    try:
        track(arguments.out, arguments.kind, arguments.experiment, arguments.once)
    except ModuleNotFoundError as error:
        sys.exit(f"error: Python has no module '{error.name}': pip install {error.name}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
