#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""test_fabric_rows.py PINION -- `pinion bench fabric` has a row for the flag and
one for every provider and size, with ratios that follow from its figures. Never
how fast it is."""

import unittest

from command import rows, run

SIZES = [64, 256, 1024, 4096, 16384]  # the last one cannot be injected


class Fabric(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rows = rows("bench", "fabric", "--rounds", "2", "--min", "64",
                        "--max", "16K")

    def find(self, stack, size):
        row, = [r for r in self.rows
                if (r["stack"], r["bytes"]) == (stack, size)]
        return row

    def test_every_stack_and_size_has_a_row(self):
        self.assertEqual([(r["stack"], r["bytes"]) for r in self.rows],
                         [("flag", 0)] + [(stack, size) for size in SIZES
                                          for stack in ("pinion", "shm")])

    def test_pairs_have_a_best_and_a_worst(self):
        for row in self.rows:
            self.assertEqual(row["pairs"], 2)
            self.assertIn(row["slow_turns"], range(3))
            self.assertGreater(row["best_ns"], 0)
            self.assertLessEqual(row["best_ns"], row["latency_ns"])
            self.assertLessEqual(row["latency_ns"], row["worst_ns"])

    def is_ratio(self, ratio, row, other):
        self.assertAlmostEqual(
            ratio * other["latency_ns"] / row["latency_ns"], 1, places=3)

    def test_ratios_follow_from_the_medians(self):
        flag = self.find("flag", 0)
        self.assertIsNone(flag["ratio_to_shm"])
        self.assertEqual(flag["ratio_to_flag"], 1)
        for size in SIZES:
            shm = self.find("shm", size)
            for row in self.find("pinion", size), shm:
                self.is_ratio(row["ratio_to_shm"], row, shm)
                self.is_ratio(row["ratio_to_flag"], row, flag)

    def test_sizes_are_checked(self):
        done = run("bench", "fabric", "--min", "2", "--max", "1")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--min is above --max", done.stderr)


if __name__ == "__main__":
    unittest.main()
