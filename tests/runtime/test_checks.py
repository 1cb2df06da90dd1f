"""What is checked before anything runs, and what is looked at after every dispatch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from onnxruntime_ep_wgpu.device import Place, Settings, adapters, open_device
from onnxruntime_ep_wgpu.errors import DeviceError, InputError, LimitError, NonFiniteError
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.program.layout import Layouts
from onnxruntime_ep_wgpu.runtime import checks
from onnxruntime_ep_wgpu.runtime.inputs import DeviceTensor
from onnxruntime_ep_wgpu.runtime.settings import RunSettings
from tests.program import programs
from tests.support import Runner, compile_model, device, make_model

F, H = np.float32, np.float16
FULL = RunSettings(bounds_checks=True, stepwise=True)
node = helper.make_node


def elementwise(operator: str, dtype: type = F, **attributes: object) -> Runner:
    """y = (operator of x), in full validation."""
    model = make_model([node(operator, ["x"], ["y"], "culprit", **attributes)], {"x": (dtype, ["n"])})
    return Runner(compile_model(model), FULL)


# Before anything runs


def test_a_tensor_above_the_binding_limit_is_named_with_its_bytes_and_the_limit() -> None:
    small = open_device(adapters()[0], 5000, Settings(binding_bytes=4096))
    model = make_model([node("Neg", ["x"], ["y"], "neg")], {"x": (F, ["n"])})
    run = Runner(compile_model(model, small.target), None, small)
    np.testing.assert_array_equal(run(np.ones(1024, F))[0], -np.ones(1024, F))
    with pytest.raises(LimitError, match=r"the tensor x of shape \[1025\] takes 4100 bytes .*at most 4096"):
        run(np.ones(1025, F))


def test_what_only_kernels_have_that_do_not_run_may_be_beyond_the_limit() -> None:
    program, _ = programs.ways()
    layouts, of_parts = Layouts(program), 4 * 64 * 16
    small = replace(program, target=replace(program.target, max_binding_bytes=of_parts))
    checks.limits(device(), small, layouts.layout([1, 1]))
    with pytest.raises(LimitError, match=r"the tensor parts of shape \[2, 64, 16\] takes 8192 bytes .*at most 4096"):
        checks.limits(device(), small, layouts.layout([2, 1]))
    checks.limits(device(), small, layouts.layout([100, 1]))


def test_a_buffer_that_is_too_small_is_named_unless_checks_are_off() -> None:
    program = compile_model(make_model([node("Neg", ["x"], ["y"], "neg")], {"x": (F, ["n"])}))
    on, off = Runner(program), Runner(program, RunSettings(plan_checks=False))
    short = DeviceTensor(DType.FLOAT32, (100,), device().buffer(64))
    with pytest.raises(InputError, match="the tensor 'x' takes 400 bytes, its buffer has 64 from offset 0 on"):
        on.executable.run([short], [Place(device().buffer(400), 0)])
    off.executable.run([short], [Place(device().buffer(400), 0)])


def test_results_that_share_bytes_are_refused_unless_checks_are_off() -> None:
    """wgpu does not notice two results in one place."""
    layers = node("LayerNormalization", ["x", "w"], ["y", "mean", "inverse"], "norm")
    model = make_model([layers], {"x": (F, [2, 4])}, {"w": np.ones(4, F)})
    program = compile_model(model)
    one = device().buffer(4096)
    x = DeviceTensor(DType.FLOAT32, (2, 4), device().buffer(64))

    same_place = [Place(one, 0)] * 3
    with pytest.raises(InputError, match=r"writes .* and uses .*, which overlap"):
        Runner(program).executable.run([x], same_place)
    unchecked = Runner(program, RunSettings(plan_checks=False)).executable
    if device().queue.library.name == "dawn":  # which looks itself
        with pytest.raises(DeviceError, match="aliasing"):
            unchecked.run([x], same_place)
    else:
        unchecked.run([x], same_place)


def test_aliasing_is_about_bytes_for_results_and_about_buffers_for_operands() -> None:
    one, other = device().buffer(1024), device().buffer(1024)
    names, written = ("x", "y"), (False, True)
    checks.aliasing("kernel", names, [(one, 0, 256), (other, 0, 256)], written)
    checks.aliasing("kernel", names, [(one, 0, 256), (one, 256, 256)], (True, True))
    with pytest.raises(InputError, match="writes 'y' and uses 'x', which are in one buffer"):
        checks.aliasing("kernel", names, [(one, 0, 256), (one, 256, 256)], written)
    with pytest.raises(InputError, match="which overlap"):
        checks.aliasing("kernel", names, [(one, 0, 256), (one, 240, 256)], (True, True))


# After every dispatch


@pytest.mark.parametrize(
    ("operator", "values", "message"),
    [
        (
            "Log",
            [1, 2, 0, 3, 0],
            r"node 'culprit' made -inf from finite inputs: 'y' \[5\] .* 0 NaN and 2 inf.* at \[2\]",
        ),
        ("Sqrt", [1, 2, 3, 4, -5], r"node 'culprit' made nan .* 1 NaN and 0 infinite values, the first at \[4\]"),
        ("Reciprocal", [0, 1], r"made inf from finite inputs: 'y' \[2\] \(float32\)"),
        ("Exp", [1, 2, 100], r"made inf from finite inputs .*|made inf"),
        ("Atanh", [0, 1], r"made inf"),
    ],
)
def test_a_value_that_is_not_finite_names_node_value_and_place(
    operator: str, values: list[float], message: str
) -> None:
    with pytest.raises(NonFiniteError, match=message):
        elementwise(operator)(np.array(values, F))


def test_the_place_is_given_per_axis_and_within_f16_words() -> None:
    model = make_model([node("Mul", ["x", "x"], ["y"], "square")], {"x": (H, ["a", "b"])})
    run = Runner(compile_model(model), FULL)
    x = np.ones((3, 5), H)
    np.testing.assert_array_equal(run(x)[0], x)
    x[2, 1] = 300  # its square is too large for f16
    with pytest.raises(NonFiniteError, match=r"'square' made inf .*\[3, 5\] \(float16\) .* the first at \[2, 1\]"):
        run(x)


def test_what_was_not_finite_before_is_nobodys_fault() -> None:
    x = np.array([1, np.inf, -np.inf, np.nan], F)
    np.testing.assert_array_equal(elementwise("Neg")(x)[0], -x)
    weights = make_model([node("Add", ["x", "w"], ["y"], "add")], {"x": (F, [2])}, {"w": np.array([1, -np.inf], F)})
    got = Runner(compile_model(weights), FULL)(np.ones(2, F))[0]
    np.testing.assert_array_equal(got, np.array([2, -np.inf], F))


def test_the_first_node_at_fault_is_named_and_not_the_last() -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["a"], "first"),
        node("Log", ["a"], ["b"], "second"),
        node("MatMul", ["b", "w"], ["y"], "third"),
    ]
    run = Runner(compile_model(make_model(nodes, {"x": (F, ["n", 8])}, {"w": np.eye(8, dtype=F)})), FULL)
    x = np.ones((4, 8), F)
    run(x)
    x[3, 7] = 0
    with pytest.raises(NonFiniteError, match=r"'second'.* made .*at \[3, 7\]") as raised:
        run(x)
    assert "'third'" not in str(raised.value)


def test_a_mask_of_infinities_is_meant() -> None:
    graph_inputs = {"x": (F, [4]), "m": (np.bool_, [4])}
    model = make_model(
        [node("Where", ["m", "x", "inf"], ["h"], "mask"), node("Softmax", ["h"], ["y"], "softmax")],
        graph_inputs,
        {"inf": np.array(-np.inf, F)},
    )
    got = Runner(compile_model(model), FULL)(np.ones(4, F), np.array([True, True, False, False]))[0]
    np.testing.assert_allclose(got, [0.5, 0.5, 0, 0])


def test_causal_attention_is_no_fault() -> None:
    model = make_model(
        [node("Attention", ["q", "k", "v"], ["y"], "attention", is_causal=1)],
        {name: (F, [1, 2, 4, 8]) for name in "qkv"},
        opset=23,
    )
    rng = np.random.default_rng(0)
    assert np.isfinite(Runner(compile_model(model), FULL)(*(rng.random((1, 2, 4, 8), F) for _ in range(3)))[0]).all()


def test_results_are_those_of_a_run_without_validation() -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["a"], "mm"),
        node("Softmax", ["a"], ["b"], "sm"),
        node("Add", ["b", "x"], ["y"], "add"),
    ]
    program = compile_model(make_model(nodes, {"x": (F, ["n", 8])}, {"w": np.eye(8, dtype=F)}))
    x = np.random.default_rng(0).standard_normal((5, 8)).astype(F)
    np.testing.assert_array_equal(Runner(program, FULL)(x)[0], Runner(program)(x)[0])
