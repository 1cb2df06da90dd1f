"""Expressions of operators mean what they mean in Python, and what has no meaning is refused when a node is lowered."""

from __future__ import annotations

import itertools
import re

import numpy as np
import onnx_ir as ir
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler.emit.expression import to_wgsl
from onnxruntime_ep_wgpu.compiler.emit.scalar import Scalars
from onnxruntime_ep_wgpu.compiler.emit.value import TypedValue
from onnxruntime_ep_wgpu.compiler.ir.expression import Checked, OfKind, check_expression, evaluated
from onnxruntime_ep_wgpu.compiler.ir.kinds import KINDS
from onnxruntime_ep_wgpu.compiler.lower.builder import Builder, Operand
from onnxruntime_ep_wgpu.compiler.lower.lower import attempt
from onnxruntime_ep_wgpu.compiler.lower.ops import registry
from onnxruntime_ep_wgpu.compiler.templates import functions
from onnxruntime_ep_wgpu.program.dtypes import DType
from tests.support import make_model, run_model, target

F = np.float32
X = np.array([-2, -1, -0.5, 0, 0.25, 1, 1.5, 2, 7], F)
INT64 = ("native", "pair")


@pytest.fixture
def operator(monkeypatch):
    """Sets what the operator Abs computes, as an expression over x."""

    def give(expression: str, dtype: DType | None = None) -> None:
        def lower(b: Builder, x: Operand) -> Operand:
            return b.pointwise(expression, {"x": x}, dtype or x.dtype)

        entry = registry.find("Abs", "", 20)
        changed = type(entry)(**{**entry.__dict__, "lower": lower})
        monkeypatch.setattr(registry, "find", lambda *_: changed)

    return give


def model(dtype: type = F):
    return make_model([node("Abs", ["x"], ["y"], "culprit")], {"x": (dtype, [9])})


def reason(of) -> str | None:
    module = ir.from_proto(of)
    (found,) = attempt(module.graph, module.opset_imports, target()).reasons
    return found


@pytest.mark.parametrize(
    "expression",
    ["-1 <= x < 1.5", "0 < x < 2 < 3", "7 > x > -1 >= -2", "-1 < x != 1", "x == x < 1", "1 < 2 < x", "not -1 < x < 1"],
)
def test_chained_comparisons_compare_neighbours(expression: str, operator) -> None:
    operator(f"where({expression}, 1, 0)")
    (y,) = run_model(model(), X)
    np.testing.assert_array_equal(y, [float(eval(expression, {"x": x})) for x in X])


@pytest.mark.parametrize("int64", INT64)
def test_chained_comparisons_of_64_bit_integers(int64: str, operator) -> None:
    operator("where(-5 <= x < 1099511627776 != x, x, 0)")
    x = np.array([-6, -5, 0, 2**31, 2**40 - 1, 2**40, 2**40 + 1, 2**62, -(2**62)])
    (y,) = run_model(model(np.int64), x, int64=int64)
    np.testing.assert_array_equal(y, np.where((x >= -5) & (x < 2**40), x, 0))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("nosuchfunction(x)", "f32 has no function 'nosuchfunction'"),
        ("shl(x, x)", "f32 has no function 'shl'"),
        ("sine(x, x)", "f32 has no function 'sine'"),
        ("sqrt(x, x)", "'sqrt' of f32 has 1 arguments, not 2"),
        ("max(x)", "'max' of f32 has 2 arguments, not 1"),
        ("sqrt()", "'sqrt' has 0 arguments"),
        ("where(x > 0, x)", "'where' has 2 arguments"),
        ("max(x, low=2)", "no meaning"),
        ("y + 1", "'y' is neither an operand nor a constant"),
        ("x & 1", "f32 has no &"),
        ("~x", "f32 has no ~"),
        ("x ** 2", "no meaning for 'x ** 2'"),
        ("x // 2", "no meaning"),
        ("x in x", "no meaning"),
        ("not x", "'x' is f32, not bool"),
        ("x and x > 0", "'x' is f32, not bool"),
        ("where(x, x, x)", "'x' is f32, not bool"),
        ("x + i32(x)", "operands of different types"),
        ("x > 0", "gives bool, its output is f32"),
        ("-(x > 0)", "bool has no sign"),
        ("f32((x > 0) + (x < 0))", "bool has no +"),
        ("f32(i32(x) + 0.5)", "0.5 is not a value of i32"),
        ("'x'", "'x' is not a number"),
    ],
)
def test_what_has_no_meaning_is_a_reason_and_not_a_shader_error(expression: str, message: str, operator) -> None:
    operator(expression)
    with pytest.raises(TypeError, match=re.escape(message)):
        check_expression(expression, (("x", "f32"),), (), target().int64, "f32")
    assert message in str(reason(model()))


@pytest.mark.parametrize("int64", INT64)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_accepted_is_what_can_be_written(kind: str, int64: str) -> None:
    """And what is refused is refused with the same words."""
    operators = (
        "x + z",
        "x / z",
        "x % z",
        "x & z",
        "x < z",
        "x == z",
        "x + 1",
        "x * 0.5",
        "-x",
        "~x",
        "not x",
        "1 - (x)",
        "+x",
    )
    calls = (
        "sqrt(x)",
        "abs(x)",
        "max(x, z)",
        "max(x)",
        "fma(x, z, x)",
        "exp(x)",
        "shl(x, z)",
        "popcount(x)",
        "ordered(x)",
    )
    others = (
        "where(x, z, 1)",
        "where(x < z, x, 1)",
        "x < z <= 3",
        "1 < x and x < 3",
        "infinity",
        "x + nan",
        "True",
        "x + True",
        "c",
        "y",
    )
    casts = [f"{to}({inner})" for to in KINDS for inner in ("x", "3", "x < z", "0.5")]
    for expression, result in itertools.product((*operators, *calls, *others, *casts), ("bool", kind, "u64")):
        said = []
        for operations, value in ((Checked(int64), OfKind(kind)), (Scalars(int64), TypedValue("v", kind))):
            try:
                said.append(evaluated(expression, {"x": value, "z": value}, {"c": 2}, operations, result).kind)
            except TypeError as error:
                said.append(str(error))
        assert said[0] == said[1]


@pytest.mark.parametrize("int64", INT64)
def test_functions_of_64_bit_integers_are_the_same_natively_and_as_pairs(int64: str) -> None:
    """A node must not be refused on one adapter for a function that another one has."""
    names = {"abs", "sign", "min", "max", "shl", "shr", "floormod", "rem", "pow"}
    for name, kind in itertools.product(names, ("i64", "u64")):
        if (name, kind) == ("rem", "u64"):
            continue  # natively `%`
        scalars = Scalars(int64)
        arguments = [TypedValue(c, kind) for c in ("ab" if name not in ("abs", "sign") else "a")]
        assert scalars.function(name, arguments).kind == kind


def test_a_function_gives_the_type_that_its_definition_says() -> None:
    scalars = Scalars("pair")
    x = {"x": TypedValue("x", "f32")}
    assert to_wgsl("isnan(x)", x, {}, scalars, "bool").text == "isnan_f32(x)"
    assert to_wgsl("ordered(x)", x, {}, scalars, "u32").text == "ordered_f32(x)"
    assert functions.signature("minifloat_f32", True) == functions.Signature(("f32",) * 5, "f32")
    assert functions.signature("hidden_bits", True) is None
