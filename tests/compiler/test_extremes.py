"""The places of the best elements of rows and these: one kernel where a graph asks for both, with what two of them give."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_node

from onnxruntime_ep_wgpu.compiler.rewrite import engine
from onnxruntime_ep_wgpu.compiler.rewrite.extremes import EXTREMES
from onnxruntime_ep_wgpu.program.program import Program
from tests.ops.compare import SPECIAL, expected, random
from tests.support import Runner, compile_model, labels, make_model
from tests.targets import OWN, Way, each

F = np.float32


way = each(OWN, Way("gpu", "pair"), Way("browser", "pair"))


def asked(best: str, place: str, dtype: Any, *, last: int = 0, axis: int = 1, keepdims: int = 1) -> onnx.ModelProto:
    """The best elements, where they are, and what follows from one of them or from both. `best` is read before the places."""
    nodes = [
        make_node(f"Reduce{best}", ["x", "axes"], ["most"], keepdims=keepdims),
        make_node("Neg", ["most"], ["negative"]),
        make_node(f"Arg{place}", ["x"], ["at"], axis=axis, keepdims=keepdims, select_last_index=last),
        make_node("Neg", ["at"], ["before"]),
        make_node("Cast", ["at"], ["number"], to=1),
        make_node("Cast", ["most"], ["wide"], to=1),
        make_node("Add", ["number", "wide"], ["both"]),
    ]
    return make_model(nodes, {"x": (dtype, ["rows", "columns"])}, {"axes": np.array([axis])})


def compiled(model: onnx.ModelProto, patch: pytest.MonkeyPatch, *, apart: bool) -> Program:
    with patch.context() as here:
        if apart:
            rounds = tuple(tuple(rule for rule in rules if rule is not EXTREMES) for rules in engine.ROUNDS)
            here.setattr(engine.rewrite, "__defaults__", (rounds,))
        return compile_model(model)


def special(rows: int, columns: int, dtype: Any) -> np.ndarray:
    """Rows of numbers of which some are as large as others, or none, at any place."""
    x = random(rows, columns, dtype=dtype)
    if np.dtype(dtype).kind == "f":
        make = np.random.default_rng(3)
        for row in x[1:]:
            row[make.integers(0, columns, 3)] = make.choice(SPECIAL.astype(dtype), 3)
        x[2 % rows, 0] = np.nan
        x[3 % rows, -1] = np.nan
        x[4 % rows] = -np.inf
    else:
        x[:, columns // 2 :] = x[:, : columns - columns // 2]
    return x


@pytest.mark.costly
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("best", ["Max", "Min"])
@pytest.mark.parametrize("dtype", [F, np.int32, np.int64])
@pytest.mark.parametrize("shape", [(7, 5), (40, 33), (5, 2500)])
def test_one_kernel_for_both(
    shape: tuple[int, int], dtype: Any, best: str, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = asked(best, best, dtype, last=last), special(*shape, dtype)
    one, two = (compiled(model, monkeypatch, apart=apart) for apart in (False, True))
    assert labels(one) == ["argmax"] and sorted(labels(two)[:2]) == ["argmax", "reduce"]
    got = Runner(one)(x)
    for ours, theirs in zip(got, Runner(two)(x), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    if dtype is not F:  # whose places are others where NaN is
        for ours, theirs in zip(got, expected(model, {"x": x}), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("best", "place", "how"),
    [("Max", "Min", {}), ("Min", "Max", {}), ("Sum", "Max", {}), ("L1", "Max", {})],
)
def test_what_is_asked_of_other_rows_has_a_kernel_of_its_own(best: str, place: str, how: dict[str, Any]) -> None:
    model, x = asked(best, place, F, **how), random(6, 70)
    program = compile_model(model)
    assert {"argmax", "reduce"} <= set(labels(program))
    for ours, theirs in zip(Runner(program)(x), expected(model, {"x": x}), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_rows_that_lie_across() -> None:
    model, x = asked("Max", "Max", F, axis=0, keepdims=0), random(70, 6)
    for ours, theirs in zip(Runner(compile_model(model))(x), expected(model, {"x": x}), strict=True):
        np.testing.assert_array_equal(ours, theirs)
