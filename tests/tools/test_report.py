#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""test_report.py PINION -- `pinion report`: one page of figures."""

import html.parser
import json
import os
import shutil
import tempfile
import unittest

from command import run

ABOUT = {"device": "sim:cost=ou2009", "emulated": True, "profile": "ou2009",
         "revision": "abc", "machine": "a machine",
         "command": "pinion sim cache --trace x"}


def cache_rows(**more):
    """Two policies over three budgets."""
    return [{"bench": "sim cache", **ABOUT, "trace": "t", "policy": policy,
             "budget_bytes": 65536 << i, "hit_ratio": 0.1 * (i + 1),
             "total_us": 1e6 / (i + 1), **more}
            for policy in ("lru", "cost") for i in range(3)]


class Page(html.parser.HTMLParser):
    """The parts of a page that the tests check."""

    VOID = {"meta", "link", "br"}

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.seen, self.text = [], [], [], ""
        self.links = []
        self.feed(text)
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.seen.append(tag)
        if "id" in attrs:
            self.ids.append(attrs["id"])
        self.links += [attrs[key] for key in ("href", "src", "xlink:href")
                       if key in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> in {self.open}"
        self.open.pop()

    def handle_data(self, data):
        if not {"style", "svg"} & set(self.open):
            self.text += data


class Report(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pinion-report-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.page = f"{self.folder}/page.html"

    def write(self, rows, name="rows.json"):
        path = f"{self.folder}/{name}"
        with open(path, "w") as file:
            for row in rows:
                print(row if isinstance(row, str) else json.dumps(row),
                      file=file)
        return path

    def report(self, *args):
        done = run("report", "--output", self.page, *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.page) as file:
            return Page(file.read())

    def test_rows_become_figures_with_tables_beside_them(self):
        page = self.report(self.write(cache_rows()))
        self.assertEqual(page.seen.count("section"), 3)  # two, and profiles
        for text in ("Hit ratio by budget and policy", "lru", "cost",
                     "64K", "128K", "30.00"):
            self.assertIn(text, page.text)

    @unittest.skipUnless(shutil.which("gnuplot"), "needs gnuplot")
    def test_every_figure_has_a_picture(self):
        page = self.report(self.write(cache_rows()))
        self.assertEqual(page.seen.count("svg"), 2)
        self.assertEqual(len(page.ids), len(set(page.ids)), page.ids)

    def test_figures_say_how_they_were_made(self):
        page = self.report(self.write(cache_rows()))
        for text in ("sim:cost=ou2009", "emulated costs", "a machine",
                     "revision abc", ABOUT["command"]):
            self.assertIn(text, page.text)
        page = self.report(self.write(cache_rows(emulated=False)))
        self.assertIn("measured, not emulated", page.text)

    def test_profiles_that_were_used_are_printed_with_their_marks(self):
        page = self.report(self.write(cache_rows()))
        self.assertIn("7.420", page.text)   # published
        self.assertIn("0.900*", page.text)  # assumed

    def test_devices_do_not_share_a_picture(self):
        rows = cache_rows() + cache_rows(device="sim:cost=cx5", profile="cx5")
        page = self.report(self.write(rows))
        self.assertEqual(page.seen.count("figure"), 4)

    def test_the_page_refers_to_nothing_outside(self):
        page = self.report(self.write(cache_rows()))
        for link in page.links:
            self.assertRegex(link, r"^(#|data:)")
        with open(self.page) as file:
            text = file.read()
        self.assertNotIn("<script", text)
        self.assertNotIn("url(http", text)

    def test_texts_cannot_break_out(self):
        """Neither into the page nor into gnuplot's script."""
        mark = f"{self.folder}/broken"
        bad = [f"<script>alert(1)</script>", "'; system('touch " + mark + "')",
               "`touch " + mark + "`", "\"`touch " + mark + "`",
               "@x {y} \\n $data\nEND_OF_DATA\nsystem 'touch " + mark + "'"]
        rows = [row for text in bad for row in cache_rows(
            policy=text, command=text, trace="t")]
        page = self.report("--title", bad[0], self.write(rows))
        self.assertFalse(os.path.exists(mark))
        self.assertNotIn("script", page.seen)

    def test_traces_make_figures_of_reuse_and_cache_size(self):
        path = f"{self.folder}/program.csv"
        with open(path, "w") as file:
            print("t_us,addr,len", file=file)
            for i in range(40):
                print(f"{i},{0x100000 * (i % 4 + 1)},65536", file=file)
        page = self.report(path)
        self.assertIn("Reuse of buffers", page.text)
        self.assertIn("Hits by cache size", page.text)
        self.assertIn("90.00", page.text)  # 36 of 40

    def test_figures_are_compared_with_the_papers(self):
        rows = [{"bench": "frrwp", **ABOUT, "protocol": "posted-ahead",
                 "pages": pages, "reuse": 1, "latency_us": 1,
                 "share_without_wire_percent": 66.2, "saved_us": saved}
                for pages, saved in ((1, 16.1), (8, 5.0))]
        page = self.report("--papers", self.write(rows))
        self.assertRegex(page.text, r"M10saved on the critical path, one page"
                                    r".*?68\.0066\.20%agrees")
        self.assertRegex(page.text, r"M7.*?21\.585\.000usdiffers")
        self.assertIn("pinion sim paper", page.text)  # missing

    def test_an_invalid_row_is_refused_with_its_line(self):
        good = json.dumps(cache_rows()[0])
        for bad in ("{", "{}x", '{"a":[1]}', '{"a":{}}', "[1]", '{"a":}',
                    '{"a" 1}', '{"a":1,,}', '{"a":"\\q"}', '{"a":1e999}',
                    '{"a":nan}', '{"a":"'):
            done = run("report", "--output", self.page,
                       self.write([good, bad]))
            self.assertEqual(done.returncode, 1, bad)
            self.assertRegex(done.stderr, r"^pinion: .*rows\.json:2: .*\n$")

    def test_escapes_are_read(self):
        rows = [json.dumps(row, ensure_ascii=True)
                for row in cache_rows(command="é ü \"x\" \\ \u20ac \U0001f600")]
        page = self.report(self.write(rows))
        self.assertIn("é ü \"x\" \\ \u20ac \U0001f600", page.text)

    def test_a_report_without_figures_is_an_error(self):
        for rows in ([], [{"bench": "nonsense", "x": 1}]):
            done = run("report", "--output", self.page, self.write(rows))
            self.assertEqual(done.returncode, 1)
            self.assertIn("no figure can be made", done.stderr)
        self.assertEqual(run("report").returncode, 2)
        self.assertEqual(run("report", "/nonexistent").returncode, 1)

    def test_rows_of_the_command_itself_make_figures(self):
        done = run("sim", "cache", "--trace", "gen:loop,requests=500",
                   "--budget", "64K,256K,1M", "--json")
        path = self.write(done.stdout.splitlines())
        page = self.report(path)
        self.assertIn("pinion sim cache --trace gen:loop,requests=500 "
                      "--budget 64K,256K,1M --json", page.text)


if __name__ == "__main__":
    unittest.main()
