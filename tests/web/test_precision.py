"""Exports with smaller numbers: what they cost is told, what would overflow stays, and the web runtime gives what is promised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx.helper import make_node as op

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu import cli
from onnxruntime_ep_wgpu.api.model_file import read_model
from onnxruntime_ep_wgpu.api.precision import Precision, reduce
from onnxruntime_ep_wgpu.api.web_export import SOFTWARE, _compiled
from onnxruntime_ep_wgpu.errors import OptionError
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE
from tests.support import Runner, make_model

from . import node

F = np.float32
RNG = np.random.default_rng(4)
X = RNG.normal(size=(3, 64)).astype(F)
WEIGHT = RNG.normal(size=(64, 64)).astype(F) / 8
CHOICES = [Precision(halves=True), Precision(weight_bits=4), Precision(weight_bits=8), Precision(True, 4)]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A product whose values only float32 holds between two that halves hold as well."""
    nodes = [
        op("MatMul", ["x", "w"], ["m"], name="first"),
        op("Mul", ["m", "large"], ["l"], name="grow"),
        op("Mul", ["l", "small"], ["s"], name="shrink"),
        op("MatMul", ["s", "v"], ["y"]),
    ]
    weights = {"w": WEIGHT, "v": WEIGHT.T.copy(), "large": np.array(1e6, F), "small": np.array(1e-6, F)}
    onnx.save(make_model(nodes, {"x": (F, ["n", 64])}, weights), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def run(path: Path, x: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": x})
    return found


@pytest.mark.costly
@pytest.mark.parametrize("precision", CHOICES)
def test_the_error_that_is_told_is_that_of_the_run(model: Path, precision: Precision, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    found = reduce(model, precision, {"x": X}, tmp_path / "out")
    exact, got = run(model, X), run(found.path, X)
    if precision.halves:  # which the CPU provider calculates in float32
        got = Runner(*_compiled(found.path, read_model(found.path), WEB_BASELINE))(X)[0]
    assert got.dtype == F and np.isfinite(got).all()
    (told,) = found.errors
    difference = (got - exact).astype(np.float64)
    rms = np.sqrt((difference**2).mean())
    if precision.halves:  # fused kernels round less often
        assert rms < 1.02 * told.rms < 1.5 * rms
    else:
        assert told.largest == pytest.approx(np.abs(difference).max(), rel=1e-3)
        assert told.rms == pytest.approx(rms, rel=1e-3)
    assert told.scale == pytest.approx(np.abs(exact).max())
    assert 0 < told.rms < {None: 0.002, 8: 0.01, 4: 0.15}[precision.weight_bits] * np.sqrt((exact**2).mean())
    assert found.quantised == (2 if precision.weight_bits else 0)


def test_what_would_overflow_stays_float32_and_is_named(model: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    found = reduce(model, Precision(halves=True), {"x": X}, tmp_path / "out")
    assert set(found.kept) == {"grow", "shrink"}
    types = {it.name: it.data_type for it in onnx.load(found.path).graph.initializer}
    assert types["w"] == onnx.TensorProto.FLOAT16


def test_an_export_has_the_smaller_weights(model: Path, tmp_path: Path) -> None:
    sizes = {}
    for k, precision in enumerate([Precision(), *CHOICES]):
        found = webgpu_ep.export(model, tmp_path / f"{k}.wgpu", precision=precision, samples={"x": X})
        sizes[precision] = found.weights
        assert (found.reduced is None) == (not precision)
    assert sizes[CHOICES[0]] < 0.6 * sizes[Precision()]
    assert sizes[CHOICES[3]] < sizes[CHOICES[1]] < 0.2 * sizes[Precision()]
    assert not [it for it in tmp_path.iterdir() if it.name.startswith(".")]


def test_the_command_tells_the_error(model: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    arguments = ["export", str(model), "--fp16", "--int8", "--input", str(tmp_path / "x.npy")]
    assert cli.main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["reduced"]
    assert told["kept"] and told["quantised"] == 2 and told["errors"][0]["rms"] > 0
    assert cli.main([*arguments, "--single-file"]) == 0
    assert "against float32" in capsys.readouterr().out
    assert cli.main(["export", "--transformers", str(tmp_path), "--fp16"]) == 2


def test_wrong_arguments(model: Path) -> None:
    with pytest.raises(OptionError, match="4 or 8 bits"):
        Precision(weight_bits=3)
    with pytest.raises(OptionError, match="samples"):
        webgpu_ep.export(model, precision=Precision(halves=True))
    assert [it.name for it in model.parent.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize("wrong", ["fp16", 16, True, {"halves": True}])
def test_a_precision_that_is_none_is_named(model: Path, wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"^precision: .* is not a Precision; pass Precision\(halves=True\)"):
        webgpu_ep.export(model, precision=wrong)
    with pytest.raises(TypeError, match=r"^precision: "):
        webgpu_ep.export(model, precision=wrong, samples={"x": X})


def test_samples_without_a_precision_are_refused(model: Path) -> None:
    with pytest.raises(OptionError, match="samples only serve to measure the error of smaller numbers"):
        webgpu_ep.export(model, samples={"x": X})
    assert [it.name for it in model.parent.iterdir()] == ["m.onnx"]


def test_what_is_told_names_no_file_that_is_gone(model: Path) -> None:
    found = webgpu_ep.export(model, precision=Precision(halves=True), samples={"x": X})
    assert [it for it in vars(found).values() if isinstance(it, Path)] == [found.path] and found.path.exists()
    assert not hasattr(found.reduced, "path")


@pytest.mark.costly
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("far", [False, True])
def test_a_large_error_of_made_up_inputs_is_told(
    far: bool, given: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [op("Add", ["x", "c"], ["m"]), op("Sub", ["m", "c"], ["y"])]
    offset = np.array(3000 if far else 1, F)
    onnx.save(make_model(nodes, {"x": (F, [3, 64])}, {"c": offset}), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", X)
    arguments = ["export", str(tmp_path / "m.onnx"), "--fp16", *(["--input", str(tmp_path / "x.npy")] if given else [])]
    assert cli.main(arguments) == 0
    told = (
        "y: the error is more than 1% of the largest value, for inputs that are made up; --input"
        in capsys.readouterr().err
    )
    assert told == (far and not given)


def test_what_makes_nothing_smaller_or_tells_no_error_is_refused(model: Path, tmp_path: Path) -> None:
    relu = tmp_path / "relu.onnx"
    onnx.save(make_model([op("Relu", ["x"], ["y"])], {"x": (F, ["n", 64])}), relu)
    with pytest.raises(OptionError, match=r"relu\.onnx has no product whose weights could take 8 bits"):
        webgpu_ep.export(relu, precision=Precision(weight_bits=8), samples={"x": X})
    with pytest.raises(OptionError, match=r"empty outputs, which show no error: y; give other sizes"):
        webgpu_ep.export(model, precision=Precision(halves=True), samples={"x": X[:0]})
    assert sorted(it.name for it in tmp_path.iterdir()) == ["m.onnx", "relu.onnx"]


def test_each_value_is_rounded(tmp_path: Path) -> None:
    nodes = [op("Mul", ["x", "c"], ["m"]), op("Add", ["m", "c"], ["a"]), op("Sub", ["a", "c"], ["y"])]
    onnx.save(make_model(nodes, {"x": (F, ["n", 64])}, {"c": np.array(3.3, F)}), tmp_path / "m.onnx")
    (tmp_path / "out").mkdir()
    (told,) = reduce(tmp_path / "m.onnx", Precision(halves=True), {"x": X}, tmp_path / "out").errors
    x, c = X.astype(np.float16), np.float16(3.3)
    difference = ((x * c + c) - c).astype(np.float64) - ((X * F(3.3) + F(3.3)) - F(3.3))
    assert told.largest == pytest.approx(np.abs(difference).max(), rel=1e-3)


def test_numbers_that_are_no_floats_are_compared_too(tmp_path: Path) -> None:
    """An index differs where values that are far apart have become equal halves."""
    nodes = [op("Mul", ["x", "three"], ["m"]), op("ArgMax", ["m"], ["y"], axis=1)]
    model = make_model(nodes, {"x": (F, ["n", 3])}, {"three": np.array(3, F)})
    onnx.save(model, tmp_path / "m.onnx")
    x = np.array([[1, 1.0001, 0], [0, 0, 5]], F)
    found = webgpu_ep.export(tmp_path / "m.onnx", precision=Precision(halves=True), samples={"x": x})
    assert found.reduced is not None
    assert [(it.output, it.largest) for it in found.reduced.errors] == [("y", 1.0)]


@pytest.mark.skipif(node.missing() is not None, reason=str(node.missing()))
@pytest.mark.parametrize("count", [1, pytest.param(len(CHOICES), marks=pytest.mark.exhaustive)])
def test_the_web_runtime_gives_what_the_cpu_provider_gives(model: Path, tmp_path: Path, count: int) -> None:
    cases, wanted = [], {}
    for k, precision in enumerate(CHOICES[:count]):
        (tmp_path / f"{k}").mkdir()
        path = reduce(model, precision, {"x": X}, tmp_path / f"{k}").path
        cases.append(node.Case(f"case{k}", *_compiled(path, read_model(path), SOFTWARE), (X,)))
        wanted[f"case{k}"] = run(path, X)
    for name, found in node.run(cases, tmp_path).items():
        assert not isinstance(found, str), found
        np.testing.assert_allclose(found[0], wanted[name], atol=4e-3 * np.abs(wanted[name]).max())
