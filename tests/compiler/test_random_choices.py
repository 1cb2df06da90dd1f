"""Whatever numbers a table has for a kernel are refused, or change nothing but which kernel runs.

Parameters are those that are shipped or worth measuring with some of the numbers changed; a Program that has them is compared
with the one that is made without a table, on small shapes that no tile divides.
"""

from __future__ import annotations

import dataclasses
import random
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.compiler.tune import KERNELS
from onnxruntime_ep_wgpu.compiler.tune.base import Parameters
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import Target
from onnxruntime_ep_wgpu.program.tuning import Choice
from tests import targets
from tests.support import Runner, compile_model, make_model, target

F, H = np.float32, np.float16
SHIPPED = (*tune.GPU, *tune.SWIFTSHADER, *tune.SOFTWARE)
MOST_TEXT = 32_000  # characters of a kernel: longer ones take a shader compiler seconds
Case = tuple[onnx.ModelProto, list[np.ndarray]]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, F)


def of(nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, ...]], **weights: np.ndarray) -> Case:
    model = make_model(nodes, {name: (F, list(shape)) for name, shape in inputs.items()}, weights)
    return model, [normal(*shape) for shape in inputs.values()]


def product(batch: int, m: int, k: int, n: int) -> Case:
    return of([node("MatMul", ["a", "b"], ["y"])], {"a": (batch, m, k), "b": (batch, k, n)})


def halves(batch: int, m: int, k: int, n: int) -> Case:
    """Of small whole numbers, whose sums halves hold."""
    model = make_model([node("MatMul", ["a", "b"], ["y"])], {"a": (H, [batch, m, k]), "b": (H, [batch, k, n])})
    dice = np.random.default_rng(k)
    return model, [dice.integers(-3, 4, shape).astype(H) for shape in ((batch, m, k), (batch, k, n))]


def eight_bits(m: int, k: int, n: int) -> Case:
    zeros = {"p": np.array(7, np.uint8), "q": np.array(3, np.int8)}
    dice = np.random.default_rng(k)
    weights = {"b": dice.integers(-128, 128, (k, n)).astype(np.int8), **zeros}
    model = make_model([node("MatMulInteger", ["a", "b", "p", "q"], ["y"])], {"a": (np.uint8, [m, k])}, weights)
    return model, [dice.integers(0, 256, (m, k)).astype(np.uint8)]


def packed(m: int, k: int, n: int, block: int, bits: int, *, rounded: bool = False) -> Case:
    """With `rounded`, what may be rounded to 8 bits is 8 bits, of which some are the largest everywhere."""
    rng = np.random.default_rng(k)
    weights = {
        "w": rng.integers(0, 256, (n, -(-k // block), block * bits // 8), np.uint8),
        "s": rng.uniform(0.5, 1.5, n * -(-k // block)).astype(F),
    }
    how = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": 4 * rounded}
    nodes = [node("MatMulNBits", ["a", "w", "s"], ["y"], domain="com.microsoft", **how)]
    model, arrays = of(nodes, {"a": (m, k)}, **weights)
    if rounded:
        arrays[0] = rng.integers(-127, 128, (m, k)).astype(F)
        arrays[0][:, :: 32 // bits] = 127
    return model, arrays


def experts(rows: int, k: int, n: int, count: int, block: int) -> Case:
    rng = np.random.default_rng(k)
    weights: dict[str, np.ndarray] = {}
    for name, (wide, columns) in {"1": (n, k), "2": (k, n)}.items():
        weights[f"w{name}"] = rng.integers(0, 256, (count, wide, columns // 2), np.uint8)
        weights[f"s{name}"] = rng.uniform(0.01, 0.02, (count, wide, columns // block)).astype(F)
    how = {"k": 2, "expert_weight_bits": 4, "block_size": block, "activation_type": "relu"}
    names = ["x", "router", "w1", "s1", "", "w2", "s2"]
    return of(
        [node("QMoE", names, ["y"], domain="com.microsoft", **how)],
        {"x": (rows, k), "router": (rows, count)},
        **weights,
    )


def rows_of(rows: int, columns: int) -> Case:
    nodes = [
        node("Softmax", ["x"], ["s"]),
        node("LayerNormalization", ["s", "gain"], ["n"]),
        node("ReduceL2", ["n", "axes"], ["y"]),
        node("ArgMax", ["x"], ["at"], axis=-1),
    ]
    return of(nodes, {"x": (rows, columns)}, axes=np.array([-1]), gain=np.linspace(0, 2, columns, dtype=F))


def across(*shape: int) -> Case:
    nodes = [node("ReduceSum", ["x", "axes"], ["y"]), node("ReduceMax", ["x", "axes"], ["z"])]
    return of(nodes, {"x": shape}, axes=np.array([-2]))


def maps(size: int) -> Case:
    nodes = [node("Add", ["a", "b"], ["c"]), node("Less", ["a", "b"], ["l"]), node("Sigmoid", ["c"], ["y"])]
    nodes.append(node("Cast", ["y"], ["h"], to=TensorProto.FLOAT16))
    return of(nodes, {"a": (size,), "b": (size,)})


def convolution(outputs: int, channels: int, group: int, repeated: int = 1) -> Case:
    nodes = []
    for at in range(repeated):
        nodes.append(node("Conv", [f"x{at}", "w"], [f"c{at}"], pads=[1, 1, 1, 1], group=group))
        nodes.append(node("Relu", [f"c{at}"], [f"x{at + 1}"]))
    return of(nodes, {"x0": (2, channels, 9, 11)}, w=normal(outputs, channels // group, 3, 3))


def channels_last(channels: int, each: int = 1, **attributes: Any) -> Case:
    """In groups of `each` channels, behind a convolution that makes the image with its channels last."""
    attributes = {"pads": [1, 1, 1, 1], "group": channels // each} | attributes
    nodes = [node("Conv", ["x", "spread"], ["c"]), node("Conv", ["c", "w"], ["y"], **attributes)]
    return of(nodes, {"x": (2, 4, 9, 11)}, spread=normal(channels, 4, 1, 1), w=normal(channels, each, 3, 3))


def excited(channels: int, hidden: int) -> Case:
    """What a convolution makes with its channels last, scaled by a gate of it, and a product of that."""
    nodes = [
        node("Conv", ["x", "spread"], ["c"]), node("GlobalAveragePool", ["c"], ["m"]), node("Conv", ["m", "w"], ["h"]),
        node("Relu", ["h"], ["r"]), node("Conv", ["r", "v"], ["g"]), node("Mul", ["c", "g"], ["s"]),
        node("Conv", ["s", "last"], ["y"]),
    ]  # fmt: skip
    weights = {
        "w": normal(hidden, channels, 1, 1),
        "v": normal(channels, hidden, 1, 1),
        "last": normal(12, channels, 1, 1),
    }
    return of(nodes, {"x": (3, 4, 9, 11)}, spread=normal(channels, 4, 1, 1), **weights)


def attention(rows: int, keys: int, size: int, value_size: int) -> Case:
    nodes = [
        node("MatMul", ["q", "k"], ["s"]),
        node("Softmax", ["s"], ["w"], axis=-1),
        node("MatMul", ["w", "v"], ["y"]),
    ]
    return of(nodes, {"q": (1, 2, rows, size), "k": (1, 2, size, keys), "v": (1, 2, keys, value_size)})


def attention_of_halves(rows: int, keys: int, size: int, value_size: int) -> Case:
    """Of keys that are seen alike or not at all, and of small whole numbers, whose sums halves hold."""
    model, _ = attention(rows, keys, size, value_size)
    for it in model.graph.input:
        it.type.tensor_type.elem_type = TensorProto.FLOAT16
    dice = np.random.default_rng(keys)
    q = np.eye(size, dtype=H)[dice.integers(0, size, (1, 2, rows))]
    k, v = dice.choice([0, -64], (1, 2, size, keys)), dice.integers(-3, 4, (1, 2, keys, value_size))
    return model, [q, k.astype(H), v.astype(H)]


PRODUCTS = [product(2, 33, 70, 45), product(1, 6, 37, 130)]
ATTENTION = [attention(37, 70, 20, 24), attention(70, 33, 24, 7)]
CASES: dict[str, list[Case]] = {
    "matmul": [*PRODUCTS, packed(130, 96, 45, 32, 4)],
    "matvec": [product(2, 1, 70, 37), product(1, 3, 300, 130)],
    "matmul_dots": [packed(150, 96, 45, 32, 4, rounded=True), packed(130, 64, 70, 64, 2, rounded=True)],
    "packed_rows": [
        packed(1, 320, 45, 32, 4),
        packed(3, 80, 37, 16, 8),
        packed(2, 192, 6, 64, 4),
        packed(1, 352, 44, 32, 4, rounded=True),
        packed(1, 96, 9, 32, 8, rounded=True),
        experts(3, 64, 96, 4, 32),
    ],
    "matmul_matrices": [halves(2, 33, 70, 45), halves(1, 40, 37, 130)],
    "matmul_bytes": [eight_bits(33, 70, 45), eight_bits(40, 36, 130)],
    "matmul_direct": PRODUCTS,
    "matmul_registers": PRODUCTS,
    "matmul_parts": [product(1, 33, 1300, 45), product(2, 6, 531, 20)],
    "rows": [rows_of(7, 65), rows_of(130, 33)],
    "rows_across": [across(70, 37), across(3, 33, 130)],
    "parts_across": [across(700, 33), across(3, 126, 5)],
    "map": [maps(1037), maps(68)],
    "vectors": [maps(1036), maps(68)],
    "conv_direct": [convolution(13, 5, 1), convolution(12, 6, 2)],
    "conv_registers": [convolution(13, 5, 1), convolution(12, 6, 2)],
    "depthwise": [convolution(6, 6, 6), convolution(10, 5, 5)],
    "depthwise_last": [channels_last(8), channels_last(20)],
    "grouped_last": [channels_last(8, 4), channels_last(24, 8, strides=[1, 2]), channels_last(12, 4, dilations=[1, 2])],
    "squeeze_excite": [excited(24, 6), excited(20, 7)],
    "gated_rows": [excited(24, 6)],
    "channels_last": [convolution(8, 8, 1, 3), convolution(6, 6, 1, 2)],
    "attention": ATTENTION,
    "flash_attention": ATTENTION,
    "flash_matrices": [attention_of_halves(37, 70, 24, 16), attention_of_halves(70, 33, 16, 40)],
    "flash_rows": [attention(1, 70, 20, 24), attention(5, 133, 24, 7)],
    "flash_parts": [attention(3, 300, 20, 24), attention(20, 133, 24, 7)],
}  # fmt: skip
FOR_SOFTWARE = {it.kernel for it in (*tune.SWIFTSHADER, *tune.SOFTWARE)} - {it.kernel for it in tune.GPU}


FUSED = (tune.use(tune.attention.AttentionForm(1)),)
BESIDE: dict[str, tuple[Choice, ...]] = {
    **{
        kernel: (tune.use(tune.convolutions.ChannelsLast(2)),)
        for kernel in ("depthwise_last", "grouped_last", "squeeze_excite", "gated_rows")
    },
    **{kernel: FUSED for kernel in CASES if kernel.startswith("flash")},
}
"""What has to be chosen too for the kernel to run at all."""


def changed(rng: random.Random, parameters: Parameters) -> dict[str, int]:
    """The numbers of `parameters`, of which some may be others."""
    values: dict[str, int] = dataclasses.asdict(parameters)
    for name in rng.sample(sorted(values), min(len(values), rng.choice((0, 1, 1, 1, 2, 3)))):
        old = values[name]
        values[name] = rng.choice(
            (old + 1, old + 2, old + 4, old * 3 // 2, old // 2, 2 * old, rng.randrange(2 * old + 3))
        )
    return values


@cache
def shipped(kernel: str, at: int, on: Target) -> tuple[frozenset[str], list[np.ndarray]]:
    """Texts and results of a case without a table."""
    model, arrays = CASES[kernel][at]
    program = compile_model(model, on)
    return texts(program), Runner(program)(*arrays)


def texts(program: Program) -> frozenset[str]:
    return frozenset(text for it in program.kernels for text in it.wgsl)


def is_right(kernel: str, at: int, on: Target, choice: Choice) -> bool:
    """Compares a case with and without a choice; whether it makes other kernels."""
    model, arrays = CASES[kernel][at]
    before, wanted = shipped(kernel, at, on)
    program = compile_model(model, dataclasses.replace(on, tuning=(choice, *BESIDE.get(kernel, ()))))
    if texts(program) == before or max(map(len, texts(program))) > MOST_TEXT:
        return False
    for found, want in zip(Runner(program)(*arrays), wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-4 * max(1, np.abs(want).max()), err_msg=str(choice))
    return True


def check(kernel: str, seed: int, count: int) -> None:
    on = target()
    rng = random.Random(f"{kernel} {seed}")
    known = [it for it in map(tune.parameters_of, SHIPPED) if it.kernel == kernel]
    known += KERNELS[kernel].candidates()
    drawn: set[tuple[Choice, int]] = set()
    effects = tried = 0
    for _ in range(100 * count):
        if effects == count or tried == max(60, 4 * count):
            break
        choice = Choice(kernel, tuple(sorted(changed(rng, rng.choice(known)).items())))
        try:
            found = tune.parameters_of(choice)
        except ValueError:
            continue
        if found.invocations > on.max_invocations or found.workgroup_bytes > on.max_workgroup_storage:
            continue
        at = rng.randrange(len(CASES[kernel]))
        if (choice, at) not in drawn:
            drawn.add((choice, at))
            tried += 1
            effects += is_right(kernel, at, on, choice)
    assert effects, f"of {tried} choices none made other kernels"


def test_every_kernel_has_cases() -> None:
    assert set(CASES) == set(KERNELS)


def run(kernel: str, seed: int, count: int) -> None:
    by_matrices = ("matmul_matrices", "matmul_bytes", "flash_matrices")
    target_of = {**dict.fromkeys(by_matrices, "matrices"), **dict.fromkeys(FOR_SOFTWARE, "software")}
    with targets.using(targets.Way(target_of.get(kernel, "gpu"))):
        check(kernel, seed, count)


@pytest.mark.costly
@pytest.mark.parametrize("kernel", KERNELS)
def test_numbers_are_refused_or_right(kernel: str) -> None:
    run(kernel, 0, 1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(1, 3))
@pytest.mark.parametrize("kernel", KERNELS)
def test_more_numbers_are_refused_or_right(kernel: str, seed: int) -> None:
    run(kernel, seed, 20)
