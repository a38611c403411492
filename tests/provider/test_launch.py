#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""test_launch.py PINION -- `pinion mpirun` forwards signals and leaves no
process of its job behind. With launchers that are scripts, and with Open MPI's."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PINION = sys.argv.pop(1)

# Records its process id, then ignores signals; it starts a second one like
# itself in another session.
STUBBORN = """
trap '' TERM INT HUP
echo $$ >"$1/$$.pid.new"; mv "$1/$$.pid.new" "$1/$$.pid"
[ "${2-}" = alone ] || setsid bash "$0" "$1" alone &
while :; do sleep 1; done
"""
# Starts a stubborn process, then obeys signals.
LAUNCHER = """
bash {stubborn} {here} &
echo $$ >{here}/launcher.new; mv {here}/launcher.new {here}/launcher
wait
"""
# Records the signals that it gets, until USR1.
LISTENER = """
trap 'echo TERM >>{here}/heard' TERM
trap 'echo INT >>{here}/heard' INT
trap 'exit 7' USR1
touch {here}/heard {here}/launcher
while :; do sleep 0.05; done
"""


def is_there(pid):
    """A zombie is not: another process has to reap it."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def wait_for(condition):
    """Has a limit, so that a failure is reported."""
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.02)


class Launch(unittest.TestCase):
    def setUp(self):
        self.here = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.here)
        (self.here / "stubborn").write_text(STUBBORN)

    def begin(self, *args):
        """In its own session, so in no foreground of a terminal."""
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("FI_", "PINION_"))}
        process = subprocess.Popen(
            [PINION, "mpirun", *args], start_new_session=True, env=env,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def begin_script(self, text):
        path = self.here / "script"
        path.write_text("#!/bin/bash\n" + text.format(
            here=self.here, stubborn=self.here / "stubborn"))
        path.chmod(0o700)
        return self.begin("--launcher", str(path), "-n", "1", "true")

    def wait_for_stubborn(self, n):
        wait_for(lambda: len(list(self.here.glob("*.pid"))) == n)
        return [int(p.stem) for p in self.here.glob("*.pid")]

    def assert_gone(self, pids):
        left = [pid for pid in pids if is_there(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(left, [])

    def launcher(self):
        wait_for((self.here / "launcher").exists)
        return int((self.here / "launcher").read_text())

    def test_orphans_are_killed_after_a_signal(self):
        """A second signal kills them sooner."""
        process = self.begin_script(LAUNCHER)
        pids = self.wait_for_stubborn(2)
        launcher = self.launcher()
        os.kill(process.pid, signal.SIGTERM)
        wait_for(lambda: not is_there(launcher))
        os.kill(process.pid, signal.SIGINT)
        self.assertEqual(process.wait(), 128 + signal.SIGTERM)
        self.assert_gone(pids)

    def test_orphans_of_a_killed_launcher_are_killed_too(self):
        process = self.begin_script(LAUNCHER)
        pids = self.wait_for_stubborn(2)
        os.kill(self.launcher(), signal.SIGKILL)
        self.assertEqual(process.wait(), 128 + signal.SIGKILL)
        self.assert_gone(pids)

    def test_children_from_before_are_not_of_the_job(self):
        """Children of a shell that executed mpirun, like the tee of a script."""
        path = self.here / "script"
        path.write_text("#!/bin/bash\necho $$ >{0}/launcher.new\n"
                        "mv {0}/launcher.new {0}/launcher\n"
                        "exec sleep 1000\n".format(self.here))
        path.chmod(0o700)
        process = subprocess.Popen(
            ["bash", "-c", 'sleep 1000 & echo $! >"$1"; shift; exec "$@"', "-",
             str(self.here / "before"), PINION, "mpirun", "--launcher",
             str(path), "-n", "1", "true"], start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.launcher()
        before = int((self.here / "before").read_text())
        self.addCleanup(os.kill, before, signal.SIGKILL)
        os.kill(process.pid, signal.SIGTERM)
        self.assertEqual(process.wait(), 128 + signal.SIGTERM)
        self.assertTrue(is_there(before))

    def test_what_a_good_job_leaves_stays(self):
        process = self.begin_script(
            "setsid bash {stubborn} {here} alone &\n"
            "while [ ! -e {here}/$!.pid ]; do sleep 0.02; done\n")
        self.assertEqual(process.wait(), 0)
        pid, = self.wait_for_stubborn(1)
        self.addCleanup(os.kill, pid, signal.SIGKILL)
        self.assertTrue(is_there(pid))

    def test_a_signal_to_the_group_is_passed_on_once(self):
        process = self.begin_script(LISTENER)
        heard = self.here / "heard"
        wait_for(lambda: heard.exists() and
                 (self.here / "launcher").exists())
        for number, text in ((signal.SIGTERM, "TERM\n"),
                             (signal.SIGINT, "TERM\nINT\n")):
            os.killpg(process.pid, number)
            wait_for(lambda: heard.read_text().count("\n") ==
                     text.count("\n"))
            self.assertEqual(heard.read_text(), text)
        os.kill(process.pid, signal.SIGUSR1)
        self.assertEqual(process.wait(), 7)
        self.assertEqual(heard.read_text(), "TERM\nINT\n")

    @unittest.skipUnless(shutil.which("mpirun.openmpi"), "needs Open MPI")
    def test_ranks_of_mpirun_that_ignore_signals_do_not_stay(self):
        process = self.begin("--oversubscribe", "-n", "2", "bash",
                             str(self.here / "stubborn"), str(self.here))
        pids = self.wait_for_stubborn(4)
        # As timeout(1) does it.
        os.kill(process.pid, signal.SIGTERM)
        os.killpg(process.pid, signal.SIGTERM)
        self.assertNotEqual(process.wait(), 0)
        self.assert_gone(pids)


if __name__ == "__main__":
    unittest.main()
