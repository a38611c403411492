# SPDX-License-Identifier: BSD-2-Clause
"""Figures of measurements, simulations and traces, by the command `pinion`."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Any, Dict, List, Optional, Union

Path = Union[str, "os.PathLike[str]"]


def _command() -> str:
    found = shutil.which("pinion")
    if not found:
        raise FileNotFoundError(
            "the command `pinion` is not in PATH (Debian: pinion-tools)")
    return found


def _run(*arguments: str) -> str:
    done = subprocess.run([_command(), *arguments], text=True, check=False,
                          stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"pinion {' '.join(arguments)}: "
                           f"{done.stderr.strip() or done.returncode}")
    return done.stdout


class Report:
    """Figures as SVG, shown inline by a notebook.

    `figures` are the SVG texts, `html` is the whole page. save(path) writes it.
    """

    def __init__(self, figures: List[str], html: str) -> None:
        self.figures = figures
        self.html = html

    def save(self, path: Path) -> None:
        """Writes the page, which needs nothing else, to a file."""
        pathlib.Path(path).write_text(self.html, "utf-8")

    def _repr_html_(self) -> str:
        return "\n".join(f"<div>{figure}</div>" for figure in self.figures)

    def _repr_svg_(self) -> Optional[str]:
        return self.figures[0] if len(self.figures) == 1 else None

    def __repr__(self) -> str:
        return f"<pinion.Report with {len(self.figures)} figures>"


def report(*inputs: Any, title: Optional[str] = None) -> Report:
    """Figures of files that pinion wrote: traces (Context(trace=...)) and JSON
    lines of `pinion bench`, `sim` and `trace stat`. An input may also be a list
    of rows (dicts), as trace_stat() returns them.

    >>> pinion.report("run.trace")      # the last line of a notebook's cell
    """
    if not inputs:
        raise TypeError("report() needs files")
    with tempfile.TemporaryDirectory(prefix="pinion-report-") as folder:
        here = pathlib.Path(folder)
        files = [_as_file(each, here / f"{index}.json")
                 for index, each in enumerate(inputs)]
        options = [f"--title={title}"] if title else []
        _run("report", *options, f"--output={here / 'report.html'}",
             f"--pictures={here / 'pictures'}", *files)
        pictures = sorted((here / "pictures").glob("figure-*.svg"),
                          key=lambda p: int(p.stem.partition("-")[2]))
        return Report([p.read_text("utf-8") for p in pictures],
                      (here / "report.html").read_text("utf-8"))


def _as_file(given: Any, path: pathlib.Path) -> str:
    if isinstance(given, (str, os.PathLike)):
        if not os.path.exists(given):
            raise FileNotFoundError(f"no such file: {os.fspath(given)}")
        return os.fspath(given)
    path.write_text("".join(json.dumps(row) + "\n" for row in given), "utf-8")
    return str(path)


def trace_stat(path: Path, profile: Optional[str] = None
               ) -> List[Dict[str, Any]]:
    """What a trace says: sizes, reuse, hits, and whether pinion helps, as rows
    of `pinion trace stat --json`."""
    options = [f"--profile={profile}"] if profile else []
    text = _run("trace", "stat", "--json", *options, os.fspath(path))
    return [json.loads(line) for line in text.splitlines()]
