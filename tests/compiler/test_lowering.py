"""Shapes while lowering: exact, symbolic, and with a reason where they depend on data."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto
from onnx.helper import make_node as node
from onnx.helper import make_tensor_value_info

from onnxruntime_ep_wgpu.compiler.ir import Tensor
from onnxruntime_ep_wgpu.compiler.lower.lower import attempt
from onnxruntime_ep_wgpu.compiler.lower.operand import Operand
from onnxruntime_ep_wgpu.compiler.lower.ops import registry
from onnxruntime_ep_wgpu.errors import InputError, UnsupportedError
from onnxruntime_ep_wgpu.program.dtypes import DType
from tests.support import Runner, compile_model, make_model, run_model, target

F, I64 = np.float32, np.int64


def reasons(model) -> list[str | None]:
    module = ir.from_proto(model)
    return attempt(module.graph, module.opset_imports, target()).reasons


def test_shape_arithmetic_leaves_no_kernel():
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["b"]),
        node("Mul", ["b", "two"], ["d"]),
        node("Concat", ["d", "rest"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["r"]),
        node("Relu", ["r"], ["y"]),
    ]
    model = make_model(
        nodes, {"x": (F, ["batch", 6])}, {"zero": np.array([0]), "two": np.array(2), "rest": np.array([-1])}
    )
    program = compile_model(model)
    assert len(program.dispatches) == 1
    assert [v.shape for v in program.values][program.outputs[0]] == ((2, "$batch", "*"), 3)
    x = np.arange(12, dtype=F).reshape(2, 6)
    np.testing.assert_array_equal(Runner(program)(x)[0], x.reshape(4, 3))


def test_a_shape_that_the_model_returns_is_written():
    model = make_model([node("Shape", ["x"], ["s"]), node("Size", ["x"], ["n"])], {"x": (F, ["a", "b", 3])})
    s, n = run_model(model, np.zeros((4, 5, 3), F))
    assert s.tolist() == [4, 5, 3] and s.dtype == I64 and n == 60


def test_a_target_shape_may_be_an_input():
    model = make_model([node("Reshape", ["x", "shape"], ["y"])], {"x": (F, ["n"]), "shape": (I64, [2])})
    run = Runner(compile_model(model))
    x = np.arange(12, dtype=F)
    for shape in ([3, 4], [-1, 2], [12, -1]):
        np.testing.assert_array_equal(run(x, np.array(shape))[0], x.reshape(shape))
    with pytest.raises(InputError, match="cannot reshape"):
        run(x, np.array([5, 2]))


def test_integers_that_are_data_are_not_read_back():
    """A static integer input changes results, not shapes: one plan serves all its values."""
    model = make_model(
        [node("Gather", ["w", "ids"], ["y"])], {"ids": (I64, [3])}, {"w": np.arange(20, dtype=F).reshape(10, 2)}
    )
    run = Runner(compile_model(model))
    for ids in ([0, 1, 2], [9, -1, 5]):
        np.testing.assert_array_equal(run(np.array(ids))[0], np.arange(20, dtype=F).reshape(10, 2)[ids])
    assert len(run.executable.plans) == 1


@pytest.mark.parametrize("name", ["?", "", "1", "my dim"])
def test_names_that_say_nothing_do_not_make_dimensions_equal(name):
    model = make_model(
        [node("Relu", ["x"], ["a"]), node("Neg", ["y"], ["b"])], {"x": (F, [name, name]), "y": (F, [name])}
    )
    a, b = run_model(model, np.ones((2, 3), F), np.ones(4, F))
    assert a.shape == (2, 3) and b.shape == (4,)


@pytest.mark.parametrize("name", ["361", "x", "x.1"])
def test_an_extent_without_a_name_is_told_from_a_number(name):
    nodes = [node("Relu", [name], ["a"]), node("Reshape", ["a", "s"], ["y"])]
    model = make_model(nodes, {name: (F, [None, 4])}, {"s": np.array([1, -1, 4])})
    model.graph.output[0].CopyFrom(make_tensor_value_info("y", TensorProto.FLOAT, [1, "m"]))
    (reason,) = filter(None, reasons(model))
    assert f"would be calculated as float32[1, {name}.shape[0], 4]" in reason


@pytest.mark.parametrize("what", [2.0, np.int64(2), np.float32(2), True, "n"], ids=repr)
def test_nothing_but_integers_and_expressions_are_extents(what):
    with pytest.raises(AssertionError, match="not a dim"):
        Tensor(DType.FLOAT32, (3, what))
    with pytest.raises(AssertionError, match="not a dim"):
        Operand(DType.FLOAT32, (what,))


def test_equal_names_must_agree():
    model = make_model([node("Relu", ["x"], ["a"]), node("Neg", ["y"], ["b"])], {"x": (F, ["n"]), "y": (F, ["n"])})
    with pytest.raises(InputError, match="'y' has 3 elements along axis 0, the model needs 2"):
        run_model(model, np.ones(2, F), np.ones(3, F))


def test_dimensions_of_any_name_broadcast_by_what_they_are():
    model = make_model([node("Add", ["x", "y"], ["z"])], {"x": (F, ["a", "b"]), "y": (F, ["c", "d"])})
    run = Runner(compile_model(model))
    for left, right in (((2, 3), (2, 3)), ((1, 3), (2, 1)), ((2, 1), (1, 3))):
        x, y = np.random.rand(*left).astype(F), np.random.rand(*right).astype(F)
        np.testing.assert_array_equal(run(x, y)[0], x + y)
    with pytest.raises(InputError, match="broadcast"):
        run(np.ones((2, 3), F), np.ones((2, 2), F))


def test_a_reason_begins_with_what_the_data_decides(monkeypatch):
    model = make_model([node("NonZero", ["x"], ["y"])], {"x": (F, ["n"])})
    assert str(reasons(model)[0]).startswith("the number of elements that are not zero is known only from the data")
    found = registry.find("NonZero", "", 13)
    monkeypatch.setattr(registry, "find", lambda *_: dataclasses.replace(found, sized=""))
    assert str(reasons(model)[0]).startswith("the size of a result is known only from the data")


def test_every_refusal_has_a_reason_that_names_the_cause():
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("NonZero", ["x"], ["i"]),
        node("Erf", ["d"], ["e"]),
        node("Reshape", ["x", "i2"], ["r"]),
    ]
    model = make_model(nodes, {"x": (F, ["n"]), "d": (np.float64, ["n"]), "i2": (I64, ["k"])})
    assert reasons(model)[0] is None
    assert reasons(model)[1] == (
        "the number of elements that are not zero is known only from the data, so the shape of the result depends on data,"
        " which a single Program does not support"
    )
    assert "float64" in reasons(model)[2]
    assert "depends on data" in reasons(model)[3]


@pytest.mark.parametrize(
    ("shape", "refused"),
    [(["n", 3], False), ([None, None], False), ([7, 3], False), ([3], True), (["n", 3, 1], True), (["n", 4], True)],
)
def test_a_shape_that_the_model_declares_otherwise_is_not_calculated(shape, refused):
    """The rank, and extents that both sides know; an extent that depends on the run contradicts nothing."""
    model = make_model([node("Neg", ["x"], ["t"]), node("Relu", ["t"], ["y"])], {"x": (F, ["n", 3])})
    model.graph.output[0].CopyFrom(make_tensor_value_info("y", TensorProto.FLOAT, shape))
    first, last = reasons(model)
    assert first is None
    if refused:
        shown = ", ".join("?" if dim is None else str(dim) for dim in shape)
        assert f"'y' is declared as [{shown}] but would" in last and "float32[n, 3]" in last
        assert "with the right declaration in the model, or none, it runs here" in last
        with pytest.raises(UnsupportedError, match="'y' is declared as"):
            compile_model(model)
    else:
        assert last is None
        np.testing.assert_array_equal(run_model(model, -np.ones((2, 3), F))[0], np.ones((2, 3), F))


def test_checking_twice_gives_the_same_answer_and_leaves_the_graph_alone():
    model = make_model([node("Celu", ["x"], ["a"]), node("NonZero", ["a"], ["i"])], {"x": (F, ["n"])})
    module = ir.from_proto(model)
    first = attempt(module.graph, module.opset_imports, target()).reasons
    assert attempt(module.graph, module.opset_imports, target()).reasons == first
    assert [n.op_type for n in module.graph] == ["Celu", "NonZero"]


def test_functions_are_expanded_where_there_is_no_kernel():
    model = make_model([node("MeanVarianceNormalization", ["x"], ["y"])], {"x": (F, [2, 3, 4, 5])})
    x = np.random.rand(2, 3, 4, 5).astype(F)
    mean, deviation = x.mean((0, 2, 3), keepdims=True), x.std((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(run_model(model, x)[0], (x - mean) / deviation, rtol=1e-4, atol=1e-4)


def test_constants_are_folded():
    nodes = [node("Exp", ["c"], ["e"]), node("Mul", ["x", "e"], ["y"])]
    program = compile_model(make_model(nodes, {"x": (F, ["n", 3])}, {"c": np.array([0, 1, 2], F)}))
    assert len(program.dispatches) == 1 and "exp" not in program.kernels[0].wgsl[0]


def test_an_unsupported_node_is_named_when_a_graph_is_compiled_anyway():
    with pytest.raises(UnsupportedError, match=r"node 'the_node' \(NonZero\)"):
        compile_model(make_model([node("NonZero", ["x"], ["i"], name="the_node")], {"x": (F, ["n"])}))


def test_a_weight_above_the_limit_of_a_buffer_is_refused_with_its_size():
    weight = np.zeros((5, 1 << 10), F)
    model = make_model([node("Add", ["x", "w"], ["y"])], {"x": (F, [1])}, {"w": weight})
    module = ir.from_proto(model)
    small = dataclasses.replace(target(), max_binding_bytes=8192, max_buffer_bytes=16384)
    (reason,) = attempt(module.graph, module.opset_imports, small).reasons
    assert "'w'" in reason and str(weight.nbytes) in reason and "16384" in reason


def test_shapes_that_are_inputs_do_not_grow_with_every_layer():
    """Each layer reshapes to a shape that is an input; the expressions for the sizes stay short."""
    nodes = [node("Reshape", [f"v{k}", f"s{k}"], [f"v{k + 1}"]) for k in range(40)]
    model = make_model(nodes, {"v0": (F, ["n", 6]), **{f"s{k}": (I64, [3]) for k in range(40)}})
    run = Runner(compile_model(model))
    x = np.arange(24, dtype=F).reshape(4, 6)
    shapes = [np.array([[-1, 2, 3], [0, 6, -1], [2, 0, 2]][k % 3]) for k in range(40)]
    want = x
    for shape in shapes:
        want = want.reshape([want.shape[k] if d == 0 else d for k, d in enumerate(shape)])
    np.testing.assert_array_equal(run(x, *shapes)[0], want)


@pytest.mark.parametrize("steps", [{"strides": [2**32, 1]}, {"dilations": [1, 2**31]}], ids=["strides", "dilations"])
def test_steps_of_windows_beyond_32_bits_are_refused_by_name(steps: dict[str, list[int]]) -> None:
    pool = node("MaxPool", ["x"], ["y"], kernel_shape=[1, 1], **steps)
    with pytest.raises(UnsupportedError, match=r"must be less than 2\^31"):
        compile_model(make_model([pool], {"x": (np.float32, [1, 2, 6, 6])}))
