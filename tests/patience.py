"""How long tests wait for what does not come: the one limit of time that they have, which no load on a machine reaches.

A test decides by events and counts, never by a clock, so this limit only ends what hangs. Whatever waits within a process waits
`SECONDS`; `run` gives a process twice as long, and pyproject.toml a whole test three times as long. So the innermost one
that hangs is the one that says so, with what it waited for.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SECONDS = 1800.0
LAST_WORDS = 60.0  # seconds for a process that was told to say where it is and to end
ROOT = Path(__file__).resolve().parents[1]


def here() -> dict[str, str]:
    """The environment of this process, where Python finds this package and its tests."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


def started(
    command: Sequence[str | Path] | str, env: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[str]:
    """A process whose output `ended` collects, in a group of its own: what it started ends with it."""
    noisy = dict(os.environ if env is None else env) | {"PYTHONFAULTHANDLER": "1"}  # a traceback upon SIGABRT
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=noisy, start_new_session=hasattr(os, "killpg"), **(pipes | options))


def ended(
    process: subprocess.Popen[str], given: str | None = None, seconds: float = 2 * SECONDS
) -> subprocess.CompletedProcess[str]:
    """Waits for a process of `started`, which reads `given`. One that hangs is an error with what it wrote and, where it is
    Python, a traceback of all its threads."""
    try:
        output, errors = process.communicate(given, timeout=seconds)
    except subprocess.TimeoutExpired:
        _send(process, "SIGABRT")
        try:
            output, errors = process.communicate(timeout=LAST_WORDS)
        except subprocess.TimeoutExpired:
            _send(process, "SIGKILL")
            output, errors = process.communicate()
        raise AssertionError(f"{process.args} did not end in {seconds:.0f} seconds:\n{output}\n{errors}") from None
    except BaseException:  # as when the tests are interrupted
        _send(process, "SIGKILL")
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def run(
    command: Sequence[str | Path] | str, *, input: str | None = None, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run`, for a process whose output is text that is captured."""
    pipe = {"stdin": subprocess.PIPE} if input is not None else {}
    done = ended(started(command, **pipe, **options), input)
    if check:
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def _send(process: subprocess.Popen[str], name: str) -> None:
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, getattr(signal, name))
        else:
            process.kill()
