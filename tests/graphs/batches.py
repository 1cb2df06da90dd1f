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
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LEAST, MOST = 50, 400
"""Seeds of a process: one takes as long to start as 20 graphs take."""
LINES = 400
"""Of stderr, kept until a process ends: faulthandler shows all threads."""
KIND, DETAIL = 90, 2500
"""Characters of it in a row."""
Row = dict[str, Any]


def run(
    seeds: Sequence[int],
    flags: Sequence[str] = (),
    jobs: int = 1,
    seconds: float = float("inf"),
    progress: Callable[[Row], None] | None = None,
) -> dict[int, Row]:
    """Rows by seed; after `seconds` no further seed begins, and the last ones may be missing."""
    size = min(max(len(seeds) // (4 * jobs), LEAST), MOST) if jobs > 1 else MOST
    todo = deque(tuple(seeds[k : k + size]) for k in range(0, len(seeds), size))
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


def _command(batch: Sequence[int], flags: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "tests.graphs.worker", "--json", *map(str, batch), *flags]


def _last_words(errors: Iterable[str]) -> tuple[str, str]:
    """What a process wrote last to stderr: the line that says what happened, and the end of it all.

    When faulthandler wrote a traceback it is that, from its heading on and without the list of loaded modules.
    """
    lines = [line for line in errors if line.strip() and not line.startswith("Extension modules:")]
    headings = [k for k, line in enumerate(lines) if line.startswith(("Fatal Python error", "Timeout ("))]
    if headings:
        return lines[headings[0]].strip()[:KIND], "".join(lines[headings[0] :])[:DETAIL]
    return (lines[-1].strip()[:KIND] if lines else ""), "".join(lines)[-DETAIL:]


def _process(batch: Sequence[int], flags: Sequence[str], end: float, add: Callable[[Row], None]) -> tuple[int, ...]:
    """Runs seeds in one process; gives those that are left when it ended before the last."""
    child = subprocess.Popen(
        _command(batch, flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", cwd=ROOT
    )
    errors: deque[str] = deque(maxlen=LINES)
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
    kind, text = _last_words(errors)
    status = "hang" if "Timeout (" in text else "crash"
    if by_cpu:  # ours had come to its end, and was right
        status, kind = "right", "the CPU provider ends the process"
    detail = f"exit code {code}: {text}"
    add(
        {
            "seed": culprit,
            "status": status,
            "kind": kind or f"exit code {code}",
            "detail": detail,
            "on_gpu": {},
            "on_cpu": {},
            "cpu_checked": False,
        }
    )
    done.add(culprit)
    return tuple(seed for seed in batch if seed not in done)
