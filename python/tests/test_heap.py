# SPDX-License-Identifier: BSD-2-Clause
"""Heaps."""

import gc
import threading
import time

import pytest

import pinion
from conftest import SPAWN, finish, run

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None

needs_numpy = pytest.mark.skipif(numpy is None, reason="needs NumPy")
needs_torch = pytest.mark.skipif(torch is None, reason="needs torch")


def test_what_is_made_of_a_wrong_object_raises(ctx):
    """The C library would take its handle, and hang or crash."""
    with ctx.endpoint() as ep, ctx.heap() as heap:
        for wrong in (ep, heap, None, 1):
            with pytest.raises(TypeError):
                pinion.Heap(wrong)
            with pytest.raises(TypeError):
                pinion.Endpoint(wrong)
        me = ep.peer(ep.address)
        exposure = ep.expose(bytearray(4096))
        for wrong in (ctx, heap, me, None):
            with pytest.raises(TypeError):
                pinion.Exposure(wrong, bytearray(8), 2)
            with pytest.raises(TypeError):
                pinion.Remote(wrong, me, exposure.key)
        exposure.close()


@pytest.fixture
def heap(ctx):
    with ctx.heap() as made:
        yield made


def test_heap_memory_is_pinned_without_registering(ctx, heap):
    memory = heap.buffer(10_000)
    before = ctx.stats()
    ctx.pin(memory).unpin()
    after = ctx.stats()
    assert after.registrations == before.registrations
    assert after.misses == before.misses and heap.contains(memory)
    assert not heap.contains(bytearray(100))


def test_a_block_lives_as_long_as_what_was_made_over_it(heap):
    memory = heap.buffer(1 << 20)
    part = memory[5:10]
    del memory
    gc.collect()
    assert len(heap._live) == 1
    part[:] = b"12345"
    del part
    gc.collect()
    assert len(heap._live) == 0
    heap.trim()
    assert heap.stats().slabs == 0


@needs_numpy
def test_arrays_are_what_numpy_makes_them(heap):
    a = heap.zeros((3, 5), "float32")
    assert a.shape == (3, 5) and a.dtype == numpy.float32 and not a.any()
    assert a.flags.writeable and a.flags.c_contiguous and heap.contains(a)
    texts = heap.zeros(3, [("key", "S8"), ("number", "u8")])
    assert (texts["key"] == b"").all() and not texts["number"].any()
    assert heap.zeros(0).shape == (0,)
    b = heap.array([[1, 2], [3, 4]])
    assert (b == [[1, 2], [3, 4]]).all() and heap.contains(b)
    c = heap.empty((0, 3))
    assert c.shape == (0, 3)
    assert heap.empty(()).shape == ()
    d = heap.empty(4, [("x", "i4"), ("y", "f8")])
    d["y"] = 5
    assert d["y"].sum() == 20
    for wrong in (-1, "x", (2, -1), 1.5, (1 << 40, 1 << 40), None):
        with pytest.raises((TypeError, ValueError)):
            heap.empty(wrong)
    with pytest.raises(TypeError):
        heap.empty(3, object)


@needs_numpy
def test_arrays_outlive_the_close_of_heap_and_context():
    ctx = pinion.Context()
    heap = ctx.heap()
    a = heap.zeros(100_000)
    view = a[10:20]
    heap.close()
    ctx.close()
    with pytest.raises(pinion.ClosedError):
        heap.empty(3)
    a[:] = 3
    assert a.sum() == 300_000
    del a
    assert view.sum() == 30 and ctx._handle
    del view
    gc.collect()
    assert ctx._handle is None and heap._handle is None


@needs_torch
def test_tensors_are_in_the_heap(ctx, heap):
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64,
                  torch.uint8, torch.bool):
        t = heap.tensor((3, 5), dtype)
        assert t.dtype == dtype and t.shape == (3, 5) and heap.contains(t)
        t.zero_()
    with ctx.pin(t) as pin:
        assert pin.len == t.numel() * t.element_size()
    assert heap.tensor((0, 3)).shape == (0, 3)
    del t
    gc.collect()
    assert not heap._live


def test_attributes_are_checked(ctx):
    for wrong in ({"slab_bytes": -1}, {"slab_bytes": "x"}, {"pages": "large"},
                  {"return_seconds": -1}, {"access": 1 << 40},
                  {"return_seconds": float("nan")}, {"numa_node": "x"},
                  {"slab_bytes": 5}, {"nonsense": 1}):
        with pytest.raises((TypeError, ValueError)):
            ctx.heap(**wrong)
    with ctx.heap(slab_bytes=4 << 20, max_bytes=8 << 20, in_children=False,
                  return_seconds=float("inf"), access=1) as heap:
        kept = [heap.block(1 << 20) for _ in range(3)]
        assert heap.stats().slab_bytes == 4 << 20
        with pytest.raises(MemoryError):
            kept.append(heap.block(64 << 20))
        assert heap.block(100, alignment=4096).address % 4096 == 0
        with pytest.raises(ValueError):
            heap.block(100, alignment=3)


def test_blocks_are_freed_by_any_thread(heap):
    blocks = [heap.block(1000) for _ in range(1000)]
    threads = [threading.Thread(target=blocks.clear) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not heap._live


class Slow:
    """The library, in whose heap_free() and heap_malloc() threads stay until
    they are let go; notes what is called meanwhile."""

    def __init__(self, real):
        self.real, self.order = real, []
        self.inside, self.let_go = threading.Event(), threading.Event()

    def __getattr__(self, name):
        function = getattr(self.real, name)

        def noted(*arguments):
            self.order.append(name)
            if name == "heap_free":
                self.inside.set()
                assert self.let_go.wait(60)
            ret = function(*arguments)
            self.order.append(name + " returned")
            return ret

        return noted


@pytest.mark.parametrize("closed", ["heap", "context"])
@pytest.mark.parametrize("first", ["free", "close"])
def test_a_close_waits_for_the_block_that_is_being_freed(monkeypatch, closed,
                                                        first):
    ctx = pinion.Context()
    heap = ctx.heap()
    blocks = [heap.block(1000)]
    slow = Slow(pinion._heap.call)
    monkeypatch.setattr(pinion._heap, "call", slow)
    close = (heap if closed == "heap" else ctx).close
    if first == "close":
        close()
    thread = threading.Thread(target=blocks.clear)
    thread.start()
    assert slow.inside.wait(60)
    if first == "free":
        close()
    assert slow.order == ["heap_free"]
    slow.let_go.set()
    thread.join()
    assert slow.order == ["heap_free", "heap_free returned", "heap_close",
                          "heap_close returned"]
    assert heap._handle is None
    ctx.close()
    assert ctx._handle is None


def test_a_dropped_block_closes_nothing_while_a_thread_allocates(monkeypatch):
    ctx = pinion.Context()
    heap = ctx.heap()
    blocks = [heap.block(1000)]
    inside, let_go = threading.Event(), threading.Event()
    malloc, closes = pinion._heap._heap_malloc, []

    def slow_malloc(*arguments):
        inside.set()
        assert let_go.wait(60)
        assert not closes
        return malloc(*arguments)

    def note_close(handle):
        closes.append(handle)
        close(handle)

    close = pinion._heap.call.heap_close
    monkeypatch.setattr(pinion._heap, "_heap_malloc", slow_malloc)
    monkeypatch.setattr(pinion._heap.call, "heap_close", note_close)
    allocates = threading.Thread(
        target=lambda: blocks.append(heap.block(500)))
    allocates.start()
    assert inside.wait(60)
    closer = threading.Thread(target=heap.close)
    closer.start()
    while not heap.closed:
        time.sleep(0.001)
    # The close waits for the thread; another block goes meanwhile.
    blocks.pop(0)
    assert not closes
    let_go.set()
    allocates.join()
    closer.join()
    assert not closes and len(heap._live) == 1
    blocks.clear()
    assert len(closes) == 1 and heap._handle is None
    ctx.close()
    assert ctx._handle is None


BATCHES, ROWS = 200, 256


def load(pipe):
    """A loader: makes batches in the memory of a heap and sends them; a batch
    that was sent goes back to the heap as soon as it is dropped."""
    with pinion.Context() as ctx, ctx.endpoint() as ep:
        heap = ctx.heap()
        pipe.send_bytes(ep.address)
        peer = ep.peer(pipe.recv_bytes())
        under_way = []
        for number in range(BATCHES):
            batch = heap.empty((ROWS, 256), "uint32")
            batch[:] = number * 7 + numpy.arange(ROWS * 256).reshape(ROWS, 256)
            under_way.append(ep.send(batch, peer, tag=number))
            del batch
            if len(under_way) == 4:
                under_way.pop(0).wait()
        pinion.wait_all(under_way)
        under_way.clear()
        gc.collect()
        stats = ctx.stats()
        pipe.send((heap.stats().registrations, len(heap._live),
                   stats.registrations))
        pipe.recv_bytes()


@needs_numpy
def test_a_loader_feeds_a_consumer_through_registered_memory(ctx, ep, heap):
    here, there = SPAWN.Pipe()
    loader = run(load, there)
    peer = ep.peer(here.recv_bytes())
    here.send_bytes(ep.address)
    slots = [heap.empty((ROWS, 256), "uint32") for _ in range(4)]
    requests = [ep.recv(slot, peer, tag=k) for k, slot in enumerate(slots)]
    expected = numpy.arange(ROWS * 256, dtype="uint32").reshape(ROWS, 256)
    for number in range(BATCHES):
        requests[number % 4].wait(timeout=60)
        assert (slots[number % 4] == number * 7 + expected).all()
        requests[number % 4] = ep.recv(slots[number % 4], peer,
                                       tag=number + 4)
    slabs, live, registrations = here.recv()
    assert live == 0, "batches were not freed"
    # Four or five batches of 256 KiB are under way at a time.
    assert slabs <= 4 and registrations <= 4
    here.send_bytes(b"end")
    finish(loader)
    for request in requests:
        request.cancel()
    assert time.monotonic()
