"""The runtime of a process: its rank, device and end."""

import atexit
import ctypes
import os
import sys
import traceback

from . import _library
from ._library import call

_current = None


class Runtime:
    """Joins the ranks that mpirun or srun started, or is a single rank without them.

    device: "auto", "cpu", "cuda", "emu", "emu:80" and others. device_memory: limit in bytes, 0:
    none. timeout_s: seconds a rank may be silent. comm: a communicator of mpi4py, or its py2f();
    default, if MPI is already initialized: MPI_COMM_WORLD. Only one runtime can exist at a time; it
    ends with close(), at the end of its `with` block, or at exit. An exception that leaves the
    block makes other ranks stop waiting for this one.
    """

    def __init__(self, device=None, *, device_memory=0, threads=0, deterministic=False, seed=0,
                 timeout_s=0.0, comm=None):
        global _current
        options = _library.options(
            _library.RuntimeOptions, device=device.encode() if device else None,
            device_memory=device_memory, threads=threads, deterministic=int(deterministic),
            seed=seed, timeout_s=timeout_s, has_communicator=int(comm is not None))
        if comm is not None:
            options.communicator = comm.py2f() if hasattr(comm, "py2f") else int(comm)
        # True if the program initialized MPI itself. It then continues after an exception.
        self._guest = _mpi_runs()
        self._handle = _library.result("runtime_create", ctypes.byref(options))
        numbers = [ctypes.c_int32() for _ in range(4)]
        call("runtime_rank", self._handle, *map(ctypes.byref, numbers))
        #: Rank and number of ranks: of the whole job, and on this machine.
        self.rank, self.ranks, self.local_rank, self.local_ranks = (n.value for n in numbers)
        self._process = os.getpid()
        # _dropouts: how many dropouts without a site have run since the step or the sample changed.
        self._dropouts, self._place = 0, {}
        _current = self
        _watch_exceptions()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is None or self.ranks == 1 or self._handle is None:
            return self.close()
        traceback.print_exception(kind, error, trace)
        code = self.fail(error)
        self.close()
        if not self._guest:
            raise SystemExit(code) from None

    @property
    def device(self):
        """Name of the device: "cpu", "cuda:1"."""
        text = ctypes.create_string_buffer(64)
        call("runtime_device", self._handle, text, len(text))
        return text.value.decode()

    @property
    def supports_bf16(self):
        """True if the device computes in bfloat16: all CPUs, and GPUs of compute capability 8.0 or
        later."""
        out = ctypes.c_int32()
        call("runtime_supports_bf16", self._handle, ctypes.byref(out))
        return out.value != 0

    def set_sample(self, first):
        """Sets the index of the next forward's first sample, among all samples of a step over
        all ranks. Dropout masks depend on it, and so not on the number of ranks and
        micro-batches. Until the first call, each rank has its own masks, which change
        after each backward."""
        call("runtime_set_sample", self._handle, first)
        self.begin_sites(sample=first)

    def begin_sites(self, **place):
        """Restarts the numbering of dropouts if the step or the sample has changed."""
        if {**self._place, **place} != self._place:
            self._dropouts = 0
            self._place.update(place)

    def next_site(self):
        """Returns a site for a dropout without one, from a range that models do not use."""
        self._dropouts += 1
        return (1 << 31) + self._dropouts - 1

    def barrier(self):
        """Waits until all ranks have called it. Collective."""
        call("runtime_barrier", self._handle)

    def sum(self, value):
        """Returns the sum of the ranks' values. Collective."""
        out = ctypes.c_double()
        call("runtime_sum", self._handle, value, ctypes.byref(out))
        return out.value

    def usage(self):
        """Returns bytes: allocated, peak_allocated, reserved, peak_reserved, sent."""
        info = _library.options(_library.RuntimeUsage)
        call("runtime_usage", self._handle, ctypes.byref(info))
        return {name: getattr(info, name) for name, _ in info._fields_[1:]}

    def fail(self, error):
        """Reports that this rank cannot continue. Ends the job, unless all ranks failed or MPI
        belongs to the program; then returns the exit code."""
        code = ctypes.c_int32()
        message = f"{type(error).__name__}: {error}".encode()
        call("runtime_fail", self._handle, getattr(error, "status", 70), message,
             ctypes.byref(code))
        return code.value

    def close(self):
        """Destroys the runtime, and with it all tensors, modules and optimizers. Collective."""
        global _current
        if self._handle is None:
            return
        call("runtime_destroy", self._handle)
        self._handle = _current = None


def _mpi_runs():
    flag = ctypes.c_int()
    _library.mpi.MPI_Initialized(ctypes.byref(flag))  # asks the MPI library that Shale uses
    return flag.value != 0


def init(device=None, **options):
    """Makes the runtime; see Runtime."""
    return Runtime(device, **options)


def runtime():
    """Returns the current runtime. Raises StateError if there is none."""
    if _current is None:
        raise _library.StateError("there is no runtime; call shale.init() first")
    return _current


def handle():
    """Returns the current runtime's handle."""
    return runtime()._handle


def is_ours():
    """Returns true if this process has a runtime of its own, not one of the process it was forked
    from."""
    return _current is not None and _current._process == os.getpid()


_uncaught = None
_watching = False


def _watch_exceptions():
    global _watching
    if _watching:
        return
    _watching = True
    before = sys.excepthook

    def note(kind, error, trace):
        global _uncaught
        _uncaught = error
        before(kind, error, trace)

    sys.excepthook = note


@atexit.register
def _at_exit():
    if not is_ours():
        return
    if _uncaught is not None and _current.ranks > 1:
        _current.fail(_uncaught)
    _current.close()
