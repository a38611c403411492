# SPDX-License-Identifier: BSD-2-Clause
"""Heaps: arrays in memory that is registered already.

A block belongs to the object that was made over it: a NumPy array, a tensor, a
memoryview. When the last reference to that is gone the block is freed. A heap
that was closed, and its context, stay in the C library until the last block is.
"""

import ctypes
import importlib
import itertools
import os
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple, Union

from . import _buffer, _context, _declared
from ._library import NULL, call, library, logged

Shape = Union[int, Sequence[int]]

_FLAGS = {
    "normal": _declared.PINION_HEAP_NORMAL_PAGES,
    "preferred": _declared.PINION_HEAP_HUGE_PREFERRED,
    "reserved": _declared.PINION_HEAP_HUGE_RESERVED,
}


class HeapStats(NamedTuple):
    """Gauges and counters (pinion_heap_query)."""

    slabs: int
    """registered now"""
    slab_bytes: int
    """their length: what the budget counts"""
    run_bytes: int
    """of that, in use for blocks"""
    registrations: int
    returned: int


class Block:
    """Memory of a heap; freed when it is dropped. NumPy and others make arrays
    over it by `__array_interface__`."""

    __slots__ = ("_heap", "_key", "address", "nbytes", "__weakref__")

    def __init__(self, heap: "Heap", address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes
        self._key = next(heap._keys)
        heap._live[self._key] = None
        self._heap = heap

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        return {"version": 3, "data": (self.address, False),
                "shape": (self.nbytes,), "typestr": "|u1"}

    def __del__(self) -> None:
        heap = getattr(self, "_heap", None)
        if heap is not None:
            heap._free(self._key, self.address)


class Heap(_context.Owner):
    """Memory that is registered already: sending it, receiving into it and
    putting from it registers nothing.

    >>> heap = ctx.heap()
    >>> a = heap.empty((1000, 1000), "float32")     # a NumPy array
    >>> t = heap.tensor((1000, 1000), torch.float16)
    >>> m = heap.buffer(4096)                       # a memoryview

    Memory comes from the system in slabs of at least 1 MiB and goes back a
    while after the last array in a slab is dropped. Attributes, all optional:

    slab_bytes      what is taken and registered at a time
    max_bytes       all slabs together
    return_seconds  how long an empty slab stays; float("inf"): for ever
    access          Access bits that the memory grants; default: all
    numa_node       preferred NUMA node
    pages           "normal", "preferred" (huge) or "reserved" (huge)
    in_children     False: fork leaves the memory out
    """

    def __init__(self, context: "_context.Context", *, slab_bytes: int = 0,
                 max_bytes: int = 0, return_seconds: Optional[float] = None,
                 access: int = 0, numa_node: Optional[int] = None,
                 pages: Optional[str] = None,
                 in_children: bool = True) -> None:
        # Blocks by number: an address is another block's as soon as it is
        # free.
        self._live: Dict[int, None] = {}
        self._keys = itertools.count()
        self._context = _context.checked("context", context, _context.Context)
        attr = _declared.pinion_heap_attr(
            ctypes.sizeof(_declared.pinion_heap_attr),
            _context._natural("slab_bytes", slab_bytes),
            _context._natural("max_bytes", max_bytes),
            _microseconds(return_seconds))
        attr.access = _context._natural("access", access, 32)
        if numa_node is not None:
            attr.numa_node = _context._natural("numa_node", numa_node, 32)
            attr.flags |= _declared.PINION_HEAP_ON_NODE
        if pages is not None:
            if pages not in _FLAGS:
                raise ValueError(f"pages: one of {', '.join(_FLAGS)}")
            attr.flags |= _FLAGS[pages]
        if not in_children:
            attr.flags |= _declared.PINION_HEAP_NOT_IN_CHILDREN
        self._open_heap(attr)

    @_context.enters
    def _open_heap(self, attr: Any) -> None:
        out = ctypes.c_void_p()
        context = self._context
        logged()
        ret = call.heap_open(context._arg, ctypes.byref(attr),
                             ctypes.byref(out))
        if ret:
            raise context.failed("heap_open", ret)
        self._handle = out.value
        self._open(out.value or 0)
        context._open_heaps[self._handle or 0] = None
        context._heaps.add(self)

    # --- allocating ---

    @_context.enters
    def block(self, nbytes: int, alignment: int = 0) -> Block:
        """Uninitialised bytes, for those who wrap memory themselves: its
        `address` and `nbytes`, or whatever takes `__array_interface__`."""
        nbytes = _context._natural("nbytes", nbytes)
        alignment = _context._natural("alignment", alignment)
        ctypes.set_errno(0)
        if alignment:
            address = _heap_aligned(self._arg, alignment, nbytes or 1)
        else:
            address = _heap_malloc(self._arg, nbytes or 1)
        if not address:
            raise self.failed("heap_malloc", -ctypes.get_errno())
        return Block(self, address, nbytes)

    def empty(self, shape: Shape, dtype: Any = float) -> Any:
        """A NumPy array, uninitialised."""
        import numpy
        kind = numpy.dtype(dtype)
        if kind.hasobject:
            raise TypeError("objects of Python cannot be in registered memory")
        shape, count = _elements(shape)
        block = self.block(count * kind.itemsize)
        return numpy.asarray(block).view(kind).reshape(shape) \
            if kind.itemsize and count else numpy.empty(shape, kind)

    def zeros(self, shape: Shape, dtype: Any = float) -> Any:
        """A NumPy array of zeros."""
        array = self.empty(shape, dtype)
        # Bytes, since 0 as a text is "0".
        ctypes.memset(array.ctypes.data, 0, array.nbytes)
        return array

    def array(self, values: Any, dtype: Any = None) -> Any:
        """A NumPy array with a copy of what is given."""
        import numpy
        source = numpy.asarray(values, dtype)
        array = self.empty(source.shape, source.dtype)
        array[...] = source
        return array

    def tensor(self, shape: Shape, dtype: Any = None) -> Any:
        """A torch tensor, uninitialised; dtype None: torch's default."""
        torch: Any = importlib.import_module("torch")
        dtype = dtype or torch.get_default_dtype()
        shape, count = _elements(shape)
        nbytes = count * torch.empty(0, dtype=dtype).element_size()
        if not nbytes:
            return torch.empty(shape, dtype=dtype)
        import numpy
        flat = torch.from_numpy(numpy.asarray(self.block(nbytes)))
        return flat.view(dtype).view(shape)

    def buffer(self, nbytes: int) -> memoryview:
        """A writable memoryview of bytes, without NumPy."""
        block = self.block(nbytes)
        memory = (ctypes.c_ubyte * nbytes).from_address(block.address)
        # The memoryview keeps `memory`, and that keeps the block.
        setattr(memory, "_block", block)
        return memoryview(memory).cast("B")

    def _free(self, key: int, address: int) -> None:
        """Called by a block that is dropped, in any thread. The block leaves
        `_live` last: until then nobody closes the heap in C."""
        if key in self._live and self._handle is not None:
            call.heap_free(self._handle, address)
            del self._live[key]
            if self._left:
                self._finish()

    # --- what it says ---

    @_context.enters
    def contains(self, obj: Any) -> bool:
        """Whether the object's memory is of this heap."""
        _hold, address, _nbytes = _buffer.readable(obj)
        return bool(call.heap_contains(self._arg, address))

    def stats(self) -> HeapStats:
        """How much is registered and in use."""
        return _context.as_tuple(HeapStats, self._query(
            "heap_query", _declared.pinion_heap_stats()))

    @_context.enters
    def trim(self) -> None:
        """Returns all that is empty to the system now."""
        ret = call.heap_trim(self._arg)
        if ret:
            raise self.failed("heap_trim", ret)

    # --- the end ---

    def close(self) -> None:
        """Nothing more is allocated. Memory goes back when the last array is
        dropped, at once if there is none."""
        if self._arg is not NULL:
            self._arg = NULL
            if not self._leave():
                raise RuntimeError("another thread is inside this heap")
        self._finish()

    def _finish(self) -> None:
        """Closes the heap in C when nothing uses it any more."""
        if self._live or not self._left or self._handle is None:
            return
        handle, self._handle = self._handle, None
        if os.getpid() == self._pid:
            call.heap_close(handle)
        self._context._open_heaps.pop(handle, None)
        self._context._finish()

    def __enter__(self) -> "Heap":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._handle is not None:
            self.close()


def _microseconds(seconds: Optional[float]) -> int:
    if seconds is None:
        return 0
    if not seconds >= 0:
        raise ValueError("return_seconds: a time")
    if seconds == float("inf"):
        return _declared.PINION_HEAP_KEEP
    return max(1, min(int(seconds * 1e6), 2**63))


def _elements(shape: Shape) -> Tuple[Tuple[int, ...], int]:
    """A shape as a tuple, and how many elements it has."""
    if isinstance(shape, (str, bytes)):
        raise TypeError("shape: a number or numbers")
    numbers = tuple(shape) if hasattr(shape, "__iter__") else (shape,)
    count = 1
    sizes = tuple(_context._natural("shape", n) for n in numbers)
    for size in sizes:
        count *= size
    return sizes, _context._natural("shape", count)


def _with_errno(name: str) -> Any:
    """A function that returns NULL and errno."""
    function: Any = getattr(ctypes.CDLL(library._name, use_errno=True),
                            "pinion_" + name)
    function.restype, function.argtypes = _declared.FUNCTIONS["pinion_" + name]
    return function


_heap_malloc = _with_errno("heap_malloc")
_heap_aligned = _with_errno("heap_aligned")
