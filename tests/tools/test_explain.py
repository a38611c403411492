#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""test_explain.py PINION -- `pinion explain --device cuda`: the values of each
method, over the stand-in for a GPU. How the reuse of a buffer decides is in
tests/gpu/test_copy.c, where costs can be set."""

import pathlib
import unittest

from command import PINION, rows, run

STANDIN = pathlib.Path(PINION).resolve().parent / "tests" / "standin"

# Nanoseconds a byte before anything is measured, as on an H200: one CPU copies
# 7 GB/s, the link moves 55 GB/s, a page is registered and deregistered in 160
# and 67 ns.
COPIED, MOVED, REGISTERED = 1 / 7, 1 / 55, (160 + 67) / 4096
METHODS = ["driver", "bounce", "pipeline", "background"]
MIB = 1 << 20


@unittest.skipUnless((STANDIN / "libcuda.so.1").exists(),
                     "no stand-in for a GPU")
class Copies(unittest.TestCase):
    def explain(self, nbytes, reuse, **env):
        """{direction: {method: row}}."""
        found = {"to": {}, "from": {}}
        for row in rows("explain", "--device", "cuda", "--bytes", str(nbytes),
                        "--reuse", str(reuse), LD_LIBRARY_PATH=str(STANDIN),
                        **env):
            self.assertEqual((row["bytes"], row["reuse"]), (nbytes, reuse))
            found[row["direction"]][row["protocol"]] = row
        for of in found.values():
            self.assertEqual(list(of), METHODS)
            self.assertEqual(sum(row["chosen"] for row in of.values()), 1)
            for row in of.values():
                self.assertEqual(bool(row["reason"]), row["chosen"])
        return found

    def near(self, row, key, ns):
        self.assertAlmostEqual(row[key] * 1e3 / ns, 1, 4, (row, key))

    def test_methods_take_what_their_bytes_cost(self):
        for nbytes in (4 * MIB, 64 * MIB, 1 << 30):
            for of in self.explain(nbytes, 10).values():
                for name, per_byte in (
                        ("driver", COPIED), ("bounce", MOVED),
                        ("pipeline", REGISTERED), ("background", MOVED)):
                    for key in ("first_us", "later_us", "mean_us"):
                        self.near(of[name], key, per_byte * nbytes)

    def test_the_least_time_is_chosen(self):
        for keep in ("yes", "no"):
            for of in self.explain(64 * MIB, 10,
                                   PINION_CUDA_KEEP=keep).values():
                self.assertTrue(of["bounce"]["chosen"])
                self.assertEqual("cuda_keep" in of["bounce"]["reason"],
                                 keep == "no")

    def test_short_copies_are_the_drivers(self):
        for nbytes, method in ((MIB - 1, "driver"), (MIB, "bounce")):
            for of in self.explain(nbytes, 1000).values():
                self.assertTrue(of[method]["chosen"], (nbytes, of))

    def test_the_mean_is_that_of_all_uses(self):
        """The first use, or the first two of more, go through bounce buffers.
        """
        for reuse in (1, 2, 3, 1000):
            for of in self.explain(4 * MIB, reuse).values():
                row = of["background"]
                early = min(reuse, 2 if reuse > 2 else 1)
                self.near(row, "mean_us", 1e3 * (
                    early * row["first_us"] +
                    (reuse - early) * row["later_us"]) / reuse)

    def test_people_see_both_directions(self):
        text = run("explain", "--device", "cuda", "--bytes", "64M",
                   "--reuse", "3", LD_LIBRARY_PATH=str(STANDIN)).stdout
        to, found, after = text.partition("from the GPU")
        self.assertTrue(found)
        for part in (to, after):
            for method in METHODS:
                self.assertIn(f"\n{method} ", part)

    def test_a_buffer_without_a_use_is_refused(self):
        done = run("explain", "--device", "cuda", "--reuse", "0",
                   LD_LIBRARY_PATH=str(STANDIN))
        self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    unittest.main()
