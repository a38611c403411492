#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""test_reproduce.py PINION -- `pinion reproduce`: experiments, their rows, the
report. The long ones are left out: each is a command that has its own tests."""

import json
import os
import pathlib
import re
import tempfile
import unittest
import unittest.mock

from command import PINION, commands, run

STANDIN = pathlib.Path(PINION).resolve().parent / "tests" / "standin"
METHODS = {"driver", "demand", "pipeline", "caching-pipeline", "cached", "heap"}


@unittest.skipUnless((STANDIN / "libcuda.so.1").exists(),
                     "no stand-in for a GPU")
class Gpu(unittest.TestCase):
    """The shape of the rows that a machine with a GPU gives (G7), over the
    stand-in, whose times mean nothing: its name is in each row."""

    def rows(self, *args):
        done = run("bench", "gpu", *args, "--json",
                   LD_LIBRARY_PATH=str(STANDIN))
        self.assertEqual(done.returncode, 0, done.stderr)
        found = [json.loads(line) for line in done.stdout.splitlines()]
        for row in found:
            self.assertEqual(row["bench"], "gpu")
            self.assertIn("stand-in", row["gpu"])
        return found

    def test_transfers_by_every_method(self):
        costs, *found = self.rows("--max", "2M", "--budget", "1s")
        self.assertEqual(costs["experiment"], "costs")
        # A slope that load made zero or negative gives 0 and no bandwidth.
        self.assertGreaterEqual(costs["register_us_per_page"], 0)
        self.assertTrue(costs["put_gbps"] is None or costs["put_gbps"] > 0)
        self.assertEqual({row["method"] for row in found}, METHODS)
        for bytes_ in (1 << 20, 2 << 20):
            points = {(row["method"], row["reuse"]) for row in found
                      if row["bytes"] == bytes_}
            self.assertEqual(len(points), 3 * len(METHODS))
        for row in found:
            self.assertGreater(row["use_us"], 0)
            self.assertAlmostEqual(
                row["gbps"], row["bytes"] / row["use_us"] / 1e3,
                delta=row["gbps"] * 1e-3)

    def test_the_helper_against_memory_left_pinned(self):
        found = self.rows("--experiment", "helper", "--bytes", "64K",
                          "--buffers", "2", "--period", "20ms", "--periods",
                          "3")
        self.assertEqual([row["mode"] for row in found],
                         ["pinned", "learned", "shortest", "periodic",
                          "economical"])
        self.assertEqual(found[0]["time"], 1)
        # None: on a busy machine nobody looked while memory was registered.
        self.assertIn(found[0]["memory"], (1, None))
        for row in found:
            self.assertTrue({"seconds", "late_percent", "mean_mib", "ahead",
                             "kept"} <= row.keys())


class Reproduce(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="pinion-reproduce-")
        self.addCleanup(folder.cleanup)
        self.rows, self.page = f"{folder.name}/rows", f"{folder.name}/p.html"

    def reproduce(self, *args):
        return run("reproduce", "--quick", "--folder", self.rows, "--output",
                   self.page, *args)

    @staticmethod
    def listed(*variant):
        """The lines of experiments; the others say what cannot be run."""
        lines = run("reproduce", "--list", *variant).stdout.splitlines()
        return [line for line in lines if "  pinion " in line]

    def test_every_experiment_is_an_existing_command(self):
        known = {" ".join(words) for words in commands()}
        for variant in ((), ("--quick",)):
            lines = self.listed(*variant)
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
        self.assertRegex(text, r"68\.00\s+%\s+66\.\d+\s+fitted")

    def test_rows_of_measured_time_say_how_busy_the_machine_was(self):
        done = self.reproduce("--only", "register")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(f"{self.rows}/register.json") as file:
            *rows, busy = [json.loads(line) for line in file]
        self.assertEqual({row["bench"] for row in rows}, {"register"})
        self.assertEqual(busy["experiment"], "register")
        self.assertTrue(0 <= busy["others_percent"] <= 100, busy)
        with open(self.page) as file:
            self.assertIn("While time was measured, other programs used",
                          file.read())
        # Virtual time does not depend on the load.
        self.reproduce("--only", "frrwp")
        with open(f"{self.rows}/frrwp.json") as file:
            self.assertNotIn("others_percent", file.read())

    def test_latency_by_size_under_four_schemes(self):
        """Figures 9 and 10 of Li and others 2011."""
        done = self.reproduce("--only", "latency")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.page) as file:
            page = file.read()
        article = re.search(r"<h3>Latency by size.*?</article>", page,
                            re.S)[0]
        self.assertEqual(article.count("<figure "), 2)  # reuse and no reuse
        heads = re.findall(r"<thead><tr>.*?</thead>", article)
        for head in heads:
            self.assertEqual(re.findall(r"<th>([^<]*)</th>", head),
                             ["leave_pinned", "pipeline",
                              "pipeline_leave_pinned", "helper"])
        self.assertEqual(len(heads), 2)
        self.assertEqual(article.count("<th class=t>16K</th>"), 2)
        self.assertEqual(article.count("<th class=t>16M</th>"), 2)
        self.assertIn("latency above leave-pinned at most", page)

    def test_existing_rows_stay_in_the_report(self):
        self.reproduce("--only", "frrwp")
        done = self.reproduce("--only", "frrwp-cx5")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.page) as file:
            text = file.read()
        self.assertIn("Reading from a server", text)
        self.assertIn("sim:cost=ou2009", text)
        self.assertIn("sim:cost=cx5", text)
        # The model predicts one half where only registering counts.
        self.assertRegex(text, r"predicted: <b>same</b></small><small>same: "
                               r"47\.\d+ to 52\.\d+</small><small>model: "
                               r"50\.00")

    def test_rows_from_elsewhere_join_the_report(self):
        os.mkdir(f"{self.rows}-guest")
        with open(f"{self.rows}-guest/register.json", "w") as file:
            print('{"bench":"register","device":"verbs:rxe0","profile":"none",'
                  '"emulated":false,"fit":true,"page_bytes":4096,'
                  '"present":true,"register_us_fixed":9,'
                  '"register_us_per_page":0.1,"deregister_us_fixed":1,'
                  '"deregister_us_per_page":0}', file=file)
        done = self.reproduce("--only", "frrwp", "--rows",
                              f"{self.rows}-guest")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.page) as file:
            self.assertRegex(file.read(), r"<th class=t>verbs</th><td "
                                          r"class=t>measured by pinion bench ")
        done = self.reproduce("--only", "frrwp", "--rows", "/nonexistent")
        self.assertEqual(done.returncode, 1)

    def model(self, device, row, *rows):
        """What the cost model expects of a row of the design on a device."""
        os.mkdir(f"{self.rows}-{device}")
        about = {"device": device, "profile": "none", "emulated": False}
        register = {"bench": "register", "page_bytes": 4096, "present": True}
        with open(f"{self.rows}-{device}/rows.json", "w") as file:
            for each in (register | {"fit": False, "bytes": 1 << 20,
                                     "put_us": 1024},
                         register | {"fit": True, "register_us_fixed": 0,
                                     "register_us_per_page": 1,
                                     "deregister_us_fixed": 0,
                                     "deregister_us_per_page": 0}, *rows):
                print(json.dumps(about | each), file=file)
        done = self.reproduce("--only", "frrwp", "--rows",
                              f"{self.rows}-{device}")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.page) as file:
            text = re.sub(r"<[^>]*>", " ", file.read())
        found = re.search(rf" {row}\b.*?measured:.*?same: +(\S+) to (\S+) +"
                          r"model: +(\S+)", text, re.S)
        self.assertTrue(found, text)
        return [float(number) for number in found.groups()]

    def test_registering_hides_behind_an_adapter_not_behind_a_cpu(self):
        messages = [{"bench": "message", "protocol": protocol, "reuse": 1,
                     "bytes": 8 << 20, "bytes_per_s": 1e9}
                    for protocol in ("pipeline", "cached")]
        # 8 MiB: 2048 us to register, 8192 us to move; fragments of 16 us.
        hidden = self.model("verbs:mlx5_0", "P5", *messages)
        self.assertAlmostEqual(hidden[2], (2 * 2048 + 8192) / (8192 + 16), 2)
        added = self.model("verbs:rxe0", "P5", *messages)
        self.assertAlmostEqual(added[2],
                               (2 * 2048 + 8192) / (8192 + 2048 + 16), 2)

    def test_what_is_not_copied_cannot_be_saved(self):
        reuse = {"bench": "reuse", "bytes": 8 << 10}
        rows = [reuse | {"what": "threshold", "path": "fast-path",
                         "copy_us": 1, "lookup_us": .1, "minimum_uses": uses}
                for uses in (20, None)]
        gain = reuse | {"what": "pingpong", "layout": "-", "gain_percent": 1}
        # 8 of 1024 us for the put, 8 for the link, 2 for copies; 0.9 saved.
        copied = self.model("verbs:mlx5_0", "R1", rows[0], gain)
        self.assertAlmostEqual(copied[2], 100 * .9 / (1024 + 8 + 2), 2)
        self.assertEqual(self.model("verbs:mlx5_1", "R1", rows[1], gain),
                         [-3, 2, 0])

    def test_bounds_of_a_loss_are_not_reversed(self):
        """A look-up dearer than the copy: the model expects a loss."""
        reuse = {"bench": "reuse", "bytes": 8 << 10}
        costs = reuse | {"what": "threshold", "path": "fast-path",
                         "copy_us": 1, "lookup_us": 100, "minimum_uses": 20}
        loss = 100 * 99 / (1024 + 8 + 2)
        gain = reuse | {"what": "pingpong", "layout": "-",
                        "gain_percent": -loss}
        low, high, model = self.model("verbs:mlx5_0", "R1", costs, gain)
        self.assertAlmostEqual(model, -loss, 2)
        # 11 to 16 around 14
        self.assertAlmostEqual(low, -loss * 17 / 14, 1)
        self.assertAlmostEqual(high, -loss * 12 / 14, 1)
        with open(self.page) as file:
            text = re.sub(r"<[^>]*>", " ", file.read())
        self.assertRegex(text, r" R1\b.*?measured: +same +same: ")

    def test_a_resumed_run_keeps_rows_of_the_same_command(self):
        """All rows but one are there; only that one is made again."""
        os.mkdir(self.rows)
        for line in self.listed("--quick"):
            name, command = line.split()[0], line.split("  pinion ")[1]
            command = " ".join(("pinion", *command.split(), "--json"))
            with open(f"{self.rows}/{name}.json", "w") as file:
                print(json.dumps({"bench": "kept", "command": command}),
                      file=file)
        with open(f"{self.rows}/frrwp.json", "w") as file:
            print('{"bench":"frrwp","command":"pinion bench frrwp --min 2"}',
                  file=file)
        done = self.reproduce("--resume")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^ 1 of 1  frrwp \(.*ok")
        self.assertEqual(done.stdout.count(" ok "), 1, done.stdout)

    def test_recorded_streams_come_with_the_project(self):
        done = self.reproduce("--only", "recorded")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.page) as file:
            text = file.read()
        for name in ("halo", "alltoall", "stream"):
            self.assertIn(f"<th class=t>{name}</th>", text)

    def test_recorded_streams_are_replayed_at_the_costs_of_a_gpu(self):
        """Where batches save nothing: each region pays for itself."""
        done = self.reproduce("--only", "recorded")
        self.assertEqual(done.returncode, 0, done.stderr)
        batched = False
        for name in ("halo", "alltoall", "stream"):
            with open(f"{self.rows}/policies-h200-{name}.json") as file:
                rows = [json.loads(line) for line in file]
            self.assertEqual({row["policy"] for row in rows}, {"lru", "mre"})
            for row in rows:
                self.assertTrue(row["trace"].endswith(f"/{name}.csv.gz"))
                self.assertEqual(row["profile"], "h200")
                # 50 us + 0.16 us a page, and 31 us + 0.067 us a page.
                fixed = (row["registrations"] * 50 +
                         row["deregistrations"] * 31)
                pages = row["registered_bytes"] / 4096
                self.assertGreaterEqual(row["total_us"],
                                        fixed + pages * 0.16 - 1)
                self.assertLessEqual(row["total_us"],
                                     fixed + pages * (0.16 + 0.067) + 1)
                batched |= row["deregistrations"] > row["deregister_batches"]
        self.assertTrue(batched, "no batches: the costs above show nothing")
        with open(self.page) as file:
            self.assertIn("halo.csv.gz", file.read())

    def test_the_list_names_recorded_streams_and_what_cannot_be_run(self):
        listed = run("reproduce", "--list").stdout
        self.assertRegex(listed, r"(?m)^recorded +H1 X8 +about +\d+ s  pinion "
                                 r"bench helper --experiment recorded --traces "
                                 r"\S+")
        self.assertRegex(listed, r"(?m)^cannot be shown here  H1, run times of "
                                 r"NAS.*: needs four hosts")
        self.assertGreater(listed.count("cannot be shown here  "), 10)

    def test_what_is_left_out_says_why(self):
        """Without a GPU; and as root Open MPI wants to be told."""
        told = {"OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        with unittest.mock.patch.dict(os.environ):
            for name in told:
                os.environ.pop(name, None)
            listed = run("reproduce", "--list").stdout
            done = self.reproduce("--only", "frrwp")
            if not os.geteuid():
                self.assertRegex(listed, r"(?m)^left out  collectives \(R6\): "
                                 r"(Open MPI refuses root|bench.mpi_patterns)")
                one = run("reproduce", "--list", OMPI_ALLOW_RUN_AS_ROOT="1")
                self.assertIn("left out  collectives", one.stdout)
        with open(self.page) as file:
            text = re.sub(r"<[^>]*>", " ", file.read())
        self.assertIn("What cannot be shown here, and why", text)
        self.assertIn("run times of NAS, class D, on four nodes", text)
        left = re.findall(r"(?m)^left out  (\S+) \(.*?\): (.*)", listed)
        for name, why in left:
            self.assertIn(f"left out  {name} (", done.stdout)
            self.assertIn(f"the experiment {name} was left out", text)
            self.assertIn(why, text)
        names = [name for name, _ in left]
        listed = run("reproduce", "--list", **told).stdout
        if "mpi_patterns is not in this build" not in listed:
            self.assertNotIn("left out  collectives", listed)
        # Rows from elsewhere take the place of a GPU.
        if "gpu-helper" in names:
            os.mkdir(f"{self.rows}-gpu")
            with open(f"{self.rows}-gpu/gpu-helper.json", "w") as file:
                print('{"bench":"gpu","device":"cuda"}', file=file)
            done = self.reproduce("--only", "frrwp", "--rows",
                                  f"{self.rows}-gpu")
            self.assertNotIn("left out  gpu-helper", done.stdout)
            self.assertIn("left out  gpu-transfer", done.stdout)

    def test_a_failed_experiment_is_reported(self):
        done = self.reproduce("--only", "recorded", "--traces", "/nonexistent")
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAILED", done.stdout)
        self.assertFalse(os.path.exists(f"{self.rows}/recorded.json"))

    def test_an_unknown_experiment_is_refused(self):
        self.assertEqual(self.reproduce("--only", "nonsense").returncode, 2)


if __name__ == "__main__":
    unittest.main()
