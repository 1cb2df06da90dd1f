"""Pad of what a kernel makes is stored in place, Split shows views: how many dispatches, which bytes, and every corner of both."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler.nodes.pads import strips
from onnxruntime_ep_wgpu.compiler.passes import place
from onnxruntime_ep_wgpu.program.postfix import compile_dims
from onnxruntime_ep_wgpu.program.program import REPETITION, Program
from onnxruntime_ep_wgpu.runtime.settings import RunSettings
from tests.support import Runner, compile_model, make_model

F = np.float32
LARGEST = 2**63 - 1


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(F)


def cpu(model: onnx.ModelProto, *arrays: np.ndarray) -> list[np.ndarray]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip((it.name for it in session.get_inputs()), arrays, strict=True)))


def typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the types of its outputs, which the CPU provider wants to be told."""
    inferred = onnx.shape_inference.infer_shapes(model)
    kinds = {v.name: v for v in (*inferred.graph.value_info, *inferred.graph.output)}
    for k, out in enumerate(model.graph.output):
        model.graph.output[k].CopyFrom(kinds[out.name])
    return model


def same_as_the_cpu(model: onnx.ModelProto, *runs: tuple[np.ndarray, ...]) -> Program:
    typed(model)
    program = compile_model(model)
    runner, checked = Runner(program), Runner(program, RunSettings(stepwise=True))
    for arrays in (*runs, runs[0]):
        for it in (runner, checked):
            for found, want in zip(it(*arrays), cpu(model, *arrays), strict=True):
                assert found.dtype == want.dtype
                np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
    return program


def pads(*amounts: int) -> dict[str, np.ndarray]:
    return {"pads": np.array(amounts)}


def padded_product(*after: onnx.NodeProto, amounts: tuple[int, ...] = (0, 1, 2, 0, 3, 0)) -> onnx.ModelProto:
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["r"]), node("Pad", ["r", "pads"], ["p"]), *after]
    return make_model(nodes, {"x": (F, ["b", 5, 8])}, {"w": floats(8, 7), **pads(*amounts)})


def traffic(program: Program, *symbols: int) -> int:
    names = [*(s.name for s in program.symbols), REPETITION]
    return sum(compile_dims([it.traffic for it in program.dispatches], names, program.definitions)([*symbols, 0]))


# ---- Pad


@pytest.mark.costly
def test_a_kernel_stores_its_result_inside_and_another_one_fills_the_rest() -> None:
    program = same_as_the_cpu(padded_product(), (floats(2, 5, 8),), (floats(1, 5, 8),), (floats(0, 5, 8),))
    assert [program.kernels[it.kernel].label for it in program.dispatches][1:] == ["fill"]
    stored = 4 * 2 * 9 * 9
    assert traffic(program, 2) == stored + 4 * (
        2 * 5 * 8 + 8 * 7 + 1
    )  # each element of the result and the operands once


@pytest.mark.costly
@pytest.mark.parametrize(
    "amounts",
    [(1, 1, 1, 1, 1, 1), (0, 0, 1, 0, 0, 0), (0, 0, 0, 0, 0, 4), (4, 0, 0, 0, 0, 0), (0, 4, 4, 0, 4, 4), (2, 0, 1, 0, 3, 1),
     (-1, 0, 2, 0, 1, 0), (0, -1, 0, 0, 2, -2), (0, 9, 0, 0, -9, 0)],
)  # fmt: skip
def test_every_side_can_be_padded_or_cut(amounts: tuple[int, ...]) -> None:
    same_as_the_cpu(padded_product(amounts=amounts), (floats(2, 5, 8),), (floats(3, 5, 8),))


@pytest.mark.costly
def test_what_a_reader_calculates_on_the_way_has_no_kernel() -> None:
    model = padded_product(node("Mul", ["p", "other"], ["y"]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(floats(9, 9), "other"))
    assert len(same_as_the_cpu(model, (floats(2, 5, 8),)).dispatches) == 2


@pytest.mark.costly
def test_a_pad_of_an_input_or_of_maps_alone_is_one_kernel() -> None:
    nodes = [node("Relu", ["x"], ["r"]), node("Pad", ["r", "pads"], ["a"]), node("Pad", ["x", "pads"], ["b"])]
    program = same_as_the_cpu(
        make_model(nodes, {"x": (F, ["n", 4])}, pads(1, 0, 0, 2)), (floats(3, 4),), (floats(1, 4),)
    )
    assert len(program.dispatches) == 2


@pytest.mark.costly
def test_a_result_that_others_read_too_is_stored_twice_by_its_kernel() -> None:
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Pad", ["m", "pads"], ["p"]), node("MatMul", ["m", "w"], ["n"]),
             node("ReduceSum", ["p", "axes"], ["s"], keepdims=0)]  # fmt: skip
    weights = {"w": floats(8, 8), **pads(0, 1, 1, 0, 0, 0), "axes": np.array([1])}
    model = make_model(nodes, {"x": (F, ["b", 5, 8])}, weights)
    model.graph.output.extend([onnx.ValueInfoProto(name="m"), onnx.ValueInfoProto(name="p")])
    assert len(same_as_the_cpu(model, (floats(2, 5, 8),), (floats(1, 5, 8),)).dispatches) == 4


@pytest.mark.costly
def test_equal_pads_are_one() -> None:
    nodes = [node("MatMul", ["x", "w"], ["m"]), *(node("Pad", ["m", "pads"], [n]) for n in "ab"),
             node("Transpose", ["a"], ["at"]), node("MatMul", ["at", "b"], ["y"])]  # fmt: skip
    model = make_model(nodes, {"x": (F, ["n", 8])}, {"w": floats(8, 8), **pads(1, 0, 1, 0)})
    assert len(same_as_the_cpu(model, (floats(3, 8),), (floats(6, 8),)).dispatches) == 3


@pytest.mark.costly
def test_pads_of_pads_and_joins_of_pads_copy_nothing() -> None:
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Softmax", ["x"], ["s"]),
             node("Pad", ["m", "pads"], ["a"]), node("Pad", ["a", "pads", "two"], ["b"]),
             node("Pad", ["s", "more"], ["c"]), node("Concat", ["b", "c"], ["j"], axis=0),
             node("Pad", ["j", "pads", "nan"], ["y"]), node("Pad", ["s", "deep"], ["z"])]  # fmt: skip
    weights = {"w": floats(8, 8), **pads(1, 0, 0, 2), "two": F(2), "nan": F(np.nan), "more": np.array([0, 2, 1, 2]),
               "deep": np.array([0, 1, 0, 0])}  # fmt: skip
    program = compile_model(make_model(nodes, {"x": (F, ["n", 8])}, weights))
    x = floats(5, 8)
    e = np.exp(x - x.max(-1, keepdims=True))
    s = e / e.sum(-1, keepdims=True)
    a = np.pad(x @ floats(8, 8), [(1, 0), (0, 2)])
    j = np.concatenate([np.pad(a, [(1, 0), (0, 2)], constant_values=2), np.pad(s, [(0, 1), (2, 2)])])
    for _ in range(3):
        y, z = Runner(program)(x)
        np.testing.assert_allclose(y, np.pad(j, [(1, 0), (0, 2)], constant_values=np.nan), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(z, np.pad(s, [(0, 0), (1, 0)]), rtol=1e-4, atol=1e-6)
    copies = [it for it in program.dispatches if set(it.operators) <= {"Pad", "Concat"}]
    assert [program.kernels[it.kernel].label for it in copies] == ["fill", "fill"]


def to_a_multiple(axis: int, of: int) -> list[onnx.NodeProto]:
    """p: m, padded behind along an axis to a multiple, as windows are cut out of a picture."""
    return [
        node("Shape", ["m"], ["all"], start=axis, end=axis + 1), node("Neg", ["all"], ["less"]),
        node("Mod", ["less", "of"], ["missing"]),
        node("Concat", [*["zero"] * (3 + axis), "missing", *["zero"] * (2 - axis)], ["pads"], axis=0),
        node("Pad", ["m", "pads"], ["p"]),
    ]  # fmt: skip


@pytest.mark.costly
@pytest.mark.parametrize("depth", [3, 9, 40])
def test_pads_one_within_the_other_at_any_depth(depth: int) -> None:
    nodes = [node("MatMul", ["x", "w"], ["p0"]), *(node("Pad", [f"p{k}", "pads"], [f"p{k + 1}"]) for k in range(depth))]
    program = compile_model(make_model(nodes, {"x": (F, ["n", 8])}, {"w": floats(8, 6), **pads(1, 0, 0, 1)}))
    (y,) = Runner(program)(floats(3, 8))
    np.testing.assert_allclose(y, np.pad(floats(3, 8) @ floats(8, 6), [(depth, 0), (0, depth)]), rtol=1e-4, atol=1e-5)


@pytest.mark.costly
def test_what_a_chain_of_pads_takes_to_compile_is_linear_in_its_length() -> None:
    """By the plans that are made of what lies where: each is of a few pads."""
    calls = []
    for depth in (100, 400):
        nodes = [
            node("MatMul", ["x", "w"], ["p0"]),
            *(node("Pad", [f"p{k}", "pads"], [f"p{k + 1}"]) for k in range(depth)),
        ]
        count = 0

        def counted(*args: object) -> list:
            nonlocal count
            count += 1
            return strips(*args)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(place, "strips", counted)
            compile_model(make_model(nodes, {"x": (F, [2, 8])}, {"w": floats(8, 6), **pads(0, 0, 0, 1)}))
        calls.append(count)
    assert calls[1] <= 5 * calls[0]


@pytest.mark.costly
@pytest.mark.parametrize("axis", [0, 1])
def test_amounts_that_follow_from_sizes_may_be_nothing(axis: int) -> None:
    nodes = [node("MatMul", ["x", "w"], ["m"]), *to_a_multiple(axis, 4), node("Transpose", ["p"], ["t"], perm=[2, 0, 1]),
             node("MatMul", ["u", "p"], ["y"])]  # fmt: skip
    weights = {"w": floats(8, 6), "of": np.array([4]), "zero": np.array([0])}
    shape = ["b", "n", 8]
    model = make_model(nodes, {"x": (F, shape), "u": (F, ["b4", 3, "n4"])}, weights)

    def run(b: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        after = [b, n]
        after[axis] = -(-after[axis] // 4) * 4
        return floats(b, n, 8), floats(after[0], 3, after[1])

    same_as_the_cpu(model, run(4, 4), run(3, 5), run(1, 8), run(7, 1), run(5, 3))


@pytest.mark.costly
def test_amounts_that_may_cut_are_a_map() -> None:
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Pad", ["m", "pads"], ["p"]), node("Transpose", ["p"], ["y"])]
    model = typed(make_model(nodes, {"x": (F, ["n", 8]), "pads": (np.int64, [4])}, {"w": floats(8, 6)}))
    runner = Runner(compile_model(model))
    for amounts in ((1, 2, 0, 1), (-1, 0, 2, -3), (0, 0, 0, 0), (-2, 1, 1, 1)):
        x, given = floats(4, 8), np.array(amounts)
        np.testing.assert_allclose(runner(x, given)[0], cpu(model, x, given)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0, 1e-42, 3.25])
@pytest.mark.parametrize("known", [True, False])
def test_around_is_any_number_exactly(value: float, known: bool) -> None:
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Pad", ["m", "pads", "fill"], ["y"])]
    inputs: dict = {"x": (F, ["n", 8])} | ({} if known else {"fill": (F, [])})
    weights = {"w": floats(8, 6), **pads(1, 0, 0, 1)} | ({"fill": F(value)} if known else {})
    runner = Runner(compile_model(make_model(nodes, inputs, weights)))
    (y,) = runner(floats(2, 8), *([] if known else [F(value)]))
    around = np.ones((3, 7), bool)
    around[1:, :6] = False
    if not (known and abs(value) < 1e-38):  # adapters may take denormal constants for 0
        np.testing.assert_array_equal(y[around].view(np.uint32), np.full(9, value, F).view(np.uint32))
    np.testing.assert_allclose(y[1:, :6], floats(2, 8) @ floats(8, 6), rtol=1e-4, atol=1e-5)


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [np.float16, np.int32, np.int64, np.uint8, np.bool_])
@pytest.mark.parametrize("count", [1, 3, 4])
def test_every_type_of_elements(dtype: type, count: int) -> None:
    to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Cast", ["m"], ["c"], to=to), node("Pad", ["c", "pads", "one"], ["p"]),
             node("Concat", ["p", "c"], ["y"], axis=1)]  # fmt: skip
    weights = {"w": np.eye(4, count, dtype=F), **pads(0, 1, 0, 2), "one": np.ones((), dtype)}
    program = compile_model(make_model(nodes, {"x": (F, ["n", 4])}, weights))
    x = np.arange(20, dtype=F).reshape(5, 4) % 3
    cast = (x @ np.eye(4, count, dtype=F)).astype(dtype)
    wanted = np.concatenate([np.pad(cast, [(0, 0), (1, 2)], constant_values=1), cast], 1)
    for _ in range(2):
        np.testing.assert_array_equal(Runner(program)(x)[0], wanted)


@pytest.mark.costly
def test_convolutions_between_uneven_pads() -> None:
    nodes = [node("Conv", ["x", "a"], ["c"], pads=[1, 1, 1, 1]), node("Relu", ["c"], ["r"]), node("Pad", ["r", "pads"], ["p"]),
             node("Conv", ["p", "b"], ["d"], strides=[2, 2]), node("Pad", ["d", "pads", "low"], ["q"]),
             node("MaxPool", ["q"], ["y"], kernel_shape=[2, 2])]  # fmt: skip
    weights = {"a": floats(4, 3, 3, 3), "b": floats(6, 4, 3, 3), **pads(0, 0, 0, 0, 0, 0, 1, 1), "low": F(-1e30)}
    model = make_model(nodes, {"x": (F, ["n", 3, "h", "w"])}, weights)
    program = same_as_the_cpu(model, (floats(2, 3, 8, 9),), (floats(1, 3, 5, 4),))
    labels = [program.kernels[it.kernel].label for it in program.dispatches]
    assert labels.count("fill") == 2


# ---- Split


def split_of_three(rest: tuple[str, ...] = ()) -> onnx.ModelProto:
    """GPT-2's: one product, split into queries, keys and values, each with heads apart."""
    apart = []
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        apart += [
            node("Reshape", [name, "apart"], [f"{name}r"]),
            node("Transpose", [f"{name}r"], [f"{name}t"], perm=order),
        ]
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["qkv"]),
             node("Split", ["qkv"], ["q", "k", "v"], axis=-1, num_outputs=3), *apart,
             node("MatMul", ["qt", "kt"], ["s"]), node("Softmax", ["s"], ["p"], axis=-1), node("MatMul", ["p", "vt"], ["o"]),
             node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]), node("Reshape", ["ot", "together"], ["y"])]  # fmt: skip
    weights = {
        "w": floats(12, 36) / 4,
        "b": floats(36),
        "apart": np.array([0, 0, 3, 4]),
        "together": np.array([0, 0, 12]),
    }
    model = make_model(nodes, {"x": (F, ["b", "t", 12])}, weights)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in rest)
    return model


@pytest.mark.costly
def test_parts_of_a_split_are_read_where_they_lie() -> None:
    runs = (floats(2, 5, 12),), (floats(1, 1, 12),), (floats(3, 8, 12),)
    program = same_as_the_cpu(split_of_three(), *runs)
    assert all({"MatMul", "Softmax"} & set(it.operators) for it in program.dispatches)


@pytest.mark.costly
def test_parts_that_leave_the_graph_are_a_copy_each() -> None:
    runs = (floats(2, 5, 12),), (floats(1, 1, 12),)
    more = same_as_the_cpu(split_of_three(("k", "v")), *runs)
    assert len(more.dispatches) == len(compile_model(split_of_three()).dispatches) + 2


@pytest.mark.costly
@pytest.mark.parametrize("sizes", [(3, 5), (0, 8), (8, 0), (1, 0, 7), (2, 2, 4)])
@pytest.mark.parametrize("axis", [0, 1])
def test_parts_of_any_size_are_split_again_joined_and_padded(sizes: tuple[int, ...], axis: int) -> None:
    parts = [f"s{k}" for k in range(len(sizes))]
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Split", ["m", "sizes"], parts, axis=axis),
             node("Concat", parts[::-1], ["j"], axis=axis), node("Pad", [parts[-1], "pads"], ["p"]),
             node("Transpose", [parts[0]], ["t"]), node("MatMul", [parts[0], "t"], ["y"]),
             *(node("Neg", [part], [f"n{part}"]) for part in parts)]  # fmt: skip
    weights = {"w": floats(8, 8), "sizes": np.array(sizes), **pads(0, 1, 2, 0)}
    same_as_the_cpu(make_model(nodes, {"x": (F, [8, 8])}, weights), (floats(8, 8),))


@pytest.mark.costly
def test_parts_whose_sizes_a_run_decides() -> None:
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Split", ["m", "sizes"], ["a", "b"], axis=0),
             node("Pad", ["a", "pads"], ["p"]), node("MatMul", ["b", "w"], ["c"]),
             node("Concat", ["p", "c"], ["y"], axis=0)]  # fmt: skip
    model = typed(
        make_model(nodes, {"x": (F, ["n", 8]), "sizes": (np.int64, [2])}, {"w": floats(8, 8), **pads(1, 0, 0, 0)})
    )
    runner = Runner(compile_model(model))
    for sizes in ((2, 3), (5, 0), (0, 5), (4, 1)):
        x, given = floats(5, 8), np.array(sizes)
        np.testing.assert_allclose(runner(x, given)[0], cpu(model, x, given)[0], rtol=1e-4, atol=1e-5)
    assert math.prod(runner(floats(0, 8), np.array([0, 0]))[0].shape) == 8
