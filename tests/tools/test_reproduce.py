#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""test_reproduce.py PINION -- `pinion reproduce`: experiments, their rows, the
report. The long ones are left out: each is a command that has its own tests."""

import os
import re
import tempfile
import unittest

from command import commands, run


class Reproduce(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="pinion-reproduce-")
        self.addCleanup(folder.cleanup)
        self.rows, self.page = f"{folder.name}/rows", f"{folder.name}/p.html"

    def reproduce(self, *args):
        return run("reproduce", "--quick", "--folder", self.rows, "--output",
                   self.page, *args)

    def test_every_experiment_is_an_existing_command(self):
        known = {" ".join(words) for words in commands()}
        for variant in ((), ("--quick",)):
            lines = run("reproduce", "--list", *variant).stdout.splitlines()
            self.assertGreater(len(lines), 15)
            for line in lines:
                command = line.split("  pinion ")[1]
                name = command.split(" --")[0].strip()
                self.assertIn(name, known, line)
                self.assertRegex(line, r"about +\d+ s")

    def test_rows_and_report_of_an_experiment(self):
        done = self.reproduce("--only", "frrwp")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"frrwp \(M6 M7 M10\) +ok")
        self.assertTrue(os.path.getsize(f"{self.rows}/frrwp.json"))
        with open(self.page) as file:
            text = re.sub(r"<[^>]*>", " ", file.read())
        self.assertRegex(text, r"68\.00\s+66\.\d+\s+%\s+agrees")

    def test_existing_rows_stay_in_the_report(self):
        self.reproduce("--only", "frrwp")
        done = self.reproduce("--only", "fast-register")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.page) as file:
            text = file.read()
        self.assertIn("Reading from a server", text)
        self.assertIn("class=agrees><td class=t>M10", text)
        self.assertIn("Cost of registering by size", text)

    def test_a_failed_experiment_is_reported(self):
        done = self.reproduce("--only", "recorded", "--traces", "/nonexistent")
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAILED", done.stdout)
        self.assertFalse(os.path.exists(f"{self.rows}/recorded.json"))

    def test_an_unknown_experiment_is_refused(self):
        self.assertEqual(self.reproduce("--only", "nonsense").returncode, 2)


if __name__ == "__main__":
    unittest.main()
