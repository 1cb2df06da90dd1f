"""Runs one job in its own process, so that a crash, a hang or a grown cache affects only one measurement.

In: a module, a job as data, an environment. Out: the objects that the module printed, one per line `ROW {...}`. Without any, it
is {"error": ...} with the last line of stderr.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TIMEOUT = 600.0
Row = dict[str, Any]


def run(module: str, job: Row, environment: Mapping[str, str]) -> list[Row]:
    command = [sys.executable, "-m", module, json.dumps(job)]
    # Drivers may print invalid UTF-8.
    options: Row = {"capture_output": True, "text": True, "errors": "replace", "cwd": ROOT, "env": environment}
    try:
        result = subprocess.run(command, timeout=TIMEOUT, check=False, **options)
    except subprocess.TimeoutExpired:
        return [{"error": f"no end after {TIMEOUT:.0f} s"}]
    rows: list[Row] = [json.loads(line[4:]) for line in result.stdout.splitlines() if line.startswith("ROW ")]
    if rows:
        return rows
    last = [line for line in result.stderr.splitlines() if line.strip()][-1:]
    return [{"error": f"exit code {result.returncode}: {' '.join(last)[:300]}"}]


def give(row: Row) -> None:
    """Prints one object of the answer. Called in the job's process."""
    print("ROW " + json.dumps(row), flush=True)


def environments(providers: list[str], official: Path | None) -> dict[str, dict[str, str]]:
    """Returns this process's environment per provider. The official plugin's has the shell file `official` sourced."""
    made = {name: dict(os.environ) for name in providers}
    if official and "official" in made:
        made["official"] = _sourced(official)
    return made


def _sourced(file: Path) -> dict[str, str]:
    command = ["bash", "-c", 'set -a; . "$1" >&2; env -0', "bash", str(file)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return dict(entry.split("=", 1) for entry in printed.split("\0") if "=" in entry)
