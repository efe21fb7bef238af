"""Tensors, and sharing of memory with other libraries."""

import ctypes
import itertools
import math
import struct

from . import _library, _runtime
from ._library import call, result

_NAMES = ("float32", "bfloat16", "float16", "float64", "int32", "int64", "uint8", "uint16",
          "uint32")
_SIZES = (4, 2, 2, 8, 4, 8, 1, 2, 4)
#: Type strings of NumPy's array interface by dtype; bfloat16 has none.
_TYPESTR = ("<f4", None, "<f2", "<f8", "<i4", "<i8", "|u1", "<u2", "<u4")
#: Formats of the struct module by dtype; bfloat16 has none.
_FORMATS = ("f", None, "e", "d", "i", "q", "B", "H", "I")

# Python objects that own external memory, by number. They stay here until the library releases the
# memory.
_owners = {}
_owner_numbers = itertools.count(1)


@_library.Release
def _release(number):
    _owners.pop(number, None)


def dtype_code(dtype):
    """Returns the number of a dtype, given by name."""
    name = getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]
    if name not in _NAMES:
        raise _library.ArgumentError(f"dtype is {dtype}, expected one of {', '.join(_NAMES)}")
    return _NAMES.index(name)


class Tensor:
    """Array on the runtime's device, optionally with a gradient."""

    __slots__ = ("_handle", "_shown", "__weakref__")
    __array_priority__ = 1000  # NumPy then leaves operators between an array and a Tensor to Tensor

    def __init__(self, handle):
        self._handle = handle
        self._shown = None

    #: Handle that ctypes passes to the library's functions.
    _as_parameter_ = property(lambda self: self._handle)

    def __del__(self):
        if self._handle is not None and _runtime is not None and _runtime._current is not None:
            _library._functions["tensor_destroy"](self._handle)
        self._handle = None

    # ---- Properties ----

    def _info(self):
        info = _library.options(_library.TensorInfo)
        call("tensor_describe", self, ctypes.byref(info))
        return info

    @property
    def shape(self):
        """Sizes of the dimensions."""
        info = self._info()
        return tuple(info.shape[:info.ndim])

    @property
    def ndim(self):
        """Number of dimensions."""
        return self._info().ndim

    @property
    def size(self):
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def dtype(self):
        """Name of the element type: "float32"."""
        return _NAMES[self._info().dtype]

    @property
    def device(self):
        """Name of its device: that of the runtime, or "cpu"."""
        return "cpu" if self._info().on_host else _runtime.runtime().device

    @property
    def requires_grad(self):
        """True if backward computes its gradient."""
        return bool(self._info().requires_grad)

    @requires_grad.setter
    def requires_grad(self, wanted):
        call("tensor_require_grad", self, int(wanted))

    @property
    def grad(self):
        """Copy of the gradient of a leaf; None if it has none."""
        handle = result("tensor_grad", self)
        return Tensor(handle) if handle else None

    def zero_grad(self):
        """Clears the gradient."""
        call("tensor_zero_grad", self)

    def __repr__(self):
        try:
            values = _values_text(self.detach())
        except _library.Error:  # the parameter of a sharded model, outside its module
            values = "no values here"
        return (f"shale.Tensor({values}, shape={self.shape}, dtype={self.dtype}, "
                f"device={self.device})")

    def _kind(self):
        return f"shale.Tensor({self.dtype}{list(self.shape)})"

    __hash__ = object.__hash__  # hashes by identity, because == compares elements

    def __bool__(self):
        if self.size != 1:
            raise _library.ArgumentError(f"bool: {self._kind()} has {self.size} elements, expected "
                                         "one; use max(x) for any, min(x) for all")
        return self.item() != 0

    def __len__(self):
        if self.ndim == 0:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    # ---- Values ----

    def tobytes(self):
        """Returns the elements as bytes, row by row."""
        info = self._info()
        count = math.prod(info.shape[:info.ndim])
        buffer = ctypes.create_string_buffer(max(1, count * _SIZES[info.dtype]))
        call("tensor_read", self, buffer, count * _SIZES[info.dtype])
        return buffer.raw[:count * _SIZES[info.dtype]]

    def tolist(self):
        """Returns the values as nested lists; a number for a scalar."""
        code = self._info().dtype
        values = self if _FORMATS[code] else self.clone().cast("float32")
        letter = _FORMATS[code] or "f"
        flat = struct.unpack(f"={self.size}{letter}", values.tobytes())
        return _nest(flat, self.shape)

    def item(self):
        """Returns the value of a tensor with one element."""
        if self.size != 1:
            raise _library.ArgumentError(f"item: {self._kind()} has {self.size} elements, "
                                         "expected one")
        value = self.reshape(()).tolist()
        return value

    __float__ = item

    def write(self, values):
        """Sets the elements to values of the same shape and dtype."""
        data, shape, _ = _host_bytes(values, self.dtype)
        if shape != self.shape:
            raise _library.ArgumentError(f"write: values are {list(shape)}, expected "
                                         f"{list(self.shape)}")
        call("tensor_write", self, data, len(data))

    def copy_(self, x):
        """Copies from a tensor of the same shape and dtype, with its gradient. Under inference()
        the target may be a leaf that requires a gradient."""
        call("assign", self, x, shown="copy_")

    def to(self, where):
        """Returns a copy on a device, "cpu" or the runtime's, or of a dtype; with gradients."""
        if where == "cpu" or where == _runtime.runtime().device:
            return Tensor(result("tensor_to", self, int(where == "cpu"), shown="to"))
        return self.cast(where)

    def clone(self):
        """Returns a dense copy, without history."""
        return Tensor(result("tensor_clone", self))

    def detach(self):
        """Returns a tensor with the same memory, without history."""
        return Tensor(result("tensor_detach", self))

    # ---- Sharing of memory ----

    def _check_detached(self):
        # Another library would not propagate the tensor's gradient.
        if self.requires_grad:
            raise _library.ArgumentError(
                f"{self._kind()} requires a gradient, which other libraries do not compute: call "
                "x.detach(), or x.clone() if it is a parameter")

    def __dlpack_device__(self):
        name, _, number = self.device.partition(":")
        if name not in ("cpu", "cuda"):
            raise BufferError(f"DLPack has no name for {name}")
        return (1, 0) if name == "cpu" else (2, int(number or 0))

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """Returns a capsule of the same memory, without history. Waits for the device first, so
        that `stream` is not needed."""
        from . import _dlpack
        self._check_detached()
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the tensor is on {self.__dlpack_device__()}, not on {dl_device}")
        tensor = self.clone() if copy else self
        return _dlpack.make_capsule(tensor, max_version is None or max_version[0] < 1)

    def __array__(self, dtype=None, copy=None):
        """Called by numpy if there is no array interface; raises an error with the reason."""
        self._check_detached()
        raise _library.ArgumentError(f"{self._kind()}: numpy has no {self.dtype}, expected "
                                     "x.cast(\"float32\")")

    @property
    def __array_interface__(self):
        """Shares the memory with numpy and others. The memory outlives the tensor and the
        runtime."""
        info = self._info()
        if info.requires_grad or _TYPESTR[info.dtype] is None:
            raise AttributeError(f"{self._kind()} has no array interface: call x.detach() if it "
                                 "requires a gradient, and x.cast(\"float32\") if it is bfloat16")
        if self._shown is None:
            self._shown = self.__dlpack__(max_version=(1, 0))  # keeps the memory alive
        size = _SIZES[info.dtype]
        return {"version": 3, "typestr": _TYPESTR[info.dtype], "shape": self.shape,
                "strides": tuple(s * size for s in info.strides[:info.ndim]),
                "data": (info.data or 0, bool(info.read_only))}


#: repr shows this many elements at each end of a dimension, if the tensor has more elements than
#: the second number.
_EDGE, _SHOWN_WHOLE = 3, 1000


def _edges(x, dim=0):
    """Returns the values as nested lists from dimension `dim` on, with None for omitted elements.
    Earlier dimensions have one element. Reads only the values that it returns."""
    size = x.shape[dim]
    parts = [(i, i + 1) for i in range(size)]
    if dim == x.ndim - 1:
        parts = [(0, size)] if size <= 2 * _EDGE else [(0, _EDGE), (size - _EDGE, size)]
    elif size > 2 * _EDGE:
        parts = parts[:_EDGE] + parts[-_EDGE:]
    all_of_it = (slice(None),) * dim
    values = []
    for begin, end in parts:
        if begin > 0 and begin == size - _EDGE:
            values.append(None)
        part = x[(*all_of_it, slice(begin, end))]
        if dim < x.ndim - 1:
            values.append(_edges(part, dim + 1))
            continue
        row = part.tolist()
        for _ in range(dim):
            row = row[0]
        values += row
    return values


def _texts(value):
    if isinstance(value, list):
        return [_texts(one) for one in value]
    if value is None:
        return "..."
    text = f"{value:.5g}" if isinstance(value, float) else str(value)
    return text + "." if isinstance(value, float) and text.lstrip("-").isdigit() else text


def _width(texts):
    if isinstance(texts, str):
        return len(texts)
    return max(map(_width, texts), default=0)


def _brackets(texts, dims, width, indent):
    if isinstance(texts, str):
        return texts if texts == "..." else texts.rjust(width)
    between = ", " if dims == 1 else ",\n" + " " * indent
    return "[" + between.join(_brackets(one, dims - 1, width, indent + 1) for one in texts) + "]"


def _values_text(x):
    """Returns the values in brackets, aligned, a line for each row."""
    texts = _texts(x.tolist() if x.size <= _SHOWN_WHOLE else _edges(x))
    return _brackets(texts, x.ndim, _width(texts), len("shale.Tensor(["))


def _nest(flat, shape):
    if not shape:
        return flat[0]
    rest = math.prod(shape[1:])
    return [_nest(flat[i * rest:(i + 1) * rest], shape[1:]) for i in range(shape[0])]


def _flatten(values):
    """Returns the numbers of nested lists, and their shape."""
    if not isinstance(values, (list, tuple)):
        return [values], ()
    parts = [_flatten(value) for value in values]
    shapes = {shape for _, shape in parts}
    if len(shapes) > 1:
        raise _library.ArgumentError(f"nested lists have the shapes {sorted(shapes)}, expected "
                                     "one shape")
    return [x for flat, _ in parts for x in flat], (len(parts), *(shapes.pop() if shapes else ()))


def _host_bytes(values, dtype):
    """Returns the bytes of values in host memory, their shape and their dtype number."""
    if hasattr(values, "tobytes") and hasattr(values, "shape"):
        code = dtype_code(values.dtype) if hasattr(values, "dtype") else _buffer_code(values)
        if dtype is not None and dtype_code(dtype) != code:
            raise _library.ArgumentError(f"values are {_NAMES[code]}, expected {dtype}")
        return values.tobytes(), tuple(values.shape), code
    if not isinstance(values, (list, tuple, int, float)):
        return _host_bytes(memoryview(values), dtype)
    flat, shape = _flatten(values)
    if dtype is None:
        dtype = "int32" if flat and all(isinstance(x, int) for x in flat) else "float32"
    code = dtype_code(dtype)
    if _FORMATS[code] is None:
        raise _library.ArgumentError(f"lists have no {dtype}; use float32 and cast()")
    return struct.pack(f"={len(flat)}{_FORMATS[code]}", *flat), shape, code


def _buffer_code(view):
    view = memoryview(view)
    text = view.format.lstrip("@=<")
    text = {"l": "q", "L": None}.get(text, text)
    if text not in _FORMATS or text is None:
        raise _library.ArgumentError(f"elements of format {view.format!r} are not supported")
    return _FORMATS.index(text)


def tensor(values, dtype=None, *, requires_grad=False):
    """Copies numbers, nested lists, or an array of another library."""
    if hasattr(values, "__dlpack__") and not hasattr(values, "tobytes"):
        x = from_dlpack(values).clone()
        x = x if dtype is None or x.dtype == dtype else x.cast(dtype)
        x.requires_grad = requires_grad
        return x
    data, shape, code = _host_bytes(values, dtype)
    count, sizes = _library.dims(shape)
    x = Tensor(result("tensor_from_host", _runtime.handle(), data, code, count, sizes))
    if requires_grad:
        x.requires_grad = True
    return x


def full(shape, value, dtype="float32"):
    """Returns a tensor filled with one value."""
    count, sizes = _library.dims(shape)
    return Tensor(result("tensor_full", _runtime.handle(), dtype_code(dtype), count, sizes, value))


def zeros(shape, dtype="float32"):
    """Returns a tensor of zeros."""
    return full(shape, 0, dtype)


def _seed(seed):
    return None if seed is None else ctypes.byref(ctypes.c_void_p(seed))


def randn(shape, dtype="float32", seed=None):
    """Returns normal random numbers. seed: default: the next numbers of the runtime's seed."""
    count, sizes = _library.dims(shape)
    return Tensor(result("randn", _runtime.handle(), dtype_code(dtype), count, sizes, _seed(seed)))


def uniform(shape, low=0.0, high=1.0, dtype="float32", seed=None):
    """Returns random numbers in [low, high)."""
    count, sizes = _library.dims(shape)
    return Tensor(result("uniform", _runtime.handle(), dtype_code(dtype), count, sizes, low, high,
                         _seed(seed)))


def arange(begin, end=None, step=1, dtype="int32"):
    """Returns begin, begin + step, ..., before end; arange(n): from 0 to n - 1."""
    begin, end = (0, begin) if end is None else (begin, end)
    return Tensor(result("arange", _runtime.handle(), dtype_code(dtype), begin, end, step))


def linspace(first, last, count, dtype="float32"):
    """Returns count numbers from first to last at equal distances."""
    return Tensor(result("linspace", _runtime.handle(), dtype_code(dtype), first, last, count))


def from_dlpack(x):
    """Shares the memory of another library's tensor, without a copy."""
    from . import _dlpack
    return Tensor(_dlpack.take(x, _runtime.handle()))


def as_tensor(x):
    """Shares the memory of an object with the array interface, DLPack or the buffer protocol."""
    if isinstance(x, Tensor):
        return x
    if hasattr(x, "__array_interface__"):
        return _from_interface(x, x.__array_interface__)
    if hasattr(x, "__dlpack__"):
        return from_dlpack(x)
    view = memoryview(x)
    from . import _dlpack
    holder, address = _dlpack.buffer_address(x)
    code = _buffer_code(view)
    strides = [s // view.itemsize for s in view.strides]
    return _from_memory(holder, address, code, view.shape, strides, view.readonly)


def _from_interface(owner, interface):
    typestr = interface["typestr"]
    if typestr not in _TYPESTR:
        raise _library.ArgumentError(f"elements of type {typestr} are not supported")
    code = _TYPESTR.index(typestr)
    shape = interface["shape"]
    given = interface.get("strides")
    if given is not None and any(s % _SIZES[code] for s in given):
        raise _library.ArgumentError(f"strides are {given} bytes, expected multiples of the "
                                     "element size")
    strides = None if given is None else [s // _SIZES[code] for s in given]
    address, read_only = interface["data"]
    return _from_memory((owner, interface), address, code, shape, strides, read_only)


def _from_memory(owner, address, code, shape, strides, read_only):
    count, sizes = _library.dims(shape)
    memory = _library.options(_library.Memory, data=address, dtype=code, ndim=count, shape=sizes,
                              read_only=int(read_only), release=_release)
    if strides is not None:
        memory.strides = _library.dims(strides)[1]
    memory.owner = number = next(_owner_numbers)
    _owners[number] = owner
    try:
        return Tensor(result("tensor_from_memory", _runtime.handle(), ctypes.byref(memory)))
    except BaseException:
        _owners.pop(number, None)
        raise
