"""Runs cases in worker processes of about a hundred; what takes a process down costs one batch, then one case.

In: case names and a Setup. Out: a row per case (see worker); a case that ends its process has the status
`abort`, one that does not end has `hang`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from tests import patience

from .worker import Row, Setup

SIZE = 100
ROOT = Path(__file__).parents[2]


def run(names: Sequence[str], setup: Setup, progress: Callable[[Row], None] | None = None) -> dict[str, Row]:
    """Rows by name. After an abort the rest of the batch goes to a new process and the culprit is run once alone."""
    rows: dict[str, Row] = {}
    for batch in _batches(names):
        todo = list(batch)
        while todo:
            done, culprit = _process(todo, setup)
            if culprit is not None:
                alone, again = _process([culprit], setup)
                done.append(alone[0] if again is None else _lost(culprit, alone[-1]["detail"]))
            for row in done:
                rows[row["name"]] = row
                if progress:
                    progress(row)
            finished = {row["name"] for row in done}
            todo = [name for name in todo if name not in finished]
    return rows


def _batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), SIZE):
        yield names[start : start + SIZE]


def _lost(name: str, detail: str) -> Row:
    status = "hang" if "seconds" in detail else "abort"
    return {"name": name, "status": status, "detail": detail, "gpu": {}, "cpu": {}, "reasons": []}


def _process(names: Sequence[str], setup: Setup) -> tuple[list[Row], str | None]:
    """Rows of the cases that finished, and the case during which the process ended, with a last row saying how."""
    command = [sys.executable, "-m", "tests.conformance.worker", json.dumps(asdict(setup))]
    process = patience.started(command, stdin=subprocess.PIPE, cwd=ROOT)
    result = patience.ended(process, "\n".join(names), (1 + len(names)) * patience.SECONDS)
    hung = f"no end after {patience.SECONDS:.0f} seconds" if "Timeout (" in result.stderr else ""
    how = hung or f"exit code {result.returncode}: {_last(result.stderr)}"
    rows: list[Row] = []
    started = None
    for line in result.stdout.splitlines():
        if not line.startswith("{"):
            continue
        entry = json.loads(line)
        if "start" in entry:
            started = entry["start"]
        else:
            rows.append(entry)
            started = None
    if len(rows) == len(names):
        return rows, None
    if started is None:
        started = names[len(rows)]
    return (rows if len(names) > 1 else [_lost(started, how)]), started


def _last(errors: str) -> str:
    lines = [line for line in errors.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no message"
