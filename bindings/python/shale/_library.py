"""The shared library: where it is, its functions and structs, its errors."""

import ctypes
import os
import pathlib

API_MAJOR = 1
MAX_DIMS = 6
CALLBACK_FAILED = 3

Handle = ctypes.c_void_p
Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
Body = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(Handle), ctypes.c_int32,
                        ctypes.POINTER(Handle), ctypes.c_int32)


class Error(Exception):
    """What a call of the library says; `status` is its number in shale/c.h."""

    status = 70


class ArgumentError(Error, ValueError):
    """A handle, shape or dtype that cannot be."""


class StateError(Error, RuntimeError):
    """Not now: no runtime, a second one, a forked process."""


class ConfigError(Error, ValueError):
    """Options that cannot be, or not together."""


class DataError(Error, ValueError):
    """Malformed data or checkpoint."""


class MissingInputError(Error, FileNotFoundError):
    """A file that is not there."""


class UnavailableError(Error, RuntimeError):
    """A device or library that is not there."""


class OutOfMemoryError(Error, MemoryError):
    """Memory that is not enough."""


class DiskError(Error, OSError):
    """A disk that fails."""


class CommError(Error, RuntimeError):
    """Ranks that disagree, one that failed, a collective that timed out."""


class NonFiniteError(Error, ArithmeticError):
    """A loss or gradient that is not finite."""


_ERRORS = {1: ArgumentError, 2: StateError, 64: ConfigError, 65: DataError, 66: MissingInputError,
           69: UnavailableError, 71: OutOfMemoryError, 74: DiskError, 76: CommError,
           77: NonFiniteError}


def _struct(name, fields):
    return type(name, (ctypes.Structure,),
                {"_fields_": [("size", ctypes.c_size_t)] + fields,
                 "__doc__": f"shale_{name} of shale/c.h, without its size."})


_i32, _i64, _f32, _f64 = ctypes.c_int32, ctypes.c_int64, ctypes.c_float, ctypes.c_double
_Dims = _i64 * MAX_DIMS

RuntimeOptions = _struct("runtime_options", [
    ("device", ctypes.c_char_p), ("device_memory", _i64), ("threads", _i32),
    ("deterministic", _i32), ("seed", ctypes.c_uint64), ("timeout_s", _f64),
    ("has_communicator", _i32), ("communicator", _i32)])
RuntimeUsage = _struct("runtime_usage_info", [
    ("allocated", _i64), ("peak_allocated", _i64), ("reserved", _i64), ("peak_reserved", _i64),
    ("sent", _i64)])
Memory = _struct("memory", [
    ("data", ctypes.c_void_p), ("dtype", _i32), ("ndim", _i32), ("shape", ctypes.POINTER(_i64)),
    ("strides", ctypes.POINTER(_i64)), ("read_only", _i32), ("release", Release),
    ("owner", ctypes.c_void_p)])
TensorInfo = _struct("tensor_info", [
    ("dtype", _i32), ("ndim", _i32), ("shape", _Dims), ("strides", _Dims),
    ("data", ctypes.c_void_p), ("requires_grad", _i32), ("read_only", _i32)])
ParameterOptions = _struct("parameter_options", [
    ("mean", _f32), ("std", _f32), ("no_decay", _i32), ("frozen", _i32)])
LanguageModelOptions = _struct("language_model_options", [
    ("context", _i64), ("layers", _i64), ("width", _i64), ("heads", _i64), ("vocab", _i64),
    ("kv_heads", _i64), ("hidden", _i64), ("dropout", _f32)])
ShardOptions = _struct("shard_options", [
    ("stage", _i32), ("compute", _i32), ("reduce", _i32), ("no_overlap", _i32),
    ("reproducible", _i32), ("seed", ctypes.c_uint64)])
ParameterInfo = _struct("parameter_info", [
    ("name", ctypes.c_char * 256), ("ndim", _i32), ("shape", _Dims), ("decay", _i32),
    ("trainable", _i32)])
OptimizerOptions = _struct("optimizer_options", [
    ("beta1", _f64), ("beta2", _f64), ("eps", _f64), ("weight_decay", _f64), ("momentum", _f64)])
StepMetrics = _struct("step_metrics", [
    ("step", _i64), ("loss", _f32), ("grad_norm", _f64), ("lr", _f64), ("items_per_s", _f64),
    ("step_ms", _f64), ("items", _i64)])

# Arguments by letters: h handle, H its address, i i32, I its address, l i64, L its address, f f32,
# F its address, d f64, D its address, u u32, s text, z a size, Z its address, p any address, P the
# address of one, b a body.
_LETTERS = {
    "h": Handle, "H": ctypes.POINTER(Handle), "i": _i32, "I": ctypes.POINTER(_i32), "l": _i64,
    "L": ctypes.POINTER(_i64), "f": _f32, "F": ctypes.POINTER(_f32), "d": _f64,
    "D": ctypes.POINTER(_f64), "u": ctypes.c_uint32, "s": ctypes.c_char_p, "z": ctypes.c_size_t,
    "Z": ctypes.POINTER(ctypes.c_size_t), "p": ctypes.c_void_p,
    "P": ctypes.POINTER(ctypes.c_void_p), "b": Body}

_FUNCTIONS = {
    "runtime_create": "pH", "runtime_destroy": "h", "runtime_rank": "hIIII",
    "runtime_device": "hpz", "runtime_barrier": "h", "runtime_sum": "hdD", "runtime_fail": "hisI",
    "runtime_synchronize": "h", "runtime_usage": "hp",
    "tensor_from_host": "hpiiLH", "tensor_from_memory": "hpH", "tensor_full": "hiiLdH",
    "tensor_destroy": "h", "tensor_share": "hH", "tensor_describe": "hp", "tensor_read": "hpz",
    "tensor_write": "hpz", "tensor_copy": "hh", "tensor_clone": "hH", "tensor_detach": "hH",
    "tensor_require_grad": "hi", "tensor_grad": "hH", "tensor_zero_grad": "h",
    "tensor_to_dlpack": "hiP", "tensor_from_dlpack": "hpiH",
    "unary": "ihH", "binary": "ihhH", "binary_scalar": "ihfH", "pow": "hfH", "clamp": "hffH",
    "where": "hhhH", "cast": "hiH", "reduce": "ihiIiH", "argmax": "hiiH", "softmax": "hiH",
    "log_softmax": "hiH", "reshape": "hiLH", "transpose": "hiiH", "slice": "hillH",
    "contiguous": "hH", "concat": "iHiH", "gather": "hihH", "matmul": "hhH", "linear": "hhhhH",
    "swiglu": "hhhhhH", "embedding": "hhhH", "layer_norm": "hhhfH", "rms_norm": "hhfH",
    "rope": "hdH", "attention": "hhhiflH", "dropout": "hfuH", "cross_entropy": "hhlH",
    "mse_loss": "hhH", "bce_with_logits_loss": "hhH", "all_gather": "hH",
    "reduce_scatter_sum": "hH", "all_reduce_sum": "hH", "backward": "h", "set_inference": "hi",
    "module_create": "hhsH", "module_destroy": "h", "module_declare": "hsiLp",
    "module_run": "hbpiHiH", "language_model_create": "hspH", "language_model_loss": "hhhH",
    "module_shard": "hp", "module_begin_backward": "hi", "mean_over_ranks": "hhdH",
    "clip_grad_norm": "hfF", "zero_grad": "h", "module_parameter_count": "hL",
    "module_parameter": "hlp", "module_value": "hsH", "parameter_read": "hspl",
    "parameter_write": "hspl", "parameter_local": "hsLH", "parameter_local_grad": "hsH",
    "parameter_local_changed": "hs", "optimizer_create": "hspH", "optimizer_destroy": "h",
    "optimizer_prepare": "hlf", "optimizer_step": "h", "checkpoint_save": "hhslsl",
    "checkpoint_load": "hhsL", "checkpoint_state": "spzZ", "metrics_open": "hslH",
    "metrics_write": "hp", "metrics_close": "h"}


def _load():
    """Loads $SHALE_LIBRARY, the library beside this file (a wheel's), or the system's."""
    beside = pathlib.Path(__file__).with_name("libshale_c.so.1")
    path = os.environ.get("SHALE_LIBRARY") or (str(beside) if beside.exists() else beside.name)
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"shale: {error}; want libshale_c.so.1 beside the module, installed, or "
                          "in the variable SHALE_LIBRARY") from None
    library.shale_api_version.restype = ctypes.c_int32
    major = library.shale_api_version() // 1000
    if major != API_MAJOR:
        raise ImportError(f"shale: {path} has version {major} of the interface, want {API_MAJOR}")
    for name in ("shale_version", "shale_last_error"):
        getattr(library, name).restype = ctypes.c_char_p
    for name, letters in _FUNCTIONS.items():
        function = getattr(library, "shale_" + name)
        function.restype = ctypes.c_int32
        function.argtypes = [_LETTERS[letter] for letter in letters]
    return library


library = _load()
_functions = {name: getattr(library, "shale_" + name) for name in _FUNCTIONS}


def call(name, *arguments):
    """Calls a function, without the interpreter's lock; raises what it says went wrong."""
    status = _functions[name](*arguments)
    if status != 0:
        raise error_of(status)


def error_of(status):
    """The exception for what this thread's last call returned."""
    kind = _ERRORS.get(status, Error)
    error = kind(library.shale_last_error().decode(errors="replace"))
    error.status = status
    return error


def options(struct, **values):
    """A struct with its size and these fields; the others are zero."""
    return struct(size=ctypes.sizeof(struct), **values)


def dims(sizes):
    """Sizes as the library takes them: their number, and an array."""
    sizes = [int(size) for size in sizes]
    return len(sizes), (ctypes.c_int64 * max(1, len(sizes)))(*sizes)


def result(name, *arguments):
    """Calls a function whose last argument is where its handle goes, and returns that."""
    handle = Handle()
    call(name, *arguments, ctypes.byref(handle))
    return handle.value
