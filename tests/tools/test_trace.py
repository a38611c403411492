#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""test_trace.py PINION -- recording, printing, summarising and converting traces
as users do. Records `pinion demo` on the simulator, in virtual time."""

import gzip
import json
import os
import tempfile
import unittest

from command import ALWAYS, PINION, run

PLAIN = "t_us,addr,len,op,site\n" + "".join(
    f"{i * 10}.5,{0x7f0000000000 + i % 5 * 65536:#x},{4096 + i % 3},"
    f"{('send', 'recv')[i % 2]},{i % 4 + 1:x};abc\n" for i in range(1000))


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        path = self.path(name)
        opened = gzip.open if name.endswith(".gz") else open
        with opened(path, "wt", encoding="ascii") as file:
            file.write(text)
        return path

    def read(self, path):
        with open(path, encoding="ascii") as file:
            return file.read()

    def convert(self, path, form):
        out = self.path(f"{os.path.basename(path)}.{form}")
        done = run("trace", "convert", "--format", form, "--output", out, path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return out

    def stat(self, path):
        done = run("trace", "stat", "--json", path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        found = [json.loads(line) for line in done.stdout.splitlines()]
        for row in found:
            self.assertLessEqual(ALWAYS, row.keys())
        return found

    def total(self, path):
        return self.stat(path)[0]


class Sends(Folder):
    def test_messages_that_pin_nothing_are_counted(self):
        """Small messages are copied and request no registered memory."""
        path = self.path("sends.trace")
        done = run("demo", "--device", "sim:cost=ou2009", PINION_TRACE=path)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = run("trace", "stat", path).stdout
        total = self.total(path)
        self.assertGreater(total["sends"], 0)
        self.assertRegex(text, rf"(?m)^ *{total['sends']}  sends$")
        self.assertRegex(text, rf"(?m)^ *{total['requests']}  requests for "
                               "registered memory in ")


class Convert(Folder):
    def test_converting_there_and_back_gives_the_same(self):
        path = self.write("a.csv.gz", PLAIN)
        binary = self.convert(path, "binary")
        csv = self.convert(binary, "csv")
        again = self.convert(csv, "binary")
        self.assertLess(os.path.getsize(binary), 32 * 1000 + 65536)
        with open(binary, "rb") as one, open(again, "rb") as other:
            self.assertEqual(one.read(), other.read())
        self.assertEqual(self.read(self.convert(again, "csv")), self.read(csv))
        plain = self.read(self.convert(again, "plain"))
        self.assertEqual(plain.replace(".500,", ".5,"), PLAIN)

    def test_stat_is_the_same_for_every_format(self):
        path = self.write("a.csv", PLAIN)
        first = self.total(path)
        self.assertEqual((first["requests"], first["buffers"]), (1000, 10))
        for form in ("binary", "csv", "plain"):
            other = self.total(self.convert(path, form))
            for key in ("requests", "bytes", "buffers", "footprint_bytes",
                        "first_uses"):
                self.assertEqual(other[key], first[key], (form, key))

    def test_stat_prints_the_reuse_of_small_buffers(self):
        text = "t_us,addr,len,op,site\n"
        for i in range(400):        # 4 KiB, each four times
            text += f"{i},{0x1000000 + 4096 * (i // 4):#x},4096,send,1\n"
        for i in range(100):
            text += f"{400 + i},0x7000040,2048,isend,1\n"
            text += f"{400 + i},0x9000000,64,recv,1\n"
            text += f"{400 + i},0x9000000,16384,send,1\n"
        path = self.write("a.csv", text)
        small, = [row for row in self.stat(path) if row["what"] == "small"]
        self.assertEqual(small["requests"], 500)
        self.assertEqual(small["buffers"], 101)
        self.assertEqual(small["most_uses"], 100)
        self.assertEqual(small["most_uses_bytes"], 2048)
        self.assertAlmostEqual(small["reuse_percent"], 79.8)
        self.assertAlmostEqual(small["frequent_percent"], 100 / 101)

    def test_a_file_is_not_overwritten_while_it_is_read(self):
        path = self.write("a.csv", PLAIN)
        done = run("trace", "convert", "--output", path, path)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(self.read(path), PLAIN)


class Damage(Folder):
    def test_errors_name_the_position(self):
        lines = PLAIN.splitlines(True)
        lines[500] = "nonsense\n"
        path = self.write("a.csv", "".join(lines))
        for command in ("stat", "show", "convert"):
            done = run("trace", command, path)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"^pinion: \S+a\.csv:501: the time")
        binary = self.convert(self.write("b.csv", PLAIN), "binary")
        with open(binary, "r+b") as file:
            file.seek(4096 + 5000)
            file.write(b"\xff" * 64)
        done = run("trace", "stat", binary)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"\.binary: byte \d+: a record is")

    def test_a_file_that_is_not_a_trace_is_refused(self):
        path = self.write("a.csv", "hello\n")
        self.assertRegex(run("trace", "show", path).stderr, "not a trace")
        self.assertEqual(run("trace", "show", self.path("none")).returncode, 1)


class Show(Folder):
    def lines(self, *args):
        done = run("trace", "show", *args)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()[1:]

    def test_filters_select_events(self):
        path = self.write("a.csv", PLAIN)
        self.assertEqual(len(self.lines(path)), 1000)
        self.assertEqual(len(self.lines("--limit", "7", path)), 7)
        self.assertEqual(len(self.lines("--kind", "unpin,evict", path)), 0)
        self.assertEqual(len(self.lines("--kind", "pin", path)), 1000)
        self.assertEqual(len(self.lines("--min", "4098", path)), 333)
        self.assertEqual(len(self.lines("--at", "0x7f0000010000", path)), 200)
        self.assertEqual(len(self.lines("--from", "100us", "--to", "200us",
                                        path)), 10)
        self.assertEqual(len(self.lines("--decision", "hit", path)), 0)


class Record(Folder):
    def record(self):
        path = self.path("demo.trace")
        done = run("trace", "record", "--output", path, "--", PINION, "demo",
                   "--device", "sim:cost=cx5", "--max", "64K")
        self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def test_a_recording_adds_up(self):
        """Hits and misses are those that the caches counted themselves."""
        csv = self.read(self.convert(self.record(), "csv"))
        events = [line.split(",") for line in csv.splitlines()
                  if line[0] not in "#t"]
        closed = [e for e in events if e[1] == "close"]
        self.assertTrue(closed)
        for close in closed:
            mine = [e[2] for e in events if e[1] == "pin" and
                    e[11] == close[11]]
            self.assertEqual(mine.count("hit"), int(close[4], 16))
            self.assertEqual(mine.count("miss"), int(close[5]))
        for form in ("send", "recv", "protocol", "register", "deregister"):
            self.assertIn(form, {e[1] for e in events})

    def test_stat_says_what_was_recorded(self):
        path = self.record()
        text = run("trace", "stat", path).stdout
        self.assertIn("As recorded:", text)
        self.assertIn("Would pinion help?", text)
        for line in text.splitlines()[1:]:
            self.assertLessEqual(len(line), 80, line)
        total = self.total(path)
        self.assertEqual(total["lost"], 0)
        self.assertTrue(total["complete"])
        self.assertAlmostEqual(total["hit_ratio"], total["hits"] / (
            total["hits"] + total["misses"]))

    def test_a_missing_command_is_reported(self):
        done = run("trace", "record", "--", self.path("nothing"))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "No such file")


class Stat(Folder):
    def test_a_loop_needs_a_cache_of_all_its_buffers(self):
        text = "t_us,addr,len\n" + "".join(
            f"{i},{0x10000 + i % 16 * 65536},4096\n" for i in range(1600))
        found = self.stat(self.write("loop.csv", text))
        budgets = {r["budget_bytes"]: r["hit_ratio"] for r in found
                   if r["what"] == "budget"}
        self.assertEqual(budgets[32768], 0)
        self.assertEqual(budgets[65536], 0.99)
        self.assertEqual(max(budgets), 65536)
        self.assertEqual(found[0]["footprint_bytes"], 65536)
        # 16 us and 0.25 us per page, 8 us and 0.06 us per page: profile cx5.
        self.assertAlmostEqual(found[0]["register_each_us"], 1600 * 24.31)

    def test_an_empty_trace_is_fine(self):
        path = self.write("empty.csv", "t_us,addr,len\n")
        self.assertEqual(self.total(path)["requests"], 0)
        self.assertEqual(run("trace", "stat", path).returncode, 0)


if __name__ == "__main__":
    unittest.main()
