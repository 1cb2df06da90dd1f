"""`wgpu-ep verify` ends with the outputs of the model, when all of it runs here, and with the kernels that move them."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu import cli
from onnxruntime_ep_wgpu.api.verify import Compared, _by_axes, _ComparedGroup
from tests.support import make_model
from tests.tools.changed_kernels import change_kernels

F = np.float32


@pytest.fixture
def cancelled(tmp_path: Path) -> list[str]:
    """A difference of nearly equal numbers on the CPU, behind kernels; z has no part in it."""
    nodes = [
        node("Exp", ["x"], ["e"], name="exp"),
        node("ReduceMax", ["e"], ["m"], name="max", keepdims=0),
        node("Sub", ["m", "c"], ["y"], name="sub"),
        node("Neg", ["x"], ["z"], name="neg"),
    ]
    weights = {"c": np.array(np.exp(1.5) * (1 - 1e-5), F)}
    onnx.save(make_model(nodes, {"x": (F, [3, 5])}, weights), tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", np.linspace(-1, 1.5, 15, dtype=F).reshape(3, 5))
    return [str(tmp_path / "model.onnx"), "--input", str(tmp_path / "x.npy"), "--option", "forceCpuNodeNames=sub"]


def slightly_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every exponential of a kernel is off by 1e-4 of itself, which is below the tolerance."""
    change_kernels(monkeypatch, lambda text: re.sub(r"(?<!fn )\b(times_exp|exp)\(", r"1.0001f * \1(", text))


def verify(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = cli.main(["verify", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_outputs_that_are_right_need_no_judge(cancelled: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, found = verify(capsys, *cancelled, "--tolerance", "0.1")
    assert code == 0 and found["outputs_differing"] == 0
    assert [it["output"] for it in found["outputs"]] == ["y", "z"]
    assert all(it["error"] < 0.1 and it["to_f64"] is None and not it["contributions"] for it in found["outputs"])


def test_what_grows_behind_kernels_that_are_right_is_shown(
    cancelled: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slightly_wrong(monkeypatch)
    code, found = verify(capsys, *cancelled)
    assert code == 0 and found["kernels_differing"] == 0 and found["outputs_differing"] == 1
    y, z = found["outputs"]
    assert y["error"] > 1 and y["to_f64"] > 1 > 0.1 > y["cpu_to_f64"]
    assert z["error"] == 0 and not z["contributions"]
    (first, *_) = y["contributions"]
    assert {"exp"} <= set(first["nodes"]) and first["error"] < 1e-3 < 1 < first["moves"]


def test_the_tables_are_at_the_end(
    cancelled: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slightly_wrong(monkeypatch)
    assert cli.main(["verify", *cancelled]) == 0
    *_, outputs, moves = capsys.readouterr().out.strip().split("\n\n")
    assert outputs.startswith("outputs, when all of the model runs here\n")
    assert moves.startswith("kernels that move y, each alone, with all else from the CPU provider\n")


def test_without_float64_the_reason_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slightly_wrong(monkeypatch)
    nodes = [node("Exp", ["x"], ["e"]), node("QuickGelu", ["e"], ["y"], domain="com.microsoft")]
    onnx.save(make_model(nodes, {"x": (F, [7])}), tmp_path / "model.onnx")
    _, found = verify(capsys, str(tmp_path / "model.onnx"), "--tolerance", "0")
    (y,) = found["outputs"]
    assert y["contributions"][0]["value"] == "y"  # which is all that the group makes
    assert y["error"] > 0 and y["to_f64"] is None and y["judge"].startswith("no reference in float64: ")
    assert "QuickGelu" in y["judge"]


def test_bodies_and_what_is_no_tensor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A group in a body stands in as often as the body runs; an output that is a sequence is left out."""
    text = """<ir_version: 10, opset_import: ["" : 17]> g (float[4] x) => (float[4] y, float[3, 4] all, seq(float[4]) s)
        <int64 three = {3}, bool go = {1}> {
        y, all = Loop (three, go, x) <body = b (int64 i, bool c, float[4] a) => (bool o, float[4] r, float[4] n) {
            o = Identity (c)  e = Exp (a)  r = Sin (e)  n = Mul (r, r) }>
        s = SequenceConstruct (y, x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    _, found = verify(capsys, str(tmp_path / "model.onnx"), "--tolerance", "1e-12")
    assert [it["output"] for it in found["outputs"]] == ["y", "all"]
    assert all(it["error"] < 1e-4 for it in found["outputs"])
    assert all(it["to_f64"] < 1e-5 for it in found["outputs"] if it["to_f64"] is not None)


def test_what_a_kernel_stored_is_brought_into_the_axes_of_the_model() -> None:
    want = np.arange(24.0).reshape(2, 3, 4)
    compared = Compared("0 map", "v", "float64", "", 1.0, 1.0, "", ())
    for axes in ((), *itertools.permutations(range(3))):
        stored = _by_axes(want, axes).reshape(-1, 2)
        found = _ComparedGroup._suspect(None, compared, stored, axes, want)  # type: ignore[arg-type]
        np.testing.assert_array_equal(found.array, want)
