"""Norms of rows that Gather picks: one kernel, which stores the rows for others, with the values of two."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_node

from onnxruntime_ep_wgpu.compiler.rewrite import engine
from onnxruntime_ep_wgpu.compiler.rewrite.picked import PICKED
from onnxruntime_ep_wgpu.program.program import Program
from tests.ops.compare import expected, random
from tests.support import Runner, compile_model, labels, make_model, target
from tests.targets import OWN, Way, each

F, H = np.float32, np.float16
HIDDEN, WORDS = 40, 12


way = each(OWN, Way("gpu", "pair"))


def embedded(
    dtype: Any = F, *, ids: Any = np.int64, norm: str = "LayerNormalization", also: bool = True
) -> onnx.ModelProto:
    """A norm of embeddings and, with `also`, these plus it, as in the first layer of a decoder."""
    nodes = [
        make_node("Gather", ["table", "ids"], ["x"]),
        make_node(norm, ["x", "gain"], ["y"], axis=-1, epsilon=1e-3),
        make_node("Add", ["x", "y"], ["sum"]) if also else make_node("Neg", ["y"], ["negative"]),
    ]
    weights = {"table": random(WORDS, HIDDEN, dtype=dtype), "gain": random(HIDDEN, seed=1, dtype=dtype)}
    return make_model(nodes, {"ids": (ids, ["batch", "steps"])}, weights, opset=23)


def apart(model: onnx.ModelProto, patch: pytest.MonkeyPatch) -> Program:
    """Compiled without the rule."""
    with patch.context() as here:
        rounds = tuple(tuple(rule for rule in rules if rule is not PICKED) for rules in engine.ROUNDS)
        here.setattr(engine.rewrite, "__defaults__", (rounds,))
        return compile_model(model)


@pytest.mark.costly
@pytest.mark.parametrize("also", [True, False])
@pytest.mark.parametrize("norm", ["LayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize("ids", [np.int64, np.int32])
@pytest.mark.parametrize("dtype", [F, H])
@pytest.mark.parametrize("shape", [(1, 1), (2, 33)])
def test_one_kernel(
    shape: tuple[int, int], dtype: Any, ids: Any, norm: str, also: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = embedded(dtype, ids=ids, norm=norm, also=also)
    one, two = compile_model(model), apart(model, monkeypatch)
    assert len(one.dispatches) == len(two.dispatches) - 1
    at = np.random.default_rng(2).integers(-WORDS, WORDS, shape).astype(ids)
    got = Runner(one)(at)
    for ours, theirs in zip(got, Runner(two)(at), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    if norm == "LayerNormalization" and dtype is F:
        for ours, theirs in zip(got, expected(model, {"ids": at}), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_rows_that_are_a_result_themselves() -> None:
    model, at = embedded(), np.array([[3, -1, 0]])
    model.graph.output.append(onnx.ValueInfoProto(name="x"))
    program = compile_model(model)
    assert "map" not in labels(program)
    for ours, theirs in zip(Runner(program)(at), expected(model, {"ids": at}), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.costly
def test_what_stays_in_two_kernels() -> None:
    """Halves that share words, a table that one binding does not hold, and a gain that is made of the rows."""
    shared = dataclasses.replace(target(), features=target().features - {"shader-f16"})
    assert labels(compile_model(embedded(H), shared))[:2] == ["map", "layer_norm"]
    few = dataclasses.replace(target(), max_binding_bytes=WORDS * HIDDEN * 4 // 2 // 256 * 256)
    assert labels(compile_model(embedded(), few))[-2:] == ["map", "layer_norm"]
    made = embedded()
    made.graph.node.insert(1, make_node("ReduceMean", ["x", "axes"], ["own"], keepdims=0))
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0, 1]), "axes"))
    made.graph.node[2].input[1] = "own"
    at = np.array([[3, -1, 0]])
    program = compile_model(made)
    assert [it.reason for it in program.declined] == ["its operands depend on its results"]
    for ours, theirs in zip(Runner(program)(at), expected(made, {"ids": at}), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.costly
@pytest.mark.parametrize("late", ["at", "table", "gain"])
@pytest.mark.parametrize("steps", [0, 2])
def test_what_it_reads_is_made_before_it(late: str, steps: int) -> None:
    """The last token of what layers made, say: the indices, the rows or the gain may be made last."""
    made = {
        "at": [make_node("Cast", ["ids"], ["at"], to=onnx.TensorProto.INT32)],
        "table": [
            make_node("MatMul", ["x", "w"], ["h0"]),
            *(make_node("Softmax", [f"h{k}"], [f"h{k + 1}"]) for k in range(steps)),
        ],
        "gain": [make_node("Softmax", ["g"], ["gain"])],
    }
    order = [it for name in sorted(made, key=lambda name: name == late) for it in made[name]]
    picks = make_node("Gather", [f"h{steps}", "at"], ["picked"], axis=0)
    norm = make_node("LayerNormalization", ["picked", "gain"], ["y"], epsilon=1e-3)
    model = make_model(
        [*order, picks, norm, make_node("Add", ["picked", "y"], ["sum"])],
        {"ids": (np.int64, ["m"]), "x": (F, ["n", HIDDEN]), "g": (F, [WORDS])},
        {"w": random(HIDDEN, WORDS)},
    )
    program = compile_model(model)
    assert "map" not in labels(program)
    given = np.array([4, -1, 0]), random(5, HIDDEN, seed=1), random(WORDS, seed=2)
    feeds = dict(zip(("ids", "x", "g"), given, strict=True))
    for ours, theirs in zip(Runner(program)(*given), expected(model, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
