"""No test decides by a clock, and one that hangs ends with a traceback."""

from __future__ import annotations

import re
import sys
import tomllib

import pytest

from . import patience
from .patience import ROOT

CLOCKS = {
    "py": r"\b(sleep|monotonic|perf_counter|process_time|setitimer|alarm|Timer|dump_traceback_later)(_ns)?\b"
    r"|\btimeout ?= ?[\d.]|\.(wait|join|result|get)\((timeout=)?[\d.]+\)|\bsubprocess\.(run|check_\w+|call)\(",
    "mjs": r"\b(setTimeout|setInterval|performance\.now|Date\.now|hrtime)\b|\btimeout: ?\d|Timeout\([\d(]",
}
ALLOWED = {
    "tests/patience.py": "the limit",
    "tests/conftest.py": "builds what is missing, before there are tests",
    "tests/device/test_timing.py": "the clock itself is tested: dispatches lie between two times of it",
    "tests/conformance/worker.py": "a case that hangs costs itself alone",
    "tests/fuzz/__main__.py": "a command for people, which says how fast it is",
    "tests/fuzz/nodes.py": "a command for people; a node that hangs costs itself alone",
    "tests/fuzz/worker.py": "a case that hangs costs itself alone",
    "tests/graphs/__main__.py": "a command for people, who give it as long as they like",
    "tests/graphs/batches.py": "of that command",
    "tests/graphs/worker.py": "a graph that hangs costs itself alone",
    "tests/plugin/interrupted.py": "interrupts come at random moments",
    "tests/plugin/registering.py": "so they do",
    "tests/plugin/storms.py": "so they do",
    "tests/plugin/test_interrupt.py": "so they do",
    "tests/plugin/test_fork.py": "a forked process starts another one, with nothing of these tests",
    "tests/plugin/test_profiling.py": "its late clock is made up",
    "tests/plugin/test_session_config.py": "a run is ended at any moment: all that may come of it is right",
    "tests/runtime/test_weight_sources.py": "its clock is made up",
    "tests/test_patience.py": "",
    "web/test/cache.test.mjs": "its clock is made up",
}
"""Where a clock decides nothing, and why."""
FILES = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "web" / "test").rglob("*.mjs")]


def test_no_test_looks_at_a_clock() -> None:
    found = []
    for path in FILES:
        name = path.relative_to(ROOT).as_posix()
        clocks = re.compile(CLOCKS[path.suffix[1:]])
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if name not in ALLOWED and clocks.search(line):
                found.append(f"{name}:{number}: {line.strip()}")
    assert not found, "wait for an event, count, or use tests/patience.py:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "line", ["time.sleep(1)", "thread.join(20)", "done.wait(0.5)", "run(command, timeout=60)", "end = monotonic() + 3"]
)
def test_such_a_line_would_be_found(line: str) -> None:
    assert re.search(CLOCKS["py"], line)


def test_a_test_outlasts_its_processes_and_they_outlast_what_waits_in_them() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert options["faulthandler_timeout"] == 3 * patience.SECONDS
    assert options["faulthandler_exit_on_timeout"]


HANGS = """
import subprocess, sys, threading
def waits_for_ever():
    print("there", flush=True)
    threading.Event().wait()
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, "-c", sys.argv_of_child, "again"])
waits_for_ever()
"""


def test_a_process_that_hangs_says_where_and_ends_with_what_it_started() -> None:
    """What it started has the same output, which would not end before."""
    program = HANGS.replace("sys.argv_of_child", repr(HANGS))
    process = patience.started([sys.executable, "-c", program])
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["there\n"] * 2
    with pytest.raises(AssertionError, match=r"did not end in 0 seconds(.|\n)*waits_for_ever"):
        patience.ended(process, seconds=0.0)
    assert process.returncode
