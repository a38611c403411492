# SPDX-License-Identifier: BSD-2-Clause
"""Exceptions: one for each errno that programs treat apart."""

import errno as _errno
import os
from typing import Dict, Optional, Tuple, Type

from . import _declared


class Error(OSError):
    """A call of the C library failed.

    `errno` is the error's number and `call` the C function, whose manual page
    lists its errors. The text is what that page says of the error, and the line
    that the library logged, if there was one. Errors that programs treat apart
    have classes of their own, which are also the built-in class of their kind:

    ==============  ===========================================  ===============
    class           meaning                                      also
    ==============  ===========================================  ===============
    PeerGone        the peer has died or closed its endpoint     ConnectionError
    Canceled        the request was canceled
    Truncated       the message was longer than the buffer
    NoRoom          no more memory may be pinned (the budget)    MemoryError
    OutOfMemory     no memory, or a limit on locked memory       MemoryError
    Refused         a key was revoked, or does not allow this    PermissionError
    ForkedError     the object belongs to the parent process     PermissionError
    NotReady        nothing there yet                            BlockingIOError
    TimedOut        it did not happen in time                    TimeoutError
    InvalidError    the C library refuses an argument            ValueError
    ==============  ===========================================  ===============
    """

    call: str = ""


class PeerGone(Error, ConnectionResetError):
    """The peer has died or closed its endpoint; requests to it end so."""


class Canceled(Error):
    """The request was canceled before it could end."""


class Truncated(Error):
    """The message was longer than the buffer, which is full."""


class NoRoom(Error, MemoryError):
    """The budget of pinned memory is used up by what is in use."""


class OutOfMemory(Error, MemoryError):
    """No memory, or a limit on what may be locked (ulimit -l)."""


class Refused(Error, PermissionError):
    """A key was revoked, or does not allow the operation."""


class ForkedError(Error, PermissionError):
    """The context was opened by this process's parent: open another here."""


class NotReady(Error, BlockingIOError):
    """There is nothing yet; try again later."""


class TimedOut(Error, TimeoutError):
    """The request has not ended in time; it goes on."""


class InvalidError(Error, ValueError):
    """The C library refuses an argument."""


class ClosedError(ValueError):
    """The object, or the one that it belongs to, was closed."""


_CLASSES: Dict[int, Type[Error]] = {
    _errno.ECONNRESET: PeerGone,
    _errno.ECANCELED: Canceled,
    _errno.EMSGSIZE: Truncated,
    _errno.ENOBUFS: NoRoom,
    _errno.ENOMEM: OutOfMemory,
    _errno.EACCES: Refused,
    _errno.EAGAIN: NotReady,
    _errno.ETIMEDOUT: TimedOut,
    _errno.EINVAL: InvalidError,
}

_meanings: Dict[Tuple[str, str], str] = {}


def meaning(call: str, number: int) -> str:
    """What the manual says of an error of a call, or strerror(3)."""
    if not _meanings:
        for errnos, names, text in _declared.ERRORS:
            _meanings.update(((name, e), text) for name in names.split()
                             for e in errnos.split())
    name = _errno.errorcode.get(number, "")
    said = _meanings.get((call, name)) or _meanings.get(("send", name), "")
    return f"{os.strerror(number)}: {said}" if said else os.strerror(number)


def error(call: str, ret: int, detail: str = "") -> Error:
    """The exception for what a call returned: a negative errno. `detail` is
    what the library logged."""
    text = (f"{os.strerror(-ret)}: {detail}" if detail else
            meaning(call, -ret))
    made = _CLASSES.get(-ret, Error)(-ret, f"pinion_{call}: {text}")
    made.call = f"pinion_{call}"
    return made


def forked(what: str) -> ForkedError:
    """The error of a child that uses an object of its parent."""
    return ForkedError(
        _errno.EPERM, f"{what} belongs to the process that forked this one: "
        "open a pinion.Context here, after the fork")


def check(call: str, ret: int, detail: Optional[str] = None) -> None:
    if ret < 0:
        raise error(call, ret, detail or "")
