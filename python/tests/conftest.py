# SPDX-License-Identifier: BSD-2-Clause
"""Shared by the tests. They use the package of the source tree and the library
that LD_LIBRARY_PATH names, and run with or without NumPy."""

import gc
import multiprocessing
import os
import pathlib
import sys

import pytest

import pinion

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent
SPAWN = multiprocessing.get_context("spawn")


BLOCK = bytes((i * 131 + (i >> 8) * 17) & 255 for i in range(65536))


def noise(nbytes, seed):
    """Bytes that differ everywhere: byte i depends on i and the seed."""
    start = seed * 29
    block = BLOCK.translate(bytes((start + i) & 255 for i in range(256)))
    whole = bytearray()
    while len(whole) < nbytes:
        whole += block
        block = block[1:] + block[:1]
    return whole[:nbytes]


@pytest.fixture
def ctx():
    with pinion.Context() as context:
        yield context


@pytest.fixture
def ep(ctx):
    with ctx.endpoint() as endpoint:
        yield endpoint


@pytest.fixture
def me(ep):
    """The endpoint as its own peer."""
    return ep.peer(ep.address)


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Descriptors are closed again."""
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    after = len(os.listdir("/proc/self/fd"))
    assert after <= before + 8, "descriptors were left open"


def run(target, *arguments, timeout=120):
    """A process of its own that runs `target`; returns it, started."""
    process = SPAWN.Process(target=target, args=arguments)
    process.start()
    return process


def finish(process, timeout=120):
    process.join(timeout)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError("a process hung")
    assert process.exitcode == 0, f"a process ended with {process.exitcode}"


def python(*arguments, **options):
    """Runs this interpreter."""
    import subprocess
    return subprocess.run([sys.executable, "-B", *arguments], text=True,
                          capture_output=True, timeout=300, check=False,
                          **options)
