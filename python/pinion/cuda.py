# SPDX-License-Identifier: BSD-2-Clause
"""Copies between the memory of the host and of NVIDIA GPUs.

The driver copies memory that is not pinned several times slower than the bus
allows. pinion's threads move such memory through pinned buffers, or register it
where that pays:

>>> import pinion.cuda
>>> pinion.cuda.copy(gpu_tensor, array)         # to the GPU
>>> pinion.cuda.copy(array, gpu_tensor)         # and back
>>> t = pinion.cuda.to_device(array)            # a new torch tensor
>>> with pinion.cuda.accelerate():              # in code that is not yours
...     model.load_state_dict(...); x = x.cuda(); y = y.cpu()

Memory of the host is whatever Context.pin() takes, memory of a GPU a torch
tensor or an object with `__cuda_array_interface__`. Copies keep the order of a
stream: the one that is given, else torch's current one where a tensor is
involved, else the one that the interface names, else the default stream. A
default stream is that of the GPU that has the memory, whichever GPU is current.
"""

import contextlib
import ctypes
import importlib
import os
import sys
import threading
import time
from errno import EAGAIN, ETIMEDOUT
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import _buffer, _context, _declared, _errors
from ._library import call, logged

_SLICE_US = 100_000

_lock = threading.Lock()
_opened: Dict[Tuple[int, int], _context.Context] = {}


class CopyStats(NamedTuple):
    """How bytes moved, of the copies of a context (pinion_cuda_query)."""

    driver: int
    """the driver's own copy"""
    bounced: int
    """by copy workers, through bounce buffers"""
    registered: int
    """from or to memory that is kept registered"""
    mixed: int
    bounced_bytes: int
    registered_bytes: int
    background_blocks: int
    background_bytes: int
    explored: int
    bounce_bytes: int
    workers: int
    workers_asleep: int


def context(device: int = 0) -> _context.Context:
    """The context that copies of that GPU use; opened at the first time."""
    device = _context._natural("device", device, 31)
    key = (os.getpid(), device)
    with _lock:
        found = _opened.get(key)
        if found is None or found.closed:
            found = _opened[key] = _context.Context(f"cuda:{device}")
        return found


def stats(device: int = 0) -> CopyStats:
    """Counters of the copies."""
    made = context(device)
    return _context.as_tuple(CopyStats, made._query(
        "cuda_query", _struct("pinion_cuda_stats")()))


def _struct(name: str) -> Any:
    found = getattr(_declared, name, None)
    if found is None:
        raise NotImplementedError("this package was made for a library "
                                  "without CUDA")
    return found


class _Gpu(NamedTuple):
    """Memory of a GPU."""

    hold: Any
    address: int
    nbytes: int
    device: int
    stream: Optional[int]  # torch's current one, or the interface's


def _interface_stream(obj: Any, interface: Dict[str, Any]) -> Optional[int]:
    """The stream whose work has to end before the memory is used. As in CUDA, 1
    is the legacy default stream and 2 that of the thread; 0 would be either,
    and the interface forbids it."""
    stream = interface.get("stream")
    if stream is not None and (not isinstance(stream, int) or stream < 1):
        raise TypeError(f"{type(obj).__name__}: {stream!r} is no stream of "
                        "__cuda_array_interface__")
    return stream


def _gpu(obj: Any, write: bool) -> Optional[_Gpu]:
    """None: not in the memory of a GPU."""
    if getattr(getattr(obj, "device", None), "type", None) == "cuda":
        if not obj.is_contiguous():
            raise TypeError("the tensor is not contiguous: use .contiguous()")
        torch: Any = sys.modules["torch"]
        stream = torch.cuda.current_stream(obj.device).cuda_stream
        return _Gpu(obj, obj.data_ptr(), obj.numel() * obj.element_size(),
                    obj.device.index or 0, stream)
    interface = getattr(obj, "__cuda_array_interface__", None)
    if not isinstance(interface, dict):
        return None
    hold, address, nbytes = _buffer._interface(obj, interface, write)
    return _Gpu(hold, address, nbytes, 0, _interface_stream(obj, interface))


class Copy:
    """A copy under way, which holds its memory. wait() sleeps until it has
    ended, done() looks. One that is dropped is waited for. Any thread may call
    both."""

    _handle: Any = None  # also of one that was not made

    @_context.enters
    def __init__(self, made: _context.Context, hold: Any, attr: Any) -> None:
        self._context = _context.checked("made", made, _context.Context)
        self._hold = hold
        self._lock = threading.Lock()  # held by the thread that asks
        # Before the call: a signal may raise an exception right after it.
        self._handle = out = ctypes.c_void_p()
        logged()
        ret = call.cuda_copy_start(made._arg, ctypes.byref(attr),
                                   ctypes.byref(out))
        if ret:
            raise made.failed("cuda_copy_start", ret)

    def _ask(self, microseconds: int) -> bool:
        """True: it has ended. The question that finds that out frees the
        handle: one thread at a time asks."""
        if not self._lock.acquire(blocking=False):
            if not self._lock.acquire(timeout=microseconds / 1e6):
                return False
            microseconds = 0
        try:
            return self._ask_locked(microseconds)
        finally:
            self._lock.release()

    @_context.enters
    def _ask_locked(self, microseconds: int) -> bool:
        handle = self._handle
        if not handle:
            return True
        if self._context.closed:
            raise self._context.failed("cuda_wait", -EAGAIN)
        # Stored without going through the interpreter, which may raise a
        # signal's exception between two of its steps.
        results: List[int] = []
        try:
            results.extend(map(call.cuda_wait, (handle,), (microseconds,)))
        finally:
            ended = results and results[0] not in (-ETIMEDOUT, -EAGAIN)
            if ended:
                self._handle = self._hold = None
        if ended and results[0]:
            raise self._context.failed("cuda_wait", results[0])
        return bool(ended)

    def wait(self, timeout: Optional[float] = None) -> "Copy":
        """Sleeps until it has ended. TimedOut: it goes on."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._ask(_SLICE_US if until is None else max(0, min(
                int((until - time.monotonic()) * 1e6), _SLICE_US))):
            if until is not None and time.monotonic() >= until:
                raise _errors.error("wait", -ETIMEDOUT)
        return self

    def done(self) -> bool:
        """Whether it has ended; False while another thread waits for it."""
        return self._ask(0)

    def __del__(self) -> None:
        if self._handle and not self._context.closed and \
                self._context._pid == os.getpid():
            self.wait()


def copy_start(dst: Any, src: Any, stream: Optional[int] = None) -> Copy:
    """Begins a copy in which one end, or both, is memory of a GPU. Work that
    the stream gets from now on begins after it. The memory of the host belongs
    to the copy until it has ended."""
    to, source = _gpu(dst, True), _gpu(src, False)
    if to is None and source is None:
        raise TypeError("neither is in the memory of a GPU")
    to_place = to[:3] if to is not None else _buffer.writable(dst)
    from_place = source[:3] if source is not None else _buffer.readable(src)
    if to_place[2] != from_place[2]:
        raise ValueError(f"{from_place[2]} bytes do not fit into "
                         f"{to_place[2]} bytes")
    ends = [g for g in (to, source) if g is not None]
    # The one that names the stream; default streams are those of its GPU.
    gpu = next((g for g in ends if g.stream is not None), ends[0])
    if stream is None:
        stream = gpu.stream or 0
    kind = _struct("pinion_cuda_copy_attr")
    attr = kind(ctypes.sizeof(kind), 0, to_place[1], from_place[1],
                to_place[2], stream, gpu.address)
    return Copy(context(gpu.device), (to_place[0], from_place[0]), attr)


def copy(dst: Any, src: Any, stream: Optional[int] = None) -> None:
    """Copies, and returns when the memory of the host is free again."""
    copy_start(dst, src, stream).wait()


def to_device(array: Any, device: Any = None) -> Any:
    """A torch tensor on a GPU with a copy of an array or a tensor. `device`:
    as torch.device() takes it; None: torch's current GPU."""
    torch: Any = importlib.import_module("torch")
    source = array if isinstance(array, torch.Tensor) else \
        torch.from_numpy(array)
    where = torch.device("cuda" if device is None else device)
    result = torch.empty(source.shape, dtype=source.dtype, device=where)
    if source.numel():
        copy(result, source.contiguous())
    return result


# Below, the driver's copy is as fast (pinion bench cuda), and torch's own
# functions cost less.
_WORTH_BYTES = 4 << 20


def _plain(tensor: Any) -> bool:
    """Whether a tensor is one that the functions below copy."""
    torch: Any = sys.modules["torch"]
    return (type(tensor) is torch.Tensor and not tensor.requires_grad and
            tensor.layout is torch.strided and tensor.is_contiguous() and
            not tensor.is_conj() and not tensor.is_neg() and
            tensor.numel() * tensor.element_size() >= _WORTH_BYTES)


_accelerated = 0
_originals: Dict[str, Any] = {}


def _cuda(self: Any, device: Any = None, *arguments: Any,
          **options: Any) -> Any:
    if arguments or options or not self.device.type == "cpu" or \
            not _plain(self) or self.is_pinned():
        return _originals["cuda"](self, device, *arguments, **options)
    return to_device(self, "cuda" if device is None else
                     f"cuda:{device}" if isinstance(device, int) else device)


def _cpu(self: Any, *arguments: Any, **options: Any) -> Any:
    if arguments or options or not self.device.type == "cuda" or \
            not _plain(self):
        return _originals["cpu"](self, *arguments, **options)
    torch: Any = sys.modules["torch"]
    result = torch.empty(self.shape, dtype=self.dtype)
    copy(result, self)
    return result


def _to(self: Any, *arguments: Any, **options: Any) -> Any:
    """tensor.to(device) alone; all else is torch's."""
    torch: Any = sys.modules["torch"]
    if len(arguments) == 1 and not options and \
            isinstance(arguments[0], (str, torch.device)):
        where = torch.device(arguments[0])
        if where.type == "cuda" and self.device.type == "cpu":
            return _cuda(self, where)
        if where.type == "cpu" and self.device.type == "cuda":
            return _cpu(self)
    return _originals["to"](self, *arguments, **options)


@contextlib.contextmanager
def accelerate() -> Iterator[None]:
    """Inside, .cuda(), .cpu() and .to(device) of torch's tensors go through
    pinion, in all threads: those of contiguous tensors of 4 MiB and more that
    are not pinned and need no gradient. Others are torch's own, as are copies
    with further arguments. May be nested."""
    torch: Any = importlib.import_module("torch")
    global _accelerated
    with _lock:
        if not _accelerated:
            for name, function in (("cuda", _cuda), ("cpu", _cpu),
                                   ("to", _to)):
                _originals[name] = getattr(torch.Tensor, name)
                setattr(torch.Tensor, name, function)
        _accelerated += 1
    try:
        yield
    finally:
        with _lock:
            _accelerated -= 1
            if not _accelerated:
                for name, function in _originals.items():
                    setattr(torch.Tensor, name, function)
