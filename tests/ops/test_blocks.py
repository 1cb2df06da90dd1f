"""Products with weights quantised in blocks, beside numpy by the words of the schema and beside the CPU provider: bits, blocks,
tails of every kind, zero points of both kinds, types, shapes that are known in a run, special values, and errors.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests import support, targets
from tests.ops.compare import expected

pytestmark = targets.EVERY_KERNEL

MICROSOFT = "com.microsoft"
F32, F16 = np.float32, np.float16


def packed(values: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of a few bits along the last axis as a stream of bytes, low bits first, each row filled up to whole bytes."""
    stream = values[..., None] >> np.arange(bits) & 1
    flat = stream.reshape(*values.shape[:-1], -1).astype(np.uint8)
    pad = [(0, 0)] * (flat.ndim - 1) + [(0, -flat.shape[-1] % 8)]
    return np.packbits(np.pad(flat, pad), axis=-1, bitorder="little")


@dataclass(frozen=True)
class Weights:
    """Weights (n, k) as MatMulNBits has them; `zeros` is "" for none, "packed", or "float"."""

    k: int
    n: int
    bits: int = 4
    block: int = 32
    zeros: str = ""
    dtype: Any = F32
    order: bool = False
    bias: bool = False
    seed: int = 0

    @property
    def blocks(self) -> int:
        return -(-self.k // self.block)

    def arrays(self) -> dict[str, np.ndarray]:
        """The constant inputs by name, and "real", the weights (k, n) in float64."""
        rng = np.random.default_rng(self.seed)
        q = rng.integers(0, 1 << self.bits, (self.n, self.blocks, self.block))
        scales = (rng.standard_normal((self.n, self.blocks)) * 0.1).astype(self.dtype)
        out: dict[str, np.ndarray] = {"b": packed(q, self.bits), "s": scales}
        zero: Any = np.full((self.n, self.blocks), 1 << self.bits - 1)
        if self.zeros == "packed":
            zero = rng.integers(0, 1 << self.bits, (self.n, self.blocks))
            out["z"] = packed(zero, self.bits)
        elif self.zeros == "float":
            out["z"] = zero = (rng.random((self.n, self.blocks)) * (1 << self.bits)).astype(self.dtype)
        group = np.arange(self.blocks * self.block) // self.block
        if self.order:
            group = rng.permutation(group)[: self.k]
            out["g"] = group.astype(np.int32)
        flat = q.reshape(self.n, -1)[:, : self.k]
        group = group[: self.k]
        out["real"] = ((flat - zero[:, group].astype(np.float64)) * scales[:, group].astype(np.float64)).T
        if self.bias:
            out["c"] = rng.standard_normal(self.n).astype(self.dtype)
        return out

    def model(self, shape: list[Any], after: str = "", **attributes: Any) -> onnx.ModelProto:
        """y = a times the weights, a of `shape`; `after` is an operator on y."""
        arrays = self.arrays()
        names = [name if name in arrays else "" for name in ("b", "s", "z", "g", "c")]
        while not names[-1]:
            names.pop()
        how = {"K": self.k, "N": self.n, "bits": self.bits, "block_size": self.block} | attributes
        nodes = [helper.make_node("MatMulNBits", ["a", *names], ["p" if after else "y"], domain=MICROSOFT, **how)]
        if after:
            nodes.append(helper.make_node(after, ["p"], ["y"]))
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        graph = helper.make_graph(
            nodes,
            "blocks",
            [helper.make_tensor_value_info("a", kind, shape)],
            [helper.make_tensor_value_info("y", kind, None)],
            [numpy_helper.from_array(arrays[n], n) for n in names if n],
        )
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def wanted(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The product in float64, and how far from it sums in float32 may be."""
        arrays = self.arrays()
        exact = a.astype(np.float64) @ arrays["real"] + arrays.get("c", np.zeros(1)).astype(np.float64)
        size = np.abs(a).astype(np.float64) @ np.abs(arrays["real"])
        rounding = 2.0**-11 * np.abs(exact) if self.dtype is F16 else 0
        return exact, rounding + size * 2e-6 + 1e-6


def activations(*shape: int, dtype: Any = F32, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def agree(got: np.ndarray, weights: Weights, a: np.ndarray, what: str = "") -> None:
    exact, bound = weights.wanted(a)
    assert got.dtype == weights.dtype
    assert got.shape == exact.shape
    error = np.abs(got.astype(np.float64) - exact)
    assert (error <= bound).all(), f"{what} {weights}: off by {(error / bound).max():.2f} of what is allowed"


def check(weights: Weights, *shape: int, symbolic: bool = False) -> None:
    a = activations(*shape, dtype=weights.dtype)
    dims = [f"d{axis}" for axis in range(len(shape) - 1)] + [shape[-1]] if symbolic else list(shape)
    (y,) = support.run_model(weights.model(dims), a)
    agree(y, weights, a, f"{shape}")


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_bits_blocks_and_zero_points(bits: int, dtype: Any) -> None:
    cases = itertools.product((16, 32, 128), ("", "packed", "float"))
    for seed, (block, zeros) in enumerate(cases):
        k, n = ((96, 20), (300, 33), (257, 7))[seed % 3]
        check(Weights(k, n, bits, block, zeros, dtype, bias=seed % 2 == 1, seed=seed), 1 + seed % 5, k)


@pytest.mark.costly
@pytest.mark.parametrize("bits", [4, 8])
def test_rows(bits: int) -> None:
    """Every number of rows for which another kernel may be chosen, and both sides of it."""
    weights = Weights(320, 72, bits, 64, "packed")
    for rows in (1, 2, 3, 4, 5, 8, 9, 16, 17, 31, 32, 33, 130):
        check(weights, rows, 320)


@pytest.mark.costly
def test_long_rows_and_many_columns() -> None:
    for rows in (1, 4, 40):
        check(Weights(2080, 260, 4, 32, "packed", F16), rows, 2080)
        check(Weights(1040, 516, 8, 16, "", F32), rows, 1040)


@pytest.mark.costly
def test_a_number_of_rows_that_is_known_in_a_run() -> None:
    weights = Weights(288, 40, 4, 32, "packed", F16, bias=True)
    runner = support.Runner(support.compile_model(weights.model(["batch", "length", 288], after="Relu")))
    for batch, length in ((1, 1), (1, 7), (2, 20), (3, 1), (0, 4)):
        a = activations(batch, length, 288, dtype=F16)
        exact, bound = weights.wanted(a)
        (y,) = runner(a)
        assert y.shape == (batch, length, 40)
        assert (np.abs(y - np.maximum(exact, 0)) <= bound).all()


@pytest.mark.costly
def test_ranks() -> None:
    weights = Weights(64, 24, 4, 32)
    for shape in ((64,), (3, 64), (2, 3, 64), (2, 1, 3, 64)):
        check(weights, *shape)
    check(weights, 2, 3, 64, symbolic=True)


@pytest.mark.costly
@pytest.mark.parametrize("bits", [3, 5, 6, 7])
def test_elements_that_cross_bytes(bits: int) -> None:
    """The CPU provider refuses these; the layout is that of the schema, a stream of bits per block."""
    for zeros in ("", "packed", "float"):
        check(Weights(72, 9, bits, 16, zeros), 3, 72)


@pytest.mark.costly
@pytest.mark.parametrize("bits", [4, 8])
def test_columns_whose_group_is_looked_up(bits: int) -> None:
    for zeros in ("", "packed"):
        check(Weights(80, 11, bits, 16, zeros, order=True), 3, 80)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("bits", "block", "zeros"), [(2, 32, "packed"), (4, 16, ""), (4, 64, "float"), (8, 32, "packed")]
)
@pytest.mark.parametrize("level", [0, 1, 4])
def test_beside_the_cpu_provider(bits: int, block: int, zeros: str, level: int) -> None:
    weights = Weights(160, 24, bits, block, zeros, bias=True)
    a = activations(5, 160)
    model = weights.model([5, 160], accuracy_level=level)
    (theirs,) = expected(model, {"a": a})
    (ours,) = support.run_model(model, a)
    if level != 4:  # with which the CPU provider rounds activations to int8
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-3)
    agree(ours, weights, a)


@pytest.mark.costly
def test_scales_without_axes() -> None:
    """As older exports have them."""
    weights = Weights(96, 10, 4, 32, "packed")
    model = weights.model([2, 96])
    for value in model.graph.initializer:
        if value.name in "sz":
            flat = numpy_helper.to_array(value).reshape(-1)
            value.CopyFrom(numpy_helper.from_array(flat, value.name))
    a = activations(2, 96)
    agree(support.run_model(model, a)[0], weights, a)


@pytest.mark.costly
@pytest.mark.parametrize("rows", [1, 6, 40])
def test_special_values_stay_in_their_row(rows: int) -> None:
    weights = Weights(290, 20, 4, 32, "packed")
    a = activations(rows, 290)
    a[0, 289], a[-1, 3] = np.nan, np.inf
    (y,) = support.run_model(weights.model([rows, 290]), a)
    with np.errstate(invalid="ignore"):
        want = a.astype(np.float64) @ weights.arrays()["real"]
    np.testing.assert_array_equal(np.isnan(y), np.isnan(want))
    infinite = np.isinf(want)
    np.testing.assert_array_equal(y[infinite], want[infinite])
    if rows > 2:
        agree(y[1:-1], weights, a[1:-1])


@pytest.mark.costly
def test_what_fills_up_the_last_block_is_not_read_as_a_part_of_a_row() -> None:
    """The scale of a block holds for what fills it up; an infinite one must not spoil the sum of zeros there."""
    weights = dataclasses.replace(Weights(40, 6, 4, 32), seed=3)
    for rows in (1, 5, 40):
        a = np.zeros((rows, 40), F32)
        a[:, 0] = 1
        (y,) = support.run_model(weights.model([rows, 40]), a)
        agree(y, weights, a)


def test_weights_stay_as_they_are() -> None:
    """Nothing but the packed bytes is in memory, and the product is one kernel with its bias and what follows."""
    weights = Weights(256, 64, 4, 32, "packed", F16, bias=True)
    program = support.compile_model(weights.model(["rows", 256], after="Relu"))
    assert len(program.dispatches) == 1
    weights_in_memory = [value for value in program.values if value.weight >= 0]
    assert max(value.dtype.nbytes(math.prod(value.shape)) for value in weights_in_memory) == 256 * 64 // 2


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("s", (24, 4), r"scales float32\[24, 4\] does not have the 120 numbers of shape \[24, 5\]"),
        ("b", (24, 5, 8), r"B uint8\[24, 5, 8\] does not have the 1920 numbers of shape \[24, 5, 16\]"),
        ("z", (24, 4), r"zero_points uint8\[24, 4\] does not have the 72 numbers of shape \[24, 3\]"),
        ("c", (23,), r"bias float32\[23\] does not have the 24 numbers"),
        ("a", (5, 150), r"A float32\[5, 150\] does not have the K = 160 columns"),
        ("block_size", 24, "block_size 24: a power of two of at least 16"),
        ("bits", 9, "bits 9: weights of 2 to 8 bits"),
        ("weight_prepacked", 1, "weight_prepacked 1"),
    ],
)
def test_errors_name_the_input_and_the_value(name: str, shape: Any, message: str) -> None:
    model = Weights(160, 24, 4, 32, "packed", bias=True).model(list(shape) if name == "a" else [5, 160])
    for value in model.graph.initializer:
        if value.name == name:
            value.CopyFrom(numpy_helper.from_array(np.zeros(shape, numpy_helper.to_array(value).dtype), name))
    node = model.graph.node[0]
    if isinstance(shape, int):
        kept = [a for a in node.attribute if a.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(name, shape)])
    with pytest.raises(UnsupportedError, match=message):
        support.compile_model(model)


def as_inputs(model: onnx.ModelProto, symbolic: bool) -> list[np.ndarray]:
    """The initializers of a model, which become its last inputs."""
    arrays = []
    for it in model.graph.initializer:
        shape = [f"{it.name}_{k}" for k in range(len(it.dims))] if symbolic else it.dims
        model.graph.input.append(helper.make_tensor_value_info(it.name, it.data_type, shape))
        arrays.append(numpy_helper.to_array(it))
    del model.graph.initializer[:]
    return arrays


@pytest.mark.costly
@pytest.mark.parametrize(("bits", "zeros"), [(2, "float"), (3, "packed"), (4, ""), (4, "packed"), (8, "packed")])
@pytest.mark.parametrize("symbolic", [False, True])
def test_weights_that_are_inputs(bits: int, zeros: str, symbolic: bool) -> None:
    """Nothing is rounded for them, whatever a model allows."""
    weights, a = Weights(64, 8, bits, 32, zeros), activations(2, 64)
    model = weights.model([2, 64], accuracy_level=4)
    agree(support.run_model(model, a, *as_inputs(model, symbolic))[0], weights, a)


def templates(model: onnx.ModelProto) -> set[str]:
    """Which algorithms the variants of the product are."""
    marks = {
        "packed": "var dot0_0 = 0f",
        "tiles": "var<workgroup> tiles",
        "direct": "var<workgroup> results",
        "registers": "var sums",
    }
    texts = [text for kernel in support.compile_model(model).kernels for text in kernel.wgsl]
    return {name for text in texts for name, mark in marks.items() if mark in text}


def test_who_takes_the_kernel_for_few_rows() -> None:
    many = "registers" if support.target().tuning else "direct" if support.target().software else "tiles"
    weights = Weights(256, 64, 4, 32)
    assert templates(weights.model([1, 256])) == templates(weights.model([4, 256])) == {"packed"}
    assert templates(weights.model([192, 256])) == {many}
    assert templates(weights.model(["rows", 256])) == {"packed", many}
    assert templates(Weights(255, 64, 4, 32).model([1, 255])) == {many}, "no whole words"


@pytest.mark.costly
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_integers_become_floats_by_their_bits(bits: int) -> None:
    """Every number at every place of a word, with every zero point that it has."""
    count = 1 << bits
    n, k, block = 32, 64, 64
    q = (np.arange(n)[:, None] * 5 + np.arange(k)) % count
    zero = np.arange(n) % count
    arrays = {"b": packed(q[:, None], bits), "s": np.ones((n, 1), F32), "z": packed(zero[:, None], bits)}
    node = helper.make_node(
        "MatMulNBits", ["a", *arrays], ["y"], domain=MICROSOFT, K=k, N=n, bits=bits, block_size=block
    )
    graph = helper.make_graph(
        [node],
        "bits",
        [helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, ["rows", k])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, name) for name, a in arrays.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)], ir_version=10
    )
    runner = support.Runner(support.compile_model(model))
    want = (q - zero[:, None]).T.astype(F32)
    np.testing.assert_array_equal(runner(np.eye(k, dtype=F32))[0], want)
    for place in (0, 7, 31, 63):
        np.testing.assert_array_equal(runner(np.eye(k, dtype=F32)[place : place + 1])[0], want[place : place + 1])


@pytest.mark.costly
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_weights_larger_than_a_binding_and_real_numbers_larger_than_a_buffer(rows: int) -> None:
    """Only the packed bytes count: windows of them are bound, and what they stand for is nowhere."""
    weights = Weights(256, 1024, 4, 32, "packed", F16)
    small = dataclasses.replace(support.target(), max_binding_bytes=1 << 16, max_buffer_bytes=1 << 19)
    program = support.compile_model(weights.model([rows, 256]), small)
    assert len(program.dispatches) == 1
    a = activations(rows, 256, dtype=F16)
    agree(support.Runner(program, on=support.device())(a)[0], weights, a)


@pytest.mark.costly
def test_what_follows_leaves_weights_their_bindings() -> None:
    """A product with so many operands behind it that some have to go elsewhere, and not its weights."""
    weights = Weights(256, 64, 4, 32, "packed", bias=True)
    model = weights.model(["rows", 256])
    model.graph.node[0].output[0] = "r0"
    count = 7
    for k in range(count):
        result = "y" if k == count - 1 else f"r{k + 1}"
        model.graph.node.append(helper.make_node("Add", [f"r{k}", f"e{k}"], [result]))
        model.graph.input.append(helper.make_tensor_value_info(f"e{k}", onnx.TensorProto.FLOAT, ["rows", 64]))
    program = support.compile_model(model)
    known = [value.shape for value in program.values if all(isinstance(d, int) for d in value.shape)]
    assert [64, 256] not in [list(shape) for shape in known]
    a = activations(3, 256)
    extra = [activations(3, 64, seed=k) for k in range(count)]
    (y,) = support.Runner(program)(a, *extra)
    np.testing.assert_allclose(y - np.sum(extra, 0), weights.wanted(a)[0], rtol=1e-3, atol=1e-3)
