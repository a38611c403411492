# SPDX-License-Identifier: BSD-2-Clause
"""The runs of tools/npb: any two values occur together."""
import itertools
import pathlib
import subprocess
import sys
import unittest

NPB = pathlib.Path(__file__).resolve().parents[2] / "tools" / "npb"


def listed(*args):
    done = subprocess.run([sys.executable, "-B", NPB, "/nowhere", "/nowhere",
                           "--list", *args], capture_output=True, text=True,
                          check=True)
    return [tuple(line.split()) for line in done.stdout.splitlines()]


class Npb(unittest.TestCase):
    def test_any_two_values_occur_together(self):
        runs = listed()
        values = [sorted(set(column)) for column in zip(*runs)]
        self.assertEqual([len(v) for v in values], [8, 2, 2, 9, 5, 5, 3])
        covered = {pair for run in runs
                   for pair in itertools.combinations(enumerate(run), 2)}
        for i, j in itertools.combinations(range(len(values)), 2):
            for pair in itertools.product(values[i], values[j]):
                impossible = pair in (("bt", "2"), ("sp", "2"))
                self.assertEqual(((i, pair[0]), (j, pair[1])) in covered,
                                 not impossible, pair)

    def test_parts_are_the_whole(self):
        parts = [run for i in (1, 2, 3) for run in listed("--part", f"{i}/3")]
        self.assertEqual(sorted(parts), sorted(listed()))


unittest.main(argv=sys.argv[:1])
