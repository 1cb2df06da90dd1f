"""Every command that takes a model fixes free dimensions by --override, and names it where sizes that are free hinder."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from onnxruntime_ep_wgpu import cli
from tests.tools.test_tune import take_adapters_for_gpus

# With output: a place for what the command writes.
COMMANDS = {
    "run": "--runs 0 --output {folder}/out",
    "explain": "",
    "profile": "--runs 0 --output {folder}/out",
    "verify": "",
    "tune": "matmul_parts --seconds 0 --output {folder}/out",
    "export": "--output {folder}/out",
    "bench": "--runs 1",
}


@pytest.fixture(autouse=True)
def _measurable(monkeypatch: pytest.MonkeyPatch) -> None:
    take_adapters_for_gpus(monkeypatch)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A product behind a Squeeze, whose result's rank sizes decide; of these, one has no name."""
    text = """<ir_version: 10, opset_import: ["" : 17]> g (float[N, L, 8] x) => (float[] y)
        <float[8, 1] w = {1, 2, 3, 4, 5, 6, 7, 8}> { a = Relu (x)  s = Squeeze (a)  y = MatMul (s, w) }"""
    made = onnx.parser.parse_model(text)
    made.graph.input[0].type.tensor_type.shape.dim[1].ClearField("dim_param")
    onnx.save(made, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def called(command: str, model: Path, *more: str) -> int:
    which = ["--model", str(model)] if command == "tune" else [str(model)]
    rest = COMMANDS[command].format(folder=model.parent).split()
    return cli.main([command, *rest, *which, "--json", *more])


def test_every_command_that_takes_a_model_is_here() -> None:
    takes = set()
    for name, _ in cli.commands():
        (parser,) = [
            action.choices[name]  # type: ignore[index,call-overload]
            for action in cli.make_parser([name])._actions
            if action.dest == "command"
        ]
        if {"model", "--model"} & {word for it in parser._actions for word in (it.dest, *it.option_strings)}:
            takes.add(name)
            assert "--override" in parser._option_string_actions
    assert takes == COMMANDS.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_fixed_sizes_bring_nodes_here(
    command: str, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxruntime_ep_wgpu.api.tuning.MOST_ROUNDS", 1)
    assert called(command, model, "--override", "N=2", "--override", "x.shape[1]=3") == 0
    captured = capsys.readouterr()
    assert "--override" not in captured.err
    told = json.loads(captured.out)
    nothing: tuple[object, ...] = (0, "0", None)
    assert told.get("nodes_on_cpu") in nothing


@pytest.mark.parametrize("command", COMMANDS)
def test_the_hint_names_the_way_of_commands(command: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = called(command, model)
    error = capsys.readouterr().err
    assert "--override N=SIZE --override 'x.shape[1]=SIZE' fixes sizes that are free" in error
    assert "overrides=" not in error and "free_dimensions" not in error
    assert (code == 2) == (command in ("export", "tune"))  # a lone Relu has no tunable kernel


@pytest.mark.parametrize("command", COMMANDS)
def test_what_has_no_effect_is_refused(command: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for key, cause in (
        ("M=2", "--override: no input has a free dimension 'M'; the model has N, x.shape[1]"),
        (
            "y.shape[0]=2",
            "--override: no input has a free dimension axis 0 of an input 'y'; the model has N, x.shape[1]",
        ),
        ("N=0", "--override: 'N': 0 is not a size"),
        ("N", "--override N: write it as NAME=SIZE"),
    ):
        assert called(command, model, "--override", key) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and cause in captured.err


def test_tune_fixes_dimensions_of_a_model_only(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--output", str(model.parent / "out")]
    assert cli.main(["tune", *out, "--override", "N=2"]) == 2
    assert "--override N=2 fixes a dimension of a model, and none is named: add --model" in capsys.readouterr().err
    fixed = ["--model", str(model), "--override", "N=2", "--override", "x.shape[1]=3"]
    assert cli.main(["tune", "flash_attention", *out, *fixed]) == 2
    assert "has none of the kernels flash_attention; it has " in capsys.readouterr().err
