#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""test_run.py PINION -- `pinion run` starts programs with libpinion-cuda.so
preloaded, gets out of their way, and says clearly what is wrong."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

from command import PINION, run

LIBRARY = pathlib.Path(PINION).resolve().parent / "libpinion-cuda.so"


class Run(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.here = pathlib.Path(self.folder.name)

    def test_the_library_is_preloaded_before_others(self):
        other = LIBRARY.with_name("libpinion.so.0")
        done = run("run", "--print", "a.out", "-x", LD_PRELOAD=str(other))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout,
                         f"LD_PRELOAD={LIBRARY}:{other} a.out -x\n")
        done = run("run", "--cuda", "sh", "-c", "grep pinion /proc/self/maps")
        self.assertEqual(done.returncode, 0)
        self.assertIn("libpinion-cuda.so", done.stdout)
        self.assertIn("libpinion.so.0", done.stdout)

    def test_verbs_and_remote(self):
        verbs = LIBRARY.with_name("libpinion-verbs.so")
        if not verbs.exists():
            self.skipTest("built without libibverbs")
        done = run("run", "--cuda=no", "--verbs", "--remote", "--print", "a",
                   LD_PRELOAD="")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout,
                         f"LD_PRELOAD={verbs} PINION_KEEP_REMOTE=yes a\n")
        for flag, how in (("--windows", "yes"), ("--windows=no", "no")):
            done = run("run", "--cuda=no", "--verbs", flag, "--print", "a",
                       LD_PRELOAD="")
            self.assertEqual(
                done.stdout,
                f"LD_PRELOAD={verbs} PINION_KEEP_WINDOWS={how} a\n")
        done = run("run", "--verbs", "sh", "-c", "grep pinion /proc/self/maps")
        for name in "libpinion-cuda.so", "libpinion-verbs.so":
            self.assertIn(name, done.stdout)

    def test_the_hook_is_put_under_libfabric(self):
        done = run("run", "--cuda=no", "--fabric", "--print", "a.out")
        if "no libpinion-hook-fi.so" in done.stderr:
            self.skipTest("built without libfabric")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(
            done.stdout,
            rf"\ALD_PRELOAD={LIBRARY.parent}/./libpinion.so.0 "
            r"FI_HOOK=ofi_hook_pinion "
            rf"FI_PROVIDER_PATH={LIBRARY.parent}/./libfabric:/\S+/libfabric "
            r"FI_MR_CACHE_MAX_COUNT=0 a.out\n\Z")
        done = run("run", "--fabric", "--remote", "--print", "a.out",
                   FI_HOOK="perf", FI_PROVIDER_PATH="@/a:/b",
                   FI_MR_CACHE_MAX_COUNT="7")
        self.assertRegex(
            done.stdout,
            rf"\ALD_PRELOAD=\S+/libpinion.so.0:{LIBRARY} "
            r"FI_HOOK=ofi_hook_pinion;perf "
            r"FI_PROVIDER_PATH=@\S+/libfabric:/a:/b "
            r"FI_MR_CACHE_MAX_COUNT=7 PINION_KEEP_REMOTE=yes a.out\n\Z")

    def test_libfabric_keeps_nothing_below_pinion(self):
        for device, printed in (("fabric:tcp", ".so FI_MR_CACHE_MAX_COUNT=0 a\n"),
                                ("soft/fabric", ".so FI_MR_CACHE_MAX_COUNT=0 a\n"),
                                ("soft", ".so a\n")):
            done = run("run", "--cuda=no", "--verbs", "--print", "a",
                       PINION_DEVICE=device)
            if "no libpinion-verbs.so" in done.stderr:
                self.skipTest("built without libibverbs")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertTrue(done.stdout.endswith(printed), done.stdout)

    def test_a_program_without_cuda_runs_as_always(self):
        done = run("run", "sh", "-c", "echo out; echo err >&2; exit 7")
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (7, "out\n", "err\n"))

    def test_the_command_becomes_the_program(self):
        with subprocess.Popen([PINION, "run", "sleep", "1000"]) as program:
            try:
                os.kill(program.pid, signal.SIGTERM)
                self.assertEqual(program.wait(60), -signal.SIGTERM)
            finally:
                program.kill()

    def test_programs_that_cannot_run(self):
        done = run("run", str(self.here / "none"))
        self.assertEqual(done.returncode, 127)
        self.assertRegex(done.stderr, r"\Apinion: .*none: No such file")
        done = run("run", str(self.here))
        self.assertEqual(done.returncode, 126)
        self.assertRegex(done.stderr, r"\Apinion: .*: Permission denied")

    def test_wrong_command_lines(self):
        for args, text in ((["run"], "name a program"),
                           (["run", "--cuda=no", "true"], "nothing to do"),
                           (["run", "--remote", "true"],
                            "goes with --verbs or --fabric")):
            done = run(*args)
            self.assertEqual((done.returncode, done.stdout), (2, ""), args)
            self.assertRegex(done.stderr, rf"\Apinion: run: [^\n]*{text}")

    def test_a_command_without_the_library_says_so(self):
        command = self.here / "pinion"
        shutil.copy(PINION, command)
        done = subprocess.run([command, "run", "true"], text=True,
                              capture_output=True, check=False, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("no libpinion-cuda.so beside this command", done.stderr)
        done = subprocess.run([command, "run", "--fabric", "true"], text=True,
                              capture_output=True, check=False, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("no libpinion-hook-fi.so", done.stderr)

    def test_a_path_that_the_linker_would_split_is_refused(self):
        folder = self.here / "with space"
        folder.mkdir()
        shutil.copy(PINION, folder)
        shutil.copy(LIBRARY, folder)
        done = subprocess.run([folder / "pinion", "run", "true"], text=True,
                              capture_output=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("a colon or a space", done.stderr)

    def test_traces_go_into_a_folder(self):
        traces = self.here / "traces"
        done = run("run", "--trace", str(traces), "sh", "-c",
                   "echo $PINION_TRACE")
        self.assertEqual(done.stdout, f"{traces}/%p.trace\n")
        self.assertTrue(traces.is_dir())

    def test_a_report_needs_something_recorded(self):
        page = self.here / "page.html"
        done = run("run", "--report", str(page), "true")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no process has recorded anything", done.stderr)
        done = run("run", "--report", str(page), "sh", "-c", "exit 3")
        self.assertEqual(done.returncode, 3)


if __name__ == "__main__":
    unittest.main()
