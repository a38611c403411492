#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""test_refused.py PINION REFUSE_URING -- the command where io_uring is refused
(run through REFUSE_URING): everything works on locked pages, and info says what
is lost."""

import json
import subprocess
import sys
import unittest

from command import PINION

REFUSE = sys.argv.pop(1)


def run(*args):
    """Runs `pinion args` without io_uring."""
    done = subprocess.run([REFUSE, "EPERM", PINION, *args], text=True,
                          capture_output=True, timeout=800, check=False)
    if done.returncode == 77:
        print(done.stderr)
        sys.exit(77)
    return done


class Refused(unittest.TestCase):
    def test_demo_moves_every_byte_and_pins_none(self):
        done = run("demo", "--device", "soft", "--max", "256K", "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        found = map(json.loads, done.stdout.splitlines())
        moved = [r for r in found if "vmpin_bytes" in r]
        self.assertEqual(moved[-1]["bytes"], 256 << 10)
        self.assertEqual({r["vmpin_bytes"] for r in moved}, {0})
        done = run("demo", "--device", "soft", "--max", "64K")
        self.assertIn("all bytes right", done.stdout)

    def test_info_says_why_and_what_is_lost(self):
        done = run("info", "--device", "soft", "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        texts = {(r["what"], r["name"]): r.get("text", "") for r in
                 map(json.loads, done.stdout.splitlines())}
        mode = texts["fact", "mode"]
        self.assertRegex(mode, "^mlock, because io_uring is not permitted")
        self.assertIn("Lost: pages are locked, not pinned", mode)
        self.assertRegex(texts["permitted", "io_uring"], "^refused")

    def test_benchmarks_run(self):
        for args in (["register", "--max", "64K"], ["raw", "--max", "64K"]):
            done = run("bench", *args, "--device", "soft", "--budget", "100ms",
                       "--json")
            self.assertEqual((done.returncode, done.stderr), (0, ""), args)
            self.assertTrue(done.stdout)

    def test_requiring_io_uring_fails_with_advice(self):
        done = run("demo", "--device", "soft:mode=uring")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"\A[^\n]*io_uring: [^\n]*mode=mlock")


if __name__ == "__main__":
    unittest.main()
