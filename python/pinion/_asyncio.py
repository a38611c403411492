# SPDX-License-Identifier: BSD-2-Clause
"""Endpoints in asyncio.

The loop watches the endpoint's descriptor. When it is readable, all completions
are polled and their futures get their results, then the descriptor is armed
again: what a completion costs does not grow with the number of operations.
"""

import asyncio
from typing import Any, Callable, List, Optional

from . import _endpoint, _errors
from ._library import call

Future = asyncio.Future[_endpoint.Completion]

# Completions per turn of the loop, so that others have theirs.
_BATCH = 64


class AsyncEndpoint:
    """An Endpoint for asyncio. Made by Context.async_endpoint(), inside a
    coroutine.

    >>> ep = ctx.async_endpoint()
    >>> peer = ep.peer(address)
    >>> await ep.send(array, peer, tag=7)
    >>> got = await ep.recv(buffer)
    >>> got.len, got.tag, got.peer

    send, recv, put, get, put_when and grant take the arguments of Endpoint's
    and return a future, whose result is a Completion. The operation has begun
    when they return, so several can be under way: asyncio.gather(). A future
    that is canceled leaves its memory alone from the moment on at which the
    receive could be canceled; sends go on. A message of unknown length:

    >>> found = ep.probe(tag=None)            # None: there is none
    >>> await ep.recv_unexpected(found, bytearray(found.message_len))

    Remote.fetch_add() and the other atomics wait, and the loop with them.
    """

    def __init__(self, context: Any) -> None:
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError("async_endpoint() is called inside a coroutine: "
                               "no event loop is running here") from None
        self._ep = _endpoint.Endpoint(context)
        self._busy = False
        self._fd = self._ep.fileno()
        self._loop.add_reader(self._fd, self._turn)
        # Closed by its context through this object alone, which stops watching.
        context._children.discard(self._ep)
        context._children.add(self)

    # --- what is awaited ---

    def send(self, buf: Any, peer: _endpoint.Peer, tag: int = 0,
             **options: Any) -> Future:
        """As Endpoint.send()."""
        return self._begin(self._ep.send, buf, peer, tag, **options)

    def recv(self, buf: Any, peer: Optional[_endpoint.Peer] = None,
             tag: Optional[int] = 0, **options: Any) -> Future:
        """As Endpoint.recv()."""
        future = self._begin(self._ep.recv, buf, peer, tag, **options)
        future.add_done_callback(self._forget)
        return future

    def put(self, remote: _endpoint.Remote, buf: Any,
            offset: int = 0) -> Future:
        """As Endpoint.put()."""
        return self._begin(self._ep.put, remote, buf, offset)

    def get(self, remote: _endpoint.Remote, buf: Any,
            offset: int = 0) -> Future:
        """As Endpoint.get()."""
        return self._begin(self._ep.get, remote, buf, offset)

    def put_when(self, buf: Any, peer: _endpoint.Peer, tag: int = 0) -> Future:
        """As Endpoint.put_when()."""
        return self._begin(self._ep.put_when, buf, peer, tag)

    def grant(self, buf: Any, peer: _endpoint.Peer, tag: int = 0) -> Future:
        """As Endpoint.grant()."""
        return self._begin(self._ep.grant, buf, peer, tag)

    def recv_unexpected(self, found: _endpoint.Unexpected,
                        buf: Any) -> Future:
        """As the recv() of what probe() found."""
        return self._begin(found.recv, buf)

    def flush(self, peer: _endpoint.Peer) -> Future:
        """As Peer.flush()."""
        return self._begin(peer.flush)

    # --- what is not ---

    @property
    def address(self) -> bytes:
        """As Endpoint.address."""
        return self._ep.address

    @property
    def closed(self) -> bool:
        """As Endpoint.closed."""
        return self._ep.closed

    def peer(self, address: bytes) -> _endpoint.Peer:
        """As Endpoint.peer()."""
        return self._ep.peer(address)

    def expose(self, obj: Any, access: int = 0) -> _endpoint.Exposure:
        """As Endpoint.expose()."""
        return self._ep.expose(obj, access)

    def remote(self, peer: _endpoint.Peer, key: bytes) -> _endpoint.Remote:
        """As Endpoint.remote()."""
        return self._ep.remote(peer, key)

    def probe(self, peer: Optional[_endpoint.Peer] = None,
              tag: Optional[int] = 0,
              **options: Any) -> Optional[_endpoint.Unexpected]:
        """As Endpoint.probe()."""
        return self._ep.probe(peer, tag, **options)

    def stats(self) -> _endpoint.EndpointStats:
        """As Endpoint.stats()."""
        return self._ep.stats()

    def explain(self, nbytes: int, reuse: int = 1,
                budget_full: bool = False) -> List[_endpoint.Explanation]:
        """As Endpoint.explain()."""
        return self._ep.explain(nbytes, reuse, budget_full)

    def close(self) -> None:
        """As Endpoint.close(); futures of what is under way are canceled."""
        if self._fd < 0:
            return
        futures = [user for user, _hold in self._ep._users.values()]
        if not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        self._fd = -1
        self._ep.close()
        if not self._loop.is_closed():
            for future in futures:
                future.cancel()

    def __enter__(self) -> "AsyncEndpoint":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- how it is driven ---

    def _begin(self, function: Callable[..., Any], *arguments: Any,
               **options: Any) -> Future:
        future: Future = self._loop.create_future()
        function(*arguments, user=future, **options)
        self._come()
        return future

    def _come(self) -> None:
        """Lets the loop look after what was begun."""
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._turn)

    def _forget(self, future: Any) -> None:
        """A receive whose future was canceled."""
        if future.cancelled() and not self._ep.closed:
            for key, (user, _hold) in list(self._ep._users.items()):
                if user is future:
                    call.recv_cancel(self._ep._arg, key)
                    self._come()

    def _turn(self) -> None:
        """Polls what there is; arms when there is nothing, else comes again."""
        self._busy = False
        if self._ep.closed:
            return
        for completion in self._ep.poll(_BATCH):
            future = completion.user
            if future.done():
                continue
            error: Optional[_errors.Error] = completion.error
            if error is None:
                future.set_result(completion)
            else:
                future.set_exception(error)
        if not self._ep.arm():
            self._come()
