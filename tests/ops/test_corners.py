"""A case each for corners of kernels that a small mistake moves and ordinary numbers do not show.

Other files have many cases of these operators, of which `make test` runs a sample. Each of these was written for a mistake that no
case of a sample had found, and takes one small kernel; so all of them run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.errors import UnsupportedError
from onnxruntime_ep_wgpu.program.target import F16
from tests import support

from .compare import check, check_model, expected, model, random

pytestmark = [pytest.mark.every_case, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
F = np.float32


def test_a_mean_that_is_reduced_in_two_steps_is_of_all_elements() -> None:
    check("ReduceMean", random(300, 301), keepdims=0, rtol=1e-4, atol=1e-5)
    check("ReduceMean", random(2, 70000), np.array([1]), constants=[1], keepdims=0, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(37, 37, 37), (64, 33, 64)], ids=["odd", "even"])
def test_the_last_row_of_a_product_may_be_infinite(shape: tuple[int, int, int]) -> None:
    """Tiles end behind it: what is loaded there counts nothing."""
    m, k, n = shape
    a, b = np.ones((m, k), F), np.ones((k, n), F)
    b[-1] = np.inf
    check("MatMul", a, b)
    check("MatMul", b.T.copy(), np.ones((k, m), F))


@pytest.mark.parametrize("strides", [[1, 1], [2, 2]], ids=["1", "2"])
def test_what_is_beside_an_image_is_zero(strides: list[int]) -> None:
    """And not the next channel, which has large numbers."""
    x = (random(2, 3, 7, 6) + 100 * np.arange(3)[:, None, None]).astype(F)
    check("Conv", x, random(4, 3, 3, 3), constants=[1], pads=[1, 1, 1, 1], strides=strides, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("size", [4, 6, 7])
def test_windows_that_end_behind_the_padding_count_what_is_padded(size: int) -> None:
    how: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1}
    check("AveragePool", random(1, 2, size, size + 2), count_include_pad=1, **how)
    check("AveragePool", random(1, 2, size, size + 2), **how)


def test_places_of_the_largest_where_all_are_minus_infinity() -> None:
    x = np.full((1, 1, 4, 4), -np.inf, F)
    x[0, 0, 3, 3] = 1
    check("MaxPool", x, outputs=[F, np.int64], kernel_shape=[2, 2], strides=[2, 2])


@pytest.mark.parametrize("int64", ["native", "pair"])
def test_numbers_that_need_all_64_bits(int64: str) -> None:
    top = 2**63
    x = np.array([2**64 - 1, 2**64 - 2, top + 5, top + 1, top], np.uint64)
    y = np.array([top + 1, 2**64 - 1, top + 3, top + 1, top - 1], np.uint64)
    check("Div", x, y, int64=int64)
    check("Mod", x, y, int64=int64)


@pytest.mark.parametrize("int64", ["native", "pair"])
@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_integers_halfway_between_floats_go_to_the_even_one(kind: type, int64: str) -> None:
    halves = [(2 * k + 1) << shift for shift in range(38) for k in (2**23, 2**23 + 1, 2**24 - 1)]
    near = [n + d for n in halves for d in (-1, 0, 1) if n + d < 2**63]
    numbers = [*near, *(-n for n in near if kind is np.int64), *(n + 2**63 for n in near if kind is np.uint64)]
    check("Cast", np.array(numbers, kind), outputs=[F], to=1, int64=int64, rtol=0, atol=0)


@pytest.mark.parametrize("without", [set(), {F16}], ids=["f16", "words"])
def test_floats_halfway_between_halves_go_to_the_even_one(without: set[str]) -> None:
    steps = np.arange(64) * 2.0**-11
    x = np.concatenate([scale * (1 + steps) for scale in (1, -1, 2.0**-15, 2.0**14)]).astype(F)
    half = x.astype(np.float16)
    target = replace(support.target(), features=support.target().features - without)

    def run(built: onnx.ModelProto, *given: np.ndarray) -> np.ndarray:
        return support.Runner(support.compile_model(built, target))(*given)[0]

    np.testing.assert_array_equal(run(model("Cast", [x], outputs=[np.float16], to=10), x), half)
    np.testing.assert_array_equal(run(model("Mul", [half, half]), half, half), (half.astype(F) ** 2).astype(np.float16))


def test_a_remainder_of_zero_has_the_sign_of_the_divisor() -> None:
    x, y = (a.ravel().astype(F) for a in np.meshgrid([-6, -0.0, 0, 6, 1.5], [-3, 3, -1.5, 2, np.inf, -np.inf]))
    got = support.run_model(model("Mod", [x, y]), x, y)[0]
    np.testing.assert_array_equal(got, np.mod(x, y))
    np.testing.assert_array_equal(np.signbit(got), np.signbit(np.mod(x, y)))


def test_an_index_that_is_the_extent_is_outside() -> None:
    data, updates = np.arange(12, dtype=F).reshape(3, 4), np.array([50, 60, 70], F)
    indices = np.array([[0, 4], [1, 1], [3, 0]])
    want = data.copy()
    want[1, 1] = 60
    got = support.run_model(model("ScatterND", [data, indices, updates]), data, indices, updates)[0]
    np.testing.assert_array_equal(got, want)


def test_of_updates_of_one_element_the_last_counts() -> None:
    indices, updates = np.array([[1, 1, 1, 0], [2, 0, 2, 2]]), random(2, 4)
    check("ScatterElements", np.zeros((2, 3), F), indices, updates, axis=1)
    check("ScatterND", np.zeros((4, 2), F), np.array([[1], [3], [1]]), random(3, 2))


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_short_sequences_backwards(op: str) -> None:
    gates = {"LSTM": 4, "GRU": 3}[op]
    steps, batch, columns, hidden = 4, 3, 3, 5
    lengths = np.array([2, 4, 1], np.int32)
    given = [random(steps, batch, columns), random(1, gates * hidden, columns), random(1, gates * hidden, hidden)]
    how: dict[str, Any] = {"hidden_size": hidden, "direction": "reverse", "outputs": [F, F]}
    check(op, *given, None, lengths, constants=[1, 2], rtol=1e-4, atol=1e-5, **how)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_behind_a_short_sequence_a_result_in_used_memory_is_zero(op: str) -> None:
    """Every element is stored: memory that a run before has written does not show."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    x, w, r = random(4, 2, 3), random(1, gates * 5, 3, seed=1), random(1, gates * 5, 5, seed=2)
    bias = np.zeros((1, 2 * gates * 5), F)
    lengths = [np.array(it, np.int32) for it in ([4, 4], [2, 4])]
    built = model(op, [x, w, r, bias, lengths[0]], outputs=[F], hidden_size=5, direction="reverse")
    session = webgpu_ep.session(built.SerializeToString())
    memory = ort.OrtValue.ortvalue_from_numpy(np.ones((4, 1, 2, 5), F), "webgpu", 0)
    for length in lengths:
        feeds = dict(zip((it.name for it in session.get_inputs()), (x, w, r, bias, length), strict=True))
        binding = session.io_binding()
        for name, value in feeds.items():
            binding.bind_cpu_input(name, value)
        binding.bind_ortvalue_output(session.get_outputs()[0].name, memory)
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(memory.numpy(), expected(built, feeds)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("k", [1, 3, 8])
def test_of_equal_elements_exactly_as_many_as_are_asked_for(k: int) -> None:
    x = np.array([[2, 1, 2, 2, 1, 2, 2, 2, 0, 2] * 7, [1] * 70, [*range(35)] * 2], F)
    check("TopK", x, np.array([k]), constants=[1], outputs=[F, np.int64])
    check("TopK", np.tile(x, 30)[:, :2003], np.array([k]), constants=[1], outputs=[F, np.int64])


def test_a_value_that_is_a_result_too_is_stored() -> None:
    x, w = random(6, 8), random(8, 8)
    built = model("Relu", [x])
    nodes = [("Softmax", ["y0"], "s"), ("MatMul", ["y0", "w"], "m"), ("ReduceSum", ["y0"], "r")]
    for op, inputs, output in nodes:
        built.graph.node.append(onnx.helper.make_node(op, inputs, [output]))
        built.graph.output.append(onnx.helper.make_tensor_value_info(output, 1, None))
    built.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    check_model(built, [x], rtol=1e-4, atol=1e-5)
    one = model("Relu", [x])
    one.graph.node.append(onnx.helper.make_node("Softmax", ["y0"], ["s"]))
    one.graph.output.append(onnx.helper.make_tensor_value_info("s", 1, None))
    check_model(one, [x], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [np.int8, np.float16])
def test_parts_that_end_within_a_word(kind: type) -> None:
    given = [random(3, 5, dtype=kind), random(2, 5, dtype=kind)]
    built = model("Neg" if kind is np.float16 else "Abs", [given[0]], outputs=[kind])
    graph = built.graph
    graph.input.append(
        onnx.helper.make_tensor_value_info("x1", onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)), (2, 5))
    )
    graph.node.append(onnx.helper.make_node("Abs", ["x1"], ["b"]))
    graph.node.append(onnx.helper.make_node("Concat", ["y0", "b", "y0"], ["c"], axis=0))
    graph.output.append(onnx.helper.make_tensor_value_info("c", graph.output[0].type.tensor_type.elem_type, None))
    for _ in range(3):
        check_model(built, given)


@pytest.mark.parametrize("scale", [0.0, -0.0, np.inf, np.nan, 1e-40])
def test_a_scale_of_nothing_saturates(scale: float) -> None:
    """Drivers take a quotient by a literal 0 for 0."""
    x = np.array([1, -1, 0, np.nan, np.inf], F)
    if 0 < scale < np.finfo(F).tiny:
        x[2] = 2  # an adapter may flush the scale to 0, and 0 / 0 is NaN
    check("QuantizeLinear", x, np.array(scale, F), np.array(7, np.uint8), outputs=[np.uint8], constants=[1, 2])


@pytest.mark.parametrize("value", [2, -1, 2**40])
def test_a_flag_is_0_or_1(value: int) -> None:
    """Kernels of the CPU provider take other numbers for the one or the other, each as it was written."""
    with pytest.raises(UnsupportedError, match=f"attribute keepdims={value} is not one of 0, 1"):
        support.compile_model(model("ReduceSum", [random(3, 4)], keepdims=value))


@pytest.mark.parametrize("op", ["DepthToSpace", "SpaceToDepth"])
@pytest.mark.parametrize("size", [0, -1, 3, 2**31])
def test_blocks_that_an_image_does_not_make_are_refused(op: str, size: int) -> None:
    with pytest.raises(UnsupportedError, match=r"is not positive|do not divide into blocks"):
        support.compile_model(model(op, [random(1, 4, 4, 4)], blocksize=size))


@pytest.mark.parametrize("beta", [np.inf, -np.inf, np.nan])
def test_an_attribute_that_is_no_finite_number(beta: float) -> None:
    """A kernel has it in its text."""
    x = np.full((1, 4, 2, 2), 3, F)
    (found,) = support.run_model(model("LRN", [x], size=3, beta=float(beta)), x)
    wanted = x / np.power(1 + 1e-4 / 3 * 9, F(beta))
    np.testing.assert_array_equal(found, np.broadcast_to(wanted, x.shape))


@pytest.mark.parametrize("perm", [[1, 2, 0], [2, 1, 0], [2, 0, 1]], ids=str)
def test_a_coordinate_over_several_axes_is_none_of_an_axis(perm: list[int]) -> None:
    """Rows of a softmax count over two axes of what is unpacked for it, whose operand has them in another order."""
    nodes = [
        onnx.helper.make_node("Transpose", ["x0"], ["t"], perm=perm),
        onnx.helper.make_node("DequantizeLinear", ["t", "scale"], ["d"]),
        onnx.helper.make_node("Softmax", ["d"], ["y"], axis=0),
    ]
    x = np.random.default_rng(0).integers(0, 9, (3, 4, 5)).astype(np.uint8)
    built = support.make_model(nodes, {"x0": (np.uint8, ["a", "b", "c"])}, {"scale": np.array(0.25, F)})
    check_model(built, [x])
    check_model(support.make_model(nodes, {"x0": (np.uint8, [3, 4, 5])}, {"scale": np.array(0.25, F)}), [x])
