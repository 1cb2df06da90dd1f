"""Tensors larger than a binding: bound in ranges, or a part after the other, and right whatever the kernel.

Most tests make the limit small, so that small tensors are large; `tests/ops` runs as it is with such a limit too.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.errors import LimitError, UnsupportedError
from onnxruntime_ep_wgpu.plugin.group import MAX_SPECIALISED
from onnxruntime_ep_wgpu.program.file import load, save
from onnxruntime_ep_wgpu.program.target import Target
from onnxruntime_ep_wgpu.runtime.settings import RunSettings
from tests.ops.compare import expected
from tests.support import Runner, compile_model, make_model, specialising, target

F = np.float32
LEAST = 512 * 8  # bytes of the smallest part, of elements of 64 bits
RNG = np.random.default_rng(17)


def small(nbytes: int = 4096, **limits: int) -> Target:
    return dataclasses.replace(target(), max_binding_bytes=nbytes, **limits)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(F)


def widest(run: Runner) -> int:
    """The most bytes that a dispatch of the last run bound of a tensor."""
    plan = next(reversed(run.executable.plans.values()))
    return max(
        byte_range[1] if byte_range else plan.nbytes[arg]
        for it in plan.dispatches
        for arg, byte_range in zip(it.args, it.step.ranges or (None,) * len(it.args), strict=True)
    )


CHAINS = {
    "pointwise": [node("Relu", ["x"], ["a"]), node("Add", ["a", "w"], ["y"])],
    "broadcast": [node("Mul", ["x", "row"], ["y"])],
    "transposed": [node("Transpose", ["x"], ["t"]), node("Exp", ["t"], ["u"]), node("Transpose", ["u"], ["y"])],
    "inlined": [node("Neg", ["x"], ["n"]), node("Transpose", ["n"], ["t"]), node("Relu", ["t"], ["y"])],
    "narrow": [node("Greater", ["x", "w"], ["y"])],
    "half": [node("Cast", ["x"], ["h"], to=10), node("Mul", ["h", "h"], ["y"])],
    "bytes": [node("Cast", ["x"], ["y"], to=3)],
    "wide": [node("Cast", ["x"], ["i"], to=7), node("Add", ["i", "i"], ["y"])],
    "product": [node("MatMul", ["x", "v"], ["p"]), node("Relu", ["p"], ["y"])],
    "right": [node("Transpose", ["x"], ["t"]), node("MatMul", ["v", "t"], ["y"])],
    "rows": [node("Softmax", ["x"], ["s"]), node("Add", ["s", "w"], ["y"])],
    "columns": [node("ReduceSum", ["x", "zero"], ["y"])],
    "concatenated": [node("Concat", ["x", "w"], ["y"], axis=0)],
    "gathered": [node("Gather", ["x", "places"], ["y"])],
    "padded": [node("Pad", ["x", "pads"], ["y"])],
    "reshaped": [node("Reshape", ["x", "shape"], ["r"]), node("Tanh", ["r"], ["y"])],
    "scattered": [node("ScatterElements", ["x", "rows", "w"], ["y"], axis=0)],
    "summed": [node("CumSum", ["x", "first"], ["y"])],
    "several": [node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["z"])],
}


@pytest.mark.costly
@pytest.mark.parametrize("nbytes", [2048, 4096, 6000])
@pytest.mark.parametrize("name", CHAINS)
def test_every_kind_of_kernel(name: str, nbytes: int) -> None:
    x = random(70, 45)  # 12,600 bytes
    weights = {
        "w": random(70, 45), "row": random(45), "v": random(45, 45), "zero": np.array([0]), "first": np.array(0),
        "places": RNG.integers(0, 70, 33), "pads": np.array([1, 2, 3, 4]), "shape": np.array([45, 70]),
        "rows": RNG.integers(0, 70, (70, 45)),
    }  # fmt: skip
    model = make_model(CHAINS[name], {"x": (F, [70, 45])}, weights)
    program = compile_model(model, small(nbytes))
    assert any(d.ranges for d in program.dispatches)
    run = Runner(program)
    for ours, theirs in zip(run(x), expected(model, {"x": x}), strict=True):
        close = 2e-3 if ours.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(ours, theirs, rtol=close, atol=close)
    assert widest(run) <= max(nbytes, LEAST)


def test_elementwise_kernels_take_any_number_of_parts() -> None:
    """Three tensors of 25 bindings each, and eight bindings: each part has a range that moves along."""
    x, w = random(25_000), random(25_000)
    model = make_model(CHAINS["pointwise"], {"x": (F, [25_000])}, {"w": w})
    program = compile_model(model, small())
    (dispatch,) = program.dispatches
    assert len(dispatch.args) == 3 and dispatch.repeats == 25
    np.testing.assert_array_equal(Runner(program)(x)[0], np.maximum(x, 0) + w)


def test_a_view_binds_what_it_shows() -> None:
    """A slice of a weight of 100 bindings takes as many as it has itself."""
    w = random(1000, 100)
    nodes = [node("Slice", ["w", "from", "to"], ["s"]), node("Add", ["x", "s"], ["y"])]
    places = {"w": w, "from": np.array([500]), "to": np.array([515])}
    program = compile_model(make_model(nodes, {"x": (F, [15, 100])}, places), small())
    assert max(len(d.args) for d in program.dispatches) <= 5
    np.testing.assert_array_equal(Runner(program)(np.zeros((15, 100), F))[0], w[500:515])


def test_the_elements_of_four_bits() -> None:
    import ml_dtypes

    x = RNG.integers(-8, 8, (9000,)).astype(ml_dtypes.int4)
    nodes = [node("DequantizeLinear", ["w", "scale"], ["d"]), node("Add", ["x", "d"], ["y"])]
    model = make_model(nodes, {"x": (F, [9000])}, {"w": x, "scale": np.array(0.5, F)}, opset=21)
    got = Runner(compile_model(model, small()))(np.ones(9000, F))[0]
    np.testing.assert_array_equal(got, x.astype(F) / 2 + 1)


def test_more_than_a_buffer_holds_is_refused_with_the_reason() -> None:
    model = make_model([node("Expand", ["x", "shape"], ["y"])], {"x": (F, [1])}, {"shape": np.array([70_000, 70_000])})
    with pytest.raises(UnsupportedError, match=r"\[70000, 70000\] takes 19600000000 bytes, but a buffer"):
        compile_model(model)


def test_sizes_that_are_known_when_run() -> None:
    """Each set of shapes beyond the limit has a program of its own, which shares the weights on the device."""
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "row"], ["q"]), node("Softmax", ["q"], ["y"])]
    weights = {"w": random(40, 20), "row": random(20)}
    model = make_model(nodes, {"x": (F, ["n", 40])}, weights)
    run = specialising(model, small())
    for n in (3, 60, 60, 5, 70, 60):
        x = random(n, 40)
        np.testing.assert_allclose(run(x)[0], expected(model, {"x": x})[0], rtol=1e-5, atol=1e-6)
    own, specialised = run.executable, run.sized.specialised
    assert len(specialised) == 2 and {plan.layout.symbols for plan in own.plans.values()} <= {(3,), (5,)}
    for it in specialised.values():
        assert len(it.plans) == 1
        assert {id(b) for b in it._weights} & {id(b) for b in own._weights}


def test_without_its_graph_a_program_names_the_tensor() -> None:
    model = make_model([node("Relu", ["x"], ["y"])], {"x": (F, ["n"])}, {})
    with pytest.raises(LimitError, match=r"tensor x of shape \[2000\] takes 8000 bytes.*at most 4096"):
        Runner(compile_model(model, small()))(random(2000))


def test_windows_survive_the_file(tmp_path) -> None:
    x = random(70, 45)
    program = compile_model(make_model(CHAINS["rows"], {"x": (F, [70, 45])}, {"w": random(70, 45)}), small())
    save(program, tmp_path / "p.wgpu")
    np.testing.assert_array_equal(Runner(load(tmp_path / "p.wgpu"))(x)[0], Runner(program)(x)[0])


def test_programs_of_several_sizes_share_their_intermediate_values() -> None:
    """And give them back when only small sizes run any more."""
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Softmax", ["p"], ["s"]), node("CumSum", ["s", "axis"], ["y"])]
    model = make_model(nodes, {"x": (F, ["n", 40])}, {"w": random(40, 20), "axis": np.array(0)})
    run = specialising(model, small(), RunSettings(temp_generations=4))
    temps = run.executable._plans.of_graph.temps
    sizes = range(60, 200, 10)
    for n in sizes:
        run(random(n, 40))
        assert sum(it.size for it in temps._buffers) <= 8 * n * 20 * 4 + 8192, "one set of buffers, whatever the size"
    assert len(run.executable._plans.of_graph.members) == 1 + MAX_SPECIALISED
    for _ in range(6):
        run(random(3, 40))
    (plan,) = run.executable.plans.values()
    assert set(temps._buffers) == plan.temps
    x = random(70, 40)
    np.testing.assert_allclose(run(x)[0], expected(model, {"x": x})[0], rtol=1e-5, atol=1e-5)
