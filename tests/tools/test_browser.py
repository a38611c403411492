#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""test_browser.py PINION -- a report in a real browser (Chromium), at the width
of a desk and of a telephone: no errors, nothing wider than the window, every
figure drawn."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from command import run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if not CHROMIUM or not shutil.which("gnuplot"):
    print("skipped: needs Chromium and gnuplot")
    sys.exit(77)

# Inspects the page after layout and stores the result in it.
PROBE = """<script>
const errors = [];
addEventListener('error', e => errors.push(String(e.message)));
addEventListener('securitypolicyviolation', e => errors.push('policy'));
addEventListener('load', () => {
  const wide = [...document.querySelectorAll('body *')].filter(e =>
    !e.closest('.table') && !e.closest('svg') &&
    e.getBoundingClientRect().right > innerWidth + 1);
  const drawn = [...document.querySelectorAll('figure svg')].filter(e => {
    const box = e.getBoundingClientRect();
    return box.width > 100 && box.height > 50 &&
      e.querySelectorAll('path').length > 3; });
  const colours = ['color', 'backgroundColor'].map(
    c => getComputedStyle(document.body)[c]);
  document.body.dataset.saw = JSON.stringify({
    errors, width: innerWidth, scroll: document.documentElement.scrollWidth,
    wide: wide.map(e => e.outerHTML.slice(0, 80)), drawn: drawn.length,
    figures: document.querySelectorAll('figure').length, colours,
    network: performance.getEntriesByType('resource').length });
});
</script>"""


class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="pinion-browser-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        files = []
        for i, args in enumerate((
                ["sim", "cache", "--trace", "gen:loop,requests=2000"],
                ["sim", "cluster", "--nodes", "2", "--workload", "figure1"],
                ["bench", "frrwp"],
                ["bench", "register", "--device", "sim:cost=ou2009",
                 "--trials", "2", "--max", "1M"])):
            files.append(f"{cls.folder}/{i}.json")
            with open(files[-1], "w") as file:
                file.write(run(*args, "--json").stdout)
        done = run("report", "--papers", "--output", f"{cls.folder}/page.html",
                   *files)
        assert done.returncode == 0, done.stderr
        with open(f"{cls.folder}/page.html") as file:
            page = file.read()
        with open(f"{cls.folder}/probed.html", "w") as file:
            file.write(page.replace("<style>", PROBE + "<style>", 1))

    def look(self, width, height, *more):
        done = subprocess.run(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu",
             f"--user-data-dir={self.folder}/profile{width}{len(more)}",
             f"--window-size={width},{height}", "--dump-dom", *more,
             f"file://{self.folder}/probed.html"], text=True,
            capture_output=True, timeout=300, check=False)
        found = re.search(r'data-saw="([^"]*)"', done.stdout)
        self.assertTrue(found, done.stderr[-2000:])
        return json.loads(found[1].replace("&quot;", '"')
                          .replace("&lt;", "<").replace("&gt;", ">")
                          .replace("&amp;", "&"))

    def check(self, saw):
        self.assertEqual(saw["errors"], [])
        self.assertEqual(saw["wide"], [])
        self.assertLessEqual(saw["scroll"], saw["width"])
        self.assertGreaterEqual(saw["figures"], 6)
        self.assertEqual(saw["drawn"], saw["figures"])
        self.assertEqual(saw["network"], 0)

    def test_a_desktop_window(self):
        self.check(self.look(1280, 900))

    def test_a_telephone(self):
        saw = self.look(400, 800)
        self.assertLessEqual(saw["width"], 520)
        self.check(saw)

    def test_dark_is_dark(self):
        light = self.look(1280, 900)["colours"]
        dark = self.look(1280, 900, "--force-dark-mode",
                         "--blink-settings=preferredColorScheme=0")["colours"]
        self.assertNotEqual(light, dark)


if __name__ == "__main__":
    unittest.main()
