# SPDX-License-Identifier: BSD-2-Clause
"""Copies to and from a GPU; on the stand-in driver where there is no other."""

import ctypes
import gc
import sys
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
    try:
        made = load_tensors.Gpu()
        pinion.cuda.context()
    except (SystemExit, NotImplementedError, pinion.Error) as error:
        pytest.skip(f"no GPU and no stand-in: {error}")
    return made


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

    fake = types.SimpleNamespace(
        Tensor=kind, strided="strided", device=Device,
        empty=lambda shape, dtype=None, device=None: kind(
            gpu, device.type if device else "cpu", shape[0]),
        cuda=types.SimpleNamespace(current_stream=lambda device:
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
