#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""test_browser.py PINION -- a report in a real browser (Chromium), at the width
of a telephone, a tablet and a desktop, light and dark: no errors, nothing
wider than the window, every figure drawn, with title, unit and finding, in text of
readable size that nothing cuts off or covers. The page is in a frame of that width, since Chromium's own window
has a least width of some 500."""

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
  // Claims are cards where the table does not fit: nothing is scrolled to.
  const hidden = [...document.querySelectorAll('.cards *')].filter(e =>
    innerWidth <= 1000 && e.getBoundingClientRect().right > innerWidth + 1);
  const figures = [...document.querySelectorAll('figure')];
  const text = f => (f.querySelector('svg')?.textContent ?? '');
  const untitled = figures.filter(f => !f.querySelector('svg > title') ||
    !f.querySelector('svg > desc'));
  const unitless = figures.filter(f => {
    const about = f.querySelector('svg > desc')?.textContent ?? '';
    const axes = about.match(/Horizontal axis: (.+); vertical axis: (.+)\\./);
    return !axes || !axes.slice(1).every(a => text(f).includes(a)); });
  const silent = figures.filter(f =>
    !/\\d/.test(f.querySelector('h4')?.textContent ?? ''));
  // 13 is the size of gnuplot's text.
  const sizes = figures.map(f => f.querySelector('svg')).map(e =>
    13 * e.getBoundingClientRect().width / e.viewBox.baseVal.width);
  // Words that leave their picture, and names of curves over other words.
  const box = e => e.getBoundingClientRect();
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 &&
    a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const cut = [], over = [];
  for (const svg of document.querySelectorAll('figure svg')) {
    const texts = [...svg.querySelectorAll('text')];
    const names = [...svg.querySelectorAll('g[id*=gnuplot_plot] text')];
    cut.push(...texts.filter(e => box(e).left < box(svg).left - 1 ||
      box(e).right > box(svg).right + 1 ||
      box(e).bottom > box(svg).bottom + 1));
    over.push(...names.filter(e => texts.some(
      other => other !== e && meet(box(e), box(other)))));
  }
  const drawn = [...document.querySelectorAll('figure svg')].filter(e => {
    const box = e.getBoundingClientRect();
    return box.width > 100 && box.height > 50 &&
      e.querySelectorAll('path').length > 3; });
  const colours = ['color', 'backgroundColor'].map(
    c => getComputedStyle(document.body)[c]);
  parent.postMessage(JSON.stringify({
    errors, width: innerWidth, scroll: document.documentElement.scrollWidth,
    wide: [...wide, ...hidden].map(e => e.outerHTML.slice(0, 80)), drawn: drawn.length,
    figures: figures.length, colours, smallest: Math.min(...sizes),
    untitled: untitled.length, unitless: unitless.map(f => f.id),
    silent: silent.map(f => f.id),
    cards: document.querySelectorAll('table.cards').length,
    cut: cut.map(e => e.textContent), over: over.map(e => e.textContent),
    network: performance.getEntriesByType('resource').length }), '*');
});
</script>"""

# Shows the page in a frame of a width and keeps what the page says of itself.
# The frame is as light or dark as this page.
FRAME = """<!DOCTYPE html><meta charset=utf-8>
<meta name=color-scheme content="light dark">
<style>body{{margin:0}}iframe{{border:0;width:{width}px;height:{height}px}}
</style><script>
addEventListener('message', e => document.body.dataset.saw = e.data);
</script><body><iframe src=probed.html></iframe></body>"""


class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="pinion-browser-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        files = []
        for i, args in enumerate((
                ["sim", "cache", "--trace", "gen:loop,requests=2000"],
                ["sim", "cluster", "--nodes", "2", "--workload", "figure1"],
                ["bench", "helper", "--experiment", "predictor"],
                ["bench", "helper", "--experiment", "latency"],
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
        with open(f"{self.folder}/frame.html", "w") as file:
            file.write(FRAME.format(width=width, height=height))
        done = subprocess.run(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu",
             f"--user-data-dir={self.folder}/profile{width}{len(more)}",
             f"--window-size={width + 100},{height + 100}",
             "--virtual-time-budget=20000", "--dump-dom", *more,
             f"file://{self.folder}/frame.html"], text=True,
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
        self.assertEqual(saw["cut"], [])
        self.assertEqual(saw["over"], [])
        self.assertEqual(saw["untitled"], 0)
        self.assertEqual(saw["unitless"], [])
        self.assertEqual(saw["silent"], [])
        self.assertEqual(saw["cards"], 5)  # one for each paper
        self.assertGreaterEqual(saw["smallest"], 8.5)

    DARK = ("--force-dark-mode", "--blink-settings=preferredColorScheme=0")

    def test_three_widths_light_and_dark(self):
        for width, height in ((400, 800), (800, 1000), (1280, 900)):
            colours = []
            for dark in ((), self.DARK):
                with self.subTest(width=width, dark=bool(dark)):
                    saw = self.look(width, height, *dark)
                    self.assertEqual(saw["width"], width)
                    self.check(saw)
                    colours.append(saw["colours"])
            self.assertNotEqual(*colours)


if __name__ == "__main__":
    unittest.main()
