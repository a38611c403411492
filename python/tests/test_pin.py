# SPDX-License-Identifier: BSD-2-Clause
"""Contexts and pins."""

import array
import gc
import multiprocessing
import os
import sys
import threading
import time

import pytest

import pinion
from conftest import python

try:
    import numpy
except ImportError:
    numpy = None

needs_numpy = pytest.mark.skipif(numpy is None, reason="needs NumPy")


class Interface:
    """An object with __array_interface__ alone."""

    def __init__(self, memory, readonly=False, strides=None):
        import ctypes
        self.memory = memory
        self.__array_interface__ = {
            "version": 3, "shape": (len(memory) // 4, 4), "typestr": "|u1",
            "data": (ctypes.addressof(ctypes.c_char.from_buffer(memory)),
                     readonly),
            "strides": strides}


class Tensor:
    """What pinion needs of torch's tensors, without torch."""

    class device:
        type = "cpu"

    def __init__(self, nbytes, contiguous=True):
        self.storage = bytearray(nbytes)
        self.contiguous = contiguous

    def data_ptr(self):
        import ctypes
        return ctypes.addressof(ctypes.c_char.from_buffer(self.storage))

    def numel(self):
        return len(self.storage) // 4

    def element_size(self):
        return 4

    def is_contiguous(self):
        return self.contiguous


def test_a_second_pin_hits(ctx):
    memory = bytearray(100_000)
    with ctx.pin(memory) as pin:
        assert pin.len == 100_000 and pin.pinned and pin.local_key
    with ctx.pin(memory):
        pass
    stats = ctx.stats()
    assert (stats.hits, stats.misses) == (1, 1)
    assert stats.bytes >= 100_000


@pytest.mark.parametrize("make", [
    lambda: bytearray(5000), lambda: array.array("d", [1.0] * 600),
    lambda: memoryview(bytearray(5000)), lambda: bytes(5000),
    lambda: Interface(bytearray(5000)), lambda: Tensor(5000),
    lambda: memoryview(bytes(5000)),
])
def test_all_kinds_of_memory_can_be_pinned(ctx, make):
    obj = make()
    with ctx.pin(obj) as pin:
        assert pin.len in (4800, 5000)


@needs_numpy
def test_numpy_arrays_can_be_pinned(ctx):
    whole = numpy.zeros((100, 100))
    for obj in (whole, whole[10:20], numpy.float32(1) * numpy.ones(7),
                numpy.ma.masked_array(whole).data, whole.view(numpy.recarray)):
        with ctx.pin(obj) as pin:
            assert pin.len == obj.nbytes
    whole.flags.writeable = False
    with ctx.pin(whole):
        pass
    with pytest.raises(TypeError, match="read-only"):
        ctx.pin(whole, pinion.Access.LOCAL_WRITE)
    with pytest.raises(TypeError, match="contiguous"):
        ctx.pin(whole[:, ::2])
    with pytest.raises(TypeError, match="contiguous"):
        ctx.pin(whole.T)


def test_memory_that_cannot_be_pinned_is_a_type_error(ctx):
    class Gpu:
        __cuda_array_interface__ = {"data": (4096, False), "version": 3}

    for obj in (None, 5, "text", [1, 2], object(), Gpu(), print, ctx,
                Tensor(100, contiguous=False),
                Interface(bytearray(64), strides=(8, 1)),
                memoryview(bytearray(100))[::2]):
        with pytest.raises(TypeError):
            ctx.pin(obj)
    with pytest.raises(TypeError, match="read-only"):
        ctx.pin(Interface(bytearray(64), readonly=True), 1)
    with pytest.raises(TypeError, match="read-only"):
        ctx.pin(b"abc", pinion.Access.REMOTE_WRITE)


def test_what_is_pinned_cannot_be_resized(ctx):
    memory, numbers = bytearray(5000), array.array("b", bytes(5000))
    with ctx.pin(memory), ctx.pin(numbers):
        with pytest.raises(BufferError):
            memory.extend(b"more")
        with pytest.raises(BufferError):
            numbers.append(1)
        if numpy:
            a = numpy.zeros(1000)
            with ctx.pin(a), pytest.raises(ValueError):
                a.resize(2000)
    memory.extend(b"more")
    numbers.append(1)


def test_a_tensor_that_was_resized_while_pinned_is_reported(ctx):
    tensor = Tensor(4096)
    pin = ctx.pin(tensor)
    tensor.storage = bytearray(8192)
    with pytest.raises(BufferError, match="resized"):
        pin.unpin()
    assert not pin.pinned


def test_a_pin_keeps_its_object(ctx):
    if numpy is None:
        pytest.skip("needs NumPy")
    import weakref
    a = numpy.zeros(1000)
    gone = weakref.ref(a)
    pin = ctx.pin(a)
    del a
    gc.collect()
    assert gone() is not None
    pin.unpin()
    gc.collect()
    assert gone() is None


def test_a_pin_that_is_dropped_is_unpinned(ctx):
    memory = bytearray(1 << 20)
    pin = ctx.pin(memory)
    del pin
    gc.collect()
    ctx.flush()
    assert ctx.stats().bytes == 0
    memory.append(0)


def test_unpinning_twice_does_nothing(ctx):
    pin = ctx.pin(bytearray(100))
    pin.unpin()
    pin.unpin()
    with pytest.raises(pinion.ClosedError):
        list(pin.segments())
    assert "not pinned" in repr(pin)


def test_segments_cover_the_buffer(ctx):
    memory = bytearray(1 << 20)
    with ctx.pin(memory) as pin:
        segments = list(pin.segments())
        assert sum(s.len for s in segments) == 1 << 20
        assert segments[0].addr == pin.addr


def test_pins_in_a_list_are_made_together(ctx):
    memories = [bytearray(8192) for _ in range(100)]
    pins = ctx.pin_list(memories)
    assert [p.len for p in pins] == [8192] * 100
    for pin in pins:
        pin.unpin()
    assert ctx.pin_list([]) == []
    with pytest.raises(TypeError):
        ctx.pin_list([bytearray(10), None])
    with pytest.raises(TypeError):
        ctx.pin_list([bytearray(10), b"read-only"])


def test_a_pin_can_be_started_and_finished_later(ctx):
    memory = bytearray(1 << 20)
    pin = ctx.pin_start(memory)
    assert pin.wait() is pin and pin.ready()
    pin.unpin()
    with ctx.pin_start(memory) as again:
        again.wait()
    ctx.pin_start(bytearray(1 << 20))  # dropped while it is being made


def test_a_bypass_leaves_nothing_registered(ctx):
    with ctx.pin(bytearray(100_000), bypass=True):
        assert ctx.stats().misses_bypass == 1
    assert ctx.stats().hits == 0
    # A thread deregisters it.
    deadline = time.monotonic() + 60
    while not ctx.stats().deregistrations and time.monotonic() < deadline:
        time.sleep(0.01)
    # With remote access it is gone when unpin() returns.
    before = ctx.stats().deregistrations
    for turn in range(3):
        pin = ctx.pin(bytearray(100_000), pinion.Access.REMOTE_READ, True)
        if turn < 2:
            pin.unpin()
        del pin
        assert ctx.stats().deregistrations == before + turn + 1
    for pin in ctx.pin_list([bytearray(9), bytearray(9)], bypass=True):
        pin.unpin()
        pin.unpin()
    assert ctx.stats().hits == 0


def test_nothing_can_be_done_in_a_closed_context():
    ctx = pinion.Context()
    pin = ctx.pin(bytearray(100))
    ctx.close()
    ctx.close()
    assert ctx.closed and "closed" in repr(ctx)
    pin.unpin()
    for action in (lambda: ctx.pin(bytearray(10)), ctx.stats, ctx.options,
                   ctx.device, ctx.endpoint, ctx.heap, ctx.flush,
                   ctx.helper_stats, lambda: ctx.pin_list([bytearray(10)]),
                   lambda: ctx.pin_start(bytearray(10)),
                   lambda: ctx.pin(memoryview(bytearray(10)))):
        with pytest.raises(pinion.ClosedError):
            action()


def test_what_the_library_says_is_in_the_exception():
    with pytest.raises(pinion.Error, match="no device 'nonsense'") as caught:
        pinion.Context("nonsense", log="none")
    assert caught.value.errno == 19 and caught.value.call == "pinion_open"
    with pytest.raises(pinion.InvalidError, match="max_bytes"):
        pinion.Context(max_bytes="many", log="none")
    with pytest.raises(ValueError):
        pinion.Context(nonsense=1, log="none")
    for wrong in ({"device": 5}, {"max_bytes": None}, {"max_bytes": [1]}):
        with pytest.raises(TypeError):
            pinion.Context(**wrong)
    with pytest.raises(ValueError):
        pinion.Context(trace="a\0b")


def test_a_full_budget_is_no_room():
    with pinion.Context(max_bytes="1M", process_max_bytes="64M") as ctx:
        with pytest.raises(pinion.NoRoom) as caught:
            ctx.pin(bytearray(64 << 20))
        assert isinstance(caught.value, MemoryError)
        assert ctx.stats().refused == 1


def test_options_say_where_they_come_from():
    with pinion.Context("sim", max_bytes=1 << 30, cache_merge=False) as ctx:
        options = ctx.options()
        assert options["device"].value == "sim"
        assert options["max_bytes"].source == "attribute"
        assert options["max_bytes"].value == "1G"
        assert options["cache_merge"].value == "no"
        assert options["trace"].source == "default"
        assert ctx.device().kind == "sim"


def views():
    """Parts of one object."""
    one = memoryview(bytearray(10_000 * 4096))
    return [one[i * 4096:(i + 1) * 4096] for i in range(10_000)]


def arrays():
    """Each with memory of its own, from malloc."""
    return [numpy.zeros(4096, "u1") for _ in range(10_000)]


def tensors():
    torch = pytest.importorskip("torch")
    return [torch.zeros(1024) for _ in range(10_000)]


@pytest.mark.parametrize("make", [
    views, pytest.param(arrays, marks=needs_numpy), tensors])
def test_small_arrays_pinned_again_and_again_hit_and_do_not_grow(ctx, make):
    """10,000 of 4 KiB, 60 times: counts of registrations and of regions stay,
    and so do the interpreter's memory and the mappings of the process."""
    small = make()
    for turn in range(60):
        for each in small:
            ctx.pin(each).unpin()
        stats = ctx.stats()
        if turn == 0:
            after_first = stats
            blocks = sys.getallocatedblocks()
            mappings = count_mappings()
    assert stats.hits + stats.misses == 600_000
    assert after_first.misses <= 10_000
    # Pages that malloc shares with others may be given back: a few of 590,000.
    for counter in ("misses", "registrations", "regions"):
        first = getattr(after_first, counter)
        assert getattr(stats, counter) <= first + 20, counter
    assert stats.waits == stats.evictions == 0
    assert sys.getallocatedblocks() < blocks + 1000
    assert count_mappings() < mappings + 10


def count_mappings():
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        return sum(1 for _ in maps)


def test_threads_pin_at_the_same_time(ctx):
    memories = [bytearray(64 << 10) for _ in range(16)]
    errors = []

    def work(k):
        try:
            for i in range(500):
                with ctx.pin(memories[(i * k) % 16]) as pin:
                    assert pin.len == 64 << 10
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    stats = ctx.stats()
    assert stats.hits + stats.misses == 2000


def test_a_context_closed_by_another_thread_is_an_exception_there():
    for _ in range(20):
        ctx = pinion.Context()
        memory = memoryview(bytearray(4 << 20))
        begun, ended = threading.Event(), []

        def work():
            try:
                while True:
                    ctx.pin(memory).unpin()
                    begun.set()
            except pinion.ClosedError as error:
                ended.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        begun.wait(60)
        ctx.close()
        thread.join(60)
        assert len(ended) == 1


CHILD = """
import os, pinion
ctx = pinion.Context(); ep = ctx.endpoint(); me = ep.peer(ep.address)
heap = ctx.heap(); block = heap.block(100); pin = ctx.pin(bytearray(100))
exposure = ep.expose(bytearray(4096)); remote = ep.remote(me, exposure.key)
pid = os.fork()
if not pid:
    for what in (lambda: ctx.pin(bytearray(10)), lambda: ep.send(b"x", me),
                 lambda: ep.recv(bytearray(1)).wait(), lambda: heap.block(10),
                 lambda: ep.poll(), ctx.stats, ctx.endpoint, ep.stats,
                 lambda: remote.get(bytearray(1)).wait(),
                 lambda: ctx.pin(memoryview(bytearray(10)))):
        try:
            what()
        except pinion.ForkedError as error:
            assert isinstance(error, PermissionError)
            assert "after the fork" in str(error), error
        else:
            raise AssertionError("no error")
    pin.unpin(); del block
    with pinion.Context() as mine, mine.endpoint() as other:
        self = other.peer(other.address)
        other.send(b"hello", self); got = bytearray(5)
        other.recv(got).wait(); assert got == b"hello"
        mine.pin(bytearray(10)).unpin()
    ctx.close()
    print("child", flush=True)
    raise SystemExit(0)
assert os.waitpid(pid, 0)[1] == 0
ctx.pin(bytearray(10)).unpin()
got = bytearray(5); ep.send(b"again", me); ep.recv(got).wait()
assert got == b"again"
print("parent")
"""


def test_a_forked_child_is_told_and_opens_its_own():
    done = python("-W", "ignore", "-c", CHILD)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "child\nparent\n"


def use(ctx, pipe):
    try:
        ctx.pin(bytearray(10))
    except pinion.ForkedError as error:
        with pinion.Context() as mine:
            mine.pin(bytearray(10)).unpin()
        pipe.send(str(error))
    else:
        pipe.send("no error")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_of_multiprocessing_is_told_so_too(ctx):
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe()
    process = fork.Process(target=use, args=(ctx, there))
    process.start()
    assert here.poll(120) and "after the fork" in here.recv()
    process.join(120)
    assert process.exitcode == 0
    ctx.pin(bytearray(10)).unpin()


EXIT = """
import random, sys, threading, pinion
ctx = pinion.Context(); ep = ctx.endpoint(); me = ep.peer(ep.address)
kept = [ctx.pin(bytearray(100)), ctx.heap().buffer(100), ep.recv(bytearray(5)),
        ep.expose(bytearray(100)), me, ep, ctx,
        ctx.pin_start(bytearray(1 << 20))]
random.Random(sys.argv[1]).shuffle(kept)
if "cycle" in sys.argv:
    kept.append(kept)                   # for the garbage collector
    sys.kept = kept                     # and the last thing to go
else:
    for number, each in enumerate(kept):
        globals()[f"kept_{number}"] = each  # go in this order
    del kept, each
def wait():
    try:
        ep.recv(bytearray(5), tag=1).wait()
    except (pinion.Error, pinion.ClosedError):
        pass
if "thread" in sys.argv:
    threading.Thread(target=wait, daemon=True).start()
del ctx
print("end")
"""


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("arguments", ["cycle", "cycle thread", "thread", ""])
def test_everything_may_be_there_at_the_interpreters_end(seed, arguments):
    done = python("-c", EXIT, str(seed), *arguments.split())
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_objects_may_be_dropped_in_any_order():
    import itertools
    for order in itertools.permutations(range(5)):
        ctx = pinion.Context("sim")
        ep = ctx.endpoint()
        objects = [ctx, ep, ep.peer(ep.address), ctx.heap().block(100),
                   ctx.pin(bytearray(100))]
        del ctx, ep
        for index in order:
            objects[index] = None
    gc.collect()
    assert os.getpid()
