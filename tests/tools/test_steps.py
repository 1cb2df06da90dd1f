"""The progress bar of a command: a line of its steps, and one of the session that is being made."""

from __future__ import annotations

from typing import Any

import pytest
from rich.progress import Progress as Bar

from onnxruntime_ep_wgpu import Progress, cli
from onnxruntime_ep_wgpu.tools import _output
from onnxruntime_ep_wgpu.tools._output import ShownSteps, progress

from ..plugin import models


def shown(bar: Bar) -> list[tuple[str, float, float | None]]:
    return [(it.description, it.completed, it.total) for it in bar.tasks]


def test_a_session_has_a_line_of_its_own_until_the_next_step() -> None:
    bar = Bar(disable=True)
    step = ShownSteps(bar, "session", 3)
    assert shown(bar) == [("session", 0, 3)]
    assert step.making is not None
    step.making(Progress("claiming", 0, 0, 0.5))
    assert shown(bar) == [("session", 0, 3), ("  claiming", 0, None)]
    step.making(Progress("weights", 10, 40, 0.6))
    assert shown(bar)[1] == ("  weights", 10, 40)
    step.making(Progress("pipelines", 0, 0, 0.7))
    assert shown(bar)[1] == ("  pipelines", 0, None)
    step.making(Progress("pipelines", 2, 5, 0.7))
    assert shown(bar)[1] == ("  pipelines", 2, 5)
    step("first run")
    assert shown(bar) == [("first run", 1, 3)]
    step.making(Progress("claiming", 0, 0, 0.1))
    step("last")
    assert shown(bar) == [("last", 2, 3)]


def test_where_nobody_reads_nothing_is_told() -> None:
    with progress("session", 2) as step:
        assert step.making is None
        step("next")


@pytest.mark.parametrize("command", ["run", "explain", "verify", "bench", "profile"])
def test_commands_that_open_a_model_show_its_making(
    command: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts: list[str] = []

    class Noted(ShownSteps):
        def _made(self, progress: Progress) -> None:
            parts.append(progress.part)
            super()._made(progress)

    monkeypatch.setattr(_output, "is_wanted", lambda: True)
    monkeypatch.setattr(_output, "ShownSteps", Noted)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "square.onnx").write_bytes(models.square())
    few = {"run": ["--runs", "1"], "bench": ["--runs", "1"], "profile": ["--runs", "0"]}.get(command, [])
    assert cli.main([command, "square.onnx", *few]) == 0
    assert {"claiming", "compiling", "weights", "pipelines"} <= {*parts}
    assert "  claiming" not in capsys.readouterr().out
