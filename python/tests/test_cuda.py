# SPDX-License-Identifier: BSD-2-Clause
"""Copies to and from a GPU; on the stand-in driver where there is no other."""

import ctypes
import gc
import signal
import sys
import threading
import time
import types

import pytest

import pinion
import pinion.cuda
from conftest import HERE, noise

sys.path.insert(0, str(HERE.parent / "examples"))

numpy = pytest.importorskip("numpy")
load_tensors = pytest.importorskip("load_tensors")


@pytest.fixture(scope="module")
def gpu():
    """The first GPU is current; the stand-in has two."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        if hasattr(driver, "pinion_standin_set"):
            driver.pinion_standin_set(b"devices=2")
        made = load_tensors.Gpu()
        pinion.cuda.context()
    except (SystemExit, NotImplementedError, OSError) as error:
        pytest.skip(f"no GPU and no stand-in: {error}")
    return made


@pytest.fixture
def standin(gpu):
    """Sets options of the stand-in for a test."""
    if not hasattr(gpu.driver, "pinion_standin_set"):
        pytest.skip("a real driver")
    names = []

    def set_option(name, value):
        names.append(name)
        assert not gpu.driver.pinion_standin_set(f"{name}={value}".encode())

    yield set_option
    for name in names:
        gpu.driver.pinion_standin_set(f"{name}=0".encode())


@pytest.fixture(autouse=True)
def nothing_is_left():
    """The driver and the context for copies stay open."""
    yield
    gc.collect()


def device_array(gpu, nbytes):
    return load_tensors.GpuArray(gpu, (nbytes,), "u1")


@pytest.mark.parametrize("nbytes", [1, 4096, 100_000, (5 << 20) + 3])
def test_bytes_go_there_and_back(gpu, nbytes):
    there, source = device_array(gpu, nbytes), noise(nbytes, 3)
    for obj, into in ((source, bytearray(nbytes)),
                      (bytes(source), numpy.zeros(nbytes, "u1")),
                      (numpy.frombuffer(source, "u1"), bytearray(nbytes))):
        pinion.cuda.copy(there, obj)
        pinion.cuda.copy(into, there)
        assert bytes(into) == bytes(source)
    there.free()


def test_copies_between_gpu_arrays_and_from_a_heap(gpu):
    one, two = device_array(gpu, 1 << 20), device_array(gpu, 1 << 20)
    heap = pinion.cuda.context().heap()
    source = heap.array(numpy.frombuffer(noise(1 << 20, 9), "u1"))
    pinion.cuda.copy(one, source)
    pinion.cuda.copy(two, one)
    back = heap.empty(1 << 20, "u1")
    pinion.cuda.copy(back, two)
    assert (back == source).all()
    one.free()
    two.free()


def test_a_copy_that_was_started_holds_its_memory(gpu):
    there, memory = device_array(gpu, 1 << 20), bytearray(noise(1 << 20, 5))
    started = pinion.cuda.copy_start(there, memory)
    started.wait(timeout=60)
    assert started.done() and started.wait() is started
    memory.append(1)
    pinion.cuda.copy_start(there, noise(1 << 20, 6))  # dropped: waited for
    got = bytearray(1 << 20)
    pinion.cuda.copy(got, there)
    assert got == noise(1 << 20, 6)
    there.free()


@pytest.fixture
def ticks():
    """What another thread counts while this one does not have the GIL: nobody
    takes it from a thread that does not release it."""
    counted, end = [0], threading.Event()

    def count():
        while not end.wait(0.001):
            counted[0] += 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    thread = threading.Thread(target=count)
    thread.start()
    yield counted
    sys.setswitchinterval(interval)
    end.set()
    thread.join()


@pytest.mark.parametrize("make", [
    lambda: numpy.zeros(1 << 20, "u1"), lambda: bytearray(1 << 20)])
@pytest.mark.parametrize("end", ["unpin", "drop", "started", "list", "remote"])
def test_threads_run_while_an_unpin_deregisters(gpu, standin, ticks, make, end):
    memory, ctx = make(), pinion.cuda.context()
    registrations = ctx.device().registrations
    for _ in range(2):  # the second finds the array in a table
        pin = (ctx.pin_start(memory).wait() if end == "started" else
               ctx.pin_list([memory])[0] if end == "list" else
               ctx.pin(memory, pinion.Access.REMOTE_READ) if end == "remote"
               else ctx.pin(memory))
        standin("deregister_us", 200_000)
        before = ticks[0]
        if end == "drop":
            del pin
        else:
            pin.unpin()
        after = ticks[0]
        standin("deregister_us", 0)
        assert after > before
    assert ctx.device().registrations == registrations


class Stream:
    """A stream with work of some milliseconds, behind which copies of a heap's
    memory stand."""

    def __init__(self, gpu):
        self.gpu, self.handle = gpu, ctypes.c_void_p()
        gpu.must("cuStreamCreate", ctypes.byref(self.handle), 1)

    def work(self, ms):
        self.gpu.must("cuLaunchHostFunc", self.handle, ctypes.CDLL(None).usleep,
                      ctypes.c_void_p(ms * 1000))

    def copy(self, dst, src):
        return pinion.cuda.copy_start(dst, src, stream=self.handle.value)

    def destroy(self):
        self.gpu.must("cuStreamDestroy_v2", self.handle)


class Watched:
    """Counts who is inside pinion_cuda_wait(), and who comes after the call
    that found the end and freed the handle."""

    def __init__(self, real):
        self.real, self.lock = real, threading.Lock()
        self.inside = self.most = self.calls = self.late = 0
        self.ended = False

    def __getattr__(self, name):
        return getattr(self.real, name)

    def cuda_wait(self, handle, microseconds):
        with self.lock:
            self.calls += 1
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.late += self.ended
            if self.late:  # freed: do not
                self.inside -= 1
                return 0
        ret = self.real.cuda_wait(handle, microseconds)
        with self.lock:
            self.inside -= 1
            self.ended |= ret == 0
        return ret


def test_threads_may_wait_for_the_same_copy(gpu, monkeypatch):
    there, stream = device_array(gpu, 1 << 20), Stream(gpu)
    memory = pinion.cuda.context().heap().array(
        numpy.frombuffer(noise(1 << 20, 2), "u1"))
    watched = Watched(pinion.cuda.call)
    monkeypatch.setattr(pinion.cuda, "call", watched)
    stream.work(500)
    started = stream.copy(there, memory)
    results = []

    def wait():
        with pytest.raises(pinion.TimedOut):
            started.wait(timeout=0.001)
        results.append(started.wait() is started)

    def look():
        while not started.done():
            time.sleep(0.0001)
        results.append(started.done())

    threads = [threading.Thread(target=target)
               for target in (wait, look, wait, look)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4
    assert (watched.most, watched.late) == (1, 0) and watched.calls > 2
    got = bytearray(1 << 20)
    pinion.cuda.copy(got, there)
    assert got == noise(1 << 20, 2)
    there.free()
    stream.destroy()


class Interrupted(Exception):
    pass


def test_a_signal_during_a_wait_does_not_lose_its_end(gpu):
    """The exception comes after the call that found the end."""
    def interrupt(*_):
        raise Interrupted

    there, stream = device_array(gpu, 1 << 20), Stream(gpu)
    memory = pinion.cuda.context().heap().empty(1 << 20, "u1")
    before = signal.signal(signal.SIGALRM, interrupt)
    for number in range(5):
        memory[:] = number
        stream.work(60)
        started = stream.copy(there, memory)
        with pytest.raises(Interrupted):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            started.wait()
            time.sleep(60)
        assert started.wait().done()
        got = bytearray(1 << 20)
        pinion.cuda.copy(got, there)
        assert got == bytes([number]) * (1 << 20)
    signal.signal(signal.SIGALRM, before)
    there.free()
    stream.destroy()


class OtherGpu:
    """The second GPU; its context is current inside a `with`."""

    def __init__(self, gpu):
        self.gpu, self.context = gpu, ctypes.c_void_p()
        count = ctypes.c_int()
        gpu.must("cuDeviceGetCount", ctypes.byref(count))
        if count.value < 2:
            pytest.skip("one GPU")
        gpu.must("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 1)

    def __enter__(self):
        self.gpu.must("cuCtxPushCurrent_v2", self.context)

    def __exit__(self, *_):
        self.gpu.must("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


@pytest.mark.parametrize("nbytes", [1000, 3 << 20])
@pytest.mark.parametrize("stream", [None, 0, 1, 2])
def test_a_default_stream_is_that_of_the_memorys_gpu(gpu, nbytes, stream):
    """Work that the default stream of the second GPU has is before the copy,
    while the first GPU is current."""
    other, libc = OtherGpu(gpu), ctypes.CDLL(None)
    with other:
        there = device_array(gpu, nbytes)
        zero = device_array(gpu, nbytes)
    for way in ("from", "to"):
        got = bytearray(noise(nbytes, 1))
        with other:
            stream_of_work = ctypes.c_void_p(stream or 0)
            gpu.must("cuLaunchHostFunc", stream_of_work, libc.usleep,
                     ctypes.c_void_p(100_000))
            gpu.must("cuMemsetD8Async", there.address, 7,
                     ctypes.c_size_t(nbytes), stream_of_work)
        if way == "from":
            pinion.cuda.copy(got, there, stream=stream)
            assert bytes(got) == b"\7" * nbytes
            continue
        pinion.cuda.copy(there, got, stream=stream)
        with other:
            gpu.must("cuCtxSynchronize")
        again = bytearray(nbytes)
        pinion.cuda.copy(again, there)
        assert again == got
    # Streams that tensors and interfaces name are meant so, too.
    with other:
        gpu.must("cuLaunchHostFunc", None, libc.usleep,
                 ctypes.c_void_p(100_000))
        gpu.must("cuMemsetD8Async", there.address, 9, ctypes.c_size_t(nbytes),
                 None)
    pinion.cuda.copy(zero, Seen(there, stream=1))
    got = bytearray(nbytes)
    pinion.cuda.copy(got, zero)
    assert bytes(got) == b"\t" * nbytes
    with other:
        there.free()
        zero.free()


def test_wrong_arguments_are_refused(gpu):
    there = device_array(gpu, 100)
    for dst, src, error in (
            (there, bytearray(99), ValueError), (b"x" * 100, there, TypeError),
            (bytearray(5), bytearray(5), TypeError), (there, None, TypeError),
            (None, there, TypeError), (there, "text", TypeError),
            (numpy.zeros(200, "u1")[::2], there, TypeError)):
        with pytest.raises(error):
            pinion.cuda.copy(dst, src)
    there.free()
    with pytest.raises(TypeError, match="GPU"):
        pinion.cuda.context().pin(there)


class Seen:
    """GPU memory whose interface says more."""

    def __init__(self, array, readonly=False, **more):
        interface = array.__cuda_array_interface__
        self.__cuda_array_interface__ = {
            **interface, "data": (interface["data"][0], readonly), **more}


def test_the_stream_of_the_interface_is_used(gpu, monkeypatch):
    there, got = device_array(gpu, 100), bytearray(100)
    for stream in (1, 2, None):
        pinion.cuda.copy(Seen(there, stream=stream), noise(100, 4))
        pinion.cuda.copy(got, Seen(there, stream=stream))
        assert got == noise(100, 4)
    for wrong in (0, -1, "1", 1.0):
        with pytest.raises(TypeError, match="stream"):
            pinion.cuda.copy(Seen(there, stream=wrong), got)
    monkeypatch.setattr(pinion.cuda, "Copy",
                        lambda _ctx, _hold, attr: attr.stream or 0)
    start = pinion.cuda.copy_start
    assert start(Seen(there, stream=4096), got) == 4096
    assert start(got, Seen(there, stream=4096)) == 4096
    assert start(Seen(there, stream=4096), got, stream=1) == 1
    assert start(Seen(there), Seen(there, stream=2)) == 2
    assert start(there, got) == 0
    there.free()


def test_read_only_memory_of_a_gpu_is_not_written(gpu):
    there, got = device_array(gpu, 100), bytearray(100)
    pinion.cuda.copy(there, noise(100, 8))
    with pytest.raises(TypeError, match="read-only"):
        pinion.cuda.copy(Seen(there, readonly=True), bytearray(100))
    pinion.cuda.copy(got, Seen(there, readonly=True))
    assert got == noise(100, 8)
    there.free()


def test_copies_are_counted(gpu):
    before = sum(pinion.cuda.stats()[:4])
    there = device_array(gpu, 4096)
    pinion.cuda.copy(there, bytearray(4096))
    assert sum(pinion.cuda.stats()[:4]) == before + 1
    there.free()


def test_other_contexts_do_not_copy(gpu):
    there = device_array(gpu, 100)
    attr = pinion.cuda._struct("pinion_cuda_copy_attr")
    filled = attr(ctypes.sizeof(attr), 0, there.address.value, 0, 100, 0)
    memory = bytearray(100)
    filled.src = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    with pinion.Context("sim") as ctx, pytest.raises(pinion.Error):
        pinion.cuda.Copy(ctx, memory, filled)
    there.free()


# --- torch, as far as accelerate() needs it ---------------------------------

class FakeTensor:
    """A tensor of bytes in the memory of the host or of the stand-in."""

    requires_grad = False
    layout = "strided"
    dtype = "uint8"
    pinned = False

    def __init__(self, gpu, where, nbytes):
        self.gpu = gpu
        self.device = types.SimpleNamespace(type=where, index=0)
        self.shape = (nbytes,)
        self.memory = (device_array(gpu, nbytes) if where == "cuda" else
                       bytearray(nbytes))

    def data_ptr(self):
        if self.device.type == "cuda":
            return self.memory.address.value
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def numel(self):
        return self.shape[0]

    def element_size(self):
        return 1

    def is_contiguous(self):
        return True

    def contiguous(self):
        return self

    def is_conj(self):
        return False

    is_neg = is_conj

    def is_pinned(self):
        return self.pinned

    def cuda(self, device=None, **options):
        return ("torch's own", options)

    def cpu(self, **options):
        return ("torch's own", options)

    def to(self, *arguments, **options):
        return ("torch's own", arguments)


@pytest.fixture
def torch(gpu, monkeypatch):
    kind = type("Tensor", (FakeTensor,), {
        "cuda": FakeTensor.cuda, "cpu": FakeTensor.cpu, "to": FakeTensor.to})

    class Device(types.SimpleNamespace):
        def __init__(self, name):
            name = name if isinstance(name, str) else name.type
            super().__init__(type=name.partition(":")[0], index=0)

    def full(shape, value, dtype):
        made = kind(gpu, "cpu", shape[0])
        made.memory[:] = bytes([value]) * shape[0]
        return made

    fake = types.SimpleNamespace(
        Tensor=kind, strided="strided", device=Device, uint8="uint8",
        __version__="fake", full=full,
        equal=lambda one, two: one.memory == two.memory,
        empty=lambda shape, dtype=None, device=None: kind(
            gpu, device.type if device else "cpu", shape[0]),
        cuda=types.SimpleNamespace(
            is_available=lambda: True, current_device=lambda: 0,
            get_device_name=lambda: "the stand-in",
            synchronize=lambda: gpu.must("cuCtxSynchronize"),
            current_stream=lambda device:
                types.SimpleNamespace(cuda_stream=0)))
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def test_accelerate_sends_plain_tensors_through_pinion(gpu, torch):
    own = torch.Tensor.cuda
    nbytes = pinion.cuda._WORTH_BYTES + 100_000
    tensor = torch.Tensor(gpu, "cpu", nbytes)
    tensor.memory[:] = noise(nbytes, 7)
    with pinion.cuda.accelerate():
        with pinion.cuda.accelerate():
            there = tensor.cuda()
        assert torch.Tensor.cuda is not own
        assert there.device.type == "cuda"
        back = there.cpu()
        assert back.memory == noise(nbytes, 7)
        assert tensor.to("cuda:0").device.type == "cuda"
        assert there.to("cpu").memory == noise(nbytes, 7)
        assert tensor.to("float32") == ("torch's own", ("float32",))
        short = torch.Tensor(gpu, "cpu", pinion.cuda._WORTH_BYTES - 1)
        assert short.cuda() == ("torch's own", {})
        tensor.pinned = True
        assert tensor.cuda() == ("torch's own", {})
        tensor.pinned, tensor.requires_grad = False, True
        assert tensor.cuda() == ("torch's own", {})
        assert tensor.cuda(non_blocking=True)[0] == "torch's own"
    assert torch.Tensor.cuda is own
    assert tensor.cuda() == ("torch's own", {})


class Moving:
    """Tensors whose own .cuda() and .cpu() copy, too."""

    def __init__(self, torch, gpu):
        self.torch, self.gpu, self.own = torch, gpu, 0

    def cuda(self, tensor, device=None):
        self.own += 1
        made = self.torch.Tensor(self.gpu, "cuda", tensor.shape[0])
        self.gpu.must("cuMemcpyHtoD_v2", made.memory.address,
                      ctypes.c_void_p(tensor.data_ptr()),
                      ctypes.c_size_t(tensor.shape[0]))
        return made

    def cpu(self, tensor):
        self.own += 1
        made = self.torch.Tensor(self.gpu, "cpu", tensor.shape[0])
        self.gpu.must("cuMemcpyDtoH_v2", ctypes.c_void_p(made.data_ptr()),
                      tensor.memory.address, ctypes.c_size_t(tensor.shape[0]))
        return made


def test_the_bench_measures_accelerate(gpu, torch, monkeypatch, capsys):
    import json

    from pinion import bench
    moving = Moving(torch, gpu)
    torch.Tensor.cuda = lambda self, device=None: moving.cuda(self, device)
    torch.Tensor.cpu = lambda self: moving.cpu(self)
    argv = ["bench", "--what", "accelerate", "--quick", "--json"]
    monkeypatch.setattr(sys, "argv", argv)
    assert bench.main() == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["call"], row["bytes"]) for row in rows] == [
        ("cuda", 1 << 20), ("cpu", 1 << 20),
        ("cuda", 8 << 20), ("cpu", 8 << 20)]
    for row in rows:
        assert row["equal"] and row["ms"] > 0 and row["ms_without"] > 0
        # Short tensors are torch's in both cases.
        assert row["by_pinion"] == (row["rounds"] if row["bytes"] > 1 << 22
                                    else 0)
    # Of 3 rounds, 2 calls each: with and without, and without alone.
    assert moving.own == 2 * 3 * 2 + 3 * 2
    # Bytes that differ are an error.
    monkeypatch.setattr(torch, "equal", lambda one, two: False)
    monkeypatch.setattr(sys, "argv", argv[:-1])
    assert bench.main() == 1
    assert "BYTES DIFFER" in capsys.readouterr().out
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert bench.main() == 77
