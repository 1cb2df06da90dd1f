"""Runs seeds in worker processes; a graph that takes its process down costs itself alone.

In: seeds and how they are run. Out: a row per seed as they come; the status of a seed that ends its process is `crash`, of one
that does not end `hang`, unless it was the CPU provider's turn.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SIZE = 50
Row = dict[str, Any]


def run(
    seeds: Sequence[int],
    flags: Sequence[str] = (),
    jobs: int = 1,
    seconds: float = float("inf"),
    progress: Callable[[Row], None] | None = None,
) -> dict[int, Row]:
    """Rows by seed; after `seconds` no further seed begins, and the last ones may be missing."""
    todo = deque(tuple(seeds[k : k + SIZE]) for k in range(0, len(seeds), SIZE))
    rows: dict[int, Row] = {}
    lock = threading.Lock()
    end = time.monotonic() + seconds

    def add(row: Row) -> None:
        with lock:
            rows[row["seed"]] = row
            if progress:
                progress(row)

    def work() -> None:
        while time.monotonic() < end:
            with lock:
                if not todo:
                    return
                batch = todo.popleft()
            left = _process(batch, flags, end, add)
            if left:
                with lock:
                    todo.appendleft(left)

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return rows


def _process(batch: Sequence[int], flags: Sequence[str], end: float, add: Callable[[Row], None]) -> tuple[int, ...]:
    """Runs seeds in one process; gives those that are left when it ended before the last."""
    command = [sys.executable, "-m", "tests.graphs.worker", "--json", *map(str, batch), *flags]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", cwd=ROOT
    )
    errors: deque[str] = deque(maxlen=60)
    assert child.stdout and child.stderr
    listener = threading.Thread(target=errors.extend, args=(child.stderr,))
    listener.start()
    done: set[int] = set()
    started, by_cpu = None, False
    for line in child.stdout:
        if not line.startswith("{"):
            continue
        entry = json.loads(line)
        if "start" in entry:
            started, by_cpu = entry["start"], False
            continue
        if "cpu" in entry:
            by_cpu = True
            continue
        started = None
        done.add(entry["seed"])
        add(entry)
        if time.monotonic() > end:
            child.kill()
            break
    code = child.wait()
    listener.join()
    if time.monotonic() > end or len(done) == len(batch):
        return ()
    culprit = started if started is not None else next(seed for seed in batch if seed not in done)
    text = "".join(errors)
    status = "hang" if "Timeout (" in text else "crash"
    kind = next((line.strip()[:90] for line in reversed(errors) if line.strip()), f"exit code {code}")
    if by_cpu:  # ours had come to its end, and was right
        status, kind = "right", "the CPU provider ends the process"
    detail = f"exit code {code}: {text[-1500:]}"
    add(
        {
            "seed": culprit,
            "status": status,
            "kind": kind,
            "detail": detail,
            "on_gpu": {},
            "on_cpu": {},
            "cpu_checked": False,
        }
    )
    done.add(culprit)
    return tuple(seed for seed in batch if seed not in done)
