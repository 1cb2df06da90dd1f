"""Whatever bytes are given as a model and whatever text as options: an error or a session, never a crash, never a hang.

Cases run in processes of a hundred; one that ends its process is run alone, and with the CPU provider, which tells
whether ONNX Runtime does so by itself. A failure is repeated by its name: `python -m tests.fuzz.worker rewritten:17`.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import patience

from . import cases

ROOT = Path(__file__).resolve().parents[2]
BATCH = 100
FIRST = {"truncated": 70, "mutated": 110, "rewritten": 70, "options": 50, "node": 60}
"""Cases of `make test`."""
MORE = 5
"""Times as many in `make test-all`."""


def process(names: list[str], *flags: str) -> tuple[dict[str, str], str]:
    """The outcomes of the cases that ended, and how the process ended when it was before the last of them."""
    command = [sys.executable, "-m", "tests.fuzz.worker", *flags, *names]
    done = patience.run(command, errors="replace", cwd=ROOT)
    ended = [line.split() for line in done.stdout.splitlines() if line.startswith("end ")]
    outcomes = {name: outcome for _, name, outcome in ended}
    return outcomes, "" if len(outcomes) == len(names) else f"exit code {done.returncode}: {done.stderr[-2000:]}"


def run(names: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Outcomes by case, and the cases that end a process which without this provider they do not."""
    outcomes: dict[str, str] = {}
    crashes: dict[str, str] = {}
    todo = names
    while todo:
        batch, later = todo[:BATCH], todo[BATCH:]
        done, _ = process(batch)
        outcomes |= done
        left = [name for name in batch if name not in done]
        if left:
            culprit = left.pop(0)
            alone, how = process([culprit])
            outcomes |= alone
            if how:
                _, theirs = process([culprit], "-")
                outcomes[culprit] = "ends onnxruntime" if theirs else "crash"
                if not theirs:
                    crashes[culprit] = how
        todo = left + later
    return outcomes, crashes


def names(kind: str, first: int, count: int) -> list[str]:
    return [f"{kind}:{number}" for number in range(first, first + count)]


@pytest.mark.costly
@pytest.mark.parametrize("kind", cases.KINDS)
def test_no_case_crashes_or_hangs(kind: str) -> None:
    outcomes, crashes = run(names(kind, 0, FIRST[kind]))
    assert not crashes
    assert not {name for name, outcome in outcomes.items() if outcome.startswith("defect")}
    counted = Counter(outcomes.values())
    assert len(outcomes) == FIRST[kind]
    # The cases are worth something when many are refused and some are not; of a truncated model nothing is left.
    assert kind == "truncated" or counted["ran"] >= FIRST[kind] // 100, counted
    assert sum(count for outcome, count in counted.items() if outcome != "ran") >= FIRST[kind] // 10, counted


@pytest.mark.last
@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", cases.KINDS)
def test_no_further_case_crashes_or_hangs(kind: str) -> None:
    outcomes, crashes = run(names(kind, FIRST[kind], FIRST[kind] * MORE))
    assert not crashes
    assert not {name for name, outcome in outcomes.items() if outcome.startswith("defect")}


def test_a_case_is_the_same_in_every_process() -> None:
    for kind in cases.KINDS:
        assert cases.make(f"{kind}:5") == cases.make(f"{kind}:5") != cases.make(f"{kind}:6")


def test_a_crash_and_a_hang_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search itself: a batch whose second case ends the process loses that case alone."""
    worker = {"b": "crash"}

    def fake(batch: list[str], *flags: str) -> tuple[dict[str, str], str]:
        done: dict[str, str] = {}
        for name in batch:
            if name in worker and not flags:
                return done, "exit code -6"
            done[name] = "ran"
        return done, ""

    monkeypatch.setattr(sys.modules[__name__], "process", fake)
    outcomes, crashes = run(["a", "b", "c"])
    assert outcomes == {"a": "ran", "b": "crash", "c": "ran"}
    assert crashes == {"b": "exit code -6"}
