"""Modules, their parameters, language models, and their sharding over ranks."""

import ctypes
import itertools
import math
import os

from . import _library, _runtime, functions
from ._library import call, result
from ._tensor import Tensor, _host_bytes, dtype_code

_runs = {}
_run_numbers = itertools.count(1)


def _share(handle):
    return result("tensor_share", handle)


@_library.Body
def _body(user, inputs, input_count, outputs, output_count):
    run = _runs[user]
    try:
        tensors = [Tensor(_share(inputs[i])) for i in range(input_count)]
        given = run.module.forward(*(tensors.pop(0) if isinstance(x, Tensor) else x
                                     for x in run.arguments))
        results = given if isinstance(given, tuple) else (given,)
        if len(results) != output_count:
            raise _library.ArgumentError(
                f"{type(run.module).__name__}.forward returned {len(results)} tensors, but its "
                f"class has outputs = {output_count}")
        for i, x in enumerate(results):
            outputs[i] = result("tensor_share", x, shown=f"{type(run.module).__name__}.forward")
        return 0
    except BaseException as error:  # the library returns a status; the caller raises the error
        run.error = error
        return _library.CALLBACK_FAILED


class _Run:
    def __init__(self, module, arguments):
        self.module, self.arguments, self.error = module, arguments, None


class Module:
    """Part of a model. Subclasses declare parameters and modules, and implement forward(). Call
    modules as functions, so that sharded parameters are gathered."""

    #: Number of tensors that forward() returns.
    outputs = 1
    #: Handle that ctypes passes to the library's functions.
    _as_parameter_ = property(lambda self: self._handle)

    def __init__(self, parent=None, name=""):
        self._handle = result("module_create", _runtime.handle(),
                              parent, name.encode(), shown=type(self).__name__)
        self._parent = parent  # keeps the module tree alive

    def __del__(self):
        handle = getattr(self, "_handle", None)
        if handle is not None and _runtime is not None and _runtime._current is not None:
            _library._functions["module_destroy"](handle)

    def parameter(self, name, shape, *, std=0.0, mean=0.0, decay=True, trainable=True):
        """Declares a parameter. Returns it as a tensor for functions."""
        options = _library.options(_library.ParameterOptions, mean=mean, std=std,
                                   no_decay=int(not decay), frozen=int(not trainable))
        call("module_declare", self._handle, name.encode(), *_library.dims(shape),
             ctypes.byref(options))
        return Tensor(result("module_value", self._handle, name.encode()))

    def forward(self, *inputs):
        """Computes the module's output."""
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def __call__(self, *arguments):
        outputs = (_library.Handle * self.outputs)()
        self._run("module_run", arguments, outputs)
        results = tuple(Tensor(handle) for handle in outputs)
        return results[0] if self.outputs == 1 else results

    def export_onnx(self, path, *arguments):
        """Writes a call with these arguments, in inference mode, to an ONNX file. Its inputs are
        named "input", or "input_0" and so on; outputs likewise. Returns "" if the batch size (first
        dimension) is variable, else the reason why it is fixed to that of the arguments. Needs
        float32 parameters, and stage 0 to 2. On several ranks, rank 0 writes. Collective."""
        text = ctypes.create_string_buffer(256)
        writes = _runtime.runtime().rank == 0
        self._run("module_export_onnx", arguments, os.fsencode(path) if writes else b"", text,
                  len(text))
        return text.value.decode(errors="replace")

    def _run(self, function, arguments, *rest):
        tensors = [x for x in arguments if isinstance(x, Tensor)]
        if not tensors:
            raise TypeError(f"{type(self).__name__}: found no shale.Tensor among the arguments, "
                            "expected one: shale.tensor(x) copies x")
        handles = _library.handles(tensors, type(self).__name__)
        number = next(_run_numbers)
        run = _runs[number] = _Run(self, arguments)
        try:
            call(function, self._handle, _body, number, len(tensors), handles, self.outputs, *rest)
        except _library.Error:
            if run.error is not None:
                raise run.error from None
            raise
        finally:
            del _runs[number]

    # ---- Ranks ----

    def shard(self, stage=0, *, seed, compute="float32", reduce="float32", overlap=True,
              reproducible=False):
        """Allocates and initializes the parameters. Initial values depend on the seed and the
        parameter names: two models of one class need different seeds. stage: the ZeRO stage; 0
        shards nothing, like DDP; 1: optimizer states; 2: also gradients; 3: also parameters. Call
        it for inner modules first. Collective."""
        options = _library.options(
            _library.ShardOptions, stage=stage, compute=dtype_code(compute),
            reduce=dtype_code(reduce), no_overlap=int(not overlap),
            reproducible=int(reproducible), seed=seed)
        call("module_shard", self._handle, ctypes.byref(options))
        return self

    def begin_backward(self, last):
        """Must be called before each backward of a step with micro-batches. last: True for the
        last backward of the step, in which gradients are reduced over ranks."""
        call("module_begin_backward", self._handle, int(last))

    def mean_over_ranks(self, loss, weight=1.0):
        """Returns a loss whose gradients are those of the mean over all ranks' samples.
        Collective."""
        return Tensor(result("mean_over_ranks", self, loss, weight, shown="mean_over_ranks"))

    def clip_grad_norm(self, max_norm):
        """Clips the norm of the gradients until zero_grad(), and returns the original norm.
        Collective."""
        norm = ctypes.c_float()
        call("clip_grad_norm", self._handle, max_norm, ctypes.byref(norm))
        return norm.value

    def zero_grad(self):
        """Clears the gradients."""
        call("zero_grad", self._handle)

    # ---- Parameters ----

    def parameters(self):
        """Returns shapes by parameter name."""
        count = ctypes.c_int64()
        call("module_parameter_count", self._handle, ctypes.byref(count))
        shapes = {}
        for i in range(count.value):
            info = _library.options(_library.ParameterInfo)
            call("module_parameter", self._handle, i, ctypes.byref(info))
            shapes[info.name.decode()] = tuple(info.shape[:info.ndim])
        return shapes

    def read(self, name):
        """Returns all elements of a parameter in host memory, float32: a memoryview of its shape,
        which numpy accepts. Collective."""
        shape = self._shape(name)
        values = (ctypes.c_float * max(1, math.prod(shape)))()
        call("parameter_read", self._handle, name.encode(), values, math.prod(shape))
        view = memoryview(values).cast("B").cast("f")
        return view if not shape else view.cast("B").cast("f", shape)

    def write(self, name, values):
        """Sets a parameter to values of its shape; other floating-point types are rounded to
        float32. Call it on every rank."""
        if isinstance(values, Tensor) and "float" in values.dtype:
            values = values.clone().cast("float32")
        elif hasattr(values, "astype") and str(values.dtype) in ("float64", "float16"):
            values = values.astype("float32")
        data, shape, _ = _host_bytes(values, "float32")
        call("parameter_write_shaped", self, name.encode(), *_library.dims(shape), data)

    def _shape(self, name):
        shapes = self.parameters()
        if name not in shapes:
            raise _library.ArgumentError(f"there is no parameter {name!r}, expected one of "
                                         f"{', '.join(shapes)}")
        return shapes[name]

    def local(self, name):
        """For custom optimizers: returns this rank's elements of a parameter as a float32 vector
        that shares the memory. After copy_() to it, call local_changed() on every rank."""
        return Tensor(result("parameter_local", self._handle, name.encode(), None))

    def local_grad(self, name):
        """Returns the gradient of local(), or None."""
        handle = result("parameter_local_grad", self._handle, name.encode())
        return Tensor(handle) if handle else None

    def local_changed(self, name):
        """Reports that local() was modified."""
        call("parameter_local_changed", self._handle, name.encode())


class Linear(Module):
    """x weight^T + bias. weight: [outputs, inputs]."""

    def __init__(self, parent, name, inputs, outputs, *, std=0.02, bias=True):
        super().__init__(parent, name)
        self.weight = self.parameter("weight", (outputs, inputs), std=std)
        self.bias = self.parameter("bias", (outputs,), decay=False) if bias else None

    def forward(self, x, residual=None):
        """x: [..., inputs]."""
        return functions.linear(x, self.weight, self.bias, residual)


class LayerNorm(Module):
    """LayerNorm over the last dimension."""

    def __init__(self, parent, name, width, *, eps=1e-5):
        super().__init__(parent, name)
        self.weight = self.parameter("weight", (width,), mean=1, decay=False)
        self.bias = self.parameter("bias", (width,), decay=False)
        self.eps = eps

    def forward(self, x):
        """x: [..., width]."""
        return functions.layer_norm(x, self.weight, self.bias, self.eps)


class Embedding(Module):
    """Rows of a table by int32 ids [B, T]."""

    def __init__(self, parent, name, rows, width, *, std=0.02):
        super().__init__(parent, name)
        self.weight = self.parameter("weight", (rows, width), std=std)

    def forward(self, ids):
        """ids: [B, T]."""
        return functions.embedding(ids, self.weight)


class LanguageModel(Module):
    """Model of a preset of train_lm. context: maximum sequence length. Given sizes override the
    preset's."""

    def __init__(self, preset="nano", **sizes):
        dropout = sizes.pop("dropout", 0.0)
        known = {name for name, _ in _library.LanguageModelOptions._fields_}
        if set(sizes) - known:
            raise TypeError(f"LanguageModel has no {', '.join(sorted(set(sizes) - known))}")
        options = _library.options(_library.LanguageModelOptions, dropout=dropout, **sizes)
        self._handle = result("language_model_create", _runtime.handle(), preset.encode(),
                              ctypes.byref(options))
        self._parent = None

    def loss(self, ids, targets):
        """Returns the sum of the cross-entropy over all tokens. ids, targets: int32 [B, T]."""
        return Tensor(result("language_model_loss", self, ids, targets, shown="loss"))
