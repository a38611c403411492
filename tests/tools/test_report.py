#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""test_report.py PINION -- `pinion report`: one page of figures."""

import html.parser
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from command import PINION, run

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
        self.assertEqual(page.seen.count("figure"), 2)
        self.assertEqual(page.seen.count("section"), 2)  # one, and profiles
        for text in ("Hit ratio by budget and policy", "lru", "cost",
                     "64K", "128K", "30.00"):
            self.assertIn(text, page.text)

    @unittest.skipUnless(shutil.which("gnuplot"), "needs gnuplot")
    def test_every_figure_has_a_picture(self):
        page = self.report(self.write(cache_rows()))
        self.assertEqual(page.seen.count("svg"), 2)
        self.assertEqual(len(page.ids), len(set(page.ids)), page.ids)

    def test_a_headline_says_what_was_found(self):
        page = self.report(self.write(
            [dict(row, hit_ratio=0.2 if row["policy"] == "lru" else 0.8)
             for row in cache_rows(total_us=None)]))
        self.assertIn("At 64K (budget of the cache), cost has 80 % of "
                      "requests, lru has 20 % of requests, a factor of 4.",
                      page.text)

    def test_a_headline_names_what_saves_memory_at_no_price(self):
        """Not what saves most and takes longer."""
        def headline(**schemes):
            rows = [{"bench": "sim cluster", **ABOUT, "what": "total",
                     "workload": "cg", "scheme": scheme, "failed_ranks": 0,
                     "memory": memory, "communication": time}
                    for scheme, (memory, time) in schemes.items()]
            return self.report(self.write(rows)).text

        pinned = {"leave_pinned": (1, 1), "pipeline": (0.05, 1.2)}
        self.assertIn("helper has the least registered memory: 0.15 times, at "
                      "1.01 times.", headline(**pinned, helper=(0.15, 1.01)))
        self.assertIn("leave_pinned has the least registered memory: 1 times",
                      headline(**pinned, helper=(0.15, 1.3)))

    def test_jobs_of_different_size_do_not_share_a_picture(self):
        """Four ranks are faster than sixteen, which is no finding."""
        rows = [{"bench": "mpi", **ABOUT, "what": "bcast", "ranks": ranks,
                 "stack": stack, "bytes": bytes_, "time_us": us * ranks}
                for ranks in (4, 16) for bytes_ in (1024, 8192)
                for stack, us in (("pinion", 1), ("vader", 2))]
        page = self.report(self.write(rows))
        self.assertEqual(page.seen.count("figure"), 2)
        for ranks in 4, 16:
            self.assertIn(f"what bcast, ranks {ranks}: At 1K (size), pinion "
                          f"has {ranks} microseconds, vader has {2 * ranks} "
                          "microseconds, a factor of 2.", page.text)

    def test_a_headline_of_bars_names_the_best_and_the_worst(self):
        """Not the first and the last, whose order means nothing."""
        rows = [{"bench": "sim cluster", **ABOUT, "what": "total",
                 "workload": "cg", "scheme": scheme, "failed_ranks": 0,
                 "registered_bytes_mean": mib << 20}
                for scheme, mib in (("leave_pinned", 8), ("on_demand", 16),
                                    ("pipeline", 1), ("helper", 2))]
        page = self.report(self.write(rows))
        self.assertIn("pipeline has 1 MiB, on_demand has 16 MiB.", page.text)

    def test_rows_come_from_standard_input(self):
        path = self.write(cache_rows())
        with open(path) as rows:
            done = subprocess.run([PINION, "report", "--output", self.page,
                                   "-"], stdin=rows, capture_output=True,
                                  text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 figures from 6 rows", done.stdout)

    def test_a_headline_says_that_curves_are_the_same(self):
        page = self.report(self.write(cache_rows(total_us=None)))
        self.assertIn("All are the same within 1 %, from 10 % of requests at "
                      "64K to 30 % of requests at 256K (budget of the cache).",
                      page.text)

    def test_bars_without_a_common_place_are_compared_at_their_best(self):
        """Windows of one predictor, periods of another."""
        def headline(percent):
            return self.report(self.write(
                [{"bench": "helper", **ABOUT, "experiment": "predictor",
                  "shape": "all", "jitter": 0.1, "predictor": predictor,
                  "window": window, "within_5_percent": within}
                 for predictor, points in (("shortest", ((0, 24), (1, 23))),
                                           ("learned", ((0, 20), (1, 22))),
                                           ("periodic", percent))
                 for window, within in points])).text

        self.assertIn("At their best, periodic has 50 % of predictions at "
                      "128, learned has 22 % of predictions at 1.",
                      headline(((8, 30), (128, 50), (512, 49))))
        self.assertIn("At their best, shortest has 24 % of predictions at 0, "
                      "periodic has 21 % of predictions at 8.",
                      headline(((8, 21), (128, 20))))

    def picture(self, rows):
        """The texts of the only picture."""
        self.report(self.write(rows))
        with open(self.page) as file:
            svg, = re.findall(r"<svg.*?</svg>", file.read(), re.S)
        return re.findall(r"<text>(?:<tspan[^>]*>)?\s*([^<]*?)\s*<", svg)

    @staticmethod
    def gains(*percent):
        return [{"bench": "reuse", **ABOUT, "what": what, "layout": "-",
                 "bytes": 1024 << i, "gain_percent": gain}
                for i, gain in enumerate(percent) for what in ("put", "get")]

    @unittest.skipUnless(shutil.which("gnuplot"), "needs gnuplot")
    def test_losses_are_drawn_below_the_axis(self):
        self.assertIn("-20", self.picture(self.gains(10, -5, -20)))
        self.assertNotIn("-2", " ".join(self.picture(self.gains(10, 5, 20))))

    @unittest.skipUnless(shutil.which("gnuplot"), "needs gnuplot")
    def test_both_ends_of_a_range_have_a_tic(self):
        texts = self.picture(self.gains(10, 20))
        self.assertIn("1K", texts)
        self.assertIn("2K", texts)

    def test_a_figure_names_every_command_behind_it(self):
        rows = cache_rows(total_us=None)
        for row in rows[3:]:
            row["command"] = "pinion sim cache --trace x --policy cost"
        page = self.report(self.write(rows))
        self.assertIn("pinion sim cache --trace x --policy cost", page.text)
        self.assertRegex(page.text, r"pinion sim cache --trace x(?! --)")

    def test_a_headline_names_a_file_without_its_folder(self):
        page = self.report(self.write(cache_rows(trace="/long/path/halo.gz")))
        self.assertIn("trace halo.gz: ", page.text)
        self.assertNotIn("/long/path", page.text)

    @unittest.skipUnless(shutil.which("gnuplot"), "needs gnuplot")
    def test_pictures_have_title_description_units_and_a_mark(self):
        self.report(self.write(
            [dict(row, hit_ratio=row["hit_ratio"] * better,
                  total_us=row["total_us"] / better)
             for row in cache_rows()
             for better in [2 if row["policy"] == "cost" else 1]]))
        with open(self.page) as file:
            pictures = re.findall(r"<svg.*?</svg>", file.read(), re.DOTALL)
        self.assertEqual(len(pictures), 2)
        for svg in pictures:
            self.assertRegex(svg, r'^<svg role="img"[^>]*>'
                                  r"<title>[^<]+</title><desc>At [^<]+ "
                                  r"Horizontal axis: [^<;]+; vertical axis: "
                                  r"[^<;]+\.</desc>")
            self.assertNotIn("Produced by GNUPLOT", svg)
            self.assertIn("budget of the cache (bytes)", svg)

    @unittest.skipUnless(shutil.which("gnuplot"), "needs gnuplot")
    def test_a_line_ends_where_nothing_was_measured(self):
        """Three points in a row are one line; with a gap there is none."""
        def lines(budgets):
            rows = [{"bench": "sim cache", **ABOUT, "trace": "t",
                     "policy": policy, "budget_bytes": budget,
                     "hit_ratio": 0.5}
                    for policy, list_ in (("lru", (1, 2, 3)), ("cost", budgets))
                    for budget in (65536 << i for i in list_)]
            self.report(self.write(rows))
            with open(self.page) as file:
                paths = re.findall(r"<path[^>]*d='([^']*)'", file.read())
            return sum(path.count("L") for path in paths)

        self.assertLess(lines((1, 3)), lines((1, 2, 3)) - 1)

    def test_the_mean_over_time_is_not_that_of_maxima(self):
        rows = [{"bench": "sim cluster", **ABOUT, "what": "memory", "node": 0,
                 "nodes": 16, "workload": "w", "scheme": "helper", "t_s": t,
                 "registered_bytes": 1 << 20, "registered_bytes_mean": 1 << 18}
                for t in range(4)]
        page = self.report(self.write(rows))
        self.assertIn("helper 256 KiB on average.", page.text)
        self.assertRegex(page.text, r"helper1\.?0*M256K1\.?0*M")
        self.assertIn("1 of 16 nodes shown.", page.text)

    def test_registering_is_drawn_beside_one_put(self):
        rows = [{"bench": "register", **ABOUT, "fit": False, "present": True,
                 "page_bytes": 4096, "bytes": 4096 << i, "register_us": 2,
                 "put_us": 1} for i in range(3)]
        page = self.report(self.write(rows))
        self.assertIn("one put has 1 microseconds, registering has 2", page.text)

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
                                    r".*?68\.00%66\.20fitted")
        self.assertRegex(page.text, r"M7.*?21\.58us5\.000fitted")
        self.assertIn("pinion sim paper", page.text)  # missing
        self.assertIn("L. Ou, X. He and J. Han: An efficient design for fast "
                      "memory registration in RDMA, 2009.", page.text)

    def verdict(self, rows, what):
        """The cells of a claim, by place; the paper's costs are first."""
        self.report("--papers", self.write(rows))
        with open(self.page) as file:
            line = re.search(rf"<tr><td[^\n]*{what}[^\n]*", file.read())[0]
        cells = re.findall(r"<td[^>]*>(.*?)</td>", line)
        self.assertEqual(len(cells), len(self.PLACES) + 4)
        return cells[3:-1]

    PLACES = ("paper", "cx5", "h200", "soft", "verbs", "cuda")
    H200, SOFT, CUDA = map(PLACES.index, ("h200", "soft", "cuda"))

    @staticmethod
    def messages(device, profile, emulated, cached, pipeline):
        return [{"bench": "message", **ABOUT, "device": device,
                 "profile": profile, "emulated": emulated, "bytes": 8 << 20,
                 "reuse": 1, "protocol": protocol, "bytes_per_s": rate}
                for protocol, rate in (("cached", cached),
                                       ("pipeline", pipeline))]

    def test_a_fitted_profile_counts_for_nothing(self):
        cells = self.verdict(self.messages("sim:cost=woodall2006",
                                           "woodall2006", True, 100, 167),
                             "pipeline over leave-pinned")
        self.assertIn("fitted", cells[0])
        self.assertNotIn("same</b>", cells[0])
        for cell in cells[1:]:
            self.assertIn("not run", cell)
        with open(self.page) as file:
            page = file.read()
        self.assertIn("<b>predicted</b>: 0 better, 0 the same, 0 worse", page)
        self.assertIn("<b>fitted</b>: 1, counted for nothing", page)

    def test_a_number_that_costs_do_not_enter_is_counted_apart(self):
        """More hits under MRE: a ratio of requests, whatever they cost."""
        def page(profile, percent):
            rows = [{"bench": "sim paper", **ABOUT, "device": "replay",
                     "profile": name, "trace": "gen:httpd",
                     "budget_bytes": 1 << 20, "mre_more_hits_percent": more}
                    for name, more in (("ou2009", 10), (profile, percent))]
            cells = self.verdict(rows, "more hits under MRE")
            with open(self.page) as file:
                return cells, file.read()

        cells, text = page("cx5", 10)
        self.assertIn("predicted: <b>same</b>", cells[0])
        self.assertIn("repeated: <b>same</b>", cells[1])
        self.assertIn("<b>predicted</b>: 0 better, 1 the same, 0 worse", text)
        self.assertIn("<b>repeated</b>: 1 the same and 0 not, counted for "
                      "nothing", text)
        cells, text = page("cx5", 20)
        self.assertIn("repeated: <b>better</b>", cells[1])
        self.assertIn("<b>repeated</b>: 0 the same and 1 not", text)

    def test_other_costs_are_judged_by_the_cost_model(self):
        """At cx5's costs the model wants 1.9, not the paper's 1.67."""
        for rate, result in ((190, "same"), (160, "worse"), (300, "better")):
            cell = self.verdict(self.messages("sim:cost=cx5", "cx5", True, 100,
                                              rate),
                                "pipeline over leave-pinned")[1]
            self.assertIn(f"predicted: <b>{result}</b>", cell)
            self.assertRegex(cell, r"model: 1\.9")

    def test_costs_of_a_gpu_machine_are_judged_by_the_cost_model(self):
        """Where a batch saves nothing, nothing is to be expected of it."""
        for percent, result in ((0, "same"), (9, "better"), (-9, "worse")):
            rows = [{"bench": "sim paper", **ABOUT, "device": "replay",
                     "profile": name, "trace": "gen:cello92",
                     "budget_bytes": 1 << 20, "mre_saves_percent": saved}
                    for name, saved in (("ou2009", 10), ("h200", percent))]
            cell = self.verdict(rows, "time saved by MRE")[self.H200]
            self.assertIn(f"predicted: <b>{result}</b>", cell)
            self.assertIn("model: 0.000", cell)

    def test_the_page_says_how_busy_the_machine_was(self):
        def page(*others):
            return self.report("--papers", self.write(
                [{"bench": "reproduce", "experiment": f"e{i}",
                  "others_percent": percent}
                 for i, percent in enumerate(others)])).text

        self.assertIn("other programs used 3 % of the processors, at most 4 % "
                      "(e1): the machine was idle enough.", page(2, 4))
        self.assertIn("at most 30 % (e0): the machine was too busy", page(30))
        self.assertNotIn("other programs used", page())

    def test_predictions_behind_a_library_are_not_the_papers(self):
        """One call site for all calls is an experiment of ours."""
        rows = [{"bench": "helper", **ABOUT, "experiment": "predictor",
                 "predictor": "shortest", "window": 2, "jitter": 0.001,
                 "shape": shape, "within_5_percent": percent}
                for shape, percent in (("bt", 90), ("lu", 100), ("all", 95),
                                       ("bt, one site", 10),
                                       ("all, one site", 10))]
        cell = self.verdict(rows, "predictions by call sites within 5 %")[0]
        self.assertTrue(cell.startswith("95.00"), cell)

    def test_cache_sizes_are_averaged_not_chosen(self):
        """The best of the sizes is the paper's number; the mean is not."""
        for what, key, trace, best in (
                ("time saved by MRE over the pin", "mre_saves_percent",
                 "cello92", 10),
                ("cost of registering saved against no cache",
                 "mre_saves_of_none_percent", "httpd", 70)):
            rows = [{"bench": "sim paper", **ABOUT, "device": "replay",
                     "trace": f"gen:{trace}", "budget_bytes": 2 << 20 << i,
                     key: best * share}
                    for i, share in enumerate((0.25, 0.5, 0.75, 1))]
            cell = self.verdict(rows, what)[0]
            self.assertTrue(cell.startswith(f"{best * 0.625:.2f}"), cell)
            self.assertIn("predicted: <b>worse</b>", cell)
            self.assertIn(f"of {best * 0.25:.2f}", cell)

    def test_the_worst_size_decides_how_late_the_helper_is(self):
        """"Less than 5 %": 3.4 % are expected at ou2009, 14.6 at cx5."""
        def cells(profile, *percent):
            rows = [{"bench": "helper", **ABOUT, "profile": profile,
                     "experiment": "latency", "shape": "reuse",
                     "scheme": "helper", "bytes": 2 << 20 << i,
                     "large": True, "more_percent": more}
                    for i, more in enumerate(percent)]
            return self.verdict(rows, "latency above leave-pinned")
        self.assertIn("predicted: <b>same</b>", cells("ou2009", 1, 4.9)[0])
        self.assertIn("predicted: <b>worse</b>", cells("ou2009", 1, 5.1)[0])
        self.assertIn("predicted: <b>better</b>", cells("ou2009", -1, -2)[0])
        self.assertRegex(cells("cx5", 9, 13)[1],
                         r"predicted: <b>same</b>.*model: 14\.56")

    @staticmethod
    def soft_line():
        """1 us + 0.2 us a page; a put takes 100 us."""
        return [{"bench": "register", **ABOUT, "device": "soft",
                 "emulated": False, "page_bytes": 4096, "present": True, **more}
                for more in ({"fit": False, "bytes": 1 << 20, "put_us": 100,
                              "register_us": 50},
                             {"fit": True, "register_us_fixed": 1,
                              "register_us_per_page": 0.2,
                              "deregister_us_fixed": 0,
                              "deregister_us_per_page": 0})]

    def test_a_heap_with_costs_of_a_profile_puts_as_soft_does(self):
        """50.16 us for registering, added to a put of 100 us."""
        rows = [{"bench": "heap", **ABOUT, "device": f"soft:cost={name}",
                 "profile": name, "what": "put", "bytes": 128,
                 "speedup": speedup}
                for name, speedup in (("stria", 1.6), ("h200", 1.5))]
        cell = self.verdict(rows + self.soft_line(), "put from it")[self.H200]
        self.assertIn("predicted: <b>same</b>", cell)
        self.assertIn("model: 1.50", cell)

    def test_a_device_is_judged_by_its_measured_costs(self):
        line = self.soft_line()
        soft = self.messages("soft", "none", False, 100, 200)
        cell = self.verdict(soft, "pipeline over leave-pinned")[self.SOFT]
        self.assertIn("measured: <b>not judged</b>", cell)
        # 2 * 410.6 us for registering, 800 us for moving 8 MiB, which the
        # CPU does that registers: 1.295 to be expected.
        for rate, result in ((130, "same"), (200, "better"), (110, "worse")):
            soft = self.messages("soft", "none", False, 100, rate)
            cell = self.verdict(soft + line,
                                "pipeline over leave-pinned")[self.SOFT]
            self.assertIn(f"measured: <b>{result}</b>", cell)
            self.assertIn("model: 1.295", cell)

    def test_a_gpu_is_judged_by_rows_of_its_own_bench(self):
        costs = {"bench": "gpu", **ABOUT, "device": "cuda", "emulated": False,
                 "experiment": "costs", "fit": True, "register_us_fixed": 1,
                 "register_us_per_page": 0.2, "deregister_us_fixed": 0,
                 "deregister_us_per_page": 0, "put_us_fixed": 0,
                 "put_gbps": 10, "copy_gbps": 10}
        gpu = [{**row, "bench": "gpu"} for row in
               self.messages("cuda", "none", False, 100, 200)]
        cell = self.verdict(gpu, "pipeline over leave-pinned")[self.CUDA]
        self.assertIn("measured: <b>not judged</b>", cell)
        # 2 * 410.6 us for registering, 839 us for moving 8 MiB
        cells = self.verdict(gpu + [costs], "pipeline over leave-pinned")
        self.assertIn("measured: <b>same</b>", cells[self.CUDA])
        self.assertIn("not run", cells[self.SOFT])

    def answers(self, rows):
        """What the page says of each idea, by its name."""
        self.report("--papers", self.write(rows))
        with open(self.page) as file:
            part = re.search(r"<h3 id=ideas>.*?<h3>", file.read(), re.S)[0]
        return {name: re.sub(r"<[^>]*>", "", text) for name, text in
                re.findall(r"<p><b>The ([^<]+)</b>(.*?)</ul>", part, re.S)}

    def test_the_page_says_where_an_idea_pays_and_why(self):
        """From the rows, also when they say the opposite."""
        soft = self.soft_line()

        def says(cx5, on_soft):
            rows = self.messages("sim:cost=cx5", "cx5", True, 100, cx5)
            rows += self.messages("soft", "none", False, 100, on_soft)
            return self.answers(rows + soft)["pipeline"]

        text = says(190, 85)
        self.assertIn("It pays at cx5; does not pay at soft.", text)
        self.assertIn("cx5: pays: 1.900 times (pipeline over leave-pinned, "
                      "8 MiB used once).", text)
        self.assertIn("soft: does not pay: 0.850 times (pipeline over "
                      "leave-pinned, 8 MiB used once).", text)
        self.assertRegex(text, r"cx5: pays.*registering 8 MiB at both ends "
                               r"takes 1056 us, moving it 671\.1 us\.")
        self.assertRegex(text, r"soft: does.*registering 8 MiB at both ends "
                               r"takes 821\.2 us, moving it 800\.0 us; the CPU that "
                               r"registers also moves the bytes")
        self.assertIn("It pays at soft; does not pay at cx5.", says(85, 120))
        # Within the margin it does not pay either.
        self.assertIn("It does not pay at cx5, soft.", says(101, 101))

    def test_fitted_numbers_are_no_evidence(self):
        text = self.answers(self.messages("sim:cost=woodall2006",
                                          "woodall2006", True, 100, 167))
        self.assertIn("It has no numbers here that count", text["pipeline"])

    def test_the_helper_has_a_price(self):
        def says(time):
            return self.answers([
                {"bench": "helper", **ABOUT, "device": "soft",
                 "profile": "none", "emulated": False, "experiment": "rhythm",
                 "mode": "learned", "memory": 0.25, "time": time}])["helper"]

        self.assertIn("It pays at soft.", says(1.04))
        self.assertIn("0.250 times (registered memory, program with a rhythm); "
                      "the price is 1.040 times (its time), below the limit of "
                      "5 %.", says(1.04))
        self.assertIn("(its time), above the limit of 5 %.", says(1.4))
        # These numbers are no claim's: their command stands here.
        self.assertIn(ABOUT["command"], says(1.04))
        self.assertIn("It pays in part at soft.", says(1.4))

    def test_several_noise_levels_are_averaged_and_their_range_shown(self):
        rows = [{"bench": "helper", **ABOUT, "experiment": "nas",
                 "shape": "lu", "jitter": jitter, "scheme": scheme,
                 "predictor": predictor, "registered_bytes_peak": peak}
                for jitter, least in ((0.001, 50), (0.01, 100))
                for scheme, predictor, peak in (
                    ("leave_pinned", "", 100), ("helper", "learned", least))]
        cell = self.verdict(rows, "registered memory saved, LU")[0]
        self.assertTrue(cell.startswith("25.00"), cell)
        self.assertIn("of 0.000 to 50.00", cell)

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
