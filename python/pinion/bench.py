# SPDX-License-Identifier: BSD-2-Clause
"""python3 -m pinion.bench [--what WHAT] [--quick] [--json] -- what calls cost
from Python: those of pinion (--what calls), and torch's copies to and from a GPU
with and without pinion.cuda.accelerate() (--what accelerate).

The unit is the empty call: a function of C without arguments that returns a
number, called through ctypes, measured between the others in the same run; for
`message`, while the other process makes empty calls, too, since processors slow
down when the neighbour works. So the figures of different machines and
interpreters can be compared.

  pin        pin and unpin of an array that is registered
  empty2     the empty call while the other process makes empty calls
  message    8 bytes one way, half of what there and back takes, between two
             processes that wait for each other
  bandwidth  messages of 64 MiB, with the same calls made directly to the C
             library between them: `of_c` is the ratio

Each is the best of several rounds. Both processes poll: on a machine with fewer
than two idle cores the last two mean nothing.

--what accelerate: x.cuda() of a tensor that was just made, and y.cpu(), in turns
with and without; medians in milliseconds, the GPU's work included. `by_pinion`
says how many of the `rounds` copies with accelerate() were pinion's: short ones
are left to torch. All bytes are compared. Exit status 77: no torch, or no GPU.
"""

import argparse
import contextlib
import ctypes
import importlib
import json
import multiprocessing
import statistics
import sys
import time
from typing import Any, Callable, Dict, List, Tuple

import pinion
import pinion.cuda
from pinion import _declared
from pinion._library import call, library

LONG = 64 << 20


def array(nbytes: int) -> Any:
    """A NumPy array, or a memoryview where there is no NumPy."""
    try:
        import numpy
    except ImportError:
        return memoryview(bytearray(nbytes))
    return numpy.zeros(nbytes, "u1")


def per_call(function: Callable[[], Any], times: int) -> float:
    """Nanoseconds of one call in a loop."""
    loop = range(times)
    begin = time.perf_counter_ns()
    for _ in loop:
        function()
    return (time.perf_counter_ns() - begin) / times


class Empty:
    """The empty call, measured whenever another figure is."""

    def __init__(self, times: int) -> None:
        self.function: Any = getattr(ctypes.CDLL(library._name),
                                     "pinion_version")
        self.times = times
        self.best = float("inf")

    def measure(self) -> None:
        self.best = min(self.best, per_call(self.function, self.times))


def measure_pin(rounds: int, times: int, empty: Empty) -> float:
    best = float("inf")
    with pinion.Context() as ctx:
        one, pin = array(65536), ctx.pin

        def both() -> None:
            pin(one).unpin()

        nothing = min(per_call(lambda: None, times) for _ in range(rounds))
        for _ in range(rounds):
            empty.measure()
            best = min(best, per_call(both, times) - nothing)
    return best


# --- two processes ------------------------------------------------------------

class Side:
    """One of the two processes."""

    def __init__(self, pipe: Any) -> None:
        self.ctx = pinion.Context()
        self.ep = self.ctx.endpoint()
        pipe.send_bytes(self.ep.address)
        self.peer = self.ep.peer(pipe.recv_bytes())
        self.short_out, self.short_in = array(8), array(8)
        self.nothing = Empty(1)
        self.long = array(LONG)
        self.long[:] = bytes(LONG) if isinstance(self.long, memoryview) else 1

    def ping(self, times: int) -> None:
        send, recv = self.ep.send, self.ep.recv
        out, into, peer = self.short_out, self.short_in, self.peer
        for _ in range(times):
            send(out, peer)
            recv(into).wait()

    def pong(self, times: int) -> None:
        send, recv = self.ep.send, self.ep.recv
        out, into, peer = self.short_out, self.short_in, self.peer
        for _ in range(times):
            recv(into).wait()
            send(out, peer)

    def empty(self, times: int) -> None:
        self.nothing.times = times
        self.nothing.measure()

    def send_long(self, times: int) -> None:
        for _ in range(times):
            self.ep.send(self.long, self.peer, 1).wait()
        self.ep.recv(self.short_in).wait()

    def recv_long(self, times: int) -> None:
        for _ in range(times):
            self.ep.recv(self.long, self.peer, 1).wait()
        self.ep.send(self.short_out, self.peer)

    def move_in_c(self, name: str, times: int) -> None:
        """The same with the calls of C alone."""
        with memoryview(self.long) as view:
            memory = (ctypes.c_char * LONG).from_buffer(view)
            message = _declared.pinion_message(
                ctypes.sizeof(_declared.pinion_message), 0,
                ctypes.addressof(memory), LONG, 1, 0, self.peer._handle)
            request = ctypes.c_void_p()
            for _ in range(times):
                ret = getattr(call, name)(self.ep._arg, ctypes.byref(message),
                                          ctypes.byref(request))
                ret = ret or call.wait(self.ep._arg, request,
                                       _declared.PINION_FOREVER, None)
                if ret:
                    raise OSError(-ret, name)
            del memory, message

    def send_in_c(self, times: int) -> None:
        self.move_in_c("send", times)
        self.ep.recv(self.short_in).wait()

    def recv_in_c(self, times: int) -> None:
        self.move_in_c("recv", times)
        self.ep.send(self.short_out, self.peer)


def other_side(pipe: Any) -> None:
    side = Side(pipe)
    while True:
        name, times = pipe.recv()
        if not name:
            break
        getattr(side, name)(times)
    side.ctx.close()


class Pair:
    """This process and another one."""

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(target=other_side, args=(theirs,))
        self.process.start()
        self.side = Side(self.pipe)

    def time(self, mine: str, theirs: str, times: int) -> float:
        """Nanoseconds of one of so many."""
        self.pipe.send((theirs, times))
        begin = time.perf_counter_ns()
        getattr(self.side, mine)(times)
        return (time.perf_counter_ns() - begin) / times

    def close(self) -> None:
        self.pipe.send(("", 0))
        self.process.join()
        self.side.ctx.close()


def measure_message(pair: Pair, rounds: int, times: int,
                    empty: Empty) -> float:
    pair.time("ping", "pong", 100)
    best = float("inf")
    for _ in range(rounds):
        empty.best = min(empty.best, pair.time("empty", "empty", times))
        best = min(best, pair.time("ping", "pong", times))
    return best / 2


def measure_long(pair: Pair, rounds: int) -> List[float]:
    """Nanoseconds of a message of 64 MiB: by pinion, and in C."""
    best = [float("inf"), float("inf")]
    for _ in range(rounds + 1):  # the first one registers
        best[0] = min(best[0], pair.time("send_long", "recv_long", 8))
        best[1] = min(best[1], pair.time("send_in_c", "recv_in_c", 8))
    return best


def measure(quick: bool) -> List[Dict[str, Any]]:
    """All rows."""
    rounds, times = (2, 500) if quick else (15, 10_000)
    empty = Empty(times)
    empty.measure()
    pin = measure_pin(rounds, times, empty)
    pair, both = Pair(), Empty(times)
    try:
        message = measure_message(pair, rounds, times, both)
        long, in_c = measure_long(pair, 1 if quick else 6)
    finally:
        pair.close()
    rows: List[Dict[str, Any]] = [
        {"bench": "empty", "ns": empty.best},
        {"bench": "pin", "ns": pin},
        {"bench": "empty2", "ns": both.best},
        {"bench": "message", "ns": message, "bytes": 8,
         "empty_calls": message / both.best},
        {"bench": "bandwidth", "ns": long, "bytes": LONG,
         "gb_per_s": LONG / long, "of_c": in_c / long},
    ]
    version = ".".join(map(str, sys.version_info[:3]))
    return [{"empty_calls": row["ns"] / empty.best, **row, "python": version}
            for row in rows]


# --- torch ---------------------------------------------------------------------

class Moves:
    """x.cuda() and y.cpu() of tensors of one size, with and without."""

    def __init__(self, torch: Any, nbytes: int) -> None:
        self.torch, self.nbytes = torch, nbytes
        # By what was called and whether it was accelerated.
        self.ms: Dict[Tuple[str, bool], List[float]] = {
            (name, with_us): [] for name in ("cuda", "cpu")
            for with_us in (False, True)}
        self.by_pinion = {"cuda": 0, "cpu": 0}
        self.equal = True

    def time(self, name: str, with_us: bool, tensor: Any) -> Any:
        before = sum(pinion.cuda.stats()[:4])
        with pinion.cuda.accelerate() if with_us else contextlib.nullcontext():
            self.torch.cuda.synchronize()
            begin = time.perf_counter_ns()
            moved = getattr(tensor, name)()
            self.torch.cuda.synchronize()
            took = time.perf_counter_ns() - begin
        self.ms[name, with_us].append(took / 1e6)
        if with_us:
            self.by_pinion[name] += sum(pinion.cuda.stats()[:4]) - before
        return moved

    def round(self, number: int) -> None:
        for with_us in (number % 2 == 0, number % 2 == 1):
            # New memory, whose pages are present.
            tensor = self.torch.full((self.nbytes,), number & 127,
                                     dtype=self.torch.uint8)
            back = self.time("cpu", with_us,
                             self.time("cuda", with_us, tensor))
            self.equal &= bool(self.torch.equal(tensor, back))

    def rows(self) -> List[Dict[str, Any]]:
        return [{"bench": "accelerate", "call": name, "bytes": self.nbytes,
                 "ms": statistics.median(self.ms[name, True]),
                 "ms_without": statistics.median(self.ms[name, False]),
                 "rounds": len(self.ms[name, True]),
                 "by_pinion": self.by_pinion[name], "equal": self.equal}
                for name in ("cuda", "cpu")]


def measure_accelerate(quick: bool) -> List[Dict[str, Any]]:
    """All rows. ImportError, RuntimeError: no torch, no GPU."""
    torch: Any = importlib.import_module("torch")
    if not torch.cuda.is_available():
        raise RuntimeError("torch has no GPU here")
    pinion.cuda.context(torch.cuda.current_device())
    rows = []
    for mib in (1, 8) if quick else (1, 4, 16, 128, 1024):
        warm, moves = Moves(torch, mib << 20), Moves(torch, mib << 20)
        warm.round(0)
        for number in range(2 if quick else 8):
            moves.round(number)
        rows += moves.rows()
    about = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name()}
    return [{**row, **about} for row in rows]


def print_calls(row: Dict[str, Any]) -> None:
    more = (f", {row['gb_per_s']:.2f} GB/s, {row['of_c']:.3f} of C"
            if "of_c" in row else "")
    print(f"{row['bench']:<10} {row['ns']:>12.0f} ns "
          f"{row['empty_calls']:>10.2f} empty calls{more}")


def print_accelerate(row: Dict[str, Any]) -> None:
    print(f".{row['call']:<5} {row['bytes'] >> 20:>5} MiB {row['ms']:>9.2f} ms, "
          f"{row['ms_without']:>9.2f} ms without; {row['by_pinion']} of "
          f"{row['rounds']} copies by pinion"
          f"{'' if row['equal'] else '; BYTES DIFFER'}")


WHAT = {"calls": (measure, print_calls),
        "accelerate": (measure_accelerate, print_accelerate)}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m pinion.bench",
        description="What calls cost from Python.")
    parser.add_argument("--what", choices=WHAT, default="calls")
    parser.add_argument("--quick", action="store_true",
                        help="few rounds: whether it works, not how fast")
    parser.add_argument("--json", action="store_true",
                        help="one JSON object a line")
    arguments = parser.parse_args()
    rows_of, show = WHAT[arguments.what]
    try:
        rows = rows_of(arguments.quick)
    except (ImportError, RuntimeError) as error:
        if arguments.what == "calls":
            raise
        print("skipped:", error)
        return 77
    for row in rows:
        if arguments.json:
            print(json.dumps(row))
        else:
            show(row)
    return 0 if all(row.get("equal", True) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
