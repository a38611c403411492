# SPDX-License-Identifier: BSD-2-Clause
"""Contexts, pins and what they say of themselves.

Life: a Context owns the C library's context. Endpoints, heaps, pins and
exposures refer to their Context, never the other way round but weakly, so that
they can be dropped in any order. close() closes the endpoints; arrays of heaps
that are still in use keep their memory, and with it the C context, until they
are garbage.

Threads: the C library must not be closed while another thread is inside it.
close() first takes the handle away, so that new calls get NULL, which the
library refuses. Then it waits until no thread has a function of this object on
its stack that can be inside the library: those marked with @enters. So the
calls themselves, which are short, pay nothing for it.

fork: a child that uses an object of its parent gets an error from the C
library, which becomes a ForkedError. Dropping such an object does nothing.
"""

import atexit
import ctypes
import enum
import gc
import operator
import os
import sys
import threading
import time
import weakref
from errno import EAGAIN, EINPROGRESS, ENOENT
from types import FrameType
from typing import (Any, Callable, Dict, Iterable, Iterator, List, NamedTuple,
                    Optional, Set, Type, TypeVar, Union)

from . import _buffer, _declared, _errors
from ._library import NULL, call, holding, logged, pointer, untyped

_byref = ctypes.byref
_known = _buffer.arrays.get
_getrefcount = sys.getrefcount
_Tensor = _buffer._Tensor
_pin = untyped("pin")
# For pins whose unpin never sleeps: buffers stay registered, or are deregistered
# by another thread. Those that unpin deregisters itself are _SleepingPin.
_unpin = holding("unpin")


class Access(enum.IntFlag):
    """What may be done with memory; the own adapter may always read."""

    LOCAL_WRITE = _declared.PINION_ACCESS_LOCAL_WRITE
    """Receive into it, get into it."""
    REMOTE_WRITE = _declared.PINION_ACCESS_REMOTE_WRITE
    """Peers put."""
    REMOTE_READ = _declared.PINION_ACCESS_REMOTE_READ
    """Peers get."""
    REMOTE_ATOMIC = _declared.PINION_ACCESS_REMOTE_ATOMIC
    """Peers add, swap and compare."""
    RELAXED = _declared.PINION_ACCESS_RELAXED
    """Writes may become visible out of order."""


_WRITES = int(Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC)
# Flags of pins that unpin may deregister.
_SLEEPS = int(Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
              ) | _declared.PINION_PIN_BYPASS


class CacheStats(NamedTuple):
    """Counters since the context was opened, gauges (pinion_cache_query)."""

    hits: int
    """pins that found everything registered"""
    misses: int
    """pins that had something to register"""
    misses_new: int
    misses_partial: int
    misses_access: int
    misses_bypass: int
    waits: int
    """for another thread's registration"""
    registrations: int
    registered_bytes: int
    deregistrations: int
    deregister_batches: int
    evictions: int
    """to make room, or flushed"""
    invalidations: int
    """regions whose memory was released"""
    overflows: int
    refused: int
    """pins that found no room"""
    merges: int
    unkept: int
    """ended after one use: their release would not be noticed"""
    regions: int
    """cached now"""
    bytes: int
    """cached now, in use included"""
    dying_bytes: int
    peak_bytes: int
    max_bytes: int
    """the budget"""
    max_regions: int


class DeviceInfo(NamedTuple):
    """What the device is, and what it has pinned (pinion_device_query)."""

    kind: str
    profile: str
    """cost profile in force, or "none" """
    emulated: bool
    """a declared cost is added to the real one"""
    pins: bool
    """registered pages are really pinned"""
    max_registration_bytes: int
    max_registrations: int
    max_pinned_bytes: int
    pinned_bytes: int
    dying_bytes: int
    registrations: int


class HelperStats(NamedTuple):
    """Counters of the helper; all 0 without one (pinion_helper_query)."""

    calls: int
    lost: int
    first: int
    in_time: int
    late: int
    registered: int
    deregistered: int
    kept: int
    expired: int
    in_use: int
    irregular: int
    refused: int
    buffers: int
    sites: int
    idle: int
    members: int
    held_back: int
    copied: int
    aside: int
    wake_ns: int


class Option(NamedTuple):
    """An option of a context (pinion_config_query)."""

    name: str
    type: str
    help: str
    default: str
    source: str
    """"default", "environment" or "attribute" """
    value: str


def as_text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


_T = TypeVar("_T", bound=NamedTuple)
_K = TypeVar("_K")


def as_tuple(kind: Type[_T], struct: Any) -> _T:
    return kind(*(as_text(getattr(struct, name)) for name in kind._fields))


_entrances: Set[Any] = set()

_F = TypeVar("_F", bound=Callable[..., Any])


def checked(name: str, value: Any, kind: Type[_K]) -> _K:
    """An argument that has to be of a class of pinion's: the C library would
    take the handle of any."""
    if not isinstance(value, kind):
        raise TypeError(f"{name}: {kind.__name__}, "
                        f"not {type(value).__name__}")
    return value


def enters(function: _F) -> _F:
    """Marks a method that calls the library with the handle of its object, or
    of what its object belongs to, and lets other threads run meanwhile."""
    _entrances.add(function.__code__)
    return function


class Owner:
    """Shared by the objects that own a handle of the C library."""

    _arg: Any = NULL  # passes the handle; NULL: closed, or not open yet
    _handle: Optional[int] = None
    _pid: int = 0
    _left: bool = False  # closed, and no other thread is inside

    def _open(self, handle: int) -> None:
        self._arg = pointer(handle)
        self._pid = os.getpid()

    @property
    def closed(self) -> bool:
        """Whether close() was called, here or on what this belongs to."""
        return self._arg is NULL

    def failed(self, name: str, ret: int) -> Exception:
        """The exception for a call's return value."""
        if os.getpid() != self._pid:
            return _errors.forked(f"this {type(self).__name__}")
        if self._arg is NULL:
            return _errors.ClosedError(
                f"this {type(self).__name__} is closed")
        return _errors.error(name, ret, logged() if ret != -EAGAIN else "")

    def _leave(self, seconds: float = 30.0) -> bool:
        """Waits until no other thread is inside; the handle is gone already."""
        until = time.monotonic() + seconds
        while _somebody_in(self):
            if time.monotonic() > until:
                return False
            time.sleep(0.0005)
        self._left = True
        return True

    @enters
    def _query(self, name: str, struct: Any) -> Any:
        """A struct that the library filled."""
        struct.size = ctypes.sizeof(struct)
        ret = getattr(call, name)(self._arg, _byref(struct))
        if ret < 0:
            raise self.failed(name, ret)
        return struct


def _somebody_in(owner: Owner) -> bool:
    """Whether another thread has an entrance of this owner on its stack."""
    me = threading.get_ident()
    for thread, frame in sys._current_frames().items():
        walk: Optional[FrameType] = frame if thread != me else None
        while walk is not None:
            if walk.f_code in _entrances:
                this = walk.f_locals.get("self")
                if owner in (this, getattr(this, "_context", None),
                             getattr(this, "_endpoint", None)):
                    return True
            walk = walk.f_back
    return False


class Pin:
    """A pinned buffer: registered, and safe from being moved.

    Made by Context.pin(). Use it in a `with`, or call unpin(); one that is
    dropped is unpinned. The object that was pinned is kept, and cannot be
    resized, until then.
    """

    __slots__ = ("_context", "_hold", "_ref")

    # The struct is in `_ref`, which passes its address. A context keeps the pin
    # that was unpinned last and uses it again when nobody else refers to it:
    # making an object takes as long as a call.
    def __init__(self, context: "Context", hold: Any, ref: Any) -> None:
        self._context: Optional[Context] = context
        self._hold = hold
        self._ref = ref

    def unpin(self) -> None:
        """Ends the pin. The buffer stays registered for the next time, as long
        as the budget allows. A second call does nothing. BufferError: a tensor
        was resized meanwhile."""
        context = self._context
        if context is not None:
            self._context = None
            _unpin(context._arg, self._ref)
            hold = self._hold
            self._hold = None
            if type(hold) is _Tensor and hold.moved():
                raise BufferError("the tensor was resized while it was pinned")
            context._last = self

    def __enter__(self) -> "Pin":
        return self

    def __exit__(self, *_: object) -> None:
        self.unpin()

    def __del__(self) -> None:
        context = getattr(self, "_context", None)
        if context is not None:
            self._context = None
            _unpin(context._arg, self._ref)

    @property
    def pinned(self) -> bool:
        """Whether it was not unpinned yet."""
        return self._context is not None

    @property
    def addr(self) -> int:
        """Where the buffer is."""
        return int(self._struct.addr)

    @property
    def len(self) -> int:
        """How many bytes it has."""
        return int(self._struct.len)

    @property
    def local_key(self) -> int:
        """The key for the own adapter, if there is one segment; else 0."""
        return int(self._struct.local_key)

    @property
    def remote_key(self) -> int:
        """The key for peers, likewise; means nothing without remote access."""
        return int(self._struct.remote_key)

    @property
    def nsegments(self) -> int:
        """How many segments it has, see segments()."""
        return int(self._struct.nsegments)

    def segments(self) -> Iterator[_declared.pinion_pin_segment]:
        """Its segments in order of addresses, each with addr, len, local_key
        and remote_key."""
        for index in range(self._struct.nsegments):
            segment = _declared.pinion_pin_segment()
            ret = call.pin_segment(self._ref, index, _byref(segment))
            if ret:
                raise _errors.error("pin_segment", ret)
            yield segment

    @property
    def _struct(self) -> Any:
        self._pinned()
        return self._ref._obj

    def _pinned(self) -> "Context":
        context = self._context
        if context is None:
            raise _errors.ClosedError("the buffer is not pinned any more")
        return context

    def __repr__(self) -> str:
        if self._context is None:
            return "<pinion.Pin, not pinned any more>"
        return f"<pinion.Pin of {self.len} bytes at {self.addr:#x}>"


class _SleepingPin(Pin):
    """A pin of a buffer that unpin deregisters, which other threads do not wait
    for."""

    __slots__ = ()

    def unpin(self) -> None:
        """As Pin.unpin()."""
        context = self._context
        if context is not None:
            self._context = None
            context._run_unpin(self._ref)
            hold, self._hold = self._hold, None
            if type(hold) is _Tensor and hold.moved():
                raise BufferError("the tensor was resized while it was pinned")

    def __del__(self) -> None:
        context = getattr(self, "_context", None)
        if context is not None:
            self._context = None
            context._run_unpin(self._ref)


class StartedPin(_SleepingPin):
    """A pin that is being made (Context.pin_start())."""

    __slots__ = ("_pending",)

    def __init__(self, context: "Context", hold: Any, ref: Any) -> None:
        super().__init__(context, hold, ref)
        self._pending = True

    def ready(self) -> bool:
        """Whether all of it is registered."""
        return self._settle("pin_test")

    def wait(self) -> "StartedPin":
        """Sleeps until all of it is registered."""
        self._settle("pin_wait")
        return self

    def unpin(self) -> None:
        """As Pin.unpin(); waits for what is being registered."""
        if self._context is not None:
            self.wait()
            super().unpin()

    def __del__(self) -> None:
        if getattr(self, "_context", None) is not None:
            try:
                self.unpin()
            except (OSError, ValueError, BufferError):
                pass

    @enters
    def _settle(self, name: str) -> bool:
        context = self._pinned()
        if not self._pending:
            return True
        ret = getattr(call, name)(context._arg, self._ref)
        if ret == -EINPROGRESS:
            return False
        self._pending = False
        if ret:
            self._context = self._hold = None
            raise context.failed(name, ret)
        return True


class _Kept:
    """Refers to something as a context does to its last pin."""

    def __init__(self) -> None:
        self._last = object()

    def count(self) -> int:
        """What getrefcount() says in Context.pin() of a pin that only the
        context has; that depends on the interpreter."""
        pin = self._last
        return _getrefcount(pin)


_ALONE = _Kept().count()


def _option(name: str, value: Any) -> bytes:
    if isinstance(value, bool):
        value = "yes" if value else "no"
    if not isinstance(value, (str, int, float, os.PathLike)):
        raise TypeError(f"option {name}: {type(value).__name__} is neither "
                        "text, a number nor a path")
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    text = f"{name}={value}"
    if "\0" in text:
        raise ValueError(f"option {name}: a null character")
    return text.encode()


def _new_struct() -> Any:
    """Passes the address of a struct pinion_pin, and keeps it."""
    return _byref(_declared.pinion_pin())


class _iovec(ctypes.Structure):
    """struct iovec of <sys/uio.h>."""

    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class Context(Owner):
    """An open device with everything that pinion keeps for it.

    >>> ctx = pinion.Context()                      # the software adapter
    >>> ctx = pinion.Context("sim:cost=cx5")        # a simulated one
    >>> ctx = pinion.Context(max_bytes="256M", trace="run.trace")

    `device` is a device spec; None: PINION_DEVICE, or `soft`. Options are those
    of pinion(7) in lower case (Context.options() lists them with their values);
    they win over the environment. Open one context per process, after a fork
    and not before it. close() it, or use it in a `with`; one that is dropped is
    closed.
    """

    def __init__(self, device: Optional[str] = None,
                 **options: Union[str, int, float, bool, "os.PathLike[str]"]
                 ) -> None:
        self._pid = os.getpid()
        self._children: "weakref.WeakSet[Any]" = weakref.WeakSet()
        self._heaps: "weakref.WeakSet[Any]" = weakref.WeakSet()
        # C heaps that are there. Not found by _heaps: the garbage collector
        # takes objects out of that before they are finalized.
        self._open_heaps: Dict[int, None] = {}
        self._last: Optional[Pin] = None
        self._kind: Type[Pin] = Pin
        if device is not None and not isinstance(device, str):
            raise TypeError("device: a text such as 'soft' or 'verbs:mlx5_0'")
        texts = [_option(*item) for item in options.items()]
        if device is not None:
            texts.append(_option("device", device))
        array = (ctypes.c_char_p * (len(texts) + 1))(*texts, None)
        attr = _declared.pinion_attr(ctypes.sizeof(_declared.pinion_attr))
        attr.options = ctypes.addressof(array)
        out = ctypes.c_void_p()
        logged()
        ret = call.open(_byref(attr), _byref(out))
        if ret:
            raise _errors.error("open", ret, logged())
        self._handle = out.value
        self._open(out.value or 0)
        if self.device().kind == "cuda" and \
                self.options()["cuda_keep"].value != "yes":
            self._kind = _SleepingPin
        _contexts.add(self)

    # --- pins ---

    @enters
    def pin(self, obj: Any, access: Optional[int] = None,
            bypass: bool = False) -> Pin:
        """Pins the memory of an object: registers it, or finds it registered.

        >>> with ctx.pin(array) as pin:
        ...     transport.post(pin.addr, pin.len, pin.local_key)

        `obj` is anything with the buffer protocol, `__array_interface__` or
        data_ptr(): a NumPy array, a tensor, a bytearray. `access` is a set of
        Access bits; None: LOCAL_WRITE, or nothing for what is read-only.
        `bypass`: a buffer used once, which is deregistered when unpinned.

        TypeError: no such memory, not contiguous, or read-only and `access`
        says that it is written. NoRoom: unpin something first.
        """
        known = _known(id(obj))
        if known is not None and access is None and not bypass:
            _, data, nbytes, length = known
            if nbytes == obj.nbytes:
                # Set before the call: a signal may raise an exception right
                # after it. Unpinning what was not pinned does nothing.
                pin = self._last
                if pin is not None and _getrefcount(pin) == _ALONE:
                    self._last = None
                    pin._hold = obj
                    pin._context = self
                else:
                    pin = self._kind(self, obj, _new_struct())
                if not _pin(self._arg, data, length, 1, pin._ref):
                    return pin
                pin._context = None
        place = _place_for(obj, access, bypass)
        pin = self._kind_for(place[3])(self, place[0], _new_struct())
        self._make(pin, "pin", place)
        return pin

    def _kind_for(self, flags: int) -> Type[Pin]:
        """Keys of peers must not work after the unpin: what is not kept is
        deregistered in it."""
        if flags & _SLEEPS:
            return _SleepingPin
        return self._kind

    def pin_start(self, obj: Any, access: Optional[int] = None,
                  bypass: bool = False) -> StartedPin:
        """Begins to pin and does not sleep. ready() of the result says whether
        all of it is registered, wait() sleeps until it is."""
        place = _place_for(obj, access, bypass)
        pin = StartedPin(self, place[0], _new_struct())
        pin._pending = self._make(pin, "pin_start", place)
        return pin

    @enters
    def _make(self, pin: Pin, name: str, place: Any) -> bool:
        """Fills a pin. True: it is not registered yet."""
        _, addr, nbytes, flags = place
        ret = getattr(call, name)(self._arg, addr, nbytes, flags, pin._ref)
        if ret and ret != -EINPROGRESS:
            pin._context = None
            raise self.failed(name, ret)
        return bool(ret)

    @enters
    def pin_list(self, objs: Iterable[Any], access: Optional[int] = None,
                 bypass: bool = False) -> List[Pin]:
        """Pins many objects with one batch of registrations; all or none.
        Unpin each, or drop the list."""
        places = [_place_for(obj, access, bypass) for obj in objs]
        if len({flags for *_, flags in places}) > 1:
            raise TypeError("some of the objects are read-only: say which "
                            "access is wanted")
        if not places:
            return []
        buffers = (_iovec * len(places))(
            *(_iovec(addr, nbytes) for _, addr, nbytes, _ in places))
        pins = (_declared.pinion_pin * len(places))()
        ret = call.pin_list(self._arg, buffers, len(places), places[0][3],
                            pins)
        if ret:
            raise self.failed("pin_list", ret)
        kind = self._kind_for(places[0][3])
        return [kind(self, place[0], _byref(pin))
                for place, pin in zip(places, pins)]

    @enters
    def _run_unpin(self, ref: Any) -> None:
        """Unpins, and lets other threads run meanwhile."""
        call.unpin(self._arg, ref)

    # --- the parts ---

    def heap(self, **attributes: Any) -> "_heap.Heap":
        """A heap of registered memory: see Heap, which lists the attributes."""
        return _heap.Heap(self, **attributes)

    def endpoint(self, single_threaded: bool = False) -> "_endpoint.Endpoint":
        """An endpoint, from which messages leave and at which they arrive: see
        Endpoint. `single_threaded`: one thread at a time calls it, which saves
        locks."""
        return _endpoint.Endpoint(self, single_threaded)

    def async_endpoint(self) -> "_asyncio.AsyncEndpoint":
        """An endpoint whose operations are awaited in asyncio: see
        AsyncEndpoint."""
        return _asyncio.AsyncEndpoint(self)

    # --- what it says of itself ---

    def stats(self) -> CacheStats:
        """Counters of the registration cache."""
        return as_tuple(CacheStats, self._query(
            "cache_query", _declared.pinion_cache_stats()))

    def device(self) -> DeviceInfo:
        """The device, and what is pinned."""
        info = self._query("device_query", _declared.pinion_device_info())
        return as_tuple(DeviceInfo, info)._replace(
            emulated=bool(info.emulated), pins=bool(info.pins))

    def helper_stats(self) -> HelperStats:
        """Counters of the helper thread (option `helper`)."""
        return as_tuple(HelperStats, self._query(
            "helper_query", _declared.pinion_helper_stats()))

    @enters
    def options(self) -> Dict[str, Option]:
        """All options by name, with their values and where these come from."""
        found = {}
        for index in range(1000):
            option = _declared.pinion_config_option()
            option.size = ctypes.sizeof(option)
            ret = call.config_query(self._arg, index, _byref(option))
            if ret == -ENOENT:
                break
            if ret:
                raise self.failed("config_query", ret)
            name = as_text(option.name)
            found[name] = Option(name, *(as_text(getattr(option, field))
                                         for field in ("type", "help", "def",
                                                       "source", "value")))
        return found

    # --- the cache ---

    def flush(self) -> None:
        """Evicts everything that is not in use, and returns when it is
        deregistered."""
        self._run("cache_flush")

    def resize(self, max_bytes: int = 0, max_regions: int = 0) -> None:
        """Changes the budget; 0 leaves a limit as it is."""
        self._run("cache_resize", _natural("max_bytes", max_bytes),
                  _natural("max_regions", max_regions))

    def revoke(self, obj: Any) -> None:
        """Makes every remote key that was handed out for this memory invalid.
        """
        _hold, addr, nbytes = _buffer.readable(obj)
        self._run("cache_revoke", addr, nbytes)

    @enters
    def _run(self, name: str, *arguments: Any) -> None:
        ret = getattr(call, name)(self._arg, *arguments)
        if ret:
            raise self.failed(name, ret)

    # --- the end ---

    def close(self) -> None:
        """Closes the endpoints and everything registered. Arrays of heaps that
        are still in use keep their memory until they are dropped. A second call
        does nothing."""
        if self._arg is NULL or os.getpid() != self._pid:
            self._arg = NULL
            return
        for child in list(self._children):
            child.close()
        self._arg = NULL
        if not self._leave():
            raise RuntimeError("another thread is inside this context")
        for heap in list(self._heaps):
            heap.close()
        self._finish()

    def _finish(self) -> None:
        """Ends the C context when nothing uses it any more."""
        if not self._left or self._open_heaps:
            return
        handle, self._handle = self._handle, None
        if handle and os.getpid() == self._pid:
            call.close(handle)

    def __enter__(self) -> "Context":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._arg is not NULL:
            self.close()

    def __repr__(self) -> str:
        return ("<pinion.Context, closed>" if self._arg is NULL else
                f"<pinion.Context at {self._handle:#x}>")


def _natural(name: str, value: Any, bits: int = 64) -> int:
    """A size or a count."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: a number, not {type(value).__name__}"
                        ) from None
    if not 0 <= number < 2**bits:
        raise ValueError(f"{name}: {number} is negative or too large")
    return number


def _place_for(obj: Any, access: Optional[int], bypass: bool) -> Any:
    """(hold, address, bytes, flags) of an object to pin."""
    if access is None:
        try:
            place, flags = _buffer.writable(obj), 1
        except TypeError:
            place, flags = _buffer.readable(obj), 0
    else:
        flags = _natural("access", access)
        if flags & ~_declared.PINION_ACCESS_ALL:
            raise ValueError(f"access: {flags:#x} has unknown bits")
        place = (_buffer.writable if flags & _WRITES else
                 _buffer.readable)(obj)
    if bypass:
        flags |= _declared.PINION_PIN_BYPASS
    return (*place, flags)


def invalidate(obj: Any) -> None:
    """Announces that this memory is being released, where no monitor notices
    it by itself (pinion_invalidate(3))."""
    _hold, addr, nbytes = _buffer.readable(obj)
    call.invalidate(addr, nbytes)


def site(name: Optional[str]) -> None:
    """Names the place in the program that the calling thread's next messages
    come from, for the helper; None: found by itself."""
    if name is not None and not isinstance(name, str):
        raise TypeError("name: a text, or None")
    ret = call.site_set(None if name is None else name.encode())
    if ret:
        raise _errors.error("site_set", ret)


_contexts: "weakref.WeakSet[Context]" = weakref.WeakSet()


def _unpin_all(context: Context) -> None:
    """Ends the pins that are there. Contexts have no list of them, which each
    pin would pay for: the garbage collector finds them."""
    for pin in gc.get_referrers(context):
        if isinstance(pin, Pin):
            try:
                pin.unpin()
            except (OSError, ValueError, BufferError):
                pass


@atexit.register
def _close_all() -> None:
    """At the interpreter's end, before modules go. What a thread still uses is
    left to the system."""
    for context in list(_contexts):
        if context._pid == os.getpid() and not _somebody_in(context):
            try:
                _unpin_all(context)
                context.close()
            except RuntimeError:
                pass


# They use what is above.
from . import _asyncio, _endpoint, _heap  # noqa: E402
