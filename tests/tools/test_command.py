#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""test_command.py PINION -- the command as users meet it: help, bad input,
config, completion, manual. Needs no device."""

import re
import subprocess
import unittest

from command import PINION, SOURCE, commands, rows, run, words


class Help(unittest.TestCase):
    def test_every_command_explains_itself(self):
        for command in commands():
            for args in ([*command, "--help"], [*command, "-h"],
                         ["help", *command]):
                done = run(*args)
                self.assertEqual(done.returncode, 0, args)
                usage = " ".join(["Usage: pinion", *command])
                self.assertTrue(done.stdout.startswith(usage), done.stdout)
                self.assertEqual(done.stderr, "")

    def test_help_fits_in_80_columns(self):
        for command in commands():
            for line in run("help", *command).stdout.splitlines():
                self.assertLessEqual(len(line), 80, line)

    def test_help_names_every_option(self):
        for command in commands():
            text = run("help", *command).stdout
            for word in words(*command):
                self.assertRegex(text, rf"(?m)^  {word}\b")

    def test_version_names_the_revision(self):
        for option in ("--version", "-V"):
            self.assertRegex(run(option).stdout,
                             r"^pinion \d+\.\d+\.\d+ \(\S+\)\n$")

    def test_unknown_letters_are_named(self):
        for args, named in ((["-x"], "'-x'"), (["info", "-xy"], "'-xy'"),
                            (["info", "-V"], "'-V'")):
            done = run(*args)
            self.assertEqual(done.returncode, 2, args)
            self.assertIn(named, done.stderr)


class BadInput(unittest.TestCase):
    """Exit status 2 and one line that says what would be right."""

    CASES = [
        [],
        ["nonsense"],
        ["--nonsense"],
        ["-x"],
        ["help", "nonsense"],
        ["info", "operand"],
        ["info", "--nonsense"],
        ["info", "--json=maybe"],
        ["info", "--device"],
        ["info", "--device", "nonsense"],
        ["config", "--device", "soft"],
        ["bench", "nonsense"],
        ["bench", "register", "--min", "tiny"],
        ["bench", "register", "--min", "0"],
        ["bench", "register", "--min", "2K", "--max", "1K"],
        ["bench", "register", "--trials", "0"],
        ["bench", "register", "--pages", "large"],
        ["bench", "register", "--device", "nonsense:x=1"],
        ["bench", "raw", "--op", "put,nonsense"],
        ["bench", "raw", "--op", ""],
        ["bench", "raw", "--budget", "soon"],
        ["bench", "raw", "--device", "sim:nodes=1"],
        ["bench", "raw", "--device", "sim:nonsense=1"],
        ["bench", "raw", "--device", "soft:nonsense=1"],
        ["bench", "peers", "--device", "soft"],
        ["bench", "peers", "--device", "verbs:x", "--ops", "put_lat,nonsense"],
        ["bench", "peers", "--device", "verbs:x", "--ops", ""],
        ["bench", "peers", "--device", "verbs:x", "--bytes", "8,,64K"],
        ["bench", "peers", "--device", "verbs:x", "--bytes", "4"],
        ["bench", "peers", "--device", "verbs:x", "--peers", "17"],
        ["bench", "cache", "--regions", "many"],
        ["bench", "cache", "--regions", "1000,0"],
        ["bench", "cache", "--regions", ""],
        ["bench", "cache", "--policy", "lru,nonsense"],
        ["bench", "cache", "--policy", ""],
        ["bench", "cache", "--threads", "0"],
        ["bench", "cache", "--device", "nonsense"],
        ["bench", "heap", "--what", "new,nonsense"],
        ["bench", "heap", "--what", ""],
        ["bench", "heap", "--trials", "0"],
        ["bench", "heap", "--min", "2M", "--max", "1K"],
        ["bench", "put", "--min", "2K", "--max", "1K"],
        ["bench", "put", "--reuse", "0"],
        ["bench", "put", "--device", "nonsense"],
        ["bench", "frrwp", "--min", "2", "--max", "1"],
        ["bench", "frrwp", "--max", "many"],
        ["bench", "message", "--protocol", "eager,nonsense"],
        ["bench", "message", "--protocol", ""],
        ["bench", "message", "--bytes", "0"],
        ["bench", "message", "--bytes", "1M..1K"],
        ["bench", "message", "--bytes", ""],
        ["bench", "message", "--reuse", "often"],
        ["bench", "message", "--buffers", "0"],
        ["bench", "message", "--device", "nonsense"],
        ["bench", "message", "--device", "sim:nodes=1"],
        ["bench", "message", "--device", "sim:data=none"],
        ["bench", "message", "--device", "soft:nonsense=1"],
        ["demo", "--max", "1"],
        ["sim"],
        ["sim", "cache"],
        ["sim", "cache", "--trace", "gen:nonsense"],
        ["sim", "generate", "nonsense"],
        ["sim", "generate", "loop", "zipf"],
        ["trace"],
        ["trace", "record"],
        ["trace", "record", "--max", "1", "--", "true"],
        ["trace", "show"],
        ["trace", "show", "one", "another"],
        ["trace", "show", "--kind", "pin,nonsense", "file"],
        ["trace", "show", "--decision", "nonsense", "file"],
        ["trace", "show", "--at", "there", "file"],
        ["trace", "stat", "--profile", "nonsense", "file"],
        ["trace", "convert", "--format", "nonsense", "file"],
    ]

    def test_bad_input_is_one_line_and_status_2(self):
        for args in self.CASES:
            with self.subTest(args=args):
                done = run(*args)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertRegex(done.stderr, r"\Apinion: [^\n]{10,}\n\Z")

    def test_bad_environment_is_one_line(self):
        done = run("config", PINION_HUGE_PAGES="maybe")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"\Apinion: error: huge_pages [^\n]+\n\Z")

    def test_full_disk_is_an_error(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([PINION, "--help"], stdout=full,
                                  stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"No space left", done.stderr)


class Config(unittest.TestCase):
    KEYS = {"what", "kind", "name", "setting", "type", "value", "default",
            "source", "help"}

    def test_rows_have_every_key(self):
        found = rows("config")
        self.assertTrue(found)
        for row in found:
            self.assertLessEqual(self.KEYS, row.keys())

    def value(self, setting, **env):
        found = [r for r in rows("config", **env) if r["setting"] == setting]
        self.assertEqual(len(found), 1, setting)
        return found[0]["value"], found[0]["source"]

    def test_environment_is_named_as_source(self):
        self.assertEqual(self.value("PINION_LOG"), ("warn", "default"))
        self.assertEqual(self.value("PINION_LOG", PINION_LOG="debug"),
                         ("debug", "environment"))
        text = run("config", PINION_LOG="debug").stdout
        self.assertIn("PINION_LOG = debug  (from the environment", text)

    def test_parameters_in_the_spec_are_seen(self):
        self.assertEqual(self.value("sim:nodes", PINION_DEVICE="sim:nodes=7"),
                         ("7", "device"))
        self.assertEqual(self.value("sim:nodes")[1], "default")

    def test_arbitrary_bytes_still_make_json(self):
        value, source = self.value("PINION_DEVICE",
                                   PINION_DEVICE='a"b\\c\n\udcff')
        self.assertEqual((value, source), ('a"b\\c\n\ufffd', "environment"))

    def test_man_defines_every_setting(self):
        text = run("config", "--man").stdout.replace("\\", "")
        for row in rows("config"):
            self.assertIn(f"**{row['setting']}**", text)


class Profiles(unittest.TestCase):
    def test_assumed_figures_are_marked(self):
        found = {(r["name"], r["field"]): r for r in
                 rows("info", "--profiles") if r["what"] == "profile"}
        row = found["ou2009", "register_us"]
        self.assertEqual((row["value"], row["assumed"]), (7.42, False))
        self.assertTrue(found["ou2009", "latency_us"]["assumed"])
        text = run("info", "--profiles").stdout
        self.assertRegex(text, r"(?m)^latency us +6\* ")
        for line in text.splitlines():
            self.assertLessEqual(len(line), 80, line)


class Completion(unittest.TestCase):
    def complete(self, *line):
        """What bash offers after these words."""
        script = 'PATH=$2:$PATH; . "$1"; shift 2; COMP_WORDS=("$@"); ' \
                 'COMP_CWORD=$(($# - 1)); _pinion; printf "%s\\n" ' \
                 '"${COMPREPLY[@]}"'
        done = subprocess.run(
            ["bash", "-c", script, "bash",
             str(SOURCE / "tools/pinion/completion.bash"), ".", PINION,
             *line], text=True, capture_output=True, check=True)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_every_command_and_option_is_offered(self):
        for command in commands():
            self.assertEqual(self.complete(*command, ""), words(*command))

    def test_help_lists_what_is_offered(self):
        listed = re.findall(r"(?m)^  ([a-z]+) ", run("--help").stdout)
        self.assertEqual([w for w in self.complete("") if w[0] != "-"], listed)

    def test_beginnings_are_completed(self):
        self.assertEqual(self.complete("inf"), ["info"])
        self.assertEqual(self.complete("bench", "register", "--tr"),
                         ["--trials"])

    def test_values_are_offered(self):
        self.assertEqual(self.complete("bench", "register", "--pages", ""),
                         ["4k", "huge", "both"])
        self.assertEqual(
            self.complete("bench", "register", "--pages", "=", "h"), ["huge"])
        self.assertEqual(self.complete("bench", "register", "--pages", "="),
                         ["4k", "huge", "both"])
        self.assertEqual(self.complete("info", "--device", "so"), ["soft"])

    def test_options_are_offered_after_an_option(self):
        self.assertIn("--json", self.complete(
            "bench", "raw", "--min", "8", "--max", "64", "--"))
        self.assertIn("--max", self.complete("bench", "raw", "--json", ""))
        self.assertEqual(self.complete("bench", "raw", "--min", ""), [])


class Manual(unittest.TestCase):
    def test_page_has_every_command_and_option(self):
        page = (SOURCE / "doc/man/pinion.1.md").read_text(encoding="utf-8")
        page = page.replace("\\-", "-")
        for command in commands():
            name = " ".join(["pinion", *command])
            start = re.search(rf"(?m)^\*\*{name}\*\*", page)
            self.assertTrue(start, f"{name} is not in pinion(1)")
            end = page.find("\n**pinion ", start.end())
            for option in words(*command):
                if option.startswith("--") and option != "--help":
                    self.assertIn(f"**{option}**", page[start.start():end],
                                  f"of {name}")


if __name__ == "__main__":
    unittest.main()
