"""What is generated has nothing in it that it does not use, and cannot read what it has yet to compute."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import onnx_ir as ir
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler.emit.kernel_text import generate
from onnxruntime_ep_wgpu.compiler.ir import Call, LoweredGraph
from onnxruntime_ep_wgpu.compiler.lower.lower import lower
from onnxruntime_ep_wgpu.compiler.passes.dead import remove_dead
from onnxruntime_ep_wgpu.compiler.passes.fuse import FusedGroup
from onnxruntime_ep_wgpu.program.program import Program
from tests.compiler.chains import ANCHORS, chain
from tests.support import Runner, compile_model, make_model, target

F = np.float32


def lowered(model) -> LoweredGraph:
    module = ir.from_proto(model)
    return remove_dead(lower(module.graph, module.opset_imports, target()))


def test_a_kernel_that_would_load_what_it_computes_is_an_error_and_not_a_wrong_number() -> None:
    """Fusion never makes such a group: the map reads the product elsewhere than where it is stored."""
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Transpose", ["m"], ["t"]), node("Add", ["m", "t"], ["y"])]
    graph = lowered(make_model(nodes, {"x": (F, [4, 8])}, {"w": np.ones((8, 4), F)}))
    product, total = graph.nodes
    assert isinstance(product, Call)
    for stores in ([total.outputs[0]], [product.outputs[0], total.outputs[0]]):
        with pytest.raises(AssertionError, match=r"would load .*, which it computes"):
            generate(FusedGroup([product, total], product, stores=stores), target())


def test_a_binding_that_fusion_counted_and_no_variant_uses_is_an_error() -> None:
    graph = lowered(make_model([node("Neg", ["x"], ["y"]), node("Exp", ["z"], ["e"])], {"x": (F, [4]), "z": (F, [4])}))
    first, second = graph.nodes
    with pytest.raises(AssertionError, match=r"binds z:float32\[4\] for nothing"):
        generate(FusedGroup([first, second], stores=first.outputs), target())


def unused(program: Program) -> list[str]:
    """Functions and members of the uniform block that no variant of a kernel mentions."""
    out = []
    for kernel in program.kernels:
        mentioned = {int(n) for text in kernel.wgsl for n in re.findall(r"\bdims\.d(\d+)", text)}
        out += [f"{kernel.label}: d{n}" for n in range(kernel.uniforms) if n not in mentioned]
        for text in kernel.wgsl:
            code = re.sub(r"//[^\n]*", "", text)
            names = re.findall(r"^fn (\w+)", code, re.MULTILINE)
            out += [f"{kernel.label}: {n}" for n in names if n != "main" and len(re.findall(rf"\b{n}\b", code)) < 2]
            assert len(names) == len(set(names))
    return out


@pytest.mark.parametrize("software", [True, False], ids=["software", "hardware"])
@pytest.mark.parametrize("anchor", ANCHORS)
def test_no_function_and_no_uniform_is_for_nothing(anchor: str, software: bool) -> None:
    for dynamic in (False, True):
        model, _ = chain(anchor, 1, dynamic)
        assert unused(compile_model(model, dataclasses.replace(target(), software=software))) == []


def test_layers_share_a_kernel_whichever_of_their_sizes_are_equal() -> None:
    nodes, weights = [], {}
    for k, (rows, columns) in enumerate(((8, 8), (8, 12), (12, 12), (12, 24))):
        weights |= {f"w{k}": np.ones((rows, columns), F), f"b{k}": np.ones(columns, F), f"g{k}": np.ones(columns, F)}
        nodes += [node("MatMul", [f"v{k}", f"w{k}"], [f"m{k}"]), node("Add", [f"m{k}", f"b{k}"], [f"a{k}"]),
                  node("Mul", [f"a{k}", f"g{k}"], [f"v{k + 1}"])]  # fmt: skip
    model = make_model(nodes, {"v0": (F, ["n", 8])}, weights)
    for software in (True, False):
        program = compile_model(model, dataclasses.replace(target(), software=software))
        assert (len(program.dispatches), len(program.kernels)) == (4, 1)


def test_operands_of_equal_layout_share_their_arithmetic() -> None:
    """Both are read at the same column, which is found once."""
    names = ["b", "c", "d"]
    nodes = [node("Add", [f"t{k}", n], [f"t{k + 1}"]) for k, n in enumerate(names)]
    model = make_model(nodes, {"t0": (F, ["n", 6]), **{n: (F, [6]) for n in names}})
    ((text,),) = [k.wgsl for k in compile_model(model).kernels]
    assert text.count("%") == 1


@pytest.mark.costly
@pytest.mark.parametrize("software", [True, False], ids=["software", "hardware"])
def test_layers_share_a_kernel_whatever_their_scalar_weights_are(software: bool) -> None:
    scales = [0.5, -3.25, 1e-30, 7.0]
    nodes, weights = [], {"w": np.eye(8, dtype=F)}
    for k, scale in enumerate(scales):
        weights |= {f"s{k}": np.array(scale, F), f"o{k}": np.array([scale / 3], F)}
        nodes += [node("MatMul", [f"v{k}", "w"], [f"m{k}"]), node("Div", [f"m{k}", f"s{k}"], [f"d{k}"]),
                  node("Add", [f"d{k}", f"o{k}"], [f"v{k + 1}"])]  # fmt: skip
    model = make_model(nodes, {"v0": (F, ["n", 8])}, weights)
    program = compile_model(model, dataclasses.replace(target(), software=software))
    assert (len(program.dispatches), len(program.kernels)) == (4, 1)
    x = np.random.default_rng(0).standard_normal((5, 8)).astype(F)
    want = x.astype(np.float64)
    for scale in scales:
        want = want / F(scale) + F(scale / 3)
    np.testing.assert_allclose(Runner(program)(x)[0], want, rtol=2e-6)


@pytest.mark.parametrize("value", [-3.0, -0.0, float("-inf"), np.int64(-5), np.int32(-(2**31)), np.int8(-7)])
def test_minus_a_negative_constant(value: float | np.generic) -> None:
    constant = np.array(value, F if isinstance(value, float) else None)
    nodes = [node("Neg", ["c"], ["n"]), node("Add", ["n", "x"], ["y"])]
    model = make_model(nodes, {"x": (constant.dtype, [2])}, {"c": constant})
    x = np.array([0, 1], constant.dtype)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(Runner(compile_model(model))(x)[0], -constant + x)


@pytest.mark.parametrize("where", ["softmax", "map", "neither"])
def test_no_compiler_knows_that_a_number_is_infinite(where: str) -> None:
    """Metal's takes such a constant for impossible, and makes `x` of `select(x, x - infinity, hidden)`."""
    nodes = {
        "softmax": [node("Where", ["c", "x", "low"], ["m"]), node("Softmax", ["m"], ["y"])],
        "map": [node("Where", ["c", "zero", "low"], ["m"]), node("Add", ["x", "m"], ["y"])],
        "neither": [node("Where", ["c", "x", "zero"], ["y"])],
    }[where]
    constants = {"low": np.float32(-np.inf), "zero": np.float32(0)}
    weights = {name: value for name, value in constants.items() if any(name in it.input for it in nodes)}
    model = make_model(nodes, {"c": (np.bool_, [3, 5]), "x": (np.float32, [3, 5])}, weights)
    program = compile_model(model, target())
    texts = [text for kernel in program.kernels for text in kernel.wgsl]
    assert any("float_bits" in text for text in texts) == (where != "neither")
    for text in texts:
        assert ("hidden_zero = id.z;" in text) == ("hidden_zero: u32;" in text)
        assert ("float_bits" in text) <= ("bits ^ hidden_zero" in text)
    c, x = np.arange(15).reshape(3, 5) % 3 == 0, np.linspace(-2, 2, 15, dtype=np.float32).reshape(3, 5)
    y = Runner(program)(c, x)[0]
    kept = np.where(c, x, -np.inf if where != "neither" else 0)
    if where == "softmax":
        kept = np.exp(kept) / np.exp(kept).sum(1, keepdims=True)
    np.testing.assert_allclose(y, kept, rtol=1e-6)
