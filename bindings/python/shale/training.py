"""Optimizers, checkpoints, metrics."""

import ctypes
import json

from . import _library, _runtime
from ._library import call, result


class Optimizer:
    """Optimizer of all parameters of a sharded model: "adamw", "adamw-bf16", "adamw-8bit", "lion",
    "adafactor", "sgd", "muon" or "lamb"."""

    def __init__(self, model, kind="adamw", *, beta1=-1, beta2=-1, eps=-1, weight_decay=-1,
                 momentum=-1):
        options = _library.options(_library.OptimizerOptions, beta1=beta1, beta2=beta2, eps=eps,
                                   weight_decay=weight_decay, momentum=momentum)
        self._handle = result("optimizer_create", model, kind.encode(), ctypes.byref(options),
                              shown="Optimizer")
        self._model = model

    #: Handle that ctypes passes to the library's functions.
    _as_parameter_ = property(lambda self: self._handle)

    def __del__(self):
        handle = getattr(self, "_handle", None)
        if handle is not None and _runtime is not None and _runtime._current is not None:
            _library._functions["optimizer_destroy"](handle)

    def prepare(self, step, lr):
        """Begins a step, before forward. step: its number, from 0; lr: its learning rate."""
        call("optimizer_prepare", self._handle, step, lr)
        _runtime.runtime().begin_sites(step=step)

    def step(self):
        """Updates the parameters with their gradients."""
        call("optimizer_step", self._handle)

    def save(self, folder, step, state=None, keep=0):
        """Saves the model and the optimizer states as FOLDER/step_00000100. state: a
        JSON-serializable object of the program, stored with them. keep: number of newest
        checkpoints to keep, 0: all. Collective."""
        text = None if state is None else json.dumps(state).encode()
        call("checkpoint_save", self._model, self, str(folder).encode(), step,
             text, keep)

    def load(self, path):
        """Loads a checkpoint, or the newest one in a folder, saved by any number of ranks. Returns
        the steps done, or None if there is no checkpoint. Collective."""
        step = ctypes.c_int64()
        call("checkpoint_load", self._model, self, str(path).encode(),
             ctypes.byref(step))
        return None if step.value < 0 else step.value


def checkpoint_state(path):
    """Returns the program's own object from a checkpoint, or from the newest one in a folder."""
    length = ctypes.c_size_t()
    call("checkpoint_state", str(path).encode(), None, 0, ctypes.byref(length))
    text = ctypes.create_string_buffer(length.value + 1)
    call("checkpoint_state", str(path).encode(), text, len(text), ctypes.byref(length))
    return json.loads(text.value)


class Metrics:
    """Writes FOLDER/metrics.jsonl for `shale watch` and `shale report`: a row for each step, by
    rank 0. last_step: existing rows after this step are removed."""

    def __init__(self, folder, last_step=-1):
        self._handle = result("metrics_open", _runtime.handle(), str(folder).encode(), last_step)

    def write(self, step, loss, *, grad_norm=-1, lr=-1, items=-1, items_per_s=-1, step_ms=-1):
        """Writes a step, counted from 1. items: tokens processed so far by all ranks."""
        row = _library.options(_library.StepMetrics, step=step, loss=loss, grad_norm=grad_norm,
                               lr=lr, items_per_s=items_per_s, step_ms=step_ms, items=items)
        call("metrics_write", self._handle, ctypes.byref(row))

    def close(self):
        """Closes the file."""
        handle, self._handle = self._handle, None
        if handle is not None and _runtime is not None and _runtime.is_ours():
            call("metrics_close", handle)

    __del__ = close
