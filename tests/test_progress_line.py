"""A line where work takes long: by an injected clock and wait, as nothing here may depend on the time."""

from __future__ import annotations

import os
import pty
import sys
import threading
from queue import SimpleQueue
from typing import Any

import pytest

from onnxruntime_ep_wgpu import progress_line
from onnxruntime_ep_wgpu.progress_line import SECONDS, ProgressLine
from tests import patience


class World:
    """A clock that goes on when the test says so, and waits that end when it has gone on far enough."""

    def __init__(self, wanted: bool = True) -> None:
        self.now, self.wanted = 50.0, wanted
        self.asked: list[float] = []  # for how long each wait was to be
        self.lines: SimpleQueue[str] = SimpleQueue()
        self.waiting, self.over, self.answered = (threading.Semaphore(0) for _ in range(3))
        self.work = ProgressLine(
            lambda: f"at {self.now}",
            wanted=lambda: self.wanted,
            clock=lambda: self.now,
            waits=self.waits,
            out=self.lines.put,
        )

    def waits(self, ended: Any, seconds: float) -> bool:
        end = self.now + seconds
        self.asked.append(seconds)
        self.waiting.release()
        while ended.empty() and self.now < end:
            assert self.over.acquire(timeout=patience.SECONDS)
        return not ended.empty()

    def begun(self) -> None:
        """The thread that waits is there."""
        assert self.waiting.acquire(timeout=patience.SECONDS)

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.over.release()


def test_work_of_more_than_three_seconds_is_told_once() -> None:
    world = World()
    with world.work.working():
        world.begun()
        world.passes(SECONDS - 0.5)
        assert world.lines.empty()
        world.passes(0.5)
        line = world.lines.get(timeout=patience.SECONDS)
    with world.work.working():
        world.passes(100)
    assert line == f"onnxruntime-ep-wgpu: at {50.0 + SECONDS} (WGPU_EP_PROGRESS=0 turns this line off)"
    assert world.asked == [SECONDS] and world.lines.empty()


def test_pieces_count_together_and_what_was_before_them() -> None:
    world = World()
    for _ in range(2):
        with world.work.working():
            world.begun()
            world.passes(1)
    with world.work.working(spent=2.5):
        world.begun()
    world.over.release()
    assert world.asked == [SECONDS, SECONDS - 1, SECONDS - 2.5] and world.lines.empty()


def test_short_work_is_not_told_and_errors_pass() -> None:
    world = World()
    with pytest.raises(KeyError), world.work.working():
        world.begun()
        raise KeyError
    world.over.release()
    assert world.lines.empty()


def test_where_nobody_reads_there_is_no_thread() -> None:
    world = World(wanted=False)
    with world.work.working():
        world.passes(100)
    assert world.asked == [] and world.lines.empty()


def test_the_wait_ends_with_the_work() -> None:
    ended = progress_line.Ended()
    assert not progress_line.ends_within(ended, -1)
    ended.put(None)
    assert progress_line.ends_within(ended, patience.SECONDS)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pseudo terminal")
def test_a_terminal_and_the_environment_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(progress_line.SWITCH, raising=False)
    first, second = pty.openpty()
    with (
        os.fdopen(first, "rb", buffering=0) as reader,
        os.fdopen(second, "w") as terminal,
        open(os.devnull, "w") as file,
    ):
        monkeypatch.setattr(sys, "stderr", file)
        assert not progress_line.is_wanted()
        monkeypatch.setattr(sys, "stderr", terminal)
        assert progress_line.is_wanted()
        progress_line.write("a line")
        assert reader.read(100) == b"a line\r\n"
        monkeypatch.setenv(progress_line.SWITCH, "0")
        assert not progress_line.is_wanted()
        monkeypatch.setenv(progress_line.SWITCH, "1")
        monkeypatch.setattr(sys, "stderr", None)
        assert not progress_line.is_wanted()
        progress_line.write("nobody reads this")
