# SPDX-License-Identifier: BSD-2-Clause
"""A program to watch (watched.c), and the output of `pinion stat` about it."""

import json
import os
import subprocess
import sys

from command import run

WATCHED = sys.argv.pop(1)
FOLDER = f"/dev/shm/pinion-{os.geteuid()}"
STANDIN = os.path.join(os.path.dirname(WATCHED), "standin")


def gpu(keep):
    """The environment of a program on the stand-in of a GPU's driver; None:
    this build has none."""
    if not os.path.exists(f"{STANDIN}/libcuda.so.1"):
        return None
    before = os.environ.get("LD_LIBRARY_PATH")
    return {"PINION_DEVICE": "cuda", "PINION_CUDA_KEEP": keep,
            "PINION_MAX_BYTES": "4M",
            "LD_LIBRARY_PATH": f"{STANDIN}:{before}" if before else STANDIN}


class Watched:
    """with Watched() as w: w.do("hit 5")"""

    def __init__(self, before=(), **env):
        clean = {k: v for k, v in os.environ.items()
                 if not k.startswith("PINION_")}
        self.process = subprocess.Popen(
            [*before, WATCHED], env={**clean, **env}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        said = self.process.stdout.readline()
        if said != "ready\n":
            print("skipped: no context can be opened here")
            sys.exit(77)
        self.pid = self.process.pid

    def do(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline()
        assert said == "done\n", f"{what}: {said}"

    def end(self):
        if self.process.poll() is None:
            self.process.stdin.write("quit\n")
            self.process.stdin.flush()
        self.process.communicate()
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def stat(pid, kind=None):
    """The rows of `pinion stat PID`, or the one of a kind."""
    done = run("stat", str(pid))
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if kind is None:
        return found
    (only,) = [row for row in found if row["kind"] == kind]
    return only
