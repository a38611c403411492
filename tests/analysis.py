# SPDX-License-Identifier: BSD-2-Clause
"""What check_tidy and check_analyzer share: the commands that compile src/ and
tools/, as the build folder of the preset `dev` has them, and running a command
for each file on all cores."""
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys

SKIPPED = 77


def skip(why):
    print(why)
    sys.exit(SKIPPED)


def top_folder():
    """The tree to look at: the first argument, or the one this file is in."""
    here = os.path.dirname(os.path.abspath(__file__))
    return os.path.realpath(sys.argv[1] if len(sys.argv) > 1
                            else os.path.dirname(here))


def compile_commands(top):
    """file: (folder, arguments) of each C file in src/ and tools/."""
    database = os.path.join(top, "build", "compile_commands.json")
    wanted = tuple(os.path.join(top, name, "") for name in ("src", "tools"))
    commands = {}
    try:
        with open(database, encoding="utf-8") as file:
            entries = json.load(file)
    except OSError as error:
        sys.exit(f"{database}: {error.strerror}; cmake --preset dev makes it")
    for entry in entries:
        name = os.path.realpath(entry["file"])
        if name.startswith(wanted) and name.endswith(".c"):
            commands[name] = (entry["directory"],
                              shlex.split(entry["command"]))
    if not commands:
        sys.exit(f"{database} has no file of src/ or tools/")
    return commands


def run_all(commands):
    """Runs (folder, arguments) on all cores. The outputs of those that failed;
    ends the program with a status that says whether any did."""
    def run(command):
        folder, arguments = command
        return subprocess.run(arguments, cwd=folder, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    jobs = int(os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or os.cpu_count())
    seen = set()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(run, commands))
    failed = [result for result in results if result.returncode]
    for result in failed:
        # A header's report comes once, not with each file that includes it.
        head = re.search(r"^.*: (warning|error): .*$", result.stdout, re.M)
        if head and head[0] in seen:
            continue
        seen.add(head and head[0])
        print(result.stdout, end="")
    sys.exit(1 if failed else 0)
