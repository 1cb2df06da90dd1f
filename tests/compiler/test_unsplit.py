"""Attention whose keys a run decides to split or not: in one part one kernel stores the results, in parts a map combines them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.helper import make_node, make_tensor_value_info

from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.compiler.tune.attention import SplitKeys
from onnxruntime_ep_wgpu.program.layout import Layouts
from onnxruntime_ep_wgpu.program.program import Program
from tests.compiler.attention_models import Sizes, attention_model, expected, feeds
from tests.support import Runner, compile_model, hardware

F, H = np.float32, np.float16
WHOLE = 96
SPLITS = tune.use(SplitKeys(64, 8, 32, WHOLE))
LENGTHS = ((1, 1), (1, WHOLE), (1, WHOLE + 1), (1, 700), (3, 64), (3, 97), (9, 333), (40, 50), (300, 1000))


def steps(program: Program, batch: int, queries: int, keys: int) -> int:
    known = {"b": batch, "m": queries, "n": keys}
    return len(Layouts(program).layout([known[it.name] for it in program.symbols]).steps)


def followed(model: onnx.ModelProto, nodes: list[onnx.NodeProto], outputs: list[str], dtype: type) -> onnx.ModelProto:
    """The model with nodes that read y, and these outputs."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model.graph.node.extend(nodes)
    del model.graph.output[:]
    model.graph.output.extend(make_tensor_value_info(it, kind, None) for it in outputs)
    return model


@pytest.mark.parametrize("dtype", [F, H], ids=["f32", "f16"])
@pytest.mark.parametrize(
    ("spelling", "mask"),
    [
        ("scores", "none"),
        ("merged heads", "none"),
        ("grouped heads", "chosen"),
        ("transposed", "none"),
        ("guarded", "added"),
    ],
)
def test_both_store_the_same(spelling: str, mask: str, dtype: type) -> None:
    program = compile_model(
        attention_model(spelling, mask, Sizes(1, 2, 1, 1, 32, 20), dtype, dynamic=True), hardware(tuning=(SPLITS,))
    )
    runner, found = Runner(program), dict[bool, set[int]]()
    for queries, keys in LENGTHS:
        sizes = Sizes(2, 2, queries, keys, 32, 20)
        model = attention_model(spelling, mask, sizes, dtype)
        arrays = feeds(model, mask, sizes, np.random.default_rng(queries + keys))
        (y,) = runner(*arrays)
        tolerance = 3e-6 if dtype is F else 4e-3
        want = expected(spelling, mask, sizes, arrays)
        np.testing.assert_allclose(y.astype(np.float64), want, rtol=tolerance, atol=4 * tolerance)
        found.setdefault(keys <= WHOLE, set()).add(steps(program, 2, queries, keys))
    (whole,) = found[True]
    assert max(found[False]) == whole + (
        spelling != "merged heads"
    )  # there the map that combines parts also moves them


@pytest.mark.parametrize("keys", [20, WHOLE, WHOLE + 1, 800])
@pytest.mark.parametrize("also", ["gate", "other reader", "moved", "reduced"])
def test_what_follows_an_attention_is_in_both_kernels(also: str, keys: int) -> None:
    sizes = Sizes(1, 2, 4, keys, 32, 32)
    model = attention_model("scores", "none", sizes, F, dynamic=True)
    after = {
        "gate": ([make_node("Sigmoid", ["y"], ["s"]), make_node("Mul", ["s", "y"], ["z"])], ["z"]),
        "other reader": ([make_node("Neg", ["y"], ["z"])], ["z", "y"]),
        "moved": (
            [make_node("Transpose", ["y"], ["moved"], perm=[0, 2, 1, 3]), make_node("Exp", ["moved"], ["z"])],
            ["z"],
        ),
        "reduced": ([make_node("Exp", ["y"], ["e"]), make_node("ReduceSum", ["e"], ["z"], keepdims=0)], ["z"]),
    }
    program = compile_model(followed(model, *after[also], F), hardware(tuning=(SPLITS,)))
    arrays = feeds(model, "none", sizes, np.random.default_rng(keys))
    y = expected("scores", "none", sizes, arrays)
    want = {
        "gate": [y / (1 + np.exp(-y))],
        "other reader": [-y, y],
        "moved": [np.exp(y.transpose(0, 2, 1, 3))],
        "reduced": [np.exp(y).sum()],
    }
    for got, wanted in zip(Runner(program)(*arrays), want[also], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)
    few, many = steps(program, 1, 4, 20), steps(program, 1, 4, 800)
    assert many == few + (also in ("gate", "other reader"))  # others move or reduce the elements as they combine them


def test_sizes_that_are_known_have_one_of_the_two() -> None:
    for keys, kernels in ((WHOLE, 1), (WHOLE + 1, 2)):
        program = compile_model(
            attention_model("scores", "none", Sizes(1, 2, 1, keys, 32, 32)), hardware(tuning=(SPLITS,))
        )
        assert len(program.dispatches) == kernels


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("keys", [20, 800])
def test_another_operand_of_what_follows_is_there(keys: int, first: bool) -> None:
    """A gate of each head is calculated before the attention, or after it, where the kernel of the attention cannot read it."""
    sizes = Sizes(1, 2, 4, keys, 32, 32)
    model = attention_model("scores", "none", sizes, F, dynamic=True)
    gate = [make_node("ReduceMax", ["q", "axes"], ["g"])]
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 3]), "axes"))
    attention = [*model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(gate + attention if first else attention + gate)
    program = compile_model(
        followed(model, [make_node("Mul", ["y", "g"], ["z"])], ["z"], F), hardware(tuning=(SPLITS,))
    )
    arrays = feeds(attention_model("scores", "none", sizes), "none", sizes, np.random.default_rng(keys))
    run = Runner(program)
    for scale in (1, 3):  # what an earlier run has left in memory is not read
        given = dict(zip("qkv", arrays, strict=True)) | {"q": arrays[0] * scale}
        (z,) = run(*(given[it.name] for it in model.graph.input))
        y = expected("scores", "none", sizes, [given["q"], *arrays[1:]])
        np.testing.assert_allclose(z, y * given["q"].max((2, 3), keepdims=True), rtol=2e-5, atol=2e-5)
    few, many = steps(program, 1, 4, 20), steps(program, 1, 4, 800)
    assert many == few + first
