"""Tensors without elements, of every rank, through every operator that takes an axis or normalises."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.errors import InputError, LimitError, UnsupportedError
from tests import provider, support
from tests.provider import exact

from .compare import model

F = np.float32
SHAPES = [(0,), (0, 3), (3, 0), (2, 0, 3), (0, 0)]
REDUCTIONS = ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]
# The CPU provider says that the mean of nothing is 0.
REFERENCE = {"ReduceMean"}

Case = tuple[str, list[np.ndarray], list[Any], dict[str, Any]]  # operator, inputs, types of the results, how


def _along(x: np.ndarray, axis: int) -> Iterator[Case]:
    gain = np.ones(x.shape[axis:], F)
    indices = np.zeros(x.shape, np.int64)
    for op, opset in itertools.product(("Softmax", "LogSoftmax", "Hardmax"), (11, 20)):
        yield op, [x], [F], {"axis": axis, "opset": opset}
    yield "LpNormalization", [x], [F], {"axis": axis}
    yield "LayerNormalization", [x, gain], [F], {"axis": axis}
    yield "LayerNormalization", [x, gain], [F, F, F], {"axis": axis}
    yield "RMSNormalization", [x, gain], [F], {"axis": axis, "opset": 23}
    yield "MeanVarianceNormalization", [x], [F], {"axes": [axis]}
    yield "CumSum", [x, np.array(axis)], [F], {"constants": [1]}
    yield "Concat", [x, x], [F], {"axis": axis}
    yield "Gather", [x, np.zeros(0, np.int64)], [F], {"axis": axis}
    yield "GatherElements", [x, indices], [F], {"axis": axis}
    yield "ScatterElements", [x, indices, x], [F], {"axis": axis}
    yield "Flatten", [x], [F], {"axis": axis}
    yield "OneHot", [indices, np.array(3), np.array([0, 1], F)], [F], {"axis": axis, "constants": [1]}
    for keep in (0, 1):
        yield "ArgMax", [x], [np.int64], {"axis": axis, "keepdims": keep}
        yield "ArgMin", [x], [np.int64], {"axis": axis, "keepdims": keep}
        yield "TopK", [x, np.array([keep])], [F, np.int64], {"axis": axis, "constants": [1]}
        for name, kind in itertools.product(REDUCTIONS, (F, np.int32)):
            if kind is F or name in ("Max", "Min", "Prod", "Sum"):
                yield f"Reduce{name}", [x.astype(kind), np.array([axis])], [kind], {"keepdims": keep, "constants": [1]}


def _images() -> Iterator[Case]:
    for shape in ((0, 3, 4), (2, 0, 4), (2, 3, 0), (2, 3, 0, 5)):
        x, channels = np.zeros(shape, F), np.ones(shape[1], F)
        yield "InstanceNormalization", [x, channels, channels], [F], {}
        yield "BatchNormalization", [x, channels, channels, channels, channels], [F], {}
        yield "GlobalAveragePool", [x], [F], {}
        yield "ReverseSequence", [x, np.zeros(shape[1], np.int64)], [F], {}
        yield "MeanVarianceNormalization", [x], [F], {"axes": [0, 2]}


def _cases() -> list[Any]:
    found = [case for shape in SHAPES for axis in range(len(shape)) for case in _along(np.zeros(shape, F), axis)]
    for shape, name in itertools.product(SHAPES, REDUCTIONS):
        found.append((f"Reduce{name}", [np.zeros(shape, F)], [F], {}))
    found += _images()
    return [pytest.param(case, id=f"{k}-{case[0]}-{case[1][0].shape}") for k, case in enumerate(found)]


def _expected(op: str, built: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """The results of the CPU provider, of onnx's evaluator where that refuses or is wrong, or None when both refuse."""
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    try:
        if op not in REFERENCE:
            session = ort.InferenceSession(
                built.SerializeToString(), exact(settings), providers=["CPUExecutionProvider"]
            )
            return [np.asarray(r) for r in session.run(None, feeds)]
    except Exception:
        if op == "TopK":  # more than there are; the evaluator gives what there is
            return None
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(r) for r in ReferenceEvaluator(built).run(None, feeds)]
    except Exception:
        return None


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value")
@pytest.mark.parametrize("case", _cases())
@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
def test_nothing_along_an_axis(case: Case, symbolic: bool) -> None:
    op, arrays, outputs, how = case
    built = model(op, arrays, outputs=outputs, symbolic=symbolic, **how)
    feeds = {f"x{k}": a for k, a in enumerate(arrays) if k not in how.get("constants", ())}
    want = _expected(op, built, feeds)
    try:
        got = support.run_model(built, *feeds.values())
    except (InputError, UnsupportedError) as error:
        assert want is None and ("without elements" in str(error) or "TopK cannot select 1 of" in str(error))
        return
    if want is not None:
        for ours, theirs in zip(got, want, strict=True):
            np.testing.assert_array_equal(ours, theirs, strict=True)


@pytest.mark.costly
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "MeanVarianceNormalization", "LayerNormalization"])
def test_a_session_takes_an_empty_vector(op: str) -> None:
    """Between other runs, with memory that onnxruntime does not have for it."""
    built = model(op, [np.zeros(4, F), np.ones(1, F)][: 2 if op == "LayerNormalization" else 1], symbolic=True,
                  **({"axes": [0]} if op == "MeanVarianceNormalization" else {"axis": 0}),
                  **({"constants": [1], "outputs": [F, F, F]} if op == "LayerNormalization" else {}))  # fmt: skip
    session = provider.open_session(built.SerializeToString(), "ours")
    assert not provider.placement(session).on_cpu
    for count in (3, 0, 5, 0):
        y, *rest = session.run(None, {"x0": np.ones(count, F)})
        assert y.shape == (count,) and all(r.shape == (1,) and np.isnan(r[0]) == (count == 0) for r in rest)


@pytest.mark.parametrize(
    ("axis", "runs"),
    [
        (
            0,
            [
                [(2, 3), (4, 3)],
                [(0, 5), (4, 3)],
                [(4, 3), (0, 5)],
                [(3, 0), (0, 5)],
                [(0, 5), (0, 3)],
                [(2, 3), (1, 3)],
            ],
        ),
        (1, [[(3, 0), (2, 3)], [(2, 3), (5, 0)], [(2, 3), (2, 1)]]),
        (1, [[(2, 0, 3), (2, 4, 5), (2, 1, 5), (7, 0, 0)], [(1, 1, 1), (1, 2, 1), (5, 0, 1), (1, 1, 1)]]),
    ],
    ids=["rows", "columns", "four"],
)
def test_joined_to_nothing_of_other_extents(axis: int, runs: list[list[tuple[int, ...]]]) -> None:
    """What has nothing along the axis may have any extents, in any run of a session."""
    nodes = [onnx.helper.make_node("Concat", names := [f"x{k}" for k in range(len(runs[0]))], ["y"], axis=axis)]
    free = {name: (F, [f"{name}_{i}" for i in range(len(runs[0][0]))]) for name in names}
    built = support.make_model(nodes, free).SerializeToString()
    session, cpu = provider.open_session(built, "ours"), ort.InferenceSession(built, providers=["CPUExecutionProvider"])
    for shapes in runs:
        feeds = {name: np.arange(np.prod(it), dtype=F).reshape(it) for name, it in zip(names, shapes, strict=True)}
        np.testing.assert_array_equal(session.run(None, feeds)[0], cpu.run(None, feeds)[0], strict=True)


@pytest.mark.parametrize("shapes", [[(2, 3), (2, 4)], [(5, 0), (2, 3)], [(2, 3), (5, 0)], [(0, 7), (2, 3), (2, 4)]])
def test_joined_rows_of_other_lengths_are_an_error(shapes: list[tuple[int, ...]]) -> None:
    """The CPU provider gives rows without elements the memory of others, whatever is in it."""
    names = [f"x{k}" for k in range(len(shapes))]
    nodes = [onnx.helper.make_node("Concat", names, ["y"], axis=0)]
    built = support.make_model(nodes, {name: (F, [f"{name}_n", f"{name}_m"]) for name in names})
    session = webgpu_ep.session(built.SerializeToString())
    with pytest.raises(
        (InputError, LimitError), match=r"cannot concatenate float32\[.*\] and float32\[.*\] along axis 0"
    ):
        session.run(None, {name: np.ones(it, F) for name, it in zip(names, shapes, strict=True)})
