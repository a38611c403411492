# SPDX-License-Identifier: BSD-2-Clause
"""Two processes: one sends an array, the other receives it.

Each process opens a context and an endpoint of its own. Addresses are bytes
that programs exchange as they like, here through a pipe. Nothing has to be
registered or pinned: pinion decides how the bytes move.

    python3 send_array.py
"""

import multiprocessing

import numpy

import pinion

SHAPE = (1000, 1000)


def receiver(pipe):
    with pinion.Context() as ctx, ctx.endpoint() as ep:
        pipe.send_bytes(ep.address)
        array = numpy.empty(SHAPE)
        request = ep.recv(array, tag=7).wait()  # from anybody
        print(f"received {request.len} bytes, the sum is {array.sum():.0f}")
        ep.send(b"thanks", request.peer).wait()


def sender(pipe):
    with pinion.Context() as ctx, ctx.endpoint() as ep:
        peer = ep.peer(pipe.recv_bytes())
        array = numpy.ones(SHAPE)
        ep.send(array, peer, tag=7).wait()
        answer = bytearray(100)
        n = ep.recv(answer, peer).wait().len
        print(f"sent; the answer is {bytes(answer[:n])}")
        for row in ep.explain(array.nbytes):
            if row.chosen:
                print(f"went by the protocol {row.protocol}: {row.reason}")


if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=receiver, args=(there,))
    process.start()
    sender(here)
    process.join()
    raise SystemExit(process.exitcode)
