"""What the command line prints for people: each thing once, in words, and readable in a narrow terminal."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node
from rich.console import Console

from onnxruntime_ep_wgpu import cli
from onnxruntime_ep_wgpu.options import OPTIONS
from onnxruntime_ep_wgpu.profiles import tables
from onnxruntime_ep_wgpu.tools import _output
from tests import patience
from tests.support import make_model

F = np.float32


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(make_model([node("Relu", ["x"], ["y"])], {"x": (F, [2, 3])}), "model.onnx")
    return tmp_path


def test_info_has_features_and_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info"]) == 0
    shown = capsys.readouterr().out
    assert "max-storage-buffer-binding-size" in shown and "features that kernels use" in shown


@pytest.mark.parametrize("command", ["run", "explain", "verify", "profile"])
def test_every_tool_has_one_word_for_one_thing(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "model.onnx"]) == 0
    head = capsys.readouterr().out.split("\n\n")[0]
    lines = [line.split("  ")[0] for line in head.splitlines()]
    assert {"model", "device", "nodes", "nodes on the CPU"} <= {*lines}
    assert not any("_" in name for name in lines if not name.startswith("onnxruntime"))


@pytest.mark.costly
@pytest.mark.parametrize(("runs", "title"), [("0", "of the only run"), ("2", "per run, without the first")])
def test_a_profile_says_which_runs_it_is_about(
    runs: str, title: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["profile", "model.onnx", "--runs", runs]) == 0
    assert title in capsys.readouterr().out


def test_rates_have_three_digits_whatever_their_size() -> None:
    numbers = (0, 1, 999.4, 999.6, 1234, 45_600_000, 7.89e9, 1.2e13)
    assert [*map(tables.shown_rate, numbers)] == ["", "1", "999", "1 k", "1.23 k", "45.6 M", "7.89 G", "12 T"]


def test_explaining_what_is_on_the_cpu_says_when_nothing_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "model.onnx", "--cpu"]) == 0
    shown = capsys.readouterr().out
    assert shown.endswith("\nno node on the CPU\n") and "kernel, or reason" not in shown


@pytest.mark.parametrize("key", OPTIONS)
def test_options_are_printed_without_markdown_links(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["options", key]) == 0
    shown = capsys.readouterr().out
    assert "](" not in shown
    assert key != "deviceId" or "docs/memory.md" in shown


def test_an_unknown_option_is_told_the_nearest_and_where_the_list_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", "model.onnx", "--option", "validationmode=full"]) == 2
    shown = capsys.readouterr().err
    assert "did you mean 'validationMode'?" in shown and "wgpu-ep options" in shown and "dawnProcTable" not in shown


def test_an_error_of_a_run_is_printed_once(folder: Path) -> None:
    onnx.save(make_model([node("Add", ["x", "w"], ["y"])], {"x": (F, ["a", "b"])}, {"w": np.ones(3, F)}), "add.onnx")
    np.save("x.npy", np.ones((2, 5), F))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = patience.run(
        [sys.executable, "-m", "onnxruntime_ep_wgpu", "run", "add.onnx", "--input", "x=x.npy"], env=environment
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("error: "), done.stderr


@pytest.mark.parametrize("width", [40, 60, 100, 200])
def test_a_table_breaks_no_word(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has no room is printed as records."""
    columns = ("node", "operator", "runs on", "kernel, or reason")
    rows = [
        ("/model/layers.0/attention/MatMul", "MatMulIntegerToFloat", "CPUExecutionProvider", "no kernel for this type")
    ]
    terminal = io.StringIO()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("rich.console.Console", lambda: Console(file=terminal, width=width, force_terminal=False))
    _output.show_table(columns, rows, "\nnodes")
    shown = terminal.getvalue()
    for word in " ".join(rows[0]).split():
        assert len(word) > width or word in shown
    assert ("\nruns on  " in shown) == (width < 100)


def test_the_same_reason_is_given_for_export_and_in_a_session(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [node("Cast", ["x"], ["d"], to=onnx.TensorProto.DOUBLE), node("LpNormalization", ["d"], ["m"], name="norm"),
             node("Cast", ["m"], ["y"], to=onnx.TensorProto.FLOAT)]  # fmt: skip
    onnx.save(make_model(nodes, {"x": (F, [2, 3])}), "doubles.onnx")
    assert cli.main(["export", "doubles.onnx"]) == 2
    exported = capsys.readouterr().err
    assert cli.main(["explain", "doubles.onnx"]) == 0
    explained = capsys.readouterr().out
    assert "is unknown" not in exported
    assert "no kernel for input x of type float64" in exported
    assert "no kernel for input x of type float64" in explained
