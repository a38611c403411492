# SPDX-License-Identifier: BSD-2-Clause
"""What is shipped: types, documentation, installing, the report, the bench."""

import ast
import inspect
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import pinion
from conftest import HERE, python

PACKAGE = HERE.parent


def test_types_are_right():
    mypy = shutil.which("mypy", path="/usr/bin") or shutil.which("mypy")
    if not mypy:
        pytest.skip("no mypy")
    done = subprocess.run([mypy, "--strict", "--no-incremental",
                           "--cache-dir=/dev/null", "pinion"], cwd=PACKAGE,
                          text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_public_name_is_documented():
    for name in pinion.__all__:
        obj = getattr(pinion, name)
        assert inspect.getdoc(obj), name
        if inspect.isclass(obj) and not issubclass(obj, tuple):
            for member, what in vars(obj).items():
                if not member.startswith("_") and (
                        inspect.isfunction(what) or isinstance(what, property)):
                    assert inspect.getdoc(what), f"{name}.{member}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "pinion").glob("*.py")),
                         ids=lambda p: p.name)
def test_sources_parse_as_python_3_11(path):
    ast.parse(path.read_text("utf-8"), feature_version=(3, 11))


def test_pip_installs_without_a_network(tmp_path):
    """In a virtual environment, from a copy of python/ alone."""
    copy = tmp_path / "python"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns(
        "__pycache__", "tests"))
    made = python("-m", "venv", str(tmp_path / "venv"))
    if made.returncode:
        pytest.skip("no venv: " + made.stderr[-200:])
    interpreter = tmp_path / "venv/bin/python"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [interpreter, "-m", "pip", "install", "--no-index",
         "--disable-pip-version-check", str(copy)], env=environment, text=True,
        capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = subprocess.check_output(
        [interpreter, "-c", "import pinion, sys; print(pinion.__file__);"
         "pinion.Context('sim').close()"], cwd=tmp_path, env=environment,
        text=True)
    assert str(tmp_path / "venv") in said
    assert (pathlib.Path(said.strip()).parent / "py.typed").exists()


def test_without_the_library_the_import_says_what_to_do():
    done = python("-c", "import pinion", env={
        "PYTHONPATH": str(PACKAGE), "PATH": "/usr/bin:/bin"})
    if done.returncode == 0:
        pytest.skip("the library is installed")
    assert "ImportError" in done.stderr and "libpinion0" in done.stderr


def test_a_trace_becomes_figures(tmp_path):
    if not shutil.which("pinion"):
        pytest.skip("no command pinion in PATH")
    if not shutil.which("gnuplot"):
        pytest.skip("no gnuplot, which draws the figures")
    trace = tmp_path / "run.trace"
    with pinion.Context(trace=trace) as ctx:
        memories = [bytearray(65536) for _ in range(10)]
        for _ in range(20):
            for memory in memories:
                ctx.pin(memory).unpin()
    rows = pinion.trace_stat(trace)
    assert rows and all(isinstance(row, dict) for row in rows)
    report = pinion.report(trace, title="a trace")
    assert report.figures and all("<svg" in f for f in report.figures)
    assert report._repr_html_().count("<svg") == len(report.figures)
    assert "<svg" in report.html and "figures" in repr(report)
    report.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 1000
    with pytest.raises(FileNotFoundError):
        pinion.report(tmp_path / "absent.trace")
    with pytest.raises(TypeError):
        pinion.report()


def test_the_bench_prints_its_rows():
    done = python("-m", "pinion.bench", "--quick", "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["bench"] for row in rows} >= {"empty", "pin", "message",
                                              "bandwidth"}
    for row in rows:
        assert row["ns"] > 0 and row["empty_calls"] > 0
    assert sys.version
