# SPDX-License-Identifier: BSD-2-Clause
"""A key-value store in the memory of one process, read and written by others
with put and get: the owner's CPU takes no part.

The store is an array of slots in memory of a heap, which is registered already.
A client hashes the key to a slot and locks it with compare_swap. The owner only
exposes the array, passes its address and key to the clients, and waits for
their messages: in that wait it also accepts their connections.

    python3 key_value.py
"""

import multiprocessing
import zlib

import numpy

import pinion

SLOTS, KEY_BYTES, VALUE_BYTES = 4096, 32, 200
SLOT = numpy.dtype([("lock", "u8"), ("key", f"S{KEY_BYTES}"),
                    ("value", f"S{VALUE_BYTES}")])
CLIENTS, KEYS = 3, 100
WRITTEN, GO_ON, READ = 1, 2, 3  # tags


class Store:
    """What a client sees: a dictionary of bytes."""

    def __init__(self, ep, owner, key):
        self.remote = ep.remote(owner, key)
        self.slot = numpy.zeros(1, SLOT)

    def _find(self, key):
        """Locks and reads the slot of a key, or the first free one."""
        index = zlib.crc32(key) % SLOTS
        while True:
            offset = index * SLOT.itemsize
            while self.remote.compare_swap(offset, 0, 1):
                pass  # another client has it
            self.remote.get(self.slot, offset).wait()
            if self.slot["key"][0] in (b"", key):
                return offset
            self.remote.swap(offset, 0)
            index = (index + 1) % SLOTS

    def __setitem__(self, key, value):
        offset = self._find(key)
        self.slot[0] = (1, key, value)
        self.remote.put(self.slot, offset).wait()
        self.remote.swap(offset, 0)

    def __getitem__(self, key):
        offset = self._find(key)
        self.remote.swap(offset, 0)
        if self.slot["key"][0] != key:
            raise KeyError(key)
        return bytes(self.slot["value"][0])


def client(number, pipe):
    with pinion.Context() as ctx, ctx.endpoint() as ep:
        address, key = pipe.recv()
        owner = ep.peer(address)
        store = Store(ep, owner, key)
        for i in range(KEYS):
            store[b"client %d key %d" % (number, i)] = b"value %d" % (i * i)
        ep.send(b"", owner, WRITTEN)
        ep.recv(bytearray(0), owner, GO_ON).wait()  # all have written
        other = (number + 1) % CLIENTS
        for i in range(KEYS):
            value = store[b"client %d key %d" % (other, i)]
            assert value == b"value %d" % (i * i), value
        ep.send(b"", owner, READ).wait()


def main():
    spawn = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for number in range(CLIENTS):
        here, there = spawn.Pipe()
        pipes.append(here)
        processes.append(spawn.Process(target=client, args=(number, there)))
        processes[-1].start()
    with pinion.Context() as ctx, ctx.endpoint() as ep:
        slots = ctx.heap().zeros(SLOTS, SLOT)
        with ep.expose(slots) as exposure:
            for pipe in pipes:
                pipe.send((ep.address, exposure.key))
            writers = [ep.recv(bytearray(0), tag=WRITTEN).wait().peer
                       for _ in range(CLIENTS)]
            for peer in writers:
                ep.send(b"", peer, GO_ON)
            for peer in writers:
                ep.recv(bytearray(0), peer, READ).wait()
        used = int((slots["key"] != b"").sum())
        print(f"{used} keys of {CLIENTS} clients, each read by another")
    for process in processes:
        process.join()
    return used != CLIENTS * KEYS or any(p.exitcode for p in processes)


if __name__ == "__main__":
    raise SystemExit(main())
