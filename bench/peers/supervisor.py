"""Runs work in another process, which may crash, hang or lose the GPU.

The worker is the same script with --worker FD. It writes one JSON object per line to that file
descriptor:

  {"machine": FACTS}   first; then it reads the existing rows from standard input
  {"begin": ROW}       before each missing row: its fields without measurements
  {"row": ROW}         when it is measured, or has failed with an "error"
  {"end": true}        when nothing is left

If a worker ends before "end", or is silent for too long, the row that it had begun gets an error,
and another worker continues after it. Exit code 70 requests another worker: its GPU is unusable, or
every row needs its own process. After a rival has cost two workers, its remaining rows are skipped.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time

ANOTHER = 70  # exit code: start another worker
TIME_TO_END_S = 30
MAX_LOST = 2


class Worker:
    """A worker process and its output."""

    def __init__(self, argv):
        self.reader, writer = os.pipe()
        self.buffer = b""
        command = [sys.executable, *argv, "--worker", str(writer)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[writer])
        os.close(writer)

    def give(self, there, dropped):
        """there: keys of the rows that need not be measured; dropped: names of rivals."""
        try:
            with self.process.stdin as stdin:
                stdin.write(json.dumps({"there": there, "dropped": dropped}).encode())
        except BrokenPipeError:
            pass  # the worker has ended; its exit code tells why

    def line(self, time_limit_s):
        """Returns the next object, or None at the end. Raises TimeoutError after time_limit_s."""
        until = time.monotonic() + time_limit_s
        while b"\n" not in self.buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.reader], [], [], left)[0]:
                raise TimeoutError
            got = os.read(self.reader, 1 << 16)
            if not got:
                return None
            self.buffer += got
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def close(self, time_to_end_s=0):
        """Terminates it, immediately or after time_to_end_s. Returns its exit code, negative for a
        signal."""
        try:
            return self.process.wait(time_to_end_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def how_it_ended(code):
    if code < 0:
        return f"the process was ended by {signal.Signals(-code).name}"
    return f"the process ended with exit code {code}"


class Losses:
    """Number of workers lost by each rival."""

    def __init__(self):
        self.count = {}

    def add(self, row, how):
        """Returns the row with its error."""
        impl = row.get("impl", "")
        self.count[impl] = self.count.get(impl, 0) + 1
        left_out = "; its other cases are left out" if impl in self.dropped() else ""
        return {**row, "error": how + left_out}

    def dropped(self):
        return [impl for impl, count in self.count.items() if count >= MAX_LOST]


def run_one(worker, rows, resume, time_limit_s, losses):
    """Receives the rows of one worker. Returns its exit code, or ANOTHER if another worker can
    continue."""
    begun = None
    while True:
        try:
            line = worker.line(time_limit_s)
        except TimeoutError:
            worker.close()
            if begun is None:
                print(f"error: a worker was silent for {time_limit_s:g} s", file=sys.stderr)
                return 1
            rows.add(losses.add(begun, f"not done within {time_limit_s:g} s"))
            return ANOTHER
        if line is None:
            code = worker.close(TIME_TO_END_S)
            if begun is None:
                return code
            rows.add(losses.add(begun, how_it_ended(code)))
            return ANOTHER
        if "machine" in line:
            if not rows.document["machine"]:
                rows.begin(line["machine"], resume)
            worker.give([rows.key_of(row) for row in rows.rows], losses.dropped())
        begun = line.get("begin")
        if "row" in line:
            rows.add(line["row"])
        if "end" in line:
            rows.finish()
            return 0


def supervise(argv, rows, resume, time_limit_s):
    """Runs workers with `argv` until nothing is left; their measurements go to `rows`, a RowsFile.

    time_limit_s is per row. Returns 0, or the exit code of a worker that cannot continue.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    losses = Losses()
    while True:
        before = len(rows.rows)
        worker = Worker(argv)
        try:
            code = run_one(worker, rows, resume, time_limit_s, losses)
        finally:
            worker.close()
            os.close(worker.reader)
        if code != ANOTHER:
            return code
        if len(rows.rows) == before:
            print("error: a worker ended without a new row", file=sys.stderr)
            return 1


class Reporter:
    """The worker's side."""

    def __init__(self, descriptor):
        self.pipe = os.fdopen(descriptor, "w", buffering=1)

    def say(self, **fields):
        self.pipe.write(json.dumps(fields) + "\n")

    def done_before(self, machine):
        """Reports the machine. Returns the keys of existing rows, and the rivals to skip."""
        self.say(machine=machine)
        told = json.load(sys.stdin)
        return {tuple(key) for key in told["there"]}, set(told["dropped"])
