# SPDX-License-Identifier: BSD-2-Clause
"""test_fabtests.py COMMAND -- tools/fabtests over tests that are scripts here:
what it finds, with which environment it runs them, and how it ends."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
RUNNER = """unit_tests=(
\t"fi_alone"
)
functional_tests=(
)
short_tests=(
\t"fi_pair"
)
standard_tests=(
)
complex_tests=(
\t"fi_ubertest"
)
"""
# Each provider does what a variable with its name says.
SCRIPT = """#!/bin/sh
[ -n "$FI_PROVIDER_PATH" ] || exit 9
while [ $# -gt 0 ]; do
    case $1 in
    -p) provider=$2 ;;
    -u) provider=$(sed -n 's/.*prov_name: \\([^,]*\\),.*/\\1/p' "$2") ;;
    esac
    shift
done
case ${provider-} in
ours) how=$OURS ;;
theirs) how=$THEIRS ;;
*) how=pass ;;
esac
case $how in
hang) exec sleep 1000 ;;
fail) exit 1 ;;
absent) exit 61 ;;
esac
"""


class Fabtests(unittest.TestCase):
    def setUp(self):
        # pylint: disable-next=consider-using-with
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        (self.dir / "bin").mkdir()
        (self.dir / "bin/runfabtests.sh").write_text(RUNNER)
        for name in ("fi_alone", "fi_pair", "fi_ubertest"):
            script = self.dir / "bin" / name
            script.write_text(SCRIPT)
            script.chmod(0o755)
        config = self.dir / "share/fabtests/test_configs/shm/quick.test"
        config.parent.mkdir(parents=True)
        config.write_text("{ prov_name: shm, test_type: [ FT_TEST ], },\n")

    def run_tool(self, ours, theirs, *more, seconds=60):
        environment = {k: v for k, v in os.environ.items()
                       if k != "FI_PROVIDER_PATH"}
        environment |= {"OURS": ours, "THEIRS": theirs}
        ran = subprocess.run(
            [sys.executable, "-B", str(TOP / "tools/fabtests"), str(self.dir),
             "--set", "all", "--providers", "ours", "theirs", "--seconds",
             str(seconds), "--head-start", "0", *more],
            env=environment, capture_output=True, text=True, check=False)
        rows = [line.split() for line in ran.stdout.splitlines()]
        return ran.returncode, {r[0]: r[1:] for r in rows
                                if r and r[0].startswith("fi_")}

    def test_what_passes_everywhere_is_well(self):
        status, rows = self.run_tool("pass", "pass")
        self.assertEqual(rows, {name: ["pass", "pass"] for name in
                                ("fi_alone", "fi_pair", "fi_ubertest")})
        self.assertEqual(status, 0)

    def test_what_only_another_passes_is_an_error(self):
        for ours in ("fail", "absent"):
            self.assertEqual(self.run_tool(ours, "pass")[0], 1)

    def test_what_nobody_passes_is_no_error(self):
        status, rows = self.run_tool("fail", "absent")
        self.assertEqual(rows["fi_pair"], ["FAIL", "--"])
        self.assertEqual(status, 0)

    def test_what_hangs_is_an_error(self):
        status, rows = self.run_tool("hang", "fail", "--only", "fi_alone",
                                     seconds=5)
        self.assertEqual(rows, {"fi_alone": ["HANG", "FAIL"]})
        self.assertEqual(status, 1)

    def test_a_hang_of_another_is_no_error(self):
        self.assertEqual(
            self.run_tool("fail", "hang", "--only", "fi_alone",
                          seconds=1)[0], 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
