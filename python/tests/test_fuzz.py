# SPDX-License-Identifier: BSD-2-Clause
"""Every public call with arguments of every type: an exception of Python or a
result, never a crash, and what is there goes on working."""

import asyncio
import inspect
import os
import random

import pinion
import pinion.cuda
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


def values(pick, valid=()):
    """Something for an argument; `valid`: objects of pinion."""
    if valid and pick.random() < 0.15:
        return pick.choice(valid)
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
LEFT_OUT = {"wait", "close", "report", "trace_stat", "wait_all"}


def gpu_targets():
    """Copies; on the stand-in driver where there is no GPU."""
    try:
        pinion.cuda.context()
    except (OSError, NotImplementedError):
        return []
    return [pinion.cuda.copy, pinion.cuda.copy_start, pinion.cuda.stats,
            pinion.cuda.Copy, pinion.cuda.context]


class Target:
    """Objects of pinion, all valid, and some of another endpoint."""

    def __init__(self, ctx):
        self.ep, self.other = ctx.endpoint(), ctx.endpoint()
        self.me = self.ep.peer(self.ep.address)
        self.exposed = bytearray(1 << 20)
        self.exposure = self.ep.expose(self.exposed)
        self.remote = self.ep.remote(self.me, self.exposure.key)
        strange = self.other.peer(self.other.address)
        self.valid = [
            self.me, self.remote, self.exposure, strange,
            self.ep.recv(bytearray(8), tag=12345), self.exposure.key,
            self.ep.address, self.ep, ctx,
            self.other.remote(strange,
                              self.other.expose(bytearray(64)).key)]
        self.mine = [
            ctx, self.ep, self.me, self.exposure, self.remote, self.valid[4],
            ctx.heap(max_bytes=16 << 20), ctx.pin(bytearray(100)),
            ctx.async_endpoint()]

    def plausible(self, pick, name):
        """An argument of that name as the call wants it."""
        if name in ("buf", "obj"):
            return bytearray(pick.choice([1, 8, 100, 5000, 100_000]))
        if name in ("data", "tag", "user", "offset"):
            return pick.choice([0, 1, 8, 1 << 40, (1 << 64) - 1])
        return {"peer": self.me, "remote": self.remote, "delivery": True,
                "space": pick.randrange(256)}.get(name, 1)


def targets(ctx, objects):
    for obj in objects.mine:
        for name, method in inspect.getmembers(obj, callable):
            if not name.startswith("_") and name not in LEFT_OUT and \
                    inspect.ismethod(method):
                yield method
    for kind in (pinion.Context, pinion.Heap, pinion.Endpoint, pinion.Exposure,
                 pinion.Remote, pinion.Peer, pinion.Block,
                 pinion.site, pinion.invalidate, *gpu_targets()):
        yield kind


# What a few of some thousand calls must begin: those that check a peer or a
# remote first, with all that can be said beside it.
BEGUN = {(name, option) for name, options in (
    ("send", ("buf", "peer", "tag", "space", "data", "delivery", "user")),
    ("recv", ("buf", "peer", "tag", "ignore", "space", "user")),
    ("put", ("buf", "offset", "user")), ("get", ("buf", "offset", "user")),
    ("put_when", ("buf", "peer", "tag", "user")),
    ("grant", ("buf", "peer", "tag", "user"))) for option in options}


def drawn(pick, target, objects):
    """Arguments by place and by name. Half of the time most of them are what
    the call wants, so that it comes further than to its first check."""
    try:
        names = [n for n, p in inspect.signature(target).parameters.items()
                 if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        names = []
    if pick.random() < 0.5:
        arguments = [values(pick, objects.valid)
                     for _ in range(pick.randrange(5))]
        return arguments, {n: values(pick, objects.valid)
                           for n in names[len(arguments):]
                           if pick.random() < 0.2}
    return [], {n: objects.plausible(pick, n) if pick.random() < 0.9
                else values(pick, objects.valid) for n in names
                if n in ("buf", "peer", "remote") or pick.random() < 0.4}


async def fuzz(seed):
    """In a coroutine: an endpoint for asyncio wants a loop."""
    pick = random.Random(seed)
    ctx = pinion.Context("soft", log="none", max_bytes="256M")
    objects = Target(ctx)
    called = list(targets(ctx, objects))
    # Those with the most to say come often.
    called += 8 * [call for call in called
                   if getattr(call, "__self__", None) is objects.ep and
                   call.__name__ in {name for name, _ in BEGUN}]
    raised, begun = 0, set()
    for number in range(CALLS):
        target = pick.choice(called)
        arguments, options = drawn(pick, target, objects)
        try:
            target(*arguments, **options)
            begun.update((target.__name__, name) for name in options)
        except ALLOWED:
            raised += 1
        if not number % 100:
            ctx.resize(256 << 20, 1 << 20)  # it may have become tiny
            await asyncio.sleep(0)
    # It still works.
    with ctx.endpoint() as ep:
        me = ep.peer(ep.address)
        got = bytearray(100_000)
        request = ep.recv(got)
        ep.send(bytes(range(250)) * 400, me).wait()
        assert request.wait().len == 100_000
        assert got == bytes(range(250)) * 400
    ctx.close()
    missing = sorted(BEGUN - begun)
    assert not missing, missing
    print(raised, "of", CALLS, "calls raised")


def test_arguments_of_any_type_do_not_crash():
    """In a process of its own, so that a crash is seen as one."""
    seed = os.environ.get("PINION_TEST_SEED") or str(random.randrange(10**6))
    print("PINION_TEST_SEED", seed)
    done = python("-X", "faulthandler", __file__, seed)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "Exception ignored" not in done.stderr, done.stderr[-3000:]
    raised = int(done.stdout.split()[-5])
    assert CALLS // 4 < raised < CALLS


if __name__ == "__main__":
    import sys
    asyncio.run(fuzz(int(sys.argv[1])))
