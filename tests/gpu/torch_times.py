#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""torch_times.py [--gib N] -- what copies of unpinned memory cost a PyTorch
program, one JSON object a line: medians in milliseconds, and whether every bit
arrived. Run it alone and under `pinion run --cuda`; `make check-gpu` does both.
"""

import argparse
import json
import resource
import statistics
import time

import torch

GIB = 1 << 30


def clock(step):
    """Milliseconds of a step, the GPU's work included."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    result = step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3, result


def show(what, size, times, equal, **more):
    print(json.dumps({
        "what": what, "bytes": size, "ms": round(statistics.median(times), 2),
        "best_ms": round(min(times), 2), "worst_ms": round(max(times), 2),
        "n": len(times), "equal": bool(equal), **more}), flush=True)


def fresh(size, seed):
    """A new tensor whose pages are present."""
    torch.manual_seed(seed)
    return torch.randint(-2**62, 2**62, (size // 8,), dtype=torch.int64)


def to_gpu(size, repeats):
    times, equal = [], True
    for i in range(repeats):
        x = fresh(min(size, 64 << 20), i).repeat(max(1, size // (64 << 20)))
        ms, y = clock(x.cuda)
        times.append(ms)
        equal &= bool((y.sum() == x.sum()).item()) if i else \
            torch.equal(y.cpu(), x)
        del x, y
    show("x.cuda() of a fresh tensor", size, times, equal)


def from_gpu(size, repeats):
    y = fresh(min(size, 64 << 20), 1).repeat(max(1, size // (64 << 20))).cuda()
    times, equal = [], True
    for _ in range(repeats):
        ms, x = clock(y.cpu)
        times.append(ms)
        equal &= bool((y.sum().cpu() == x.sum()).item())
        del x
    show("y.cpu()", size, times, equal)


def again(size, repeats, pause):
    x = fresh(size, 3)
    y = torch.empty(size // 8, dtype=torch.int64, device="cuda")
    times, equal = [], True
    for i in range(repeats):
        x += 1
        ms, _ = clock(lambda: y.copy_(x))
        times.append(ms)
        equal &= bool((y.sum().cpu() == x.sum()).item())
        time.sleep(pause)
    show("y.copy_(x), the same x", size, times[3:], equal, pause_ms=pause * 1e3,
         all_ms=[round(t, 2) for t in times])


def state_dict(total, each):
    """load_state_dict() of a model on the GPU from fresh tensors."""
    n = total // each
    model = torch.nn.ParameterList(
        [torch.nn.Parameter(torch.zeros(each // 4, device="cuda"),
                            requires_grad=False) for _ in range(n)])
    times, equal = [], True
    for i in range(3):
        state = {str(k): torch.full((each // 4,), float(k + i))
                 for k in range(n)}
        ms, _ = clock(lambda: model.load_state_dict(state))
        times.append(ms)
        equal &= all(bool((model[k] == float(k + i)).all())
                     for k in range(0, n, max(1, n // 8)))
        del state
    del model
    show("load_state_dict() of fresh tensors", total, times, equal, each=each)


def loader(pin, size, batches):
    rows = torch.arange(batches * 4, dtype=torch.float32)
    data = torch.utils.data.TensorDataset(
        rows[:, None].expand(batches * 4, size // 16).contiguous())

    def epoch():
        total = 0.0
        for (batch,) in torch.utils.data.DataLoader(
                data, batch_size=4, pin_memory=pin):
            total = batch.cuda(non_blocking=pin)[:, 0].double().sum() + total
        return total.item()

    epoch()
    # Page faults: whether malloc() gives batches back to the kernel differs
    # from run to run, and a batch of new pages takes longer to fill.
    times, faults, equal = [], [], True
    for _ in range(9):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        ms, total = clock(epoch)
        times.append(ms)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt -
                      before)
        equal &= total == rows.double().sum().item()
    show("DataLoader, pin_memory=%s" % pin, size * batches, times, equal,
         each=size, faults=faults, all_ms=[round(t, 2) for t in times])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=float, default=8,
                        help="size of the state dictionaries")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    torch.cuda.init()
    clock(lambda: torch.zeros(1, device="cuda"))
    size = GIB // 16 if args.quick else GIB
    to_gpu(size, 5)
    from_gpu(size, 5)
    for small in (size // 64, size // 16, size // 4):
        to_gpu(small, 7)
        from_gpu(small, 7)
    again(size // 4, 12, 0.1)
    again(size // 4, 12, 0.0)
    total = int(args.gib * GIB)
    state_dict(total, 27 << 20)
    state_dict(total, 256 << 20)
    loader(False, 16 << 20, 16)
    loader(True, 16 << 20, 16)
    print(json.dumps({"torch": torch.__version__,
                      "gpu": torch.cuda.get_device_name()}))


if __name__ == "__main__":
    main()
