# SPDX-License-Identifier: BSD-2-Clause
"""Shared by the tests of the command: runs it and checks the keys of rows."""

import json
import os
import pathlib
import signal
import subprocess
import sys

PINION = sys.argv.pop(1)
SANITIZED = any(name in pathlib.Path(PINION).read_bytes()
                for name in (b"__asan_init", b"__tsan_init"))
SOURCE = pathlib.Path(__file__).resolve().parents[2]

# Keys of every row.
ALWAYS = {"bench", "device", "emulated", "profile", "revision", "machine"}


def run(*args, **env):
    """Runs `pinion args` with PINION_* from env only. A signal that ends the
    command is an error."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PINION_")}
    done = subprocess.run(
        [PINION, *args], env={**clean, **env}, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=800,
        check=False)
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise AssertionError(f"{args} died of {name}\n{done.stderr}")
    return done


def rows(*args, **env):
    """The rows of `pinion args --json`; checks the keys that all must have."""
    done = run(*args, "--json", **env)
    assert done.returncode == 0, f"{args}: {done.returncode} {done.stderr}"

    def refuse(name):
        raise ValueError(f"{name} is not JSON")

    found = [json.loads(line, parse_constant=refuse)
             for line in done.stdout.splitlines()]
    for row in found:
        assert ALWAYS <= row.keys(), f"{ALWAYS - row.keys()} missing in {row}"
    return found


def words(*args):
    """The words that may follow `pinion args`."""
    return run("help", "--words", "--", *args).stdout.split()


def commands(*below):
    """All commands, as tuples of words."""
    yield below
    for word in words(*below):
        if not word.startswith("-"):
            yield from commands(*below, word)
