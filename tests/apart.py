"""Tests of a file that pytest does not collect, run in a process of their own: the Vulkan loader reads which drivers to use when it
starts.

In: the file and the environment. Out: what failed, by the name of the test.
"""

from __future__ import annotations

import ast
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from tests import patience


def names_of(file: Path) -> list[str]:
    """The tests in a file."""
    functions = (it for it in ast.parse(file.read_text()).body if isinstance(it, ast.FunctionDef))
    return [function.name for function in functions if function.name.startswith("test_")]


def results_of(file: Path, environment: Mapping[str, str], folder: Path) -> dict[str, list[str]]:
    """What failed, by the name of the test; the report is written to `folder`."""
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={report}"]
    ended = patience.run([*command, str(file)], env=environment, cwd=patience.ROOT)
    assert report.exists(), ended.stdout + ended.stderr
    found: dict[str, list[str]] = defaultdict(list)
    for case in ElementTree.parse(report).iter("testcase"):
        problems = [f"{case.get('name')}: {it.text}" for it in case if it.tag in ("failure", "error")]
        found[str(case.get("name")).split("[")[0]] += problems
    assert ended.returncode == 0 or any(found.values()), ended.stdout + ended.stderr
    return found
