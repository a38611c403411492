#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""test_replay.py PINION -- replaying recorded and generated requests as users do."""

import json
import os
import tempfile
import unittest

from command import PINION, rows, run

KEYS = {"trace", "policy", "budget_bytes", "hit_ratio", "registrations",
        "total_us", "peak_bytes", "requests_per_s", "hits", "misses"}


class Sim(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "it")

    def test_every_policy_and_budget_has_a_row(self):
        found = rows("sim", "cache", "--trace", "gen:zipf,requests=5000",
                     "--policy", "lru,cost,offline", "--budget", "1M,4M")
        self.assertEqual([(r["policy"], r["budget_bytes"]) for r in found],
                         [(p, b << 20) for b in (1, 4)
                          for p in ("lru", "cost", "offline")])
        for row in found:
            self.assertLessEqual(KEYS, row.keys())
            self.assertEqual(row["hits"] + row["misses"], 5000)
            self.assertLessEqual(row["peak_bytes"], row["budget_bytes"])
            self.assertGreater(row["requests_per_s"], 0)

    def test_budgets_double_up_to_the_footprint(self):
        found = rows("sim", "cache", "--policy", "mre", "--trace",
                     "gen:loop,requests=500,objects=50,pages=1")
        self.assertEqual([r["budget_bytes"] >> 10 for r in found],
                         [64, 128, 256])
        self.assertEqual(found[-1]["misses"], 50)

    def test_a_written_workload_is_the_same_as_the_generated_one(self):
        spec = "scan,requests=3000,objects=100"
        done = run("sim", "generate", "--output", self.file, spec)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

        def of(trace):
            return [{k: r[k] for k in KEYS - {"trace", "requests_per_s"}}
                    for r in rows("sim", "cache", "--trace", trace)]
        self.assertEqual(of(self.file), of("gen:" + spec))

    def test_replay_of_a_recorded_run_counts_what_that_run_counted(self):
        done = run("trace", "record", "--output", self.file, "--",
                   PINION, "demo",
                   "--device", "sim:cost=ou2009")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = run("trace", "stat", "--json", self.file)
        total = json.loads(done.stdout.splitlines()[0])
        hits = misses = cache = 0
        while hits + misses < total["hits"] + total["misses"]:
            cache += 1  # one for each node of the simulation
            (row,) = rows("sim", "cache", "--trace", self.file, "--policy",
                          "recorded", "--budget", "recorded", "--profile",
                          "recorded", "--cache", str(cache))
            hits += row["hits"]
            misses += row["misses"]
        self.assertGreater(total["hits"], 0)
        self.assertEqual((hits, misses), (total["hits"], total["misses"]))

    def test_a_missing_recorded_value_is_reported(self):
        run("sim", "generate", "--output", self.file, "loop,requests=9")
        done = run("sim", "cache", "--trace", self.file, "--budget",
                   "recorded")
        self.assertEqual(done.returncode, 2)
        self.assertIn("has no configuration of its cache", done.stderr)

    def test_damage_is_reported_with_its_position(self):
        with open(self.file, "w", encoding="ascii") as file:
            file.write("t_us,addr,len\n0,4096,1\n1,4096,many\n")
        done = run("sim", "cache", "--trace", self.file)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, ":3: ")

    def test_bad_lists_are_refused(self):
        for args in (["--policy", "lru,,mre"], ["--policy", "lru,"],
                     ["--policy", "best"], ["--policy", ""],
                     ["--budget", "1M,"], ["--budget", "1M,lots"],
                     ["--budget", "1"], ["--budget", "-1M"],
                     ["--profile", "cheap"], ["--trace", "gen:tide"],
                     ["--trace", "gen:loop,pages=0x"]):
            with self.subTest(args=args):
                done = run("sim", "cache", "--trace",
                           "gen:loop,requests=9", *args)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertEqual(run("sim", "cache").returncode, 2)
        self.assertEqual(run("sim", "cache", "--trace",
                             self.file).returncode, 1)


if __name__ == "__main__":
    unittest.main()
