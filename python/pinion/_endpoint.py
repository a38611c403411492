# SPDX-License-Identifier: BSD-2-Clause
"""Endpoints: messages, and operations on the memory of peers.

A request is an object over the C library's completion, which is in a record:
the library fills it in when the request is waited for. Records are used again.
A request that is dropped before it has ended goes on, and the endpoint holds
its record and its memory until then (`_orphans`). Those of short receives, which
must be quick, are always in the endpoint's ring (`_short`): a record there that
nobody else refers to is free when its operation has ended.

_endpoint.py is used by several threads at a time, as the C library may be; see
_context.py for what holds when an endpoint is closed meanwhile.
"""

import collections
import ctypes
import itertools
import struct
import sys
import time
import weakref
from errno import EAGAIN, EINVAL, ENOENT, ETIMEDOUT
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, cast

from . import _buffer, _context, _declared, _errors
from ._context import enters
from ._library import NULL, call, holding, logged, untyped

_byref = ctypes.byref
_readable = _buffer.readable
_writable = _buffer.writable

# struct pinion_message and struct pinion_move, as bytes: one call of struct
# makes all of it, and bytes are passed as their address. Most messages need the
# first fields only; fields that are missing are zero to the library. Of these
# a plain message has size, addr, len, tag and peer, and no flags and no ignore.
# Native sizes ("@"), which struct packs faster than standard ones.
_MESSAGE = struct.Struct("=QQQQQQQQQIIII")
_PLAIN = struct.Struct("@Q8xQQQ8xQ")
_PLAIN_SIZE = _PLAIN.size
_plain_message = _PLAIN.pack
_MOVE = struct.Struct("=QQQQQQQ")
_ATOMIC = struct.Struct("=QQQQQQQQ")
# Of `data` the struct has the lower and the upper 32 bits apart.
_uint64_bytes = struct.Struct("<Q").pack
_halves = struct.Struct("<II").unpack

# Short, and without sleeping unless another thread is inside the endpoint: the
# GIL stays. Another thread may register memory under the endpoint's lock: then
# they are called with the GIL released (`_inside`).
_inject = holding("inject")
_inject_sleeping = untyped("inject")
_recv_short = holding("recv")  # into _SHORT bytes: nothing is registered
_recv_sleeping = untyped("recv")
_SHORT = 1024
_LOOKS = 4  # at records of the ring, before it grows
_wait = untyped("wait")
_known = _buffer.arrays.get
_uint64 = ctypes.c_uint64
_void_p = ctypes.c_void_p

# How long the library sleeps at a time while a request is waited for: between
# two such times signals are seen (Ctrl-C), and whether the endpoint was closed.
_SLICE_US = 100_000
_SLICE = _uint64(_SLICE_US)


class EndpointStats(NamedTuple):
    """Counters since the endpoint was opened (pinion_endpoint_query)."""

    sent_eager: int
    sent_copy: int
    sent_demand: int
    sent_cached: int
    sent_pipeline: int
    sent_caching_pipeline: int
    sent_read: int
    sent_overlapped: int
    received: int
    unexpected: int
    """came before their receive"""
    copied_no_budget: int
    stalls: int
    explored: int
    predictions: int
    prediction_error: float
    sent_direct: int
    max_inject_bytes: int
    """messages up to this leave at once"""


class Explanation(NamedTuple):
    """A protocol that a message could take (pinion_endpoint_explain)."""

    protocol: str
    chosen: bool
    reason: str
    """why, if it is chosen"""
    first_ns: float
    """predicted, when the buffer has to be registered"""
    later_ns: float
    """predicted, when it is registered"""
    mean_ns: float
    """of all uses"""


class Peer:
    """Another endpoint (or the same), as this endpoint sees it. Made by
    Endpoint.peer(); one that sent a message comes with its completion."""

    __slots__ = ("_endpoint", "_handle", "__weakref__")
    _endpoint: "Endpoint"
    _handle: int

    def __init__(self) -> None:
        raise TypeError("peers are made by Endpoint.peer()")

    @property
    def address(self) -> bytes:
        """Its address, as its Endpoint.address gives it."""
        return self._endpoint._address("peer_address", self._handle)

    def flush(self, *, user: Any = None) -> "Request":
        """A request that ends when all puts, gets and atomics on this peer
        that were started before have ended."""
        endpoint = self._endpoint
        request, key = endpoint._start(None, user)
        return endpoint._begin("peer_flush", request, self._handle,
                               key or None, key=key)

    @enters
    def fence(self) -> None:
        """Operations on this peer started from now on take effect after those
        started before. Does not wait."""
        ret = call.peer_fence(self._endpoint._arg, self._handle)
        if ret:
            raise self._endpoint.failed("peer_fence", ret)

    def __repr__(self) -> str:
        return f"<pinion.Peer {self._handle:#x}>"


class Completion:
    """How an operation ended."""

    __slots__ = ("_endpoint", "_c", "user")

    def __init__(self, endpoint: "Endpoint", struct_: Any,
                 user: Any = None) -> None:
        self._endpoint = endpoint
        self._c = struct_
        self.user = user

    @property
    def status(self) -> int:
        """0, or a negative errno."""
        return int(self._c.status)

    @property
    def len(self) -> int:
        """How many bytes were received or sent."""
        return int(self._c.len)

    @property
    def message_len(self) -> int:
        """Of the message, also when the buffer was shorter."""
        return int(self._c.message_len)

    @property
    def tag(self) -> int:
        """Of the message."""
        return int(self._c.tag)

    @property
    def peer(self) -> Optional[Peer]:
        """Who sent the message, or whom it was sent to."""
        handle = self._c.peer
        return self._endpoint._peer(handle) if handle else None

    @property
    def data(self) -> Optional[int]:
        """The 64 bits that came along, or None."""
        if self._c.flags & _declared.PINION_COMPLETION_DATA:
            return int(self._c.data) | int(self._c.data_high) << 32
        return None

    @property
    def error(self) -> Optional[_errors.Error]:
        """The exception of an operation that failed, or None."""
        return _errors.error("send", self.status) if self.status else None

    def __repr__(self) -> str:
        what = f"{self.len} bytes, tag {self.tag:#x}"
        if self.status:
            what = str(self.error)
        return f"<pinion.{type(self).__name__}: {what}>"


class _Record(ctypes.Structure):
    """What the library fills in of a request."""

    _fields_ = [("completion", _declared.pinion_completion),
                ("handle", _void_p)]


_HANDLE_WORD = _Record.handle.offset // 8


class Request(Completion):
    """A send, receive, put or get under way.

    >>> request = ep.recv(buffer)
    >>> request.wait()              # sleeps until it has ended
    >>> request.len, request.tag    # of a receive: what came

    done() looks without sleeping. The memory belongs to the request until it
    has ended. One that is dropped goes on.
    """

    # `_state` is _UNDER_WAY, _ASKED while a thread waits, or _ENDED. `_record`
    # is that of _new_record().
    __slots__ = ("_state", "_record")

    def __init__(self, endpoint: "Endpoint", record: Any) -> None:
        self._endpoint = endpoint
        self._record = record
        self._state = _UNDER_WAY

    # Not set in advance: most requests are not asked for them.
    @property
    def _c(self) -> Any:
        return self._record[0]

    @enters
    def wait(self, timeout: Optional[float] = None) -> "Request":
        """Sleeps until it has ended, for `timeout` seconds at most, and returns
        itself. Raises what went wrong with it: PeerGone, Truncated, Canceled.
        TimedOut: it goes on, wait again."""
        if timeout is None and self._state is _UNDER_WAY:
            # As _ask(), without calling it.
            self._state = _ASKED
            record = self._record
            endpoint = self._endpoint
            inside = endpoint._inside
            inside.append(None)
            try:
                ret = _wait(endpoint._arg, record[1], _SLICE, record[2])
            except BaseException:
                self._interrupted()
                raise
            finally:
                inside.pop()
            if not ret:
                self._state = _ENDED
                record[5] = None
                return self
            self._unended(ret)
        until = None if timeout is None else time.monotonic() + timeout
        while self._state is not _ENDED:
            left = _SLICE_US if until is None else \
                max(0, int((until - time.monotonic()) * 1e6))
            if self._ask(_uint64(min(left, _SLICE_US))) and not left:
                raise _errors.error("wait", -ETIMEDOUT)
        return self._result()

    @enters
    def _ask(self, microseconds: Any) -> bool:
        """Waits so long at most. True: it has not ended."""
        if self._state is not _UNDER_WAY:
            raise RuntimeError("another thread waits for this request")
        self._state = _ASKED
        record = self._record
        endpoint = self._endpoint
        endpoint._inside.append(None)
        try:
            ret = _wait(endpoint._arg, record[1], microseconds, record[2])
        except BaseException:
            self._interrupted()
            raise
        finally:
            endpoint._inside.pop()
        return bool(ret) and self._unended(ret) or self._end()

    def _end(self) -> bool:
        self._state = _ENDED
        self._record[5] = None
        return False

    def _interrupted(self) -> None:
        """A signal raised an exception, which hides what the library returned:
        the status is 1 until the library has set it."""
        self._state = _UNDER_WAY if self.status == 1 else _ENDED

    def _unended(self, ret: int) -> bool:
        """After a wait that returned an error: whether the request goes on."""
        endpoint = self._endpoint
        if self.status != 1:
            return self._end()
        if ret != -ETIMEDOUT or endpoint._arg is NULL:
            self._end()  # abandoned by the endpoint's close
            raise endpoint.failed("wait", ret)
        self._state = _UNDER_WAY
        if endpoint._orphans:
            endpoint._reap()
        return True

    def _result(self) -> "Request":
        status = self.status
        if status == 1:  # the endpoint was closed meanwhile
            raise self._endpoint.failed("wait", -EINVAL)
        if status:
            raise _errors.error("send", status)
        return self

    def done(self) -> bool:
        """Whether it has ended; makes progress. Raises what went wrong."""
        if self._state is not _ENDED and self._ask(_uint64(0)):
            return False
        self._result()
        return True

    @enters
    def cancel(self) -> None:
        """Asks that it end early: it then ends as Canceled if that was in
        time. It still has to be waited for."""
        if self._state is not _ENDED:
            ret = call.cancel(self._endpoint._arg, self._record[1])
            if ret:
                raise self._endpoint.failed("cancel", ret)


class _Reported(Request):
    """A request whose end as an object is noticed: all but short receives."""

    __slots__ = ()

    def __del__(self) -> None:
        try:
            endpoint = self._endpoint
        except AttributeError:  # not made by an endpoint
            return
        if self._state is _ENDED:
            endpoint._records.append(self._record)
        elif self._record[1].value and not endpoint.closed:
            endpoint._orphans.append(self._record)


_UNDER_WAY, _ASKED, _ENDED = "under way", "asked", "ended"


def _new_record() -> List[Any]:
    """[the record's completion, its handle as an argument, the address of its
    completion, that of its handle, the record as words, what holds the memory
    of the operation]. The first word has the status: 1 is under way."""
    record = _Record()
    completion = record.completion  # keeps the record
    completion.status = 1
    return [completion, _void_p.from_buffer(record, _Record.handle.offset),
            _byref(record), _byref(record, _HANDLE_WORD * 8),
            memoryview(record).cast("B").cast("Q"), None]


def _count_alone() -> int:
    """What getrefcount() says in recv() of a record that only a ring has; that
    depends on the interpreter."""
    ring = collections.deque([_new_record()])
    record = ring[0]
    return _getrefcount(record)


_getrefcount = sys.getrefcount
_ALONE = _count_alone()


class Unexpected(Completion):
    """A message that has arrived and is set aside for recv()."""

    __slots__ = ("_set_aside",)

    def __init__(self, endpoint: "Endpoint", struct_: Any,
                 set_aside: Any) -> None:
        super().__init__(endpoint, struct_)
        self._set_aside = set_aside

    def recv(self, buf: Any, *, user: Any = None) -> Request:
        """Receives it into `buf`."""
        hold, addr, nbytes = _writable(buf)
        handle, self._set_aside = self._set_aside, None
        if handle is None:
            raise ValueError("the message was received already")
        endpoint = self._endpoint
        request, key = endpoint._start(hold, user)
        message = _pack_message(0, addr, nbytes, 0, 0, 0, key, None, 0)
        try:
            return endpoint._begin("recv_unexpected", request, handle, message,
                                   key=key)
        except _errors.Error:
            self._set_aside = handle
            raise


class Exposure:
    """Memory that peers may reach with its `key`, without the CPU of this
    process. close() revokes the key, as does dropping this, or a `with`."""

    __slots__ = ("_endpoint", "_handle", "_hold", "nbytes", "__weakref__")

    def __init__(self, endpoint: "Endpoint", obj: Any, access: int) -> None:
        self._handle: Optional[int] = None
        _context.checked("endpoint", endpoint, Endpoint)
        if access & ~0xe or not access:
            raise ValueError("access: REMOTE_READ, REMOTE_WRITE and "
                             "REMOTE_ATOMIC, one or more")
        writes = access & _context._WRITES
        hold, addr, nbytes = _writable(obj) if writes else _readable(obj)
        out = _void_p()
        logged()
        endpoint._enter("exposure_open", addr, nbytes, access, _byref(out))
        self._endpoint, self._hold, self.nbytes = endpoint, hold, nbytes
        self._handle = out.value
        endpoint._parts.add(self)

    @property
    @enters
    def key(self) -> bytes:
        """What peers need: send it to them by any means."""
        if self._handle is None or self._endpoint.closed:
            raise _errors.ClosedError("this Exposure is closed")
        key = _declared.pinion_exposure_key()
        ret = call.exposure_key(self._handle, _byref(key))
        if ret:
            raise self._endpoint.failed("exposure_key", ret)
        return bytes(key)[:4 + key.len]

    @enters
    def close(self) -> None:
        """Revokes the key: whoever uses it from now on gets Refused."""
        handle, self._handle = self._handle, None
        if handle is not None:
            if not self._endpoint.closed:
                call.exposure_close(handle)
            self._hold = None

    def __enter__(self) -> "Exposure":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()


class Remote:
    """Memory of a peer that was exposed to us. Offsets are in bytes."""

    __slots__ = ("_endpoint", "_handle", "peer", "__weakref__")

    def __init__(self, endpoint: "Endpoint", peer: Peer, key: bytes) -> None:
        self._handle: Optional[int] = None
        self.peer = _context.checked("endpoint", endpoint, Endpoint)._own(peer)
        plain = _as_bytes("key", key, _declared.PINION_EXPOSURE_KEY_BYTES)
        out = _void_p()
        logged()
        endpoint._enter("remote_open", peer._handle, plain, _byref(out))
        self._endpoint, self._handle = endpoint, out.value
        endpoint._parts.add(self)

    def put(self, buf: Any, offset: int = 0, *,
            user: Any = None) -> Request:
        """Begins to copy `buf` there."""
        return self._endpoint._move("put", self, _readable(buf), offset, user)

    def get(self, buf: Any, offset: int = 0, *,
            user: Any = None) -> Request:
        """Begins to copy from there into `buf`."""
        return self._endpoint._move("get", self, _writable(buf), offset, user)

    def fetch_add(self, offset: int, value: int) -> int:
        """Adds to the 8 bytes at `offset`, atomically; what was there before.
        """
        return self._atomic("atomic_fetch_add", offset, value, 0)

    def swap(self, offset: int, value: int) -> int:
        """Puts 8 bytes there; what was there before."""
        return self._atomic("atomic_swap", offset, value, 0)

    def compare_swap(self, offset: int, compare: int, value: int) -> int:
        """Puts `value` there if `compare` is; what was there before."""
        return self._atomic("atomic_compare_swap", offset, value, compare)

    def _atomic(self, name: str, offset: int, value: int, compare: int) -> int:
        if self._handle is None:
            raise _errors.ClosedError("this Remote is closed")
        before = ctypes.c_uint64()
        try:
            packed = _ATOMIC.pack(_ATOMIC.size, 0, self._handle, offset,
                                  value & (2**64 - 1), compare & (2**64 - 1),
                                  ctypes.addressof(before), 0)
        except (struct.error, TypeError) as error:
            raise TypeError(f"offset and values: {error}") from None
        request = self._endpoint._request((before, self))
        self._endpoint._begin(name, request, packed)
        request.wait()
        return before.value

    @enters
    def close(self) -> None:
        """Operations under way go on."""
        handle, self._handle = self._handle, None
        if handle is not None and not self._endpoint.closed:
            call.remote_close(handle)

    def __enter__(self) -> "Remote":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()


def _as_bytes(what: str, given: Any, size: int) -> bytes:
    """Plain data of the library: its length in 4 bytes, then so many bytes."""
    if not isinstance(given, (bytes, bytearray, memoryview)):
        raise TypeError(f"{what}: bytes, not {type(given).__name__}")
    plain = bytes(given)
    if len(plain) < 4 or len(plain) > size or \
            int.from_bytes(plain[:4], "little") > len(plain) - 4:
        raise ValueError(f"this is no {what} of pinion")
    return plain.ljust(size, b"\0")


def _pack_message(flags: int, addr: int, nbytes: int, tag: int, ignore: int,
                  peer: int, user: int, data: Optional[int],
                  space: int) -> bytes:
    low = high = 0
    try:
        if data is not None:
            flags |= _declared.PINION_MESSAGE_DATA
            low, high = _halves(_uint64_bytes(data))
        return _MESSAGE.pack(_MESSAGE.size, flags, addr, nbytes, tag, ignore,
                             peer, user, 0, low, space, high, 0)
    except struct.error:
        raise _wrong_number(tag, ignore, data, space) from None


def _matched(tag: Optional[int], ignore: int) -> Tuple[int, int]:
    """A tag and the bits of it that do not matter."""
    return (0, 2**64 - 1) if tag is None else (tag, ignore)


def _wrong_number(tag: Any, ignore: Any, data: Any, space: Any) -> Exception:
    for name, value, bits in (("tag", tag, 64), ("ignore", ignore, 64),
                              ("data", data or 0, 64), ("space", space, 8)):
        if not hasattr(value, "__index__"):
            return TypeError(f"{name}: a number, not {type(value).__name__}")
        if not 0 <= value.__index__() < 2**bits:
            return ValueError(f"{name}: {value} does not fit into {bits} bits")
    return TypeError("tag, ignore, data and space are numbers")


class Endpoint(_context.Owner):
    """Where messages leave from and arrive at. Made by Context.endpoint().

    >>> ep = ctx.endpoint()
    >>> ep.address                       # bytes: tell others, by any means
    >>> peer = ep.peer(their_address)
    >>> ep.send(array, peer, tag=7).wait()
    >>> request = ep.recv(array).wait()  # from anybody, tag 0
    >>> request.len, request.peer

    send, recv, put and get begin an operation and return a Request: wait() for
    it in this thread, look with done(), or begin many and wait for all
    (pinion.wait_all()). Nothing has to be registered or pinned. With `user` an
    operation has no Request: poll() returns its completion, with that object.
    Context.async_endpoint() is for asyncio.

    Any thread may call anything. Progress is made inside the calls only.
    """

    @enters
    def __init__(self, context: "_context.Context",
                 single_threaded: bool = False) -> None:
        self._context = _context.checked("context", context, _context.Context)
        self._orphans: List[List[Any]] = []
        self._records: List[List[Any]] = []
        self._short = collections.deque([_new_record()])
        self._short[0][4][0] = 0
        # An entry for each thread that may have the endpoint's lock while it
        # has not the GIL. No thread enters while another one has the GIL.
        self._inside: List[None] = []
        self._users: Dict[int, Tuple[Any, Any]] = {}
        self._keys = itertools.count(1)
        self._peers: "weakref.WeakValueDictionary[int, Peer]" = \
            weakref.WeakValueDictionary()
        self._parts: "weakref.WeakSet[Any]" = weakref.WeakSet()
        attr = _declared.pinion_endpoint_attr(
            ctypes.sizeof(_declared.pinion_endpoint_attr),
            _declared.PINION_ENDPOINT_SINGLE_THREADED if single_threaded else 0)
        out = _void_p()
        logged()
        ret = call.endpoint_open(context._arg, _byref(attr), _byref(out))
        if ret:
            raise context.failed("endpoint_open", ret)
        self._handle = out.value
        self._open(out.value or 0)
        context._children.add(self)
        if context.options()["progress"].value != "caller":
            self._inside.append(None)  # the progress thread
        self._inject_max = self.stats().max_inject_bytes
        # All short sends that have left are this request.
        self._sent = Request(cast("Endpoint", None), _new_record())
        self._sent._c.status = 0
        self._sent._state = _ENDED

    # --- peers ---

    @property
    def address(self) -> bytes:
        """The address that others give to peer()."""
        return self._address("endpoint_address", self._arg)

    @enters
    def _address(self, name: str, handle: Any) -> bytes:
        address = _declared.pinion_address()
        ret = -EINVAL if self._arg is NULL else \
            getattr(call, name)(handle, _byref(address))
        if ret:
            raise self.failed(name, ret)
        return bytes(address)[:4 + address.len]

    @enters
    def peer(self, address: bytes) -> Peer:
        """The endpoint at that address, the same object each time."""
        plain = _as_bytes("address", address, _declared.PINION_ADDRESS_BYTES)
        out = _void_p()
        logged()
        ret = call.peer_add(self._arg, plain, _byref(out))
        if ret:
            raise self.failed("peer_add", ret)
        return self._peer(out.value or 0)

    def _peer(self, handle: int) -> Peer:
        peer = self._peers.get(handle)
        if peer is None:
            peer = Peer.__new__(Peer)
            peer._endpoint, peer._handle = self, handle
            self._peers[handle] = peer
        return peer

    def _own(self, peer: Any) -> Peer:
        if not isinstance(peer, Peer):
            raise TypeError(f"peer: a Peer, not {type(peer).__name__}")
        if peer._endpoint is not self:
            raise ValueError("peer: of another endpoint")
        return peer

    # --- messages ---

    @enters
    def send(self, buf: Any, peer: Peer, tag: int = 0, space: int = 0,
             data: Optional[int] = None, delivery: bool = False,
             user: Any = None) -> Request:
        """Begins to send the bytes of `buf` to a peer; a Request.

        `tag`: 64 bits to be matched by the receive. `data`: 64 bits that travel
        along. `space`, 0 to 255: messages match receives of the same space
        only. `delivery`: it ends when the other side has it, not already when
        `buf` may be changed. `user`: no Request, its completion comes from
        poll() with this object. Short messages have left when this returns.
        """
        known = _known(id(buf))
        if known is not None:
            hold, addr, nbytes = buf, known[1].value, buf.nbytes
        else:
            hold, addr, nbytes = _readable(buf)
        if type(peer) is not Peer or peer._endpoint is not self:
            self._own(peer)
        if nbytes <= self._inject_max and user is None and data is None and \
                not (space or delivery):
            try:
                ret = (_inject_sleeping if self._inside else _inject)(
                    self._arg, _plain_message(_PLAIN_SIZE, addr, nbytes, tag,
                                              peer._handle))
            except struct.error:
                raise _wrong_number(tag, 0, None, 0) from None
            if not ret:
                return self._sent
        return self._send(hold, addr, nbytes, peer, tag, space, data, delivery,
                          user)

    def _send(self, hold: Any, addr: int, nbytes: int, peer: Peer, tag: int,
              space: int, data: Optional[int], delivery: bool,
              user: Any) -> Request:
        flags = _declared.PINION_MESSAGE_DELIVERY_COMPLETE if delivery else 0
        request, key = self._start(hold, user)
        message = _pack_message(flags, addr, nbytes, tag, 0, peer._handle, key,
                                data, space)
        return self._begin("send", request, message, key=key)

    @enters
    def recv(self, buf: Any, peer: Optional[Peer] = None,
             tag: Optional[int] = 0, ignore: int = 0, space: int = 0,
             user: Any = None) -> Request:
        """Begins to receive a message into `buf`; a Request, whose `len` says
        how many bytes came.

        It takes the first message from `peer` (None: from anybody) whose tag
        equals `tag` (None: any) in all bits but those of `ignore`. A message
        longer than `buf` ends it with Truncated; probe() asks for the length.
        TypeError: read-only.
        """
        known = _known(id(buf))
        if known is not None and buf.flags.writeable:
            hold, addr, nbytes = buf, known[1].value, buf.nbytes
        else:
            hold, addr, nbytes = _writable(buf)
        handle = 0
        if peer is not None:
            if type(peer) is not Peer or peer._endpoint is not self:
                self._own(peer)
            handle = peer._handle
        if user is not None or space or ignore or tag is None or \
                nbytes > _SHORT:
            tag, ignore = _matched(tag, ignore)
            long, key = self._start(hold, user)
            return self._begin("recv", long, _pack_message(
                0, addr, nbytes, tag, ignore, handle, key, None, space),
                key=key)
        try:
            message = _plain_message(_PLAIN_SIZE, addr, nbytes, tag, handle)
        except struct.error:
            raise _wrong_number(tag, 0, None, 0) from None
        record = self._short[0]
        words = record[4]
        if _getrefcount(record) != _ALONE or words[0] == 1:
            record = self._another()
            words = record[4]
        words[0] = 1  # the status
        words[_HANDLE_WORD] = 0
        # Before the call: a signal may raise an exception right after it.
        record[5] = hold
        request = Request(self, record)
        ret = (_recv_sleeping if self._inside else _recv_short)(
            self._arg, message, record[3])
        if ret:
            words[0] = 0
            request._end()
            raise self.failed("recv", ret)
        return request

    def _another(self) -> List[Any]:
        """A free record of the ring, which becomes its first; the ring grows
        when some others are in use."""
        ring = self._short
        for _ in range(_LOOKS):
            ring.rotate(-1)
            record = ring[0]
            if _getrefcount(record) == _ALONE and (
                    record[4][0] != 1 or self._has_ended(record)):
                return record
        record = _new_record()
        ring.appendleft(record)
        return record

    @enters
    def _has_ended(self, record: List[Any]) -> bool:
        """Whether the operation of a request that was dropped has ended."""
        return not record[1].value or self._enter_progress(
            "test", record[1], record[2]) != -EAGAIN

    def _fresh(self) -> List[Any]:
        """A record that was used before."""
        try:
            record = self._records.pop()
        except IndexError:
            return _new_record()
        record[4][0] = 1  # the status
        record[4][_HANDLE_WORD] = 0
        return record

    @enters
    def probe(self, peer: Optional[Peer] = None, tag: Optional[int] = 0, *,
              ignore: int = 0, space: int = 0) -> Optional[Unexpected]:
        """A message that matches and was not received yet, or None; makes
        progress. It is set aside: receive it with its recv(buf), where buf has
        at least `message_len` bytes."""
        handle = self._own(peer)._handle if peer is not None else 0
        tag, ignore = _matched(tag, ignore)
        message = _pack_message(0, 0, 0, tag, ignore, handle, 0, None, space)
        found = _declared.pinion_completion()
        out = _void_p()
        ret = self._enter_progress("probe", message, _byref(found),
                                   _byref(out))
        if ret == -EAGAIN:
            return None
        if ret:
            raise self.failed("probe", ret)
        return Unexpected(self, found, out)

    # --- one-sided operations ---

    def expose(self, obj: Any, access: int = 0) -> Exposure:
        """Lets peers reach the memory of `obj`; send them the `key` of the
        result. `access`: Access.REMOTE_ bits; 0: all that the object allows
        (read-only ones can be read). The CPU of this process takes no part in
        their operations, but for accepting a new peer: that happens inside
        calls of this endpoint."""
        access = _context._natural("access", access)
        if not access:
            access = 0xe  # read, write, atomic
            try:
                _writable(obj)
            except TypeError:
                access = _declared.PINION_ACCESS_REMOTE_READ
        return Exposure(self, obj, access)

    def remote(self, peer: Peer, key: bytes) -> Remote:
        """The memory of a peer that `key` names: put, get, fetch_add."""
        return Remote(self, peer, key)

    def put(self, remote: Remote, buf: Any, offset: int = 0, *,
            user: Any = None) -> Request:
        """Begins to copy `buf` into a peer's memory; a Request."""
        return self._move("put", remote, _readable(buf), offset, user)

    def get(self, remote: Remote, buf: Any, offset: int = 0, *,
            user: Any = None) -> Request:
        """Begins to copy from a peer's memory into `buf`; a Request."""
        return self._move("get", remote, _writable(buf), offset, user)

    def _move(self, name: str, remote: Any, place: Any, offset: int,
              user: Any) -> Request:
        if not isinstance(remote, Remote):
            raise TypeError(f"remote: a Remote, not {type(remote).__name__}")
        if remote._handle is None or remote._endpoint is not self:
            raise ValueError("remote: closed, or of another endpoint")
        hold, addr, nbytes = place
        request, key = self._start((hold, remote), user)
        packed = _MOVE.pack(_MOVE.size, 0, remote._handle,
                            _context._natural("offset", offset), addr, nbytes,
                            key)
        return self._begin(name, request, packed, key=key)

    def put_when(self, buf: Any, peer: Peer, tag: int = 0, *,
                 user: Any = None) -> Request:
        """Begins to write `buf` to wherever the peer grants it under the same
        tag; may be started before that."""
        return self._granted("put_when", _readable(buf), peer, tag, user)

    def grant(self, buf: Any, peer: Peer, tag: int = 0, *,
              user: Any = None) -> Request:
        """Grants `buf` to a put_when() of the peer with the same tag. The
        request ends when the bytes are there."""
        return self._granted("grant", _writable(buf), peer, tag, user)

    def _granted(self, name: str, place: Any, peer: Peer, tag: int,
                 user: Any) -> Request:
        handle = self._own(peer)._handle
        hold, addr, nbytes = place
        request, key = self._start(hold, user)
        message = _pack_message(0, addr, nbytes, tag, 0, handle, key, None, 0)
        return self._begin(name, request, message, key=key)

    # --- requests ---

    def _request(self, hold: Any) -> Request:
        record = self._fresh()
        record[5] = hold
        request = _Reported(self, record)
        request._state = _ENDED  # not begun
        return request

    def _start(self, hold: Any, user: Any) -> Tuple[Optional[Request], int]:
        """A Request, or the key of one that poll() reports."""
        if user is None:
            return self._request(hold), 0
        key = next(self._keys)
        self._users[key] = (user, hold)
        return None, key

    @enters
    def _begin(self, name: str, request: Optional[Request], *arguments: Any,
               key: int = 0) -> Request:
        """Calls the function that begins an operation. With a `user` there is
        no request, and what is returned is None."""
        out = None
        if request is not None:
            # Before the call: a signal may raise an exception right after it.
            request._state = _UNDER_WAY
            out = request._record[3]
        ret = self._enter_progress(name, *arguments, out)
        if ret:
            if request is not None:
                request._end()
            self._users.pop(key, None)
            raise self.failed(name, ret)
        if self._orphans:
            self._reap()
        return cast(Request, request)

    @enters
    def _enter_progress(self, name: str, *arguments: Any) -> int:
        """Calls a function that makes progress, or takes the endpoint's lock
        for long."""
        self._inside.append(None)
        try:
            ret: int = getattr(call, name)(self._arg, *arguments)
        finally:
            self._inside.pop()
        return ret

    @enters
    def _enter(self, name: str, *arguments: Any) -> None:
        """Calls a function that may sleep."""
        ret = getattr(call, name)(self._arg, *arguments)
        if ret:
            raise self.failed(name, ret)

    @enters
    def _reap(self) -> None:
        """Lets go what dropped requests held, when they have ended."""
        for _ in range(len(self._orphans)):
            try:
                record = self._orphans.pop(0)
            except IndexError:
                return
            if self._enter_progress("test", record[1], None) == -EAGAIN:
                self._orphans.append(record)

    def _sweep(self) -> None:
        """The same for short receives. Not needed for their records, which are
        used again, but for those who wait for their memory."""
        for record in list(self._short):
            if record[4][0] == 1 and _getrefcount(record) == _ALONE + 1 and \
                    self._has_ended(record):
                record[5] = None

    @enters
    def poll(self, maximum: int = 64) -> List[Completion]:
        """Makes progress and returns completions of operations that were begun
        with a `user`, in the order in which they ended; at most `maximum`.
        Look at `error` of each."""
        maximum = min(_context._natural("maximum", maximum), 4096)
        done = (_declared.pinion_completion * maximum)()
        size = ctypes.sizeof(_declared.pinion_completion)
        n = self._enter_progress("poll", done, size, maximum)
        if n < 0:
            raise self.failed("poll", n)
        if self._orphans:
            self._reap()
        if len(self._short) > 1:
            self._sweep()
        return [self._completion(done[i]) for i in range(n)]

    def _completion(self, filled: Any) -> Completion:
        user, _hold = self._users.pop(filled.user)
        return Completion(self, filled, user)

    @enters
    def progress(self) -> None:
        """Makes progress on everything that is under way."""
        self._enter_progress("poll", _byref(_declared.pinion_completion()),
                             ctypes.sizeof(_declared.pinion_completion), 0)
        if self._orphans:
            self._reap()
        if len(self._short) > 1:
            self._sweep()

    @enters
    def fileno(self) -> int:
        """A descriptor for select and poll: readable when, after arm() was
        True, there may be something to poll. It belongs to the endpoint."""
        fd: int = call.endpoint_fd(self._arg)
        if fd < 0:
            raise self.failed("endpoint_fd", fd)
        return fd

    @enters
    def arm(self) -> bool:
        """True: armed, sleep on fileno() now. False: poll() first."""
        ret: int = call.endpoint_arm(self._arg)
        if ret and ret != -EAGAIN:
            raise self.failed("endpoint_arm", ret)
        return not ret

    # --- what it says of itself ---

    def stats(self) -> EndpointStats:
        """Counters of messages, by protocol."""
        return _context.as_tuple(EndpointStats, self._query(
            "endpoint_query", _declared.pinion_endpoint_stats()))

    @enters
    def explain(self, nbytes: int, reuse: int = 1,
                budget_full: bool = False) -> List[Explanation]:
        """What a message of so many bytes would take by each protocol, and
        which one is chosen and why. `reuse`: how often its buffer is used
        before its memory is released."""
        attr = _declared.pinion_explain_attr(
            ctypes.sizeof(_declared.pinion_explain_attr),
            _declared.PINION_EXPLAIN_BUDGET_FULL if budget_full else 0,
            _context._natural("nbytes", nbytes),
            _context._natural("reuse", reuse))
        found = []
        for index in range(100):
            out = _declared.pinion_explanation()
            out.size = ctypes.sizeof(out)
            ret = call.endpoint_explain(self._arg, _byref(attr), index,
                                        _byref(out))
            if ret == -ENOENT:
                break
            if ret:
                raise self.failed("endpoint_explain", ret)
            row = _context.as_tuple(Explanation, out)
            found.append(row._replace(chosen=bool(row.chosen)))
        return found

    # --- the end ---

    def close(self) -> None:
        """Abandons what is under way; what was reported as sent arrives. A
        second call does nothing."""
        if self._arg is NULL:
            return
        for part in list(self._parts):
            part.close()
        self._arg = NULL
        if not self._leave():
            raise RuntimeError("another thread is inside this endpoint")
        handle, self._handle = self._handle, None
        if handle and self._context._handle is not None:
            call.endpoint_close(handle)
        self._orphans.clear()
        self._users.clear()

    def __enter__(self) -> "Endpoint":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._arg is not NULL:
            self.close()


def wait_all(requests: Any, timeout: Optional[float] = None) -> None:
    """Waits for all; raises the first error when all have ended."""
    until = None if timeout is None else time.monotonic() + timeout
    first: Optional[Exception] = None
    for request in list(requests):
        try:
            request.wait(None if until is None else
                         max(0.0, until - time.monotonic()))
        except _errors.TimedOut:
            raise
        except (_errors.Error, _errors.ClosedError) as error:
            first = first or error
    if first is not None:
        raise first
