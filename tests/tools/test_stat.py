#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""test_stat.py PINION WATCHED -- the output of `pinion stat` about other
processes is exact in any state of the process."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

from command import run
from watched import FOLDER, Watched, gpu, stat


def segments():
    """Pids that have a file."""
    if not os.path.isdir(FOLDER):
        return set()
    return {int(name.split("-")[0]) for name in os.listdir(FOLDER)}


class Counters(unittest.TestCase):
    def test_every_hit_and_miss_is_shown_at_once(self):
        with Watched() as w:
            w.do("pin 3 here")
            before = stat(w.pid, "cache")
            w.do("hit 17")
            after = stat(w.pid, "cache")
            self.assertEqual(after["hits"] - before["hits"], 17)
            self.assertEqual(after["misses"], before["misses"])
            w.do("pin 5 there")
            self.assertEqual(stat(w.pid, "cache")["misses_new"], 2)
            self.assertEqual(stat(w.pid, "cache")["bytes"], 8 * 4096)

    def test_pinned_memory_is_printed_with_the_budget(self):
        with Watched(PINION_MAX_BYTES="1M") as w:
            w.do("pin 4 here")
            context = stat(w.pid, "context")
            self.assertEqual(context["max_bytes"], 1 << 20)
            self.assertEqual(context["pinned_bytes"], 4 * 4096)
            self.assertEqual(context["peak_bytes"], 4 * 4096)

    def test_largest_regions_name_their_call_sites(self):
        with Watched() as w:
            for pages, site in ((2, "small"), (9, "large"), (5, "middle")):
                w.do(f"pin {pages} {site}")
            regions = {row["site_name"]: row["bytes"] for row in stat(w.pid)
                       if row["kind"] == "region"}
            self.assertEqual(regions, {"small": 8192, "large": 9 * 4096,
                                       "middle": 5 * 4096})

    def test_the_smallest_region_makes_room_for_larger_ones(self):
        with Watched() as w:
            for pages in range(1, 41):
                w.do(f"pin {pages} site{pages}")
            shown = sorted(row["bytes"] // 4096 for row in stat(w.pid)
                           if row["kind"] == "region")
            self.assertEqual(shown, list(range(9, 41)))

    def test_messages_are_counted_by_protocol(self):
        with Watched() as w:
            w.do("send 3")
            endpoint = stat(w.pid, "endpoint")
            self.assertEqual(endpoint["sent_eager"], 3)
            self.assertEqual(endpoint["received"], 3)

    def test_a_helper_shows_its_state(self):
        with Watched(PINION_HELPER="own") as w:
            w.do("send 1")
            self.assertEqual(stat(w.pid, "helper")["idle"], 0)


@unittest.skipUnless(gpu("yes"), "no stand-in for a GPU")
class Gpu(unittest.TestCase):
    def test_kept_memory_is_shown(self):
        with Watched(**gpu("yes")) as w:
            w.do("pin 3 here")
            w.do("hit 17")
            context, cache = stat(w.pid, "context"), stat(w.pid, "cache")
            self.assertEqual(context["device"], "cuda")
            self.assertEqual(context["pinned_bytes"], 3 * 4096)
            self.assertEqual(context["max_bytes"], 4 << 20)
            self.assertEqual((cache["hits"], cache["registrations"]), (17, 1))
            self.assertEqual(stat(w.pid, "region")["site_name"], "here")
            self.assertEqual(w.end(), 0)

    def test_memory_that_is_not_kept_ends_with_its_pin(self):
        with Watched(**gpu("no")) as w:
            w.do("pin 3 here")
            w.do("hit 17")
            context, cache = stat(w.pid, "context"), stat(w.pid, "cache")
            self.assertEqual(context["pinned_bytes"], 0)
            self.assertEqual(context["peak_bytes"], 3 * 4096)
            self.assertEqual((cache["hits"], cache["registrations"]), (0, 18))
            self.assertEqual(cache["deregistrations"], 18)
            self.assertEqual(cache["regions"], 0)


class Processes(unittest.TestCase):
    def test_a_stopped_process_can_be_read(self):
        with Watched() as w:
            w.do("pin 3 here")
            w.do("hit 5")
            os.kill(w.pid, signal.SIGSTOP)
            while stat(w.pid, "cache")["state"] != "T":
                time.sleep(0.01)
            self.assertEqual(stat(w.pid, "cache")["hits"], 5)

    def test_the_segment_of_a_killed_process_is_removed(self):
        with Watched() as w:
            self.assertIn(w.pid, segments())
            w.process.kill()
            w.process.wait()
            done = run("stat", str(w.pid))
            self.assertEqual(done.returncode, 1)
            self.assertIn("not a process of this user", done.stderr)
            self.assertNotIn(w.pid, segments())

    def test_the_next_process_removes_it_too(self):
        with Watched() as w:
            w.process.kill()
            w.process.wait()
            with Watched():
                self.assertNotIn(w.pid, segments())

    def test_a_process_that_ends_leaves_nothing(self):
        with Watched() as w:
            w.do("pin 1 here")
            self.assertIn(w.pid, segments())
            self.assertEqual(w.end(), 0)
            self.assertNotIn(w.pid, segments())

    def test_a_forked_child_changes_nothing(self):
        with Watched() as w:
            w.do("pin 3 here")
            before = stat(w.pid)
            w.do("fork")
            after = stat(w.pid)
            for row in before + after:
                row.pop("state")
            self.assertEqual(before, after)
            w.do("hit 2")
            self.assertEqual(stat(w.pid, "cache")["hits"], 2)

    def test_all_processes_are_listed(self):
        with Watched() as one, Watched() as two:
            text = run("stat").stdout
            self.assertIn(f'"pid":{one.pid},', text)
            self.assertIn(f'"pid":{two.pid},', text)

    def test_nobody_else_may_read(self):
        with Watched() as w:
            self.assertEqual(os.stat(FOLDER).st_mode & 0o777, 0o700)
            (name,) = [n for n in os.listdir(FOLDER)
                       if n.startswith(f"{w.pid}-")]
            self.assertEqual(os.stat(f"{FOLDER}/{name}").st_mode & 0o777,
                             0o600)

    def test_a_full_file_system_only_disables_statistics(self):
        """A /dev/shm with space for little more than the header of a segment."""
        small = ["unshare", "-m", "sh", "-c",
                 "mount -t tmpfs -o size=16k none /dev/shm && exec \"$0\""]
        if subprocess.run([*small, "true"], check=False,
                          capture_output=True).returncode:
            self.skipTest("cannot mount here")
        with Watched(before=small) as w:
            for pages in range(1, 20):
                w.do(f"pin {pages} here")
            w.do("hit 1000")
            self.assertEqual(w.end(), 0)


class Prometheus(unittest.TestCase):
    SAMPLE = re.compile(r'^([a-z_]+)\{pid="\d+",command="watched",'
                        r'number="\d+"\} \d+(\.\d+)?(e[+-]\d+)?$')

    def test_samples_of_a_metric_follow_its_type(self):
        with Watched() as one, Watched() as two:
            one.do("pin 1 here")
            text = run("stat", "--format", "prometheus", str(one.pid),
                       str(two.pid)).stdout
        typed, current, helped = {}, None, None
        for line in text.splitlines():
            if line.startswith("# HELP "):
                helped = line.split()[2]
                self.assertRegex(line, r"^# HELP [a-z_]+ [A-Za-z].*\.$")
                continue
            if line.startswith("# TYPE "):
                current, kind = line.split()[2:]
                self.assertNotIn(current, typed)
                self.assertEqual(current, helped)
                typed[current] = kind
                continue
            self.assertRegex(line, self.SAMPLE)
            self.assertEqual(self.SAMPLE.match(line)[1], current)
        self.assertEqual(typed["pinion_cache_hits_total"], "counter")
        self.assertEqual(typed["pinion_context_pinned_bytes"], "gauge")
        self.assertEqual(text.count("\npinion_cache_hits_total{"), 2)

    def test_times_are_in_seconds(self):
        with Watched() as one:
            one.do("send 2")
            text = run("stat", "--format", "prometheus", str(one.pid)).stdout
            now = time.clock_gettime(time.CLOCK_MONOTONIC)
        self.assertNotRegex(text, r"pinion_\w+_ns\b")
        for name in ("since", "seen"):
            value = re.search(rf"(?m)^pinion_endpoint_idle_{name}_seconds"
                              r"\{.*\} (\S+)$", text)[1]
            self.assertTrue(0 <= float(value) <= now, value)

    @unittest.skipUnless(shutil.which("promtool"), "needs promtool")
    def test_promtool_has_nothing_to_say(self):
        with Watched() as one, Watched() as two:
            one.do("pin 1 here")
            two.do("send 2")
            text = run("stat", "--format", "prometheus").stdout
        done = subprocess.run(["promtool", "check", "metrics"], input=text,
                              text=True, capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, "", ""))

    def test_the_dashboard_asks_for_metrics_that_exist(self):
        path = pathlib.Path(__file__).parents[2] / "tools/grafana/pinion.json"
        asked = set(re.findall(r"pinion_[a-z_]+", path.read_text("utf-8")))
        with Watched() as one:
            one.do("pin 1 here")
            one.do("send 2")
            text = run("stat", "--format", "prometheus", str(one.pid)).stdout
        exist = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
        self.assertGreater(len(asked), 5)
        self.assertEqual(asked - exist, set())


class BadInput(unittest.TestCase):
    def test_an_unknown_process_is_reported(self):
        for bad in ("x", "-1", "0", "12x"):
            done = run("stat", "--", bad)
            self.assertEqual(done.returncode, 2, bad)
        self.assertEqual(run("stat", str(os.getpid())).returncode, 1)


if __name__ == "__main__":
    unittest.main()
