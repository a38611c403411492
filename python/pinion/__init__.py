# SPDX-License-Identifier: BSD-2-Clause
"""pinion: memory registration for RDMA and GPUs that disappears.

Adapters and GPUs reach only memory that was registered (pinned) first.
Registering is slow, pinned memory is scarce, and a registration that outlives
its pages corrupts data. pinion decides what to register, when and for how long:

>>> import pinion, numpy
>>> ctx = pinion.Context()             # a software adapter; nothing is needed
>>> a = numpy.zeros(1_000_000)
>>> with ctx.pin(a) as pin:            # registered, or found registered
...     pin.local_key
>>> ctx.stats().hits

Messages and one-sided operations between processes need no pins:

>>> ep = ctx.endpoint()                          # in each process
>>> peer = ep.peer(address_of_the_other)         # its ep.address, by any means
>>> ep.send(a, peer).wait()                      # there: ep.recv(b).wait()
>>> exposure = ep.expose(a)                      # there, with exposure.key:
>>> remote = ep.remote(peer, key); remote.get(b).wait(); remote.put(b).wait()

Arrays in memory that is registered already: ctx.heap().empty(shape, dtype).
In asyncio: ctx.async_endpoint(). Copies to and from GPUs: pinion.cuda. Figures
in a notebook: pinion.report(). What calls cost: python3 -m pinion.bench.

Import pinion before modules that start threads (torch, NumPy with OpenBLAS): a
library that is loaded later learns about released memory from the kernel, which
makes each pin slower. pinion(7) explains that, the devices and all options.
Errors are pinion.Error (an OSError) and classes of it; wrong arguments are
TypeError and ValueError. doc/guide/python.md is a tutorial.
"""

from ._asyncio import AsyncEndpoint
from ._context import (Access, CacheStats, Context, DeviceInfo, HelperStats,
                       Option, Pin, StartedPin, invalidate, site)
from ._endpoint import (Completion, Endpoint, EndpointStats, Explanation,
                        Exposure, Peer, Remote, Request, Unexpected, wait_all)
from ._errors import (Canceled, ClosedError, Error, ForkedError, InvalidError,
                      NoRoom, NotReady, OutOfMemory, PeerGone, Refused,
                      TimedOut, Truncated)
from ._heap import Block, Heap, HeapStats
from ._library import call as _call
from ._report import Report, report, trace_stat

__version__ = "0.1.0"


def version() -> str:
    """The version of the C library."""
    text: bytes = _call.version()
    return text.decode()


__all__ = [
    "Access", "AsyncEndpoint", "Block", "CacheStats", "Canceled", "ClosedError",
    "Completion", "Context", "DeviceInfo", "Endpoint", "EndpointStats", "Error",
    "Explanation", "Exposure", "ForkedError", "Heap", "HeapStats",
    "HelperStats", "InvalidError", "NoRoom", "NotReady", "Option",
    "OutOfMemory", "Peer", "PeerGone", "Pin", "Refused", "Remote", "Report",
    "Request", "StartedPin", "TimedOut", "Truncated", "Unexpected",
    "invalidate", "report", "site",
    "trace_stat", "version", "wait_all",
]
