"""Differentiable functions. Shapes and formulas: docs/reference/c.md."""

import builtins
import ctypes
import numbers

from . import _library, _runtime
from ._library import call, result
from ._tensor import Tensor, dtype_code, full

_UNARY = ("neg", "abs", "exp", "log", "sqrt", "rsqrt", "relu", "sigmoid", "tanh", "silu",
          "softplus", "sin", "cos", "gelu", "gelu_erf")
_BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "less", "less_equal", "equal")
_REDUCE = ("sum", "mean", "max", "min")

__all__ = [*_UNARY, *_BINARY, *_REDUCE, "argmax", "attention", "backward", "all_gather",
           "all_reduce_sum", "bce_with_logits_loss", "cast", "clamp", "concat", "contiguous",
           "cross_entropy", "cumsum", "dropout", "embedding", "gather", "inference", "layer_norm",
           "linear", "log_softmax", "matmul", "mse_loss", "not_equal", "pow", "reduce_scatter_sum",
           "reshape", "rms_norm", "rope", "scatter", "scatter_add", "slice", "softmax", "swiglu",
           "transpose", "where"]


def _tensor(name, *arguments, shown=None):
    return Tensor(result(name, *arguments, shown=shown or name))


def _make_unary(number, name):
    def function(x):
        return _tensor("unary", number, x, shown=name)
    function.__name__ = name
    function.__doc__ = f"{name} of each element."
    return function


def _make_binary(number, name):
    def function(a, b):
        if isinstance(b, Tensor):
            if isinstance(a, numbers.Real):
                a = full((), a, b.dtype)
            return _tensor("binary", number, a, b, shown=name)
        if isinstance(b, numbers.Real):
            return _tensor("binary_scalar", number, a, b, shown=name)
        raise TypeError(f"{name}: found {_library.kind_of(b)}, expected a number or "
                        f"{_library.EXPECTED['t']}")
    function.__name__ = name
    function.__doc__ = f"{name} of pairs of elements, broadcast; one argument may be a number."
    return function


def _make_reduce(number, name):
    def function(x, dims=(), keep=False):
        dims = (dims,) if isinstance(dims, int) else tuple(dims)
        array = (ctypes.c_int32 * builtins.max(1, len(dims)))(*dims)
        return _tensor("reduce", number, x, len(dims), array, int(keep), shown=name)
    function.__name__ = name
    function.__doc__ = f"The {name} over some dimensions; sum and mean: by default over all."
    return function


for _make, _names in ((_make_unary, _UNARY), (_make_binary, _BINARY), (_make_reduce, _REDUCE)):
    for _number, _name in enumerate(_names):
        globals()[_name] = _make(_number, _name)


def not_equal(a, b):
    """not_equal of pairs of elements, broadcast; one argument may be a number."""
    return _g["equal"](_g["equal"](a, b), 0)


def _make_plain(name, doc):
    def function(*tensors):
        return _tensor(name, *tensors)
    function.__name__ = name
    function.__doc__ = doc
    return function


matmul = _make_plain("matmul", "matmul(a, b): [..., M, K] times [..., K, N].")
contiguous = _make_plain("contiguous", "contiguous(x): x, or a dense copy.")
mse_loss = _make_plain("mse_loss", "mse_loss(x, target): the mean of (x - target)^2.")
bce_with_logits_loss = _make_plain("bce_with_logits_loss",
                                   "bce_with_logits_loss(x, target): a mean.")
where = _make_plain("where", "where(condition, a, b): a where the condition is not 0.")
all_gather = _make_plain("all_gather", "all_gather(x): x of all ranks, concatenated by rows.")
reduce_scatter_sum = _make_plain("reduce_scatter_sum",
                                 "reduce_scatter_sum(x): this rank's slice of the sum.")
all_reduce_sum = _make_plain("all_reduce_sum", "all_reduce_sum(x): the sum over the ranks.")


def pow(x, exponent):
    """x to the power of a number."""
    return _tensor("pow", x, exponent)


def clamp(x, low, high):
    """x clamped to [low, high]."""
    return _tensor("clamp", x, low, high)


def cast(x, dtype):
    """x converted to another dtype."""
    return _tensor("cast", x, dtype_code(dtype))


def argmax(x, dim, keep=False):
    """Index of the first maximum along a dimension: int32."""
    return _tensor("argmax", x, dim, int(keep))


def softmax(x, dim=-1):
    """exp(x) / sum of exp(x) along a dimension."""
    return _tensor("softmax", x, dim)


def log_softmax(x, dim=-1):
    """Logarithm of softmax."""
    return _tensor("log_softmax", x, dim)


def reshape(x, *shape):
    """The same elements in another shape; one size may be -1."""
    if len(shape) == 1 and not isinstance(shape[0], int):
        shape = shape[0]
    return _tensor("reshape", x, *_library.dims(shape))


def transpose(x, dim0=-2, dim1=-1):
    """View with two dimensions swapped."""
    return _tensor("transpose", x, dim0, dim1)


def slice(x, dim, begin, end):
    """View of elements [begin, end) along a dimension."""
    return _tensor("slice", x, dim, begin, end)


def concat(tensors, dim=0):
    """Concatenates tensors along a dimension."""
    handles = _library.handles(tensors, "concat")
    return _tensor("concat", len(handles), handles, dim)


def gather(x, dim, index):
    """Gathers along a dimension by an int32 index tensor."""
    return _tensor("gather", x, dim, index)


def scatter(x, dim, index, source):
    """Copy of x with elements of source at the indices; the last of equal indices wins."""
    return _tensor("scatter", x, dim, index, source)


def scatter_add(x, dim, index, source):
    """Copy of x with elements of source added at the indices."""
    return _tensor("scatter_add", x, dim, index, source)


def cumsum(x, dim):
    """Cumulative sums along a dimension."""
    return _tensor("cumsum", x, dim)


def linear(x, weight, bias=None, residual=None):
    """x weight^T + bias + residual."""
    return _tensor("linear", x, weight, bias, residual)


def swiglu(x, w_gate, w_up, w_down, residual=None):
    """Llama's feed-forward block."""
    return _tensor("swiglu", x, w_gate, w_up, w_down, residual)


def embedding(ids, table, positions=None):
    """Rows of a table by int32 ids [B, T]."""
    return _tensor("embedding", ids, table, positions)


def layer_norm(x, gain, bias=None, eps=1e-5):
    """LayerNorm over the last dimension."""
    return _tensor("layer_norm", x, gain, bias, eps)


def rms_norm(x, gain, eps=1e-5):
    """RMSNorm over the last dimension."""
    return _tensor("rms_norm", x, gain, eps)


def rope(x, theta=0.0):
    """Applies rotary positions to x [B, T, H, D]."""
    return _tensor("rope", x, theta)


def attention(q, k, v, causal=True, scale=0.0, window=0):
    """Attention of q [B, Tq, H, D] to k and v [B, Tk, Hkv, D]."""
    return _tensor("attention", q, k, v, int(causal), scale, window)


def dropout(x, p, site=None):
    """Zeroes a share p of the elements of x and scales the others; returns x in inference().

    site: identifies the dropout in its model; a number below 2^31. Default: dropouts are numbered
    in call order within a step, or since set_sample(). These numbers are equal on all ranks that
    make the same calls.
    """
    site = _runtime.runtime().next_site() if site is None else site
    return _tensor("dropout", x, p, site)


def cross_entropy(logits, targets, vocab=None):
    """Sum over rows; targets: int32, rows with -1 are ignored."""
    vocab = logits.shape[-1] if vocab is None else vocab
    return _tensor("cross_entropy", logits, targets, vocab)


def backward(loss, retain_graph=False):
    """Adds the gradients of a scalar to the leaves that it depends on."""
    call("backward_retain" if retain_graph else "backward", loss, shown="backward")


class inference:
    """Context manager: functions record nothing, and dropout does nothing."""

    def __enter__(self):
        call("set_inference", _runtime.handle(), 1)

    def __exit__(self, *_):
        call("set_inference", _runtime.handle(), 0)


def _reversed(function):
    return lambda a, b: function(b, a)


def _view(x, key):
    """Returns the view of x[1:3, 2] with all dimensions, and the sizes of those that stay."""
    keys = key if isinstance(key, tuple) else (key,)
    shape = x.shape
    if len(keys) > len(shape):
        raise IndexError(f"{len(keys)} indices for {x._kind()}")
    kept = list(shape)
    for dim, one in enumerate(keys):
        if isinstance(one, int):
            if not -shape[dim] <= one < shape[dim]:
                raise IndexError(f"index {one} for a dimension of {shape[dim]}")
            begin, end, step = one % shape[dim], one % shape[dim] + 1, 1
            kept[dim] = None
        else:
            begin, end, step = one.indices(shape[dim])
            kept[dim] = builtins.max(0, end - begin)
        if step != 1:
            raise IndexError(f"a slice has the step {step}, expected 1")
        x = globals()["slice"](x, dim, begin, builtins.max(begin, end))
    return x, [n for n in kept if n is not None]


def _index(x, key):
    """Implements x[2], x[1:3], x[:, 0]: integers, and slices without step."""
    view, kept = _view(x, key)
    return view if len(kept) == view.ndim else reshape(contiguous(view), kept)


def _set_item(x, key, value):
    """Implements x[1:3] = value: a number, or a tensor of that shape; recorded for backward."""
    view, kept = _view(x, key)
    if isinstance(value, numbers.Real):
        value = full(kept, value, x.dtype)
    elif isinstance(value, Tensor) and list(value.shape) != kept:
        raise _library.ArgumentError(f"x[...] = {value._kind()}: expected the shape {kept}")
    view.copy_(reshape(contiguous(value), view.shape) if len(kept) != view.ndim else value)


def _compare(function, swap=False):
    """Returns an operator; NotImplemented for operands that are not tensors or numbers, such as
    None."""
    def operator(a, b):
        if not isinstance(b, (Tensor, numbers.Real)) and not hasattr(b, "shape"):
            return NotImplemented
        return function(b, a) if swap else function(a, b)
    return operator


def _contains(x, value):
    """Returns true if any element has the value."""
    return _g["equal"](x, value).cast("float32").sum().item() > 0


_g = globals()
for _name, _function in {
        "__add__": _g["add"], "__radd__": _g["add"], "__sub__": _g["sub"],
        "__rsub__": _reversed(_g["sub"]), "__mul__": _g["mul"], "__rmul__": _g["mul"],
        "__truediv__": _g["div"], "__rtruediv__": _reversed(_g["div"]), "__neg__": _g["neg"],
        "__eq__": _compare(_g["equal"]), "__ne__": _compare(not_equal),
        "__lt__": _compare(_g["less"]), "__le__": _compare(_g["less_equal"]),
        "__gt__": _compare(_g["less"], swap=True), "__ge__": _compare(_g["less_equal"], swap=True),
        "__contains__": _contains, "__pow__": pow, "__matmul__": matmul, "__getitem__": _index,
        "__setitem__": _set_item, "cumsum": cumsum,
        "sum": _g["sum"], "mean": _g["mean"], "max": _g["max"], "min": _g["min"],
        "reshape": reshape, "transpose": transpose, "cast": cast, "contiguous": contiguous,
        "backward": backward}.items():
    setattr(Tensor, _name, _function)
