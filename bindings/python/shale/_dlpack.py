"""DLPack capsules and buffer addresses, with the interpreter's C functions."""

import ctypes
import sys

from . import _library
from ._library import call, result

_api = ctypes.pythonapi
# These functions take the address of a capsule, because a destructor gets only the address.
_new = _api.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_is_valid = _api.PyCapsule_IsValid
_is_valid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_pointer = _api.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_set_name = _api.PyCapsule_SetName
_set_name.argtypes = [ctypes.py_object, ctypes.c_char_p]

# Module variables, because capsules point to their names.
_VERSIONED, _LEGACY = b"dltensor_versioned", b"dltensor"
_USED_VERSIONED, _USED_LEGACY = b"used_dltensor_versioned", b"used_dltensor"
_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("owner", ctypes.c_void_p), ("deleter", _Deleter)]


class _Legacy(ctypes.Structure):
    # `tensor` is a DLTensor of 48 bytes.
    _fields_ = [("tensor", ctypes.c_uint64 * 6), ("owner", ctypes.c_void_p), ("deleter", _Deleter)]


def _end(capsule, ends=sys.is_finalizing):
    """Destroys a capsule whose tensor was not consumed. At interpreter exit, which first removes
    this module's names, the process frees the memory."""
    if ends():
        return
    for name, struct in ((_VERSIONED, _Versioned), (_LEGACY, _Legacy)):
        if _is_valid(capsule, name):
            address = _pointer(capsule, name)
            struct.from_address(address).deleter(address)


_destroy = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_end)
_api.Py_IncRef(ctypes.py_object(_destroy))  # capsules may outlive this module
_destructor = ctypes.cast(_destroy, ctypes.c_void_p)


def make_capsule(x, legacy):
    """Returns a capsule of a tensor's memory."""
    managed = ctypes.c_void_p()
    call("tensor_to_dlpack", x, int(legacy), ctypes.byref(managed))
    return _new(managed, _LEGACY if legacy else _VERSIONED, _destructor)


def take(x, runtime):
    """Returns a handle to the memory of an object with __dlpack__(), or of a capsule."""
    capsule = x
    if hasattr(x, "__dlpack__"):
        try:
            capsule = x.__dlpack__(max_version=(1, 1))
        except TypeError:
            capsule = x.__dlpack__()
    for name, used in ((_VERSIONED, _USED_VERSIONED), (_LEGACY, _USED_LEGACY)):
        if _is_valid(id(capsule), name):
            managed = _pointer(id(capsule), name)
            handle = result("tensor_from_dlpack", runtime, managed, int(name is _LEGACY))
            _set_name(capsule, used)
            return handle
    raise _library.ArgumentError(
        f"from_dlpack: expected an object with __dlpack__() or a capsule that was not used yet, "
        f"found {type(x).__name__}")


class _Buffer(ctypes.Structure):
    """Py_buffer of the stable interface."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int),
                ("ndim", ctypes.c_int), ("format", ctypes.c_void_p), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p),
                ("internal", ctypes.c_void_p)]


_get_buffer = _api.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int]
_release_buffer = _api.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_Buffer)]
_STRIDES = 0x0010 | 0x0008  # PyBUF_STRIDES


class _Holder:
    """Keeps the buffer of an object at its address."""

    def __init__(self, x):
        self.buffer = _Buffer()
        self._held = False
        _get_buffer(x, ctypes.byref(self.buffer), _STRIDES)
        self._held = True

    def __del__(self):
        if self._held:
            _release_buffer(ctypes.byref(self.buffer))


def buffer_address(x):
    """Returns an owner that keeps the object's buffer alive, and its address."""
    holder = _Holder(x)
    return holder, holder.buffer.buf
