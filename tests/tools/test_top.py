#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""test_top.py PINION WATCHED -- `pinion top` in a real terminal (tmux)."""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from command import PINION, run
from watched import Watched, gpu

if not shutil.which("tmux"):
    print("skipped: needs tmux")
    sys.exit(77)


class Terminal:
    """A shell in a detached terminal."""

    def __init__(self, command, columns=80, lines=24):
        self.folder = tempfile.mkdtemp(prefix="pinion-top-")
        self.tmux("-f", "/dev/null", "new-session", "-d", "-s", "top",
                  "-x", str(columns), "-y", str(lines), "sh", "-c", command)

    def tmux(self, *args):
        done = subprocess.run(
            ["tmux", "-S", f"{self.folder}/socket", *args], text=True,
            capture_output=True, check=False, timeout=60,
            env={k: v for k, v in os.environ.items() if k != "TMUX"})
        return done.stdout

    def screen(self):
        return self.tmux("capture-pane", "-p", "-t", "top")

    def wait_for(self, *texts):
        """Waits until all texts are on the screen; returns it."""
        for _ in range(1200):
            screen = self.screen()
            if all(text in screen for text in texts):
                return screen
            time.sleep(0.05)
        raise AssertionError(f"{texts} did not come:\n{screen}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.tmux("kill-server")
        shutil.rmtree(self.folder, ignore_errors=True)


def top(*args):
    return shlex.join([PINION, "top", "--interval", "50ms", *args])


class Top(unittest.TestCase):
    def test_80_by_24_shows_the_essential_lines(self):
        with Watched(PINION_MAX_BYTES="4M") as w:
            w.do("pin 16 halo")
            w.do("hit 3")
            w.do("send 2")
            with Terminal(top(str(w.pid))) as t:
                screen = t.wait_for("watched", "halo")
        lines = screen.split("\n")
        self.assertLessEqual(len(lines), 25)
        self.assertTrue(all(len(line) <= 80 for line in lines), screen)
        for text in ("4.0M", "Pinned memory, the last", "hits, ",
                     "2 sent: eager 100%", "Helper    off",
                     "Largest regions"):
            self.assertIn(text, screen)

    @unittest.skipUnless(gpu("yes"), "no stand-in for a GPU")
    def test_a_gpu_is_shown_as_other_devices(self):
        with Watched(**gpu("yes")) as w:
            w.do("pin 16 weights")
            w.do("hit 3")
            with Terminal(top(str(w.pid))) as t:
                screen = t.wait_for("weights", "3 hits, 1 misses")
        self.assertIn("1 regions of 64K", screen)
        self.assertIn("4.0M", screen)

    def test_counters_change_while_top_runs(self):
        with Watched() as w:
            w.do("pin 1 here")
            with Terminal(top(str(w.pid))) as t:
                t.wait_for("watched")
                w.do("hit 123")
                t.wait_for("123 hits, 1 misses (1 new")

    @staticmethod
    def press_until(t, key, text):
        """Other processes may be between the two."""
        for _ in range(400):
            if text in t.screen():
                return
            t.tmux("send-keys", "-t", "top", key)
            time.sleep(0.05)
        raise AssertionError(f"{key} does not lead to {text}: {t.screen()}")

    def test_keys_choose_the_process(self):
        with Watched() as one, Watched() as two:
            small, large = sorted((one, two), key=lambda w: w.pid)
            small.do("pin 1 lower")
            large.do("pin 1 higher")
            with Terminal(top(), 100, 40) as t:
                t.wait_for("Largest regions")
                self.press_until(t, "Down", "lower")
                self.press_until(t, "Down", "higher")
                self.press_until(t, "Up", "lower")

    def test_processes_fill_the_rows_that_are_free(self):
        """14 of them, in a terminal that has the space."""
        with contextlib.ExitStack() as stack:
            pids = sorted(stack.enter_context(Watched()).pid
                          for _ in range(14))
            with Terminal(top(), 80, 40) as t:
                screen = t.wait_for("Largest regions", str(pids[-1]))
        for pid in pids:
            self.assertRegex(screen, rf"(?m)^ *{pid} ")

    def test_processes_that_do_not_fit_are_counted(self):
        with contextlib.ExitStack() as stack:
            for _ in range(8):
                stack.enter_context(Watched()).do("pin 1 here")
            with Terminal(top(), 80, 16) as t:
                t.wait_for("processes are not shown")

    def test_it_follows_the_size_of_the_terminal(self):
        with Watched() as w:
            for pages in range(1, 30):
                w.do(f"pin {pages} site{pages}-")
            with Terminal(top(str(w.pid))) as t:
                t.wait_for("site29-")
                self.assertNotIn("site2-", t.screen())
                t.tmux("resize-window", "-t", "top", "-x", "120", "-y", "60")
                t.wait_for("site2-")
                t.tmux("resize-window", "-t", "top", "-x", "40", "-y", "10")
                screen = t.wait_for("watched")
                self.assertTrue(all(len(line) <= 40
                                    for line in screen.split("\n")))

    def leaves(self, *end):
        """The terminal is restored at the end."""
        with Watched() as w, tempfile.TemporaryDirectory() as folder:
            shell = (f"trap : INT; stty -g >{folder}/before; echo BEFORE; "
                     f"{top(str(w.pid))}; "
                     f"echo STATUS $?; stty -g >{folder}/after; "
                     "echo AFTER; cat")
            with Terminal(shell) as t:
                t.wait_for(str(w.pid))
                self.assertNotIn("BEFORE", t.screen())
                if end[0] == "key":
                    t.tmux("send-keys", "-t", "top", end[1])
                else:
                    subprocess.run(["pkill", end[1], "-P", t.tmux(
                        "list-panes", "-t", "top", "-F",
                        "#{pane_pid}").strip(), "pinion"], check=True)
                screen = t.wait_for("BEFORE", "STATUS 0", "AFTER")
                self.assertNotIn("Pinned memory", screen)
                for _ in range(100):
                    if os.path.getsize(f"{folder}/after"):
                        break
                    time.sleep(0.05)
            with open(f"{folder}/before") as a, open(f"{folder}/after") as b:
                self.assertEqual(a.read(), b.read())

    def test_q_leaves_the_terminal_as_it_was(self):
        self.leaves("key", "q")

    def test_ctrl_c_leaves_the_terminal_as_it_was(self):
        self.leaves("key", "C-c")

    def test_a_signal_leaves_the_terminal_as_it_was(self):
        self.leaves("signal", "-TERM")

    def test_without_a_terminal_it_says_so(self):
        done = run("top")
        self.assertEqual(done.returncode, 2)
        self.assertIn("needs a terminal", done.stderr)


if __name__ == "__main__":
    unittest.main()
