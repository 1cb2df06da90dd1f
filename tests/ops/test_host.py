"""Integers that are calculated before anything runs are what onnxruntime calculates in their type, at every extreme."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from onnxruntime_ep_wgpu.compiler import dims
from onnxruntime_ep_wgpu.compiler.lower.builder import Builder, Operand
from onnxruntime_ep_wgpu.compiler.lower.ops import host
from onnxruntime_ep_wgpu.errors import InputError, UnsupportedError
from onnxruntime_ep_wgpu.program.dtypes import DType
from tests import provider, support

TYPES = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
BINARY = ["Add", "Sub", "Mul", "Div", "Mod", "FMod", "Min", "Max"]
COMPARISONS = ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"]
UNARY = ["Neg", "Abs"]


def wrapped(value: int, dtype: Any) -> int:
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    return (value - low) % (high - low + 1) + low


def exact(op: str, dtype: Any, a: int, b: int = 0) -> int:
    """The specification."""
    value = unbounded(op, a, b)
    return value if op in COMPARISONS else wrapped(value, dtype)


def unbounded(op: str, a: int, b: int = 0) -> int:
    """The specification in integers of any size. `FMod` is Mod with fmod=1."""
    truncated = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0
    return {
        "Add": lambda: a + b,
        "Sub": lambda: a - b,
        "Mul": lambda: a * b,
        "Div": lambda: truncated,
        "Mod": lambda: a - (a // b) * b,
        "FMod": lambda: a - truncated * b,
        "Min": lambda: min(a, b),
        "Max": lambda: max(a, b),
        "Neg": lambda: -a,
        "Abs": lambda: abs(a),
        "Equal": lambda: a == b,
        "Less": lambda: a < b,
        "LessOrEqual": lambda: a <= b,
        "Greater": lambda: a > b,
        "GreaterOrEqual": lambda: a >= b,
    }[op]()


def edges(dtype: Any) -> list[int]:
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    near = {low, low + 1, low // 2, -7, -2, -1, 0, 1, 2, 3, 7, 100, high // 2, high // 2 + 1, high - 1, high}
    return sorted(v for v in near if low <= v <= high)


def _node(op: str, inputs: list[str], output: str) -> onnx.NodeProto:
    return helper.make_node("Mod", inputs, [output], fmod=1) if op == "FMod" else helper.make_node(op, inputs, [output])


def _cpu(op: str, arrays: list[np.ndarray], out: Any) -> np.ndarray | None:
    """The CPU provider's result; None where it has no kernel or, for fmod of 64 bits, calculates in floats."""
    names = [f"x{k}" for k in range(len(arrays))]
    built = support.make_model(
        [_node(op, names, "y")], {n: (a.dtype, list(a.shape)) for n, a in zip(names, arrays, strict=True)}
    )
    built.graph.output[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(out))
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    if op == "FMod" and arrays[0].dtype.itemsize == 8:
        return None
    try:
        session = ort.InferenceSession(
            built.SerializeToString(), provider.exact(settings), providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        assert "NOT_IMPLEMENTED" in str(error) or "Type Error" in str(error)
        return None
    return session.run(None, dict(zip(names, arrays, strict=True)))[0]


def _evaluated(op: str, *arrays: np.ndarray, **attributes: Any) -> list[Operand] | None:
    b = Builder(support.target())
    name, attributes = ("Mod", {**attributes, "fmod": 1}) if op == "FMod" else (op, attributes)
    return host.evaluate(name, "", [b.constant(a) for a in arrays], attributes)


def _values(operand: Operand) -> np.ndarray:
    assert operand.known
    return np.array(operand.host.tolist(), operand.dtype.numpy)  # raises for what the type cannot hold


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("op", [*BINARY, *COMPARISONS])
def test_two_constants(op: str, dtype: Any) -> None:
    pairs = [(a, b) for a, b in itertools.product(edges(dtype), repeat=2) if b or op not in ("Div", "Mod", "FMod")]
    a, b = (np.array(column, dtype) for column in zip(*pairs, strict=True))
    out = bool if op in COMPARISONS else dtype
    want = np.array([exact(op, dtype, *pair) for pair in pairs], out)
    # The least number by -1 ends the process in the CPU provider.
    safe = np.ones(len(a), bool) if b.dtype.kind == "u" or op not in ("Div", "Mod", "FMod") else b != -1
    theirs = _cpu(op, [a[safe], b[safe]], out)
    if theirs is not None:
        np.testing.assert_array_equal(want[safe], theirs)
    (got,) = _evaluated(op, a, b)
    np.testing.assert_array_equal(_values(got), want, strict=True)


@pytest.mark.parametrize("dtype", [t for t in TYPES if np.iinfo(t).min < 0])
@pytest.mark.parametrize("op", UNARY)
def test_one_constant(op: str, dtype: Any) -> None:
    a = np.array(edges(dtype), dtype)
    want = np.array([exact(op, dtype, v) for v in edges(dtype)], dtype)
    np.testing.assert_array_equal(want, _cpu(op, [a], dtype))
    np.testing.assert_array_equal(_values(_evaluated(op, a)[0]), want, strict=True)


@pytest.mark.parametrize("source", [*TYPES, np.bool_])
@pytest.mark.parametrize("to", [*TYPES, np.bool_, np.float32])
def test_casts(source: Any, to: Any) -> None:
    """Integers keep their low bits; f32 keeps 24 digits, also when it is cast back."""
    a = np.array([False, True]) if source is np.bool_ else np.array(edges(source), source)
    (got,) = _evaluated("Cast", a, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))
    np.testing.assert_array_equal(_values(got), a.astype(to), strict=True)
    if to is np.float32 and source is not np.bool_:
        fits = a[np.abs(a.astype(np.float64)) < 2**30]
        b = Builder(support.target())
        (there,) = host.evaluate("Cast", "", [b.constant(fits)], {"to": 1})
        (back,) = host.evaluate("Cast", "", [there], {"to": 7})
        np.testing.assert_array_equal(_values(back), fits.astype(np.float32).astype(np.int64))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
@pytest.mark.parametrize(
    ("op", "function"), [("ReduceSum", np.sum), ("ReduceProd", np.prod), ("ReduceMax", np.max), ("ReduceMin", np.min)]
)
def test_reductions(op: str, function: Any, dtype: Any) -> None:
    """Exact, and the nearest limit where that does not fit; the CPU provider sums and multiplies in floats of 64 bits."""
    a = np.array([v for v in edges(dtype) if v], dtype)
    want = np.clip(function(a.astype(object)), np.iinfo(dtype).min, np.iinfo(dtype).max)
    np.testing.assert_array_equal(_values(_evaluated(op, a, keepdims=0)[0]), want)
    np.testing.assert_array_equal(_values(_evaluated(op, a)[0]), [want])
    np.testing.assert_array_equal(_values(_evaluated(op, a, noop_with_empty_axes=1)[0]), a)


@pytest.mark.parametrize("op", ["Div", "Mod", "FMod"])
def test_a_division_by_zero_is_left_to_the_run(op: str) -> None:
    assert _evaluated(op, np.array([4, 5]), np.array([2, 0])) is None


def test_nothing_large_is_made() -> None:
    for op, arrays in (
        ("Range", [np.array(0), np.array(2**62), np.array(1)]),
        ("Range", [np.array(0), np.array(2), np.array(0)]),
        ("ConstantOfShape", [np.array([2**40, 2**40])]),
        ("ConstantOfShape", [np.array([-1])]),
        ("Expand", [np.array([1]), np.array([2**40])]),
        ("Split", [np.arange(4), np.array([1, 2])]),
        ("Gather", [np.arange(4), np.array([4])]),
    ):
        value = {"value": np.zeros(1, np.int64)} if op == "ConstantOfShape" else {}
        assert _evaluated(op, *arrays, **value) is None, op


SLICES = list(
    itertools.product(
        (0, 2, 9, -2, -9, 2**63 - 1, -(2**63)), (0, 3, 9, -1, -9, 2**31 - 1, 2**63 - 1, -(2**63)), (1, 3, -1, -3)
    )
)


def test_slices_of_known_numbers() -> None:
    """As of data: a start before the beginning is the beginning, also when the slice goes backwards."""
    nodes, weights = [helper.make_node("Identity", ["x"], ["c"])], {"axis": np.array([0])}
    for k, bounds in enumerate(SLICES):
        weights |= {f"{name}{k}": np.array([v]) for name, v in zip("set", bounds, strict=True)}
        nodes.append(helper.make_node("Slice", ["c", f"s{k}", f"e{k}", "axis", f"t{k}"], [f"y{k}"]))
    built = support.make_model(nodes, {"x": (np.int64, [5])}, weights)
    for value in built.graph.output:
        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(np.int64))
    x = np.arange(10, 15)
    theirs = ort.InferenceSession(built.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    for (start, end, step), want in zip(SLICES, theirs, strict=True):
        (got,) = _evaluated("Slice", x, np.array([start]), np.array([end]), np.array([0]), np.array([step]))
        np.testing.assert_array_equal(_values(got), want, err_msg=f"{start}:{end}:{step}")


def _chain(seed: int) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray], Any]:
    """Nodes that calculate `last` from `shape`, both int64, their constants, and a function from a shape to what is expected,
    and whether a number left its type on the way."""
    generator = random.Random(seed)
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, np.ndarray] = {}
    steps: list[tuple[Any, Any]] = []  # the type of the result, and the function to its unbounded value
    dtype: Any = np.int64
    name = "shape"
    for k in range(generator.randint(2, 6)):
        result = f"v{k}"
        if k == 0 or generator.random() < 0.25:
            dtype = generator.choice(TYPES)
            nodes.append(
                helper.make_node("Cast", [name], [result], to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
            )
            steps.append((dtype, lambda a: a))
        else:
            op = generator.choice([*BINARY, *(UNARY if np.iinfo(dtype).min < 0 else [])])
            if op in UNARY:
                nodes.append(_node(op, [name], result))
                steps.append((dtype, lambda a, op=op: unbounded(op, a)))
            else:
                constant = generator.choice([v for v in edges(dtype) if v])
                weights[f"c{k}"] = np.array(constant, dtype)
                first = op in ("Add", "Sub", "Mul", "Min", "Max") and generator.random() < 0.4
                nodes.append(_node(op, [f"c{k}", name] if first else [name, f"c{k}"], result))
                steps.append(
                    (dtype, lambda a, op=op, c=constant, first=first: unbounded(op, *((c, a) if first else (a, c))))
                )
        name = result
    nodes.append(helper.make_node("Cast", [name], ["last"], to=7))
    steps.append((np.int64, lambda a: a))

    def expected(shape: tuple[int, ...]) -> tuple[np.ndarray, bool]:
        values, left = list(shape), False
        for kind, step in steps:
            results = [step(v) for v in values]
            values = [wrapped(v, kind) for v in results]
            left = left or values != results
        return np.array(values, np.int64), left

    return nodes, weights, expected


@pytest.mark.parametrize("int64", ["native", "pair"])
@pytest.mark.parametrize("seed", range(60))
def test_what_is_derived_from_shapes_is_exact_in_its_type(seed: int, int64: str) -> None:
    """As data, which is written when the plan is made or calculated on the device, for dims that are known or not."""
    nodes, weights, expected = _chain(seed)
    nodes = [helper.make_node("Shape", ["x"], ["shape"]), *nodes, helper.make_node("Identity", ["last"], ["y"])]
    for dims_of_x, shapes in ((["a", "b", "c"], [(3, 200, 7), (1, 129, 2)]), ([3, 200, 7], [(3, 200, 7)])):
        built = support.make_model(nodes, {"x": (np.float32, dims_of_x)}, weights)
        run = support.Runner(support.compile_model(built, support.target(int64)))
        for shape in shapes:
            np.testing.assert_array_equal(run(np.zeros(shape, np.float32))[0], expected(shape)[0], strict=True)


@pytest.mark.parametrize("seed", range(60))
def test_a_shape_relies_on_exact_numbers_or_the_run_is_refused(seed: int) -> None:
    """x[0:v] for numbers v that are calculated from its shape."""
    nodes, weights, expected = _chain(seed)
    weights |= {"zero": np.array([0]), "one": np.array([1])}
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        *nodes,
        helper.make_node("Gather", ["last", "one"], ["end"]),
        helper.make_node("Slice", ["x", "zero", "end", "one"], ["y"]),
    ]
    built = support.make_model(nodes, {"x": (np.float32, ["a", "b", "c"])}, weights)
    shapes = [(3, 200, 7), (1, 129, 2), (2, 1, 5)]
    try:
        run = support.Runner(support.compile_model(built))
    except UnsupportedError as error:  # the number fits in no run
        assert "depends on a host value" in str(error) and all(expected(shape)[1] for shape in shapes)
        return
    for shape in shapes:
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        numbers, left = expected(shape)
        try:
            got = run(x)[0]
        except InputError as error:
            assert left and "depends on a host value" in str(error)
            continue
        np.testing.assert_array_equal(got, x[:, : numbers[1]], strict=True)


def test_ordinary_shape_arithmetic_requires_nothing() -> None:
    """Sums and products of dims in int64, and single dims in int32, are known: no kernel, no check."""
    b = Builder(support.target())
    n, m = dims.symbol("n"), dims.symbol("m")
    shape = b.host(support.DType.INT64, [n, m])
    (narrow,) = host.evaluate("Cast", "", [shape], {"to": 6})
    assert narrow.known and not narrow.conditions
    (total,) = host.evaluate("ReduceProd", "", [shape], {})
    (scaled,) = host.evaluate("Mul", "", [total, b.constant(np.array([768]))], {})
    assert scaled.known and scaled.host.tolist() == [768 * n * m]
    (product,) = host.evaluate("ReduceProd", "", [narrow], {})
    assert not product.known and len(product.conditions) == 1  # n * m may be more than int32 holds


def test_a_number_that_is_given_wraps_as_data_and_is_refused_as_a_shape() -> None:
    """The sum of an int64 input and 1: INT64_MAX + 1 is the least number, which no shape can be meant to have."""
    nodes = [
        helper.make_node("Add", ["end", "one"], ["after"]),
        helper.make_node("Slice", ["x", "zero", "after", "zero"], ["y"]),
        helper.make_node("Less", ["after", "zero"], ["negative"]),
    ]
    weights = {"one": np.array([1]), "zero": np.array([0])}
    inputs = {"x": (np.float32, ["n"]), "end": (np.int64, [1])}
    run = support.Runner(support.compile_model(support.make_model(nodes, inputs, weights)))
    x = np.arange(6, dtype=np.float32)
    for end in (2, -3, -(2**63), 2**63 - 2):
        y, negative = run(x, np.array([end]))
        np.testing.assert_array_equal(y, x[: end + 1])
        assert negative == (end + 1 < 0)
    with pytest.raises(InputError, match=r"Slice depends on a host value.*int64"):
        run(x, np.array([2**63 - 1]))


class _Untouched:
    """An element that nobody may calculate with: nothing is defined for it."""


@pytest.mark.parametrize(
    "op", ["Add", "Sub", "Mul", "Min", "Max", "And", "Or", "Where", *COMPARISONS, "Gather", "Expand"]
)
def test_small_operands_with_a_large_result_are_no_host_values(op: str) -> None:
    """512 numbers of a column with 512 of a row are a quarter of a million, which are data."""

    def operand(shape: tuple[int, ...], element: object) -> Operand:
        array = np.empty(shape, object)
        array.reshape(-1)[:] = [element] * array.size
        return Operand(DType.INT64, shape, host=lambda: array, known=True)

    column, row = operand((512, 1), _Untouched()), operand((1, 512), _Untouched())
    given = {
        "Where": [column, row, column],
        "Gather": [operand((2, 512), _Untouched()), operand((512,), 1)],
        "Expand": [column, Operand(DType.INT64, (2,), host=lambda: np.array([512, 512], object), known=True)],
    }.get(op, [column, row])
    assert host.evaluate(op, "", given, {}) is None


def test_what_is_kept_of_booleans_is_taken_for_no_dim() -> None:
    """True is equal to 1: a result that was kept of it came back as the extent of a later Slice."""
    for low, high in ((False, True), (True, True), (False, False)):
        nodes = [
            helper.make_node("Or", ["a", "b"], ["either"]),
            helper.make_node("And", ["a", "either"], ["both"]),
            helper.make_node("Where", ["both", "x", "y"], ["z"]),
        ]
        constants = {"a": np.array([low]), "b": np.array([high])}
        model = support.make_model(nodes, {"x": (np.int64, [1]), "y": (np.int64, [1])}, constants)
        x, y = np.array([5]), np.array([7])
        assert support.run_model(model, x, y)[0] == (5 if low and (low or high) else 7)
        for function in (dims.minimum, dims.maximum):
            found = [function(int(low), int(high)), function(int(high), int(low))]
            assert [type(it) for it in found] == [int, int], (function, low, high)
