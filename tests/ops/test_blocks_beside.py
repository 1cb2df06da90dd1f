"""A node with several quantised weights gives what the nodes give that it stands for, on the CPU provider."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests import support
from tests.ops.compare import expected, random

MICROSOFT = "com.microsoft"
Arrays = dict[str, np.ndarray]


def weights(name: str, columns: int, inner: int, block: int, bits: int, bias: bool) -> Arrays:
    blocks = -(-inner // block)
    data = random(columns, blocks, block * bits // 8, dtype=np.uint8, seed=len(name))
    found = {f"{name}_B": data, f"{name}_scales": 0.1 * random(columns, blocks, seed=1)}
    return found | ({f"{name}_bias": random(columns, seed=2)} if bias else {})


def rounded(arrays: Arrays, dtype: Any, to: Any) -> Arrays:
    """Numbers of `dtype` as `to`; bytes stay."""
    return {name: it if it.dtype == np.uint8 else it.astype(dtype).astype(to) for name, it in arrays.items()}


def model(
    nodes: list[onnx.NodeProto], given: Arrays, constants: Arrays, outputs: list[str], dtype: Any
) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [helper.make_tensor_value_info(it, kind, ["n", *given[it].shape[1:]]) for it in given]
    made = [helper.make_tensor_value_info(it, kind, None) for it in outputs]
    stored = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, made, stored)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def apart(
    names: list[str], sizes: list[int], given: Arrays, constants: Arrays, how: dict[str, Any]
) -> list[onnx.NodeProto]:
    """The nodes in place of the fused one; products are called as their weights."""
    nodes, a, epsilon = [], "a", how["epsilon"]
    if "skip" in given:
        results = ["normal", "", "", "summed"]
        nodes.append(
            helper.make_node(
                "SkipSimplifiedLayerNormalization",
                ["a", "skip", "norm_scale"],
                results,
                domain=MICROSOFT,
                epsilon=epsilon,
            )
        )
    elif "norm_scale" in constants:
        nodes.append(
            helper.make_node("SimplifiedLayerNormalization", ["a", "norm_scale"], ["normal"], epsilon=epsilon, axis=-1)
        )
    a = "normal" if nodes else "a"
    for name, size in zip(names, sizes, strict=True):
        bias = f"{name}_bias" if f"{name}_bias" in constants else ""
        node = helper.make_node(
            "MatMulNBits", [a, f"{name}_B", f"{name}_scales", "", "", bias], [name], domain=MICROSOFT,
            K=how["K"], N=size, bits=how["bits"], block_size=how["block_size"],
        )  # fmt: skip
        nodes.append(node)
    return nodes


def fused(
    op: str, names: list[str], given: Arrays, constants: Arrays, outputs: list[str], **how: Any
) -> onnx.NodeProto:
    there = {**given, **constants}
    inputs = ["a", "skip", "norm_scale", *(f"{name}_{it}" for name in names for it in ("B", "scales", "bias"))]
    return helper.make_node(op, [it if it in there else "" for it in inputs], outputs, domain=MICROSOFT, **how)


def compare(one: onnx.ModelProto, other: onnx.ModelProto, given: Arrays, exact: Arrays, dtype: Any) -> None:
    wants = expected(other, exact)
    for ours, theirs in zip(support.run_model(one, *given.values()), wants, strict=True):
        assert ours.dtype == dtype
        assert ours.shape == theirs.shape
        tolerance = 1e-4 if dtype is np.float32 else 6e-3
        scale = max(1.0, float(np.nanmax(np.abs(theirs), initial=0)))
        np.testing.assert_allclose(ours.astype(np.float32), theirs, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("inner", "block", "bits"), [(64, 32, 4), (48, 16, 8)])
@pytest.mark.parametrize("which", ["mlp", "qkv"])
def test_products_beside_each_other(which: str, inner: int, block: int, bits: int, dtype: Any) -> None:
    names, sizes = (["gate", "up"], [24, 24]) if which == "mlp" else (["q", "k", "v"], [24, 8, 8])
    for rows, before, bias in ((1, "", True), (3, "norm", False), (0, "skip", True), (3, "skip", False)):
        if which == "qkv" and not before:
            continue  # it has a scale always
        given = {"a": random(rows, 2, inner)} | ({"skip": random(rows, 2, inner, seed=9)} if before == "skip" else {})
        constants = {"norm_scale": random(inner, seed=8)} if before else {}
        for name, size in zip(names, sizes, strict=True):
            constants |= weights(name, size, inner, block, bits, bias)
        how: dict[str, Any] = {"K": inner, "bits": bits, "block_size": block, "epsilon": 1e-3}
        nodes = apart(names, sizes, given, constants, how)
        results = list(names)
        if which == "mlp":
            nodes += [
                helper.make_node("Sigmoid", ["gate"], ["s"]),
                helper.make_node("Mul", ["gate", "s"], ["silu"]),
                helper.make_node("Mul", ["silu", "up"], ["y"]),
            ]
            results = ["y"]
            how |= {"activation": "silu", "N": sizes[0]}
        else:
            how |= {"Nq": sizes[0], "Nkv": sizes[1]}
        results += ["summed"] if before == "skip" else []
        op = "MatMulNBitsMlp" if which == "mlp" else "MatMulNBitsQkv"
        typed, exact = rounded(given, dtype, dtype), rounded(given, dtype, np.float32)
        held, held_exact = rounded(constants, dtype, dtype), rounded(constants, dtype, np.float32)
        one = model([fused(op, names, given, constants, results, **how)], typed, held, results, dtype)
        other = model(nodes, exact, held_exact, results, np.float32)
        compare(one, other, typed, exact, dtype)


def test_a_sum_without_a_summand_is_named() -> None:
    constants = {"norm_scale": random(32)} | weights("gate", 8, 32, 32, 4, False) | weights("up", 8, 32, 32, 4, False)
    given = {"a": random(3, 32)}
    how = {"K": 32, "N": 8, "bits": 4, "block_size": 32, "activation": "silu"}
    node = fused("MatMulNBitsMlp", ["gate", "up"], given, constants, ["y", "summed"], **how)
    with pytest.raises(UnsupportedError, match="the output input_skip_bias_sum needs the input skip"):
        support.run_model(model([node], given, constants, ["y", "summed"], np.float32), *given.values())
