"""Starts ranks from a script or a notebook: train() the training programs, spawn() a function."""

import atexit
import collections
import json
import multiprocessing.spawn
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

from . import _library

#: Variables in which mpirun of Open MPI and of MPICH tells a process its rank.
RANK = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")
_STOP_S = 60.0  # seconds after SIGUSR1 until the ranks are killed
_KEPT_LINES = 20
_runs = set()


def _program(name):
    """Returns the path of a program: of the wheel, beside the library, or on PATH."""
    library = pathlib.Path(_library.library._name)
    for folder in (pathlib.Path(sys.prefix, "bin"), library.resolve().parent.parent / "bin"):
        if (folder / name).is_file():
            return str(folder / name)
    found = shutil.which(name)
    if found is None:
        raise _library.MissingInputError(
            f"{name}: found no such program in {sys.prefix}/bin, beside {library} or on PATH; "
            "install the wheel, or build it")
    return found


def _flags(options):
    """Converts options to flags: {"micro_batch": 8} to ["--micro-batch=8"]. None: left out."""
    flags = []
    for name, value in options.items():
        if value is None:
            continue
        if isinstance(value, (list, tuple)):
            value = ",".join(map(str, value))
        elif isinstance(value, bool):
            value = "true" if value else "false"
        flags.append(f"--{name.replace('_', '-')}={value}")
    return flags


def _ranks_command(ranks, command):
    """Returns the command that runs another on several ranks of this host."""
    if ranks < 1:
        raise _library.ArgumentError(f"ranks is {ranks}, expected 1 or more")
    if any(name in os.environ for name in RANK):
        raise _library.StateError("this process is a rank already: call train() and spawn() in a "
                                  "process that mpirun has not started")
    if ranks == 1:
        return command
    if shutil.which("mpirun") is None:
        raise _library.UnavailableError("found no mpirun on PATH: install Open MPI or MPICH")
    mpirun = ["mpirun", "-np", str(ranks)]
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    if "Open MPI" in version:
        mpirun += ["--bind-to", "none"]
        if ranks > len(os.sched_getaffinity(0)):
            mpirun.append("--oversubscribe")
        if os.geteuid() == 0:  # root runs this in containers and hosted notebooks
            mpirun.append("--allow-run-as-root")
    return mpirun + command


def _environment():
    """Returns the environment of the new processes, which find this module as this process does."""
    places = [str(pathlib.Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}


class Run:
    """Ranks that run in the background. Their output is printed here while they run, in a notebook
    below the cell that started them. Ends them at this process's exit."""

    def __init__(self, command, out=None, quiet=False, remove=None):
        #: Folder of a training run; None for spawn().
        self.out = out
        self._remove, self._stopped = remove, False
        self._lines = collections.deque(maxlen=_KEPT_LINES)
        # In a new session, so that an interrupt of the notebook reaches only wait(), not the ranks.
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=_environment(), start_new_session=True, text=True, errors="replace")
        self._reader = threading.Thread(target=self._read, args=(quiet,), daemon=True)
        self._reader.start()
        _runs.add(self)

    def _read(self, quiet):
        with self._process.stdout as lines:
            for line in lines:
                self._lines.append(line.rstrip("\n"))
                if not quiet:
                    print(line, end="", flush=True)

    def __repr__(self):
        code = self.poll()
        state = "running" if code is None else f"ended with {code}"
        rows = self.metrics() if self.out is not None else []
        last = next((row for row in reversed(rows) if "loss" in row), None)
        at = f", step {last['step']}, loss {last['loss']:.4f}" if last and last["loss"] else ""
        return f"shale.Run({'' if self.out is None else str(self.out) + ', '}{state}{at})"

    def poll(self):
        """Returns the exit code; None while the ranks run."""
        return self._process.poll()

    def wait(self):
        """Waits for the end and returns this run. If the ranks failed, raises the exception of the
        exit code, with the last lines of output; not after stop(). An interrupt stops the ranks."""
        try:
            code = self._process.wait()
        except KeyboardInterrupt:
            self.stop()
            raise
        self._end()
        if code != 0 and not self._stopped:
            kind = _library._ERRORS.get(code, _library.Error)
            error = kind(f"the ranks ended with code {code}:\n" + "\n".join(self._lines))
            error.status = code
            raise error
        return self

    def stop(self):
        """Asks the ranks to save a checkpoint and end, and waits for their end. Kills a process
        that runs for another minute. Ranks of spawn() end at once. Returns this run."""
        self._stopped = True
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGUSR1 if self.out is not None else signal.SIGTERM)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._end()
        return self

    def metrics(self):
        """Returns the rows of OUT/metrics.jsonl so far, as dictionaries
        (docs/reference/metrics.md)."""
        if self.out is None:
            raise _library.StateError("metrics: found ranks of spawn(), expected a run of train()")
        try:
            text = (self.out / "metrics.jsonl").read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines(True) if line.endswith("\n")]

    def _end(self):
        self._reader.join()
        _runs.discard(self)
        if self._remove is not None:
            shutil.rmtree(self._remove, ignore_errors=True)


@atexit.register
def _stop_all():
    for run in list(_runs):
        run.stop()


def train(options=None, *, ranks=1, program="train_lm", quiet=False, **more):
    """Starts a training program on ranks of this host and returns its Run at once.

        run = shale.train(data="my.txt", model="llama-nano", steps=100, ranks=2)
        run.wait().metrics()[-1]

    options, more: the program's flags, with '_' for '-' (docs/reference/flags.md). ranks: number of
    processes; with 1, mpirun is not needed. quiet: do not print the output."""
    options = {**(options or {}), **more}
    options.setdefault("out", "out")
    command = _ranks_command(ranks, [_program(program), *_flags(options)])
    return Run(command, out=pathlib.Path(options["out"]), quiet=quiet)


def spawn(function, args=(), nprocs=1, join=True):
    """Runs function(i, *args) in nprocs new Python processes, which are the ranks 0 to nprocs - 1
    of one MPI job: each calls shale.init(). Takes the arguments of torch.multiprocessing.spawn.
    Returns None when all have ended, or at once a Run if join is False.

    As with multiprocessing's "spawn", the function must be importable: defined in a module, or in
    a script that calls spawn() below `if __name__ == "__main__":`. A function that is defined in a
    notebook needs the package cloudpickle."""
    folder = tempfile.mkdtemp(prefix="shale-spawn-")
    try:
        with open(os.path.join(folder, "job"), "wb") as file:
            _dump(function, args, file)
        run = Run(_ranks_command(nprocs, [sys.executable, "-m", "shale._spawned", file.name]),
                  remove=folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if not join:
        return run
    run.wait()


def _dump(function, args, file):
    """Writes the file that shale._spawned reads: how to prepare the process, and the call."""
    preparation = multiprocessing.spawn.get_preparation_data("shale.spawn")
    preparation.pop("authkey", None)  # must not be written to files
    pickle.dump(preparation, file)
    in_notebook = (getattr(function, "__module__", None) == "__main__" and
                   not hasattr(sys.modules["__main__"], "__file__"))
    if not in_notebook:
        return pickle.dump((function, args), file)
    try:
        import cloudpickle
    except ModuleNotFoundError:
        raise _library.ArgumentError(
            f"spawn: {function.__qualname__} is defined in a notebook, where new processes cannot "
            "import it: write it to a file (%%writefile work.py) and import it, or pip install "
            "cloudpickle") from None
    return cloudpickle.dump((function, args), file)
