"""Squeeze-and-excitation blocks: one kernel for the average of an image and both products, or for the products behind the average,
however they are spelled; and what only looks like one."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.compiler.tune.convolutions import ChannelsLast
from onnxruntime_ep_wgpu.compiler.tune.squeeze import SqueezeExcite
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import Target
from tests import halves
from tests.ops.compare import expected
from tests.support import Runner, compile_model, labels, make_model, target
from tests.targets import OWN, Way, each, using

F = np.float32
AVERAGES = ("ReduceMean", "GlobalAveragePool", "flat", "ReduceSum", "ReduceMax")
PRODUCTS = ("Conv", "Gemm", "MatMul")
ACTIVATIONS = ("Relu", "Swish", "HardSwish", "none")
GATES = ("Sigmoid", "HardSigmoid")


way = each(Way("gpu"), Way("channels", "pair"))


def on(fused: int, threads: int = 64, splits: int = 1) -> Target:
    """A Target with this choice for every block."""
    here = target()
    choices = [SqueezeExcite(it, threads, splits) for it in (fused, 2) if fused]
    return dataclasses.replace(here, tuning=(*map(tune.use, choices or [SqueezeExcite(0, 1, 1)]), *here.tuning))


def last() -> bool:
    """Whether images have their channels last."""
    return tune.use(ChannelsLast(2)) in target().tuning


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F)


def block(
    sizes: tuple[int, int, int] = (20, 8, 20),
    image: list[Any] | None = None,
    *,
    average: str = "ReduceMean",
    product: str = "Conv",
    activation: str = "Relu",
    gate: str = "Sigmoid",
    bias: bool = True,
    given: bool = False,
    outputs: tuple[str, ...] = ("y",),
) -> onnx.ModelProto:
    """Channels of an image that a convolution makes, or that is `given`, hidden ones and results; the image scaled by these where
    they are as many."""
    channels, hidden, results = sizes
    shape = image or [3, 5, 9, 7]
    weights: dict[str, np.ndarray] = {"axes": np.array([2, 3]), "three": np.array(3, F), "sixth": np.array(1 / 6, F)}
    nodes = [] if given else [node("Conv", ["x", "spread"], ["made"]), node("Relu", ["made"], ["image"])]
    source = "x" if given else "image"
    weights["spread"] = normal(1, channels, 5, 1, 1)
    flat = average == "flat" or product != "Conv"
    kind = "ReduceMean" if average == "flat" else average
    if kind == "GlobalAveragePool":
        nodes.append(node(kind, [source], ["m"]))
        nodes += [node("Flatten", ["m"], ["mean"])] if flat else [node("Identity", ["m"], ["mean"])]
    else:
        nodes.append(node(kind, [source, "axes"], ["mean"], keepdims=int(not flat)))
    at = "mean"
    if flat and product == "Conv":
        weights["wide"] = np.array([0, 0, 1, 1])
        nodes.append(node("Reshape", ["mean", "wide"], ["square"]))
        at = "square"

    def multiply(k: int, x: str, y: str, rows: int, columns: int) -> None:
        w = normal(2 + k, columns, rows) / np.sqrt(rows).astype(F)
        b = [f"b{k}"] if bias else []
        weights[f"b{k}"] = normal(4 + k, columns)
        if product == "Conv":
            weights[f"w{k}"] = w.reshape(columns, rows, 1, 1)
            nodes.append(node("Conv", [x, f"w{k}", *b], [y]))
        elif product == "Gemm":
            weights[f"w{k}"] = w
            nodes.append(node("Gemm", [x, f"w{k}", *b], [y], transB=1))
        else:
            weights[f"w{k}"] = np.ascontiguousarray(w.T)
            nodes.append(node("MatMul", [x, f"w{k}"], [f"p{k}" if bias else y]))
            nodes.extend([node("Add", [f"p{k}", f"b{k}"], [y])] if bias else [])

    multiply(0, at, "h", channels, hidden)
    nodes += {
        "Relu": [node("Relu", ["h"], ["a"])],
        "Swish": [node("Sigmoid", ["h"], ["s"]), node("Mul", ["h", "s"], ["a"])],
        "HardSwish": [
            node("Add", ["h", "three"], ["h3"]), node("Clip", ["h3", "", ""], ["c"]), node("Mul", ["h", "c"], ["hc"]),
            node("Mul", ["hc", "sixth"], ["a"]),
        ],
        "none": [node("Identity", ["h"], ["a"])],
    }[activation]  # fmt: skip
    multiply(1, "a", "g", hidden, results)
    nodes.append(node(gate, ["g"], ["gate"]))
    if results != channels:
        nodes.append(node("Neg", ["gate"], ["y"]))
    elif product == "Conv":
        nodes.append(node("Mul", [source, "gate"], ["y"]))
    else:
        weights["long"] = np.array([0, 0, 1, 1])
        nodes += [node("Reshape", ["gate", "long"], ["gates"]), node("Mul", [source, "gates"], ["y"])]
    used = {name for it in nodes for name in it.input}
    made = make_model(nodes, {"x": (F, shape)}, {name: it for name, it in weights.items() if name in used})
    del made.graph.output[:]
    made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    return made


def reasons(program: Program) -> list[str]:
    return [it.reason for it in program.declined if it.rule == "squeeze_excite"]


def compare(made: onnx.ModelProto, program: Program, x: np.ndarray, tolerance: float = 2e-5) -> None:
    for got, want in zip(Runner(program)(x), expected(made, {"x": x}), strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(20))
def test_spellings_and_sizes(seed: int) -> None:
    """Of every spelling, of sizes that are multiples of nothing, by any number of invocations and workgroups."""
    rng = np.random.default_rng(seed)
    sizes = tuple(int(it) for it in rng.integers(1, 50, 3))
    if seed % 2:
        sizes = (4 * sizes[0], 4 * sizes[1], 4 * sizes[0])
    made = block(
        (sizes[0], sizes[1], sizes[2]),
        [int(it) for it in (rng.integers(1, 4), 5, rng.integers(1, 12), rng.integers(1, 12))],
        average=str(AVERAGES[seed % len(AVERAGES)]),
        product=str(rng.choice(PRODUCTS)),
        activation=str(rng.choice(ACTIVATIONS)),
        gate=str(rng.choice(GATES)),
        bias=bool(rng.integers(2)),
    )
    x = normal(seed, *(it.dim_value for it in made.graph.input[0].type.tensor_type.shape.dim))
    program = compile_model(made, on(3, int(rng.choice([1, 16, 64, 256, 1024])), int(rng.choice([1, 2, 3, 5]))))
    assert labels(program).count("squeeze_excite") == 1, seed
    compare(made, program, x)


@pytest.mark.costly
@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("product", PRODUCTS)
def test_what_is_one_kernel(average: str, product: str) -> None:
    """The average, where neighbours in memory are channels and it is one; else the products alone."""
    made, x = block(average=average, product=product), normal(3, 3, 5, 9, 7)
    averaged = last() and average != "ReduceMax"
    for fused in (3, 2, 0):
        program = compile_model(made, on(fused))
        found = labels(program)
        assert found.count("squeeze_excite") == int(fused > 0)
        assert found.count("reduce") == int(fused < 3 or not averaged)
        assert found.count("matmul") == (1 if fused else 3)
        compare(made, program, x)


@pytest.mark.costly
def test_what_is_shipped() -> None:
    """As in RegNetY-1.6GF, whose largest weights stay products."""
    for sizes, side, kernels in (((48, 12, 48), 8, 1), ((336, 84, 336), 14, 1), ((888, 222, 888), 7, 0)):
        made = block(sizes, [2, 5, side, side])
        program = compile_model(made)
        assert labels(program).count("squeeze_excite") == kernels
        assert labels(program).count("reduce") == int(not last() or not kernels)
        assert any("are read faster by products" in it for it in reasons(program)) == (not kernels)
        if kernels:
            compare(made, program, normal(1, 2, 5, side, side), 1e-4)


@pytest.mark.costly
def test_sums_of_parts_are_summed_up() -> None:
    """Of a large image, which is reduced in two steps: the second one is in the kernel."""
    splits = tune.use(tune.rows.ColumnSplits(1 << 10, 16))
    made, here = block((16, 8, 16), [2, 5, 16, 12]), on(3)
    program = compile_model(made, dataclasses.replace(here, tuning=(splits, *here.tuning)))
    assert labels(program).count("reduce") == 1
    assert labels(program).count("squeeze_excite") == 1
    compare(made, program, normal(3, 2, 5, 16, 12))


@pytest.mark.costly
@pytest.mark.parametrize("kind", halves.HALVES)
@pytest.mark.parametrize("product", ["Conv", "MatMul"])
@pytest.mark.parametrize("sizes", [(20, 8, 20), (20, 7, 18)])
def test_halves(sizes: tuple[int, int, int], product: str, kind: int) -> None:
    made = halves.retyped(block(sizes, product=product, activation="Swish"), onnx.TensorProto.FLOAT, kind)
    given = halves.as_type(normal(3, 3, 5, 9, 7), onnx.TensorProto.FLOAT, kind)
    (want,) = expected(halves.widened(made), {"x": given.astype(F)})
    for fused in (3, 2):
        program = compile_model(made, on(fused))
        assert labels(program).count("squeeze_excite") == 1
        assert labels(program).count("reduce") == int(fused < 3 or not last())
        (got,) = Runner(program)(given)
        assert got.dtype == given.dtype
        step = float(ml_dtypes.finfo(got.dtype).eps)
        np.testing.assert_allclose(got.astype(F), want, rtol=4 * step, atol=4 * step)


@pytest.mark.costly
@pytest.mark.parametrize("product", PRODUCTS)
def test_sizes_of_a_run(product: str) -> None:
    """No images, one and many, of any sides."""
    channels = 12 if last() else 5
    made = block((channels, 7, channels), ["n", 5, "h", "w"], product=product, given=not last())
    program = compile_model(made, on(3, 32, 2))
    assert labels(program).count("squeeze_excite") == 1
    runner = Runner(program)
    for n, h, w in ((1, 3, 4), (0, 3, 4), (70_000, 1, 1), (5, 9, 2)):
        x = normal(n, n, 5, h, w)
        for got, want in zip(runner(x), expected(made, {"x": x}), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.costly
def test_many_images() -> None:
    """Of sides that are known, so that the average is in the kernel."""
    channels = 12 if last() else 5
    made = block((channels, 7, channels), ["n", 5, 2, 3], given=not last())
    program = compile_model(made, on(3, 32, 2))
    assert labels(program).count("reduce") == int(not last())
    runner = Runner(program)
    for n in (1, 0, 70_000, 3):
        x = normal(n, n, 5, 2, 3)
        for got, want in zip(runner(x), expected(made, {"x": x}), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.costly
@pytest.mark.parametrize("product", ["Conv", "MatMul"])
@pytest.mark.parametrize("sizes", [(20, 8, 20), (19, 7, 19)])
def test_special_values(sizes: tuple[int, int, int], product: str) -> None:
    """A row that is not finite, at whatever place, changes no other one, and gives what the products give."""
    made = block(sizes, [6, 5, 2, 2], product=product, activation="none", outputs=("gate",))
    x = normal(3, 6, 5, 2, 2)
    x[1, 4, 1, 1], x[2, 0, 0, 0], x[3], x[4] = np.nan, np.inf, -np.inf, 3e38
    wanted = Runner(compile_model(made, on(0)))(x)
    for fused in (3, 2):
        for threads in (1, 64, 256):
            program = compile_model(made, on(fused, threads))
            assert labels(program).count("squeeze_excite") == 1
            for got, want in zip(Runner(program)(x), wanted, strict=True):
                np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.costly
def test_an_average_that_others_read_stays() -> None:
    """The graph, or another node."""
    made, x = block(outputs=("y", "mean")), normal(3, 3, 5, 9, 7)
    program = compile_model(made, on(3))
    assert labels(program).count("squeeze_excite") == labels(program).count("reduce") == 1
    compare(made, program, x)


@pytest.mark.costly
@pytest.mark.parametrize("name", ["h", "a"])
def test_hidden_rows_that_others_read(name: str) -> None:
    made, x = block(outputs=("y", name)), normal(3, 3, 5, 9, 7)
    program = compile_model(made, on(3))
    assert "squeeze_excite" not in labels(program)
    assert reasons(program) == ["the result of the first product has another reader"]
    compare(made, program, x)


@pytest.mark.costly
def test_weights_that_are_calculated() -> None:
    made = block(product="MatMul")
    names = {it.name for it in made.graph.initializer}
    assert "w0" in names
    made.graph.input.append(onnx.helper.make_tensor_value_info("w", 1, [20, 8]))
    made.graph.node.insert(0, node("Abs", ["w"], ["calculated"]))
    for it in made.graph.node:
        it.input[:] = ["calculated" if name == "w0" else name for name in it.input]
    program = compile_model(made, on(3))
    assert reasons(program) == ["the weights are not constant"]
    x, w = normal(3, 3, 5, 9, 7), normal(4, 20, 8)
    for got, want in zip(Runner(program)(x, w), expected(made, {"x": x, "w": w}), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_products_of_other_rows_stay() -> None:
    """Behind no reduction rows are tokens, of which there may be many."""
    nodes = [node("MatMul", ["x", "w0"], ["h"]), node("Relu", ["h"], ["a"]), node("MatMul", ["a", "w1"], ["y"])]
    made = make_model(nodes, {"x": (F, [6, 20])}, {"w0": normal(1, 20, 8), "w1": normal(2, 8, 20)})
    program = compile_model(made, on(3))
    assert "squeeze_excite" not in labels(program)
    assert not reasons(program)


@pytest.mark.costly
def test_hidden_rows_that_are_shuffled_are_no_rows() -> None:
    """A transpose between the products, of as many rows as columns."""
    made = block((8, 3, 5), [3, 5, 4, 4], product="MatMul")
    position = next(k for k, it in enumerate(made.graph.node) if it.op_type == "Relu" and it.output[0] == "a")
    made.graph.node[position].output[0] = "straight"
    made.graph.node.insert(position + 1, node("Transpose", ["straight"], ["a"], perm=[1, 0]))
    program = compile_model(made, on(3))
    assert "squeeze_excite" not in labels(program)
    compare(made, program, normal(3, 3, 5, 4, 4))


def test_software_adapters_keep_products() -> None:
    with using(OWN):
        program = compile_model(block(), dataclasses.replace(target(), software=True))
    assert "squeeze_excite" not in labels(program)
    assert not reasons(program)
