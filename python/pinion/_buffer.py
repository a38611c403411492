# SPDX-License-Identifier: BSD-2-Clause
"""Where the bytes of a Python object are.

`readable(obj)` and `writable(obj)` return (hold, address, nbytes). As long as
`hold` lives, the memory stays where it is: the object is kept, and an object
that could be resized refuses that (BufferError). Accepted are, in this order,

- the buffer protocol: bytes, bytearray, array.array, memoryview, NumPy arrays,
  mmap, ctypes; what is read-only is readable, not writable;
- tensors: objects with data_ptr(), numel(), element_size(), is_contiguous() and
  a `device`, as torch's, in the memory of the host;
- `__array_interface__`.

All must be C-contiguous: pinion moves bytes from one address on.
"""

import ctypes
import sys
import weakref
from typing import Any, Dict, List, Tuple

Place = Tuple[Any, int, int]

_addressof = ctypes.addressof
# An array without elements over a writable, contiguous buffer: it holds the
# buffer, and its address is the buffer's. The cheapest way that ctypes has.
_over = (ctypes.c_char * 0).from_buffer

_PyBUF_SIMPLE = 0
_PyBUF_WRITABLE = 1


class _PyBuffer(ctypes.Structure):
    """Py_buffer, part of CPython's stable ABI since 3.11."""

    _fields_ = [
        ("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
        ("format", ctypes.c_void_p), ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_api: Any = ctypes.pythonapi
_get_buffer = _api["PyObject_GetBuffer"]
_get_buffer.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
_get_buffer.restype = ctypes.c_int
_release_buffer = _api["PyBuffer_Release"]
_release_buffer.argtypes = [ctypes.c_void_p]
_release_buffer.restype = None


class _Export:
    """A buffer of the buffer protocol, held."""

    __slots__ = ("view", "live")

    def __init__(self, obj: Any, flags: int) -> None:
        self.live = False
        self.view = _PyBuffer()
        _get_buffer(obj, ctypes.byref(self.view), flags)  # raises
        self.live = True

    def __del__(self) -> None:
        if self.live:
            self.live = False
            _release_buffer(ctypes.byref(self.view))


class _Tensor:
    """A tensor, held. Nothing keeps torch from resizing it: that is noticed
    when the memory is let go."""

    __slots__ = ("tensor", "address")

    def __init__(self, tensor: Any, address: int) -> None:
        self.tensor = tensor
        self.address = address

    def moved(self) -> bool:
        return bool(self.tensor.data_ptr() != self.address)


def _name(obj: Any) -> str:
    return f"{type(obj).__module__}.{type(obj).__qualname__}"


def _export(obj: Any, write: bool) -> Place:
    """Through the buffer protocol, with what is wrong in words."""
    try:
        with memoryview(obj) as view:
            if write and view.readonly:
                raise TypeError(
                    f"{_name(obj)} is read-only: it can be sent and put from, "
                    "not received into")
            if not view.c_contiguous:
                raise TypeError(
                    f"{_name(obj)} is not contiguous: use "
                    "numpy.ascontiguousarray() or a copy")
            if "O" in view.format:
                raise TypeError(f"{_name(obj)} refers to objects of Python, "
                                "which are not bytes")
    except BufferError as error:
        raise TypeError(f"{_name(obj)}: {error}") from None
    hold = _Export(obj, _PyBUF_WRITABLE if write else _PyBUF_SIMPLE)
    return hold, hold.view.buf or 0, hold.view.len


def _tensor(obj: Any) -> Place:
    device = getattr(obj.device, "type", str(obj.device))
    if device != "cpu":
        raise TypeError(f"{_name(obj)} is in the memory of {device}, not of "
                        "the host: pinion.cuda.copy() copies it")
    if not obj.is_contiguous():
        raise TypeError(f"{_name(obj)} is not contiguous: use .contiguous()")
    address = int(obj.data_ptr())
    nbytes = int(obj.numel()) * int(obj.element_size())
    return _Tensor(obj, address), address, nbytes


def _interface(obj: Any, interface: Any, write: bool) -> Place:
    try:
        address, readonly = interface["data"]
        shape, typestr = tuple(interface["shape"]), interface["typestr"]
        nbytes = int(typestr[2:])
        strides = interface.get("strides")
    except (KeyError, TypeError, ValueError) as error:
        raise TypeError(f"{_name(obj)}: __array_interface__ is not "
                        f"understood ({error!r})") from None
    expected: List[int] = []
    for length in reversed(shape):
        expected.insert(0, nbytes)
        nbytes *= int(length)
    if strides is not None and tuple(strides) != tuple(expected):
        raise TypeError(f"{_name(obj)} is not contiguous")
    if write and readonly:
        raise TypeError(f"{_name(obj)} is read-only: it can be sent and put "
                        "from, not received into")
    if typestr[1] == "O":
        raise TypeError(f"{_name(obj)} refers to objects of Python")
    return (obj, interface), int(address), nbytes


def _place(obj: Any, write: bool) -> Place:
    """All that is not on the short path."""
    global _ndarray
    kind = type(obj)
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        _ndarray = sys.modules["numpy"].ndarray
    try:
        memoryview(obj).release()
    except TypeError:
        pass
    except (BufferError, ValueError) as error:
        raise TypeError(f"{_name(obj)}: {error}") from None
    else:
        return _export(obj, write)
    if all(hasattr(obj, name) for name in
           ("data_ptr", "numel", "element_size", "is_contiguous", "device")):
        return _tensor(obj)
    interface = getattr(obj, "__array_interface__", None)
    if isinstance(interface, dict):
        return _interface(obj, interface, write)
    if hasattr(obj, "__cuda_array_interface__"):
        raise TypeError(f"{_name(obj)} is in the memory of a GPU, not of the "
                        "host: pinion.cuda.copy() copies it")
    if isinstance(obj, str):
        raise TypeError("a text is not bytes: use text.encode()")
    raise TypeError(f"{_name(obj)} has no memory that pinion can reach: it "
                    "takes bytes, bytearray, memoryview, NumPy arrays, torch "
                    "tensors and whatever has the buffer protocol")


# NumPy arrays that were seen, by their id: finding out again where the bytes of
# an array are would take longer than the call that needs it. `data` is a view
# of the array's own pointer to its bytes, which ctypes reads whenever `data` is
# passed; that pointer follows the object's head in every NumPy (its macros are
# compiled into programs), and it is compared with the buffer protocol's once.
# A reference to an array keeps it where it is: resize() refuses then. Dead
# arrays leave the table before their id can be that of another object.
arrays: Dict[int, Tuple[Any, Any, int, Any]] = {}
_HEAD = object.__basicsize__


def remember(array: Any, address: int) -> None:
    """Enters a writable, contiguous array without objects."""
    key = id(array)
    data = ctypes.c_void_p.from_address(key + _HEAD)
    if data.value == address and address:
        nbytes = array.nbytes
        arrays[key] = (weakref.ref(array, lambda _: arrays.pop(key, None)),
                       data, nbytes, ctypes.c_size_t(nbytes))


# numpy.ndarray, once one was seen: its `nbytes` can be trusted, which the
# attribute of a class that derives from it cannot.
_ndarray: Any = None


def writable(obj: Any) -> Place:
    """Memory that may be written."""
    if type(obj) is _ndarray and not obj.dtype.hasobject:
        try:
            hold = _over(obj)
        except (TypeError, BufferError, ValueError):
            return _place(obj, True)
        address = _addressof(hold)
        if id(obj) not in arrays:
            remember(obj, address)
        return hold, address, obj.nbytes
    return _place(obj, True)


def readable(obj: Any) -> Place:
    """Memory that may be read."""
    if type(obj) is _ndarray and not obj.dtype.hasobject:
        try:
            return writable(obj)
        except TypeError:
            pass
    return _place(obj, False)
