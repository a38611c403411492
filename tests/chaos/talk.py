# SPDX-License-Identifier: BSD-2-Clause
"""A process of tests/chaos/chaos.py over the installed Python package: it talks
to all others for a while, compares every byte, and goes on when some are gone.

    talk.py NUMBER PROCESSES FOLDER SECONDS SEED

The exit status is 0, 2 when bytes are wrong, 3 when a request does not end.
"""

import errno
import os
import pathlib
import random
import struct
import sys
import time

import pinion

ROOM = 300 << 10
HEADER = struct.Struct("<QQ")  # the sender and the number of a message
PATIENCE_S = 120

# How operations end whose target closes, is killed or does not accept.
ENDS = (errno.EACCES, errno.ECONNRESET, errno.ECONNREFUSED, errno.ECANCELED)


def pattern(number, count, size):
    """The bytes of a message; they begin with their header."""
    seed = (number * 1000003 + count) & 0xffffffff
    block = random.Random(seed).randbytes(4096)
    body = HEADER.pack(number, count) + block * (size // len(block) + 1)
    return body[:max(size, HEADER.size)]


class Talk:
    def __init__(self, number, nprocesses, folder, ep):
        self.number, self.folder, self.ep = number, folder, ep
        self.others = [n for n in range(nprocesses) if n != number]
        self.count = 0
        self.table = bytearray(nprocesses * ROOM)
        self.exposure = None
        self.peers, self.remotes = {}, {}
        self.receives, self.sends = [], []
        self.received = {}
        self.moved = 0

    def publish(self):
        key = b""
        try:
            self.exposure = self.ep.expose(self.table)
            key = self.exposure.key
        except (pinion.NoRoom, pinion.OutOfMemory):
            pass  # exposed memory cannot be copied instead
        path = self.folder / str(self.number)
        part = path.with_suffix(".part")
        part.write_bytes(struct.pack("<I", len(self.ep.address)) +
                         self.ep.address + key)
        part.rename(path)

    def meet(self):
        """Those that were killed before they told an address stay unknown."""
        for n in self.others:
            path = self.folder / str(n)
            if n in self.peers or not path.exists():
                continue
            told = path.read_bytes()
            size, = struct.unpack_from("<I", told)
            self.peers[n] = self.ep.peer(told[4:4 + size])
            if told[4 + size:]:
                self.remotes[n] = self.ep.remote(self.peers[n],
                                                 told[4 + size:])

    def lose(self, n):
        self.peers.pop(n, None)
        self.remotes.pop(n, None)
        self.others.remove(n)

    def check(self, buffer, end):
        number, count = HEADER.unpack_from(buffer)
        if bytes(buffer[:end.len]) != pattern(number, count, end.len):
            print(f"{self.number}: message {count} of {number} is wrong")
            os._exit(2)
        if count <= self.received.get(number, 0):
            print(f"{self.number}: message {count} of {number} comes after "
                  f"{self.received[number]}")
            os._exit(2)
        self.received[number] = count

    def receive(self):
        # One at a time, so that their order can be compared.
        if not self.receives:
            buffer = bytearray(ROOM)
            self.receives.append((buffer, self.ep.recv(buffer)))
        buffer, request = self.receives[0]
        try:
            if request.done():
                self.receives.pop()
                self.check(buffer, request)
        except pinion.PeerGone:  # the sender of a long message, in its middle
            self.receives.pop()

    def send(self, rng):
        n = rng.choice(list(self.peers))
        self.count += 1
        size = rng.choice([16, 200, 5000, 40000, ROOM])
        buffer = pattern(self.number, self.count, rng.randint(16, size))
        try:
            self.sends.append((n, buffer, self.ep.send(buffer,
                                                       self.peers[n])))
        except pinion.Error as error:
            self.gone(n, error)

    def gone(self, n, error):
        """Nothing but that the other process has ended."""
        if error.errno not in ENDS:
            raise error
        if n in self.others:
            self.lose(n)

    def look(self):
        for entry in self.sends[:]:
            n, request = entry[0], entry[2]
            try:
                if request.done():
                    self.sends.remove(entry)
            except pinion.Error as error:
                self.sends.remove(entry)
                self.gone(n, error)

    def move(self, rng):
        if not self.remotes:
            return
        n = rng.choice(list(self.remotes))
        self.count += 1
        there = pattern(self.number, self.count, rng.randint(16, ROOM))
        back = bytearray(len(there))
        try:
            for start in (self.remotes[n].put, self.remotes[n].get):
                start(there if start == self.remotes[n].put else back,
                      self.number * ROOM).wait(PATIENCE_S)
        except pinion.TimedOut:
            print(f"{self.number}: a move to {n} hangs")
            os._exit(3)
        except pinion.NoRoom:
            self.remotes.pop(n, None)
            return
        except pinion.Error as error:
            self.gone(n, error)
            return
        if back != there:
            print(f"{self.number}: what was put to {n} is not there")
            os._exit(2)
        self.moved += 1

    def run(self, seconds, rng):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.meet()
            if self.peers and len(self.sends) < 8:
                self.send(rng)
            if rng.random() < 0.2:
                self.move(rng)
            for _ in range(20):
                self.receive()
            self.look()

    def finish(self):
        """The end of the others ends what they do not receive any more."""
        (self.folder / f"{self.number}.done").touch()
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            self.receive()
            self.look()
            if not self.sends or self.all_done():
                return
            time.sleep(0.001)
        print(f"{self.number}: sends to {[n for n, *_ in self.sends]} hang")
        os._exit(3)

    def all_done(self):
        return all((self.folder / f"{n}.done").exists() for n in self.others)


def main():
    number, nprocesses, seconds, seed = (
        int(sys.argv[i]) for i in (1, 2, 4, 5))
    folder = pathlib.Path(sys.argv[3])
    with pinion.Context() as ctx, ctx.endpoint() as ep:
        talk = Talk(number, nprocesses, folder, ep)
        talk.publish()
        talk.run(seconds, random.Random(seed + number))
        talk.finish()
        print(f"{number}: messages up to {talk.received}, {talk.moved} puts "
              "and gets")


main()
