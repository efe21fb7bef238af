"""Has work measured in another process, which may crash, hang or lose the GPU.

The worker is the same script with --worker FD. It writes one JSON object a line to that descriptor:

  {"machine": FACTS}   first; then it reads from standard input which rows are there
  {"begin": ROW}       before each other row: its fields but for what is measured
  {"row": ROW}         when it is measured, or has failed with an "error"
  {"end": true}        when nothing is left

A worker that ends before "end", or is silent for too long, costs the row that it had begun, which
gets an error, and another worker goes on behind it. One that ends with exit code 70 asks for
another: its GPU is in no state to go on, or every row is to have a process of its own. What a
rival that has cost two workers might still do is left out.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time

ANOTHER = 70  # exit code
TIME_TO_END_S = 30
MAX_LOST = 2


class Worker:
    """One process and what it writes."""

    def __init__(self, argv):
        self.reader, writer = os.pipe()
        self.buffer = b""
        command = [sys.executable, *argv, "--worker", str(writer)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[writer])
        os.close(writer)

    def give(self, there, dropped):
        """there: the keys of rows that need not be measured; dropped: rivals' names."""
        try:
            with self.process.stdin as stdin:
                stdin.write(json.dumps({"there": there, "dropped": dropped}).encode())
        except BrokenPipeError:
            pass  # it has ended; its exit code tells

    def line(self, time_limit_s):
        """The next object, None when no more will come. Raises TimeoutError after so long."""
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
        """Ends it, at once or after it had so long. Returns its exit code, negative for a
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
    """How many workers each rival has cost."""

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
    """Takes the rows of one worker. Returns the exit code that it ended with; ANOTHER also where
    another one can go on."""
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
    """Has workers run `argv` until nothing is left; what they measure goes to `rows`, a RowsFile.

    time_limit_s is that of one row. Returns 0, or the exit code of a worker that cannot go on.
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
        """Tells what machine this is. Returns the keys of rows that are there, and the rivals that
        are to be left out."""
        self.say(machine=machine)
        told = json.load(sys.stdin)
        return {tuple(key) for key in told["there"]}, set(told["dropped"])
