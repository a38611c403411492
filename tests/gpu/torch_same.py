#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""torch_same.py -- a PyTorch program sees the same with and without pinion:
one line for each check. Run it alone and under `pinion run --cuda`, and compare
what they print (`make check-gpu` does).
"""

import ctypes
import mmap
import threading

import torch

MIB = 1 << 20
FAILED = []


def check(name, ok):
    print("%-60s %s" % (name, "yes" if ok else "NO"), flush=True)
    if not ok:
        FAILED.append(name)


def pattern(size, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (size,), dtype=torch.uint8,
                         generator=generator)


def use(x, times=30):
    """As often as it takes that pinion keeps x registered, if it does."""
    for _ in range(times):
        x.cuda()
    torch.cuda.synchronize()


def round_trips():
    ok = True
    for i, size in enumerate((1, 4096, 65535, 65536, 65537, MIB, 7 * MIB + 13,
                              64 * MIB + 1)):
        x = pattern(size, i)
        for _ in range(3):
            ok &= torch.equal(x.cuda().cpu(), x)
    check("bytes of all sizes come back", ok)


def source_may_change():
    x = pattern(32 * MIB, 1)
    ok = True
    for i in range(40):
        x.fill_(i)
        y = x.cuda(non_blocking=bool(i & 1))
        x.fill_(200)
        ok &= bool((y == i).all())
    check("an unpinned source may change after x.cuda(non_blocking)", ok)


def pinned_memory():
    x = pattern(8 * MIB, 2)
    use(x)
    check("x is not pinned", not x.is_pinned())
    p = x.pin_memory()
    check("x.pin_memory() is", p.is_pinned() and torch.equal(p, x))
    y = p.cuda(non_blocking=True)
    torch.cuda.synchronize()
    check("pinned memory arrives", torch.equal(y.cpu(), x))
    runtime = torch.cuda.cudart()
    size = x.numel()
    ret = int(runtime.cudaHostRegister(x.data_ptr(), size, 0))
    check("cudaHostRegister() of memory in use", ret == 0)
    check("then x is pinned", x.is_pinned())
    check("cudaHostUnregister()",
          int(runtime.cudaHostUnregister(x.data_ptr())) == 0)
    check("then x is not", not x.is_pinned())
    use(x)
    check("cudaHostUnregister() again is an error (713)",
          int(runtime.cudaHostUnregister(x.data_ptr())) == 713)
    try:
        torch.zeros(1, device="cuda")
        ok = False
    except RuntimeError:  # the runtime's last error, which this clears
        ok = True
    check("and the runtime's last error", ok)


def streams():
    x, z = pattern(64 * MIB, 3), pattern(64 * MIB, 4)
    stream = torch.cuda.Stream()
    ok = True
    for _ in range(10):
        with torch.cuda.stream(stream):
            y = torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")
            torch.cuda._sleep(5_000_000)
            y.copy_(x, non_blocking=True)
            w = y.clone()
            y.copy_(z, non_blocking=True)
            back = y.to("cpu")
        stream.synchronize()
        ok &= torch.equal(w.cpu(), x) and torch.equal(back, z)
    check("copies keep the order of their stream", ok)
    y = torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")
    torch.cuda._sleep(5_000_000)
    y.add_(7)
    check("y.cpu() waits for what is under way",
          bool((y.cpu() == 7).all()))


def graphs():
    x = torch.zeros(4 * MIB, device="cuda")
    p = torch.ones(4 * MIB).pin_memory()
    h = torch.full((4 * MIB,), 3.0)
    use(h)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.graph(graph, stream=side):
        x.copy_(p, non_blocking=True)
        x.mul_(2)
    p.fill_(5)
    graph.replay()
    torch.cuda.synchronize()
    check("a captured graph copies when it is replayed",
          bool((x == 10).all()))
    x.copy_(h)
    check("copies go on after a capture", bool((x == 3).all()))

    errors = []

    def elsewhere():
        try:
            for _ in range(20):
                h.cuda()
        except RuntimeError as error:
            errors.append(error)

    other = threading.Thread(target=elsewhere)
    other.start()
    for _ in range(5):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side,
                              capture_error_mode="thread_local"):
            x.add_(1)
    other.join()
    graph.replay()
    torch.cuda.synchronize()
    check("captures and copies of other threads do not meet", not errors)


def releases():
    """Memory that was used often, released and mapped again."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    size = 32 * MIB
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    x = torch.frombuffer(area, dtype=torch.uint8)
    x.fill_(1)
    use(x)
    libc.madvise(x.data_ptr(), size, 4)  # MADV_DONTNEED
    check("after MADV_DONTNEED new bytes arrive",
          bool((x[:4096].cuda() == 0).all()) and bool((x.cuda() == 0).all()))
    ok, same = True, 0
    for i in range(12):
        y = torch.full((size,), i, dtype=torch.uint8)
        address = y.data_ptr()
        use(y, 10)
        del y
        y = torch.full((size,), 100 + i, dtype=torch.uint8)
        same += y.data_ptr() == address
        ok &= bool((y[:4096].cuda() == 100 + i).all())
        ok &= bool((y.cuda() == 100 + i).all())
    check("after a tensor was freed new bytes arrive", ok)


def threads():
    errors = []

    def work(k):
        stream = torch.cuda.Stream()
        x = pattern(8 * MIB, k)
        with torch.cuda.stream(stream):
            for i in range(20):
                x.fill_((k * 20 + i) % 256)
                y = x.cuda(non_blocking=True)
                x.fill_(0)
                if not bool((y == (k * 20 + i) % 256).all()):
                    errors.append((k, i))

    workers = [threading.Thread(target=work, args=(k,)) for k in range(16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    check("16 threads at once", not errors)


def failures():
    x = pattern(8 * MIB, 5)
    try:
        torch.empty(1 << 50, device="cuda")
        ok = False
    except RuntimeError:
        ok = True
    check("a GPU out of memory is an error", ok)
    check("and copies go on", torch.equal(x.cuda().cpu(), x))


def main():
    torch.cuda.init()
    for step in (round_trips, source_may_change, pinned_memory, streams, graphs,
                 releases, threads, failures):
        step()
    raise SystemExit(1 if FAILED else 0)


if __name__ == "__main__":
    main()
