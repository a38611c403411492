# SPDX-License-Identifier: BSD-2-Clause
"""Every public call with arguments of every type: an exception of Python or a
result, never a crash, and what is there goes on working."""

import inspect
import os
import random

import pinion
from conftest import python

CALLS = 4000
ALLOWED = (TypeError, ValueError, OSError, BufferError, OverflowError,
           AttributeError, MemoryError, RuntimeError, ImportError,
           KeyError)  # the last one is raised by Strange


class Strange:
    """Claims much, keeps nothing."""

    nbytes = 1 << 50
    device = None

    def __index__(self):
        return 1 << 70

    def __len__(self):
        return 5

    def __getitem__(self, _):
        raise KeyError


class Liar(bytearray):
    nbytes = 1 << 50


def values(pick):
    """Something for an argument."""
    memory = bytearray(pick.choice([0, 1, 7, 4096, 100_000]))
    choices = [
        None, True, -1, 0, 1, 7, 255, 256, 1 << 31, 1 << 32, 1 << 63, 1 << 64,
        0.5, float("nan"), float("inf"), 1j, "", "text", "soft", "sim\0", b"",
        b"bytes", b"\4\0\0\0abcd", b"\xff" * 528, memory, memoryview(memory),
        memoryview(memory)[::2], memoryview(b"const"), [], [1, 2], [memory],
        (), {}, {"a": 1}, set(), object(), object, print, Strange(), Liar(9),
        pinion.Access.REMOTE_READ, range(5), iter([]), slice(3), NotImplemented,
        memoryview(bytearray(8)).cast("Q"), bytearray,
    ]
    try:
        import numpy
        choices += [numpy.zeros(5), numpy.zeros((3, 4))[:, 1], numpy.int64(5),
                    numpy.zeros(0), numpy.array([None]), numpy.float64("nan"),
                    numpy.zeros(3, "U5"), numpy.datetime64("now"),
                    numpy.broadcast_to(numpy.zeros(1), 10)]
    except ImportError:
        pass
    return pick.choice(choices)


# Those that wait for ever for a message that does not come, those that end the
# run, and those that start programs.
LEFT_OUT = {"wait", "close", "report", "trace_stat", "wait_all", "invalidate",
            "compare_swap", "swap", "fetch_add"}


def targets(ctx):
    ep = ctx.endpoint()
    me = ep.peer(ep.address)
    exposure = ep.expose(bytearray(4096))
    request = ep.recv(bytearray(8), tag=12345)
    objects = [ctx, ep, me, exposure, ep.remote(me, exposure.key), request,
               ctx.heap(max_bytes=16 << 20), ctx.pin(bytearray(100))]
    for obj in objects:
        for name, method in inspect.getmembers(obj, callable):
            if not name.startswith("_") and name not in LEFT_OUT and \
                    inspect.ismethod(method):
                yield method
    for kind in (pinion.Context, pinion.Heap, pinion.Endpoint, pinion.Exposure,
                 pinion.Remote, pinion.Peer, pinion.Block,
                 pinion.site):
        yield kind


def fuzz(seed):
    pick = random.Random(seed)
    ctx = pinion.Context("soft", log="none", max_bytes="256M")
    called = list(targets(ctx))
    raised = 0
    for _ in range(CALLS):
        target = pick.choice(called)
        arguments = [values(pick) for _ in range(pick.randrange(5))]
        names = []
        try:
            names = [n for n, p in inspect.signature(target).parameters.items()
                     if p.kind == p.KEYWORD_ONLY]
        except (TypeError, ValueError):
            pass
        options = {n: values(pick) for n in names if pick.random() < 0.2}
        try:
            target(*arguments, **options)
        except ALLOWED:
            raised += 1
    # It still works.
    with ctx.endpoint() as ep:
        me = ep.peer(ep.address)
        got = bytearray(100_000)
        request = ep.recv(got)
        ep.send(bytes(range(250)) * 400, me).wait()
        assert request.wait().len == 100_000
        assert got == bytes(range(250)) * 400
    ctx.close()
    print(raised, "of", CALLS, "calls raised")


def test_arguments_of_any_type_do_not_crash():
    """In a process of its own, so that a crash is seen as one."""
    seed = os.environ.get("PINION_TEST_SEED") or str(random.randrange(10**6))
    print("PINION_TEST_SEED", seed)
    done = python("-X", "faulthandler", __file__, seed)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    raised = int(done.stdout.split()[-5])
    assert CALLS // 4 < raised < CALLS


if __name__ == "__main__":
    import sys
    fuzz(int(sys.argv[1]))
