# SPDX-License-Identifier: BSD-2-Clause
"""The commands that the documentation has, as tools/check-docs sees them."""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

from command import PINION, SOURCE

SCRIPT = SOURCE / "tools/check-docs"


def load(path):
    """A script as a module."""
    loader = importlib.machinery.SourceFileLoader("check_docs", str(path))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("check_docs", loader))
    loader.exec_module(module)
    return module


CHECK = load(SCRIPT)

PAGE = """Run `pinion info`, or
`pinion bench raw
--json`, never `pinion_open()` or `doc/design/heap.md`.

```
make run      # and look
pinion sim cluster --nodes 4 \\
    --json >out.json
```

```c
make no_command_in_c;
```

:   An option of
    pinion that is text.

    pinion bench raw --json |
        jq .ratio

And `make run` again.
"""


class Finding(unittest.TestCase):
    def test_commands_of_the_pages_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            page.write_text(PAGE, encoding="utf-8")
            found = [(c.line, c.text) for c in CHECK.commands_of(page)]
        self.assertEqual(found, [
            (1, "pinion info"),
            (2, "pinion bench raw --json"),
            (6, "make run"),
            (7, "pinion sim cluster --nodes 4 --json >out.json"),
            (18, "pinion bench raw --json | jq .ratio"),
        ])

    def test_every_command_of_the_table_is_in_a_page(self):
        _, stale = CHECK.all_commands(CHECK.documents())
        self.assertEqual(stale, [])


class Looking(unittest.TestCase):
    def look(self, text):
        return CHECK.Looker(PINION).look(text)

    def test_existing_commands_pass(self):
        for text in ("pinion bench raw --json", "make check", "pinion",
                     "PINION_TRACE=x ./a.out", "tools/metrics",
                     "pinion trace record --output x -- ./a.out --any",
                     "pinion mpirun --oversubscribe -n 2 ./a.out",
                     "ctest --preset dev -R cache"):
            self.assertIsNone(self.look(text), text)

    def test_missing_commands_are_reported(self):
        for text, what in (("pinion bnech raw", "bnech"),
                           ("pinion bench raw --jsno", "--jsno"),
                           ("make chek", "chek"),
                           ("cmake --preset deb", "deb"),
                           ("tools/metric", "tools/metric")):
            self.assertIn(what, self.look(text) or "", text)


class Documentation(unittest.TestCase):
    def test_its_quick_commands_run_and_the_others_exist(self):
        done = subprocess.run(
            [sys.executable, "-B", SCRIPT, "--quick", PINION], text=True,
            capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
