"""The shared library: its location, functions, structs and errors."""

import ctypes
import os
import pathlib

API_MAJOR, API_MINOR = 1, 3
MAX_DIMS = 6
CALLBACK_FAILED = 3

Handle = ctypes.c_void_p
Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
TextPart = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
Body = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(Handle), ctypes.c_int32,
                        ctypes.POINTER(Handle), ctypes.c_int32)


class Error(Exception):
    """Error of a library call; `status` is its number in shale/c.h."""

    status = 70


class ArgumentError(Error, ValueError):
    """Invalid handle, shape or dtype."""


class StateError(Error, RuntimeError):
    """Call not allowed in this state: no runtime, a second one, a forked process."""


class ConfigError(Error, ValueError):
    """Invalid or incompatible options."""


class DataError(Error, ValueError):
    """Malformed data or checkpoint."""


class MissingInputError(Error, FileNotFoundError):
    """File not found."""


class UnavailableError(Error, RuntimeError):
    """Device or library not available."""


class OutOfMemoryError(Error, MemoryError):
    """Out of memory."""


class DiskError(Error, OSError):
    """Disk error."""


class CommError(Error, RuntimeError):
    """Ranks disagree, a rank failed, or a collective timed out."""


class NonFiniteError(Error, ArithmeticError):
    """Loss or gradient is not finite."""


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
    ("data", ctypes.c_void_p), ("requires_grad", _i32), ("read_only", _i32),
    ("on_host", _i32)])
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
TextModelOptions = _struct("text_model_options", [
    ("tokenizer", ctypes.c_char_p), ("dtype", ctypes.c_char_p)])
GenerateOptions = _struct("generate_options", [
    ("max_tokens", _i64), ("temperature", _f32), ("top_k", _i64), ("top_p", _f32),
    ("seed", ctypes.c_uint64), ("chat", _i32), ("stop", ctypes.c_char_p)])

class _HandleArgument:
    """Handle argument: a number, an object with a handle, or None; not text, unlike c_void_p."""

    @classmethod
    def from_param(cls, x):
        handle = getattr(x, "_as_parameter_", x)
        if handle is None or isinstance(handle, int):
            return Handle(handle)
        raise TypeError("no handle")


# Argument types by letter. Handles: t tensor, m module, o optimizer, h any kind, H pointer to any
# kind. Numbers: i i32, l i64, f f32, d f64, u u32, z size; I, L, F, D, Z pointers to them. Others:
# s text, p any pointer, P pointer to a pointer, b Body, x TextPart.
_LETTERS = {
    **dict.fromkeys("tmoh", _HandleArgument), "H": ctypes.POINTER(Handle), "i": _i32,
    "I": ctypes.POINTER(_i32), "l": _i64, "L": ctypes.POINTER(_i64), "f": _f32,
    "F": ctypes.POINTER(_f32), "d": _f64, "D": ctypes.POINTER(_f64), "u": ctypes.c_uint32,
    "s": ctypes.c_char_p, "z": ctypes.c_size_t, "Z": ctypes.POINTER(ctypes.c_size_t),
    "p": ctypes.c_void_p, "P": ctypes.POINTER(ctypes.c_void_p), "b": Body, "x": TextPart}

_FUNCTIONS = {
    "runtime_create": "pH", "runtime_destroy": "h", "runtime_rank": "hIIII",
    "runtime_device": "hpz", "runtime_supports_bf16": "hI", "runtime_set_sample": "hl",
    "runtime_barrier": "h", "runtime_sum": "hdD", "runtime_fail": "hisI",
    "runtime_synchronize": "h", "runtime_usage": "hp",
    "tensor_from_host": "hpiiLH", "tensor_from_memory": "hpH", "tensor_full": "hiiLdH",
    "tensor_destroy": "t", "tensor_share": "tH", "tensor_describe": "tp", "tensor_read": "tpz",
    "tensor_write": "tpz", "tensor_copy": "tt", "tensor_clone": "tH", "tensor_detach": "tH",
    "tensor_require_grad": "ti", "tensor_grad": "tH", "tensor_zero_grad": "t",
    "randn": "hiiLPH", "uniform": "hiiLffPH", "arange": "hidddH", "linspace": "hiddlH",
    "assign": "tt", "tensor_to": "tiH", "cumsum": "tiH", "scatter": "tittH",
    "scatter_add": "tittH", "backward_retain": "t",
    "tensor_to_dlpack": "tiP", "tensor_from_dlpack": "hpiH",
    "unary": "itH", "binary": "ittH", "binary_scalar": "itfH", "pow": "tfH", "clamp": "tffH",
    "where": "tttH", "cast": "tiH", "reduce": "itiIiH", "argmax": "tiiH", "softmax": "tiH",
    "log_softmax": "tiH", "reshape": "tiLH", "transpose": "tiiH", "slice": "tillH",
    "contiguous": "tH", "concat": "iHiH", "gather": "titH", "matmul": "ttH", "linear": "ttttH",
    "swiglu": "tttttH", "embedding": "tttH", "layer_norm": "tttfH", "rms_norm": "ttfH",
    "rope": "tdH", "attention": "tttiflH", "dropout": "tfuH", "cross_entropy": "ttlH",
    "mse_loss": "ttH", "bce_with_logits_loss": "ttH", "all_gather": "tH",
    "reduce_scatter_sum": "tH", "all_reduce_sum": "tH", "backward": "t", "set_inference": "hi",
    "module_create": "hmsH", "module_destroy": "m", "module_declare": "msiLp",
    "module_run": "mbpiHiH", "module_export_onnx": "mbpiHispz", "language_model_create": "hspH", "language_model_loss": "mttH",
    "module_shard": "mp", "module_begin_backward": "mi", "mean_over_ranks": "mtdH",
    "clip_grad_norm": "mfF", "zero_grad": "m", "module_parameter_count": "mL",
    "module_parameter": "mlp", "module_value": "msH", "parameter_read": "mspl",
    "parameter_write_shaped": "msiLp", "parameter_local": "msLH", "parameter_local_grad": "msH",
    "parameter_local_changed": "ms", "optimizer_create": "mspH", "optimizer_destroy": "o",
    "optimizer_prepare": "olf", "optimizer_step": "o", "checkpoint_save": "moslsl",
    "checkpoint_load": "mosL", "checkpoint_state": "spzZ", "metrics_open": "hslH",
    "metrics_write": "hp", "metrics_close": "h", "text_model_load": "hspH",
    "text_model_destroy": "h", "text_generate": "hspxp"}


def _paths():
    """Returns the paths of Shale's library and of the library with MPI's functions. The first is
    $SHALE_LIBRARY, or that of this wheel, of the module's prefix, or of the system; the second is
    the same path, except in wheels."""
    name = "libshale_c.so.1"
    chosen = os.environ.get("SHALE_LIBRARY")
    if chosen:
        return chosen, chosen
    here = pathlib.Path(__file__).resolve().parent
    if (here / "lib" / name).exists():
        import shale_wheel  # a module that only wheels contain
        return str(here / "lib" / name), shale_wheel.load_mpi()
    # for a package installed in PREFIX/lib/python3/dist-packages/shale
    installed = (here / "../../.." / name).resolve()
    path = str(installed) if installed.exists() else name
    return path, path


def _load():
    """Loads Shale's library and declares its functions. Returns it and the library with MPI."""
    path, mpi_path = _paths()
    try:
        library, mpi = ctypes.CDLL(path), ctypes.CDLL(mpi_path)
    except OSError as error:
        raise ImportError(f"shale: {error}; expected libshale_c.so.1 in a wheel, in the module's "
                          "own prefix, among the system's libraries or in SHALE_LIBRARY") from None
    library.shale_api_version.restype = ctypes.c_int32
    major, minor = divmod(library.shale_api_version(), 1000)
    if major != API_MAJOR or minor < API_MINOR:
        raise ImportError(f"shale: {path} has version {major}.{minor} of the interface, expected "
                          f"{API_MAJOR}.{API_MINOR} or a later {API_MAJOR}.x")
    for name in ("shale_version", "shale_last_error"):
        getattr(library, name).restype = ctypes.c_char_p
    for name, letters in _FUNCTIONS.items():
        function = getattr(library, "shale_" + name)
        function.restype = ctypes.c_int32
        function.argtypes = [_LETTERS[letter] for letter in letters]
    return library, mpi


library, mpi = _load()
_functions = {name: getattr(library, "shale_" + name) for name in _FUNCTIONS}


#: Expected kind of an argument by letter, for error messages.
EXPECTED = {
    "t": "a shale.Tensor: shale.tensor(x) copies x, shale.as_tensor(x) shares its memory",
    "m": "a shale.Module", "o": "a shale.Optimizer", "i": "a whole number", "u": "a whole number",
    "l": "a whole number", "f": "a number", "d": "a number", "s": "text"}


def call(name, *arguments, shown=None):
    """Calls a function without the interpreter's lock. Raises an exception if it fails. Tensors,
    modules and optimizers are passed as handles. shown: the function's name in Python."""
    try:
        status = _functions[name](*arguments)
    except ctypes.ArgumentError as error:
        raise _type_error(name, arguments, shown) or error from None
    if status != 0:
        raise error_of(status, shown)


def _type_error(name, arguments, shown):
    """Returns the exception for the argument that cannot be converted."""
    for letter, argument in zip(_FUNCTIONS[name], arguments):
        try:
            _LETTERS[letter].from_param(argument)
        except (TypeError, ctypes.ArgumentError):
            expected = EXPECTED.get(letter, _LETTERS[letter].__name__)
            return TypeError(f"{shown or name}: found {kind_of(argument)}, expected {expected}")
    return None


def kind_of(x):
    """Returns the name of its type."""
    module = type(x).__module__
    return f"{module}.{type(x).__qualname__}".removeprefix("builtins.")


def error_of(status, shown=None):
    """Returns the exception for the status of this thread's last call."""
    kind = _ERRORS.get(status, Error)
    text = library.shale_last_error().decode(errors="replace")
    if shown is not None:
        text = text.partition(": ")[2]
        text = text if text.startswith(f"{shown}: ") else f"{shown}: {text}"
    error = kind(text)
    error.status = status
    return error


def handles(tensors, shown):
    """Returns an array of the tensors' handles."""
    tensors = list(tensors)
    for x in tensors:
        if not isinstance(getattr(x, "_as_parameter_", None), int):
            raise TypeError(f"{shown}: found {kind_of(x)}, expected {EXPECTED['t']}")
    return (Handle * max(1, len(tensors)))(*(x._as_parameter_ for x in tensors))


def options(struct, **values):
    """Returns a struct with its size and these fields; its other fields are zero."""
    return struct(size=ctypes.sizeof(struct), **values)


def dims(sizes):
    """Converts sizes for the library: their number, and an array."""
    sizes = [int(size) for size in sizes]
    return len(sizes), (ctypes.c_int64 * max(1, len(sizes)))(*sizes)


def result(name, *arguments, shown=None):
    """Calls a function whose last argument receives a handle, and returns the handle."""
    handle = Handle()
    call(name, *arguments, ctypes.byref(handle), shown=shown)
    return handle.value
