"""Limits of memory are for what kernels store: values that fusion or a rule does without may be of any size; and what really does
not fit is refused by its name."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler.lower.lower import attempt
from onnxruntime_ep_wgpu.errors import UnsupportedError
from onnxruntime_ep_wgpu.program.layout import Layouts
from onnxruntime_ep_wgpu.program.target import Target
from tests import targets
from tests.compiler.attention_models import MASKS, SPELLINGS, Sizes, attention_model, expected, feeds
from tests.support import Runner, compile_model, make_model, specialising, target

F = np.float32
SIZES = Sizes(2, 3, 270, 300, 16, 20)  # 1.9 MB of scores
BUFFER = 1 << 20


way = targets.each(targets.OWN, targets.Way("gpu"))


def small(buffer: int = BUFFER, binding: int = BUFFER // 4) -> Target:
    return dataclasses.replace(target(), max_buffer_bytes=buffer, max_binding_bytes=binding, max_storage_buffers=8)


def reasons(model: onnx.ModelProto, on: Target) -> list[str | None]:
    module = ir.from_proto(model)
    return list(attempt(module.graph, module.opset_imports, on).reasons)


def largest(program: object, symbols: tuple[int, ...] = ()) -> int:
    return max(Layouts(program).layout(symbols).nbytes)


@pytest.mark.costly
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("spelling", [it for it in SPELLINGS if it != "transposed"])
def test_scores_that_no_buffer_holds(spelling: str, mask: str) -> None:
    sizes = SIZES
    if spelling == "rows as queries":
        if mask == "added":
            pytest.skip("its mask is as large as the scores")
        sizes = dataclasses.replace(SIZES, queries=800, keys=900)
    model = attention_model(spelling, mask, sizes)
    on = small()
    assert not any(reasons(model, on))
    program = compile_model(model, on)
    assert largest(program) <= BUFFER
    arrays = feeds(model, mask, sizes, np.random.default_rng(1))
    (y,) = Runner(program)(*arrays)
    np.testing.assert_allclose(y, expected(spelling, mask, sizes, arrays), rtol=4e-6, atol=1.6e-5)


@pytest.mark.costly
def test_scores_that_only_a_run_makes_too_large() -> None:
    model = attention_model("scores", "row of keys", SIZES, dynamic=True)
    run = specialising(model, small())
    for sizes in (dataclasses.replace(SIZES, queries=5, keys=7), SIZES):
        arrays = feeds(model, "row of keys", sizes, np.random.default_rng(2))
        (y,) = run(*arrays)
        np.testing.assert_allclose(y, expected("scores", "row of keys", sizes, arrays), rtol=4e-6, atol=1.6e-5)


@pytest.mark.costly
@pytest.mark.parametrize("causal", [0, 1])
def test_scores_of_an_operator(causal: int) -> None:
    shapes = {"q": (2, 3, 270, 16), "k": (2, 3, 300, 16), "v": (2, 3, 300, 20)}
    attention = node("Attention", list(shapes), ["y"], is_causal=causal)
    model = make_model([attention], {name: (F, list(shape)) for name, shape in shapes.items()}, opset=23)
    program = compile_model(model, small())
    assert largest(program) <= BUFFER
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal(shape).astype(F) for shape in shapes.values())
    scores = q.astype(np.float64) @ np.swapaxes(k, 2, 3) / 4
    if causal:
        scores = np.where(np.tri(270, 300, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    (y,) = Runner(program)(q, k, v)
    np.testing.assert_allclose(y, weights / weights.sum(-1, keepdims=True) @ v, rtol=4e-6, atol=1.6e-5)


def outer(*behind: onnx.NodeProto) -> onnx.ModelProto:
    """All products of two vectors, 1.4 MB, and what is behind them."""
    nodes = [node("Mul", ["x", "y"], ["p"]), node("Exp", ["p"], ["e"]), *behind]
    weights = {"axes": np.array([1])} if behind else {}
    return make_model(nodes, {"x": (F, [600, 1]), "y": (F, [1, 600])}, weights)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceMean"])
def test_maps_that_are_calculated_where_they_are_read(op: str) -> None:
    model = outer(node(op, ["e", "axes"], ["z"]))
    program = compile_model(model, small(binding=BUFFER))
    assert largest(program) <= BUFFER
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((600, 1)).astype(F), rng.standard_normal((1, 600)).astype(F)
    (z,) = Runner(program)(x, y)
    want = {"ReduceSum": np.sum, "ReduceMax": np.max, "ReduceMean": np.mean}[op](
        np.exp(x.astype(np.float64) * y), axis=1, keepdims=True
    )
    np.testing.assert_allclose(z, want, rtol=1e-5)


def test_what_is_stored_is_refused_by_its_size() -> None:
    model = outer()
    with pytest.raises(
        UnsupportedError, match=r"\[600, 600\] takes 1440000 bytes, but a buffer of the adapter has at most"
    ):
        compile_model(model, small())
    assert [bool(it) for it in reasons(model, small())] == [False, True]  # the product is calculated where it is read


def test_scores_with_another_reader_are_refused() -> None:
    sizes = dataclasses.replace(SIZES, batch=1, queries=600, keys=600)
    model = attention_model("scores", "none", sizes)
    model.graph.output.append(onnx.ValueInfoProto(name="t"))
    with pytest.raises(UnsupportedError, match="takes 4320000 bytes"):
        compile_model(model, small())


def test_an_input_that_no_buffer_holds_is_refused() -> None:
    model = make_model([node("ReduceSum", ["x"], ["y"])], {"x": (F, [600, 600])})
    with pytest.raises(UnsupportedError, match=r"the input 'x' of shape \[600, 600\] takes 1440000 bytes"):
        compile_model(model, small())
    assert "the input 'x'" in str(reasons(model, small())[0])


def test_more_scores_than_kernels_count_to() -> None:
    sizes = Sizes(4, 16, 8192, 8192, 64, 64)
    for mask in ("none", "row of keys", "chosen"):
        program = compile_model(
            attention_model("scores", mask, sizes), dataclasses.replace(target(), max_buffer_bytes=2 << 30)
        )
        assert max(largest(program), 0) < 1 << 30


def test_a_graph_within_its_limits_is_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxruntime_ep_wgpu.compiler.lower import lower as module

    made = []
    kept = module.Lowering.__init__
    monkeypatch.setattr(module.Lowering, "__init__", lambda self, *a, **k: (made.append(1), kept(self, *a, **k))[1])
    compile_model(attention_model("scores", "none", SIZES))
    assert len(made) == 1
