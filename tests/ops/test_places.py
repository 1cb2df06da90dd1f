"""Concat and Pad where kernels store results in place: parts of every making, axis, type and size, and how many dispatches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler.passes import place
from onnxruntime_ep_wgpu.errors import NonFiniteError
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.runtime.executable import DeviceTensor
from onnxruntime_ep_wgpu.runtime.settings import RunSettings
from tests.support import Runner, compile_model, device, make_model, run_model
from tests.targets import Way, using

F = np.float32
TYPES = (np.float32, np.float16, np.int32, np.int64, np.uint8, np.bool_)


class Case:
    """A random graph around Concat and Pad, whose values, small whole numbers that every type holds, numpy calculates beside it."""

    def __init__(self, seed: int, dtype: type) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, tuple[type, list]] = {}
        self.weights: dict[str, np.ndarray] = {}
        self.given: list[list[np.ndarray]] = [[], [], []]  # per run, in the order of the inputs
        self.wanted: dict[str, list[np.ndarray]] = {}
        self.rank = int(self.rng.integers(2, 5))
        self.axis = int(self.rng.integers(self.rank))
        self.shape = [int(n) for n in self.rng.choice([1, 2, 3, 4, 8], self.rank)]
        self.symbolic = bool(self.rng.random() < 0.6)

    def name(self) -> str:
        return f"v{len(self.nodes) + len(self.inputs) + len(self.weights)}"

    def numbers(self, shape: list[int], dtype: type) -> np.ndarray:
        return self.rng.integers(0, 2, shape).astype(dtype)

    def source(self, length: list[int], order: list[int], dtype: type) -> tuple[str, list[np.ndarray]]:
        """An input whose axes are those of the result in another order; `length` is its extent along the axis, per run."""
        shapes = [[n if k == self.axis else d for k, d in enumerate(self.shape)] for n in length]
        name = self.name()
        dims = [f"{name}_n" if k == self.axis and self.symbolic else shapes[0][k] for k in order]
        self.inputs[name] = (dtype, dims)
        arrays = [self.numbers([shape[k] for k in order], dtype) for shape in shapes]
        for run, array in zip(self.given, arrays, strict=True):
            run.append(array)
        return name, arrays

    def add(self, op: str, inputs: list[str], arrays: list[np.ndarray], **attributes: object) -> tuple[str, list]:
        name = self.name()
        self.nodes.append(node(op, inputs, [name], **attributes))
        self.wanted[name] = arrays
        return name, arrays

    def product(self, length: list[int], order: list[int]) -> tuple[str, list[np.ndarray]]:
        """What a matrix product makes, of the type."""
        name, arrays = self.source(length, order, F)
        size = arrays[0].shape[-1]
        if self.symbolic and order[-1] == self.axis:
            weight, factor = self.name(), np.array(1, F)
            self.weights[weight] = np.ones((), F)
            name, arrays = self.add(
                "CumSum", [name, self.constant(np.array(-1))], [a.cumsum(-1, F) % 1e9 for a in arrays]
            )
            name, arrays = self.add("Min", [name, weight], [np.minimum(a, factor) for a in arrays])
        else:
            factor = np.eye(size, dtype=F)[::-1].copy()
            name, arrays = self.add("MatMul", [name, self.constant(factor)], [a @ factor for a in arrays])
        if self.dtype is F:
            return name, arrays
        to = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        return self.add("Cast", [name], [a.astype(self.dtype) for a in arrays], to=to)

    def constant(self, array: np.ndarray) -> str:
        name = self.name()
        self.weights[name] = array
        return name

    def part(self, depth: int) -> tuple[str, list[np.ndarray]]:
        rng = self.rng
        length = (
            [int(n) for n in rng.choice([0, 1, 2, 4, 5, 8], 3)]
            if self.symbolic
            else [int(rng.choice([0, 1, 4, 5]))] * 3
        )
        same = list(range(self.rank))
        kind = rng.choice(
            ["product", "turned", "map", "input", "slice", "weight", "concat", "pad"],
            p=[0.25, 0.1, 0.1, 0.1, 0.1, 0.05, 0.15, 0.15],
        )
        if kind == "concat" and depth < 2:
            return self.concat(depth + 1)
        if kind == "pad" and depth < 3:
            return self.pad(depth + 1)
        if kind == "turned":
            order = [int(k) for k in rng.permutation(self.rank)]
            name, arrays = self.product(length, order)
            back = [int(k) for k in np.argsort(order)]
            return self.add("Transpose", [name], [a.transpose(back) for a in arrays], perm=back)
        if kind in ("input", "slice", "map"):
            name, arrays = self.source(length, same, self.dtype)
            if kind == "slice":
                ends = [self.constant(np.array([v])) for v in (0, 3, self.axis)]
                cut = [np.take(a, range(min(3, a.shape[self.axis])), self.axis) for a in arrays]
                return self.add("Slice", [name, *ends], cut)
            if kind == "map":
                other, more = self.source([1] * 3, same, self.dtype)
                op, f = ("Or", np.logical_or) if self.dtype is np.bool_ else ("Add", np.add)
                return self.add(op, [name, other], [f(a, m) for a, m in zip(arrays, more, strict=True)])
            return name, arrays
        if kind == "weight":
            array = self.numbers([2 if k == self.axis else d for k, d in enumerate(self.shape)], self.dtype)
            return self.constant(array), [array] * 3
        return self.product(length, same)

    def pad(self, depth: int = 0) -> tuple[str, list[np.ndarray]]:
        """A part that is smaller, and around it what is missing."""
        whole, pads = self.shape, self.rng.integers(0, 3, (2, self.rank))
        for k in range(self.rank):
            if k != self.axis and pads[:, k].sum() > whole[k]:
                pads[:, k] = 0
        self.shape = [n if k == self.axis else n - int(pads[:, k].sum()) for k, n in enumerate(whole)]
        name, arrays = self.part(depth)
        self.shape = whole
        around = self.constant(pads.reshape(-1))
        fill, value = "", np.zeros((), self.dtype)
        if self.rng.random() < 0.6:
            value = self.numbers([], self.dtype)
            fill = self.constant(value)
            if self.rng.random() < 0.5 and self.dtype is not np.bool_:
                fill, (value, *_) = self.add("Max", [fill], [value] * 3)
        wanted = [np.pad(a, pads.T, constant_values=value) for a in arrays]
        return self.add("Pad", [name, around, fill], wanted)

    def concat(self, depth: int = 0) -> tuple[str, list[np.ndarray]]:
        parts = [self.part(depth) for _ in range(self.rng.integers(2, 5))]
        if self.rng.random() < 0.2:
            parts.append(parts[0])
        whole = [np.concatenate([arrays[run] for _, arrays in parts], self.axis) for run in range(3)]
        return self.add("Concat", [name for name, _ in parts], whole, axis=self.axis)

    def model(self) -> onnx.ModelProto:
        """The graph with a reader or two of what it has joined, and some of its values as outputs."""
        name, arrays = self.concat() if self.rng.random() < 0.6 else self.pad()
        to = helper.np_dtype_to_tensor_dtype(np.dtype(F))
        if self.rng.random() < 0.5:
            name, arrays = self.add("Cast", [name], [a.astype(F) for a in arrays], to=to)
        if self.rng.random() < 0.5:
            order = list(range(self.rank))[::-1]
            self.add("Transpose", [name], [a.transpose(order) for a in arrays], perm=order)
        model = make_model(self.nodes, self.inputs, self.weights)
        outputs = {out.name for out in model.graph.output}
        more = [n for n in self.wanted if n not in outputs and self.rng.random() < 0.15]
        model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in more)
        return model


@pytest.mark.costly
@pytest.mark.parametrize("int64", ["native", "pair"])
@pytest.mark.parametrize("dtype", TYPES)
def test_parts_of_every_making(dtype: type, int64: str) -> None:
    for seed in range(8):
        case = Case(seed + 1000 * TYPES.index(dtype), dtype)
        model = case.model()
        runner = Runner(compile_model(model, device(int64).target))
        for run, arrays in enumerate(case.given):
            for out, found in zip(model.graph.output, runner(*arrays), strict=True):
                np.testing.assert_array_equal(found, case.wanted[out.name][run], f"seed {seed}, run {run}, {out.name}")


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(F)


def products(count: int, n: int, axis: int, *after: onnx.NodeProto, shape: list | None = None) -> onnx.ModelProto:
    """`count` matrix products of an input, joined along an axis."""
    names = [f"p{k}" for k in range(count)]
    nodes = [node("MatMul", ["x", f"w{k}"], [name]) for k, name in enumerate(names)]
    weights = {f"w{k}": floats(8, n + k) if axis == -1 else floats(8, n) for k in range(count)}
    return make_model(
        [*nodes, node("Concat", names, ["y"], axis=axis), *after], {"x": (F, shape or ["b", 5, 8])}, weights
    )


@pytest.mark.costly
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_kernels_store_their_parts(axis: int) -> None:
    model = products(3, 7, axis)
    program = compile_model(model)
    assert len(program.dispatches) == 3
    x = floats(2, 5, 8)
    weights = [np.frombuffer(t.raw_data, F).reshape(t.dims) for t in model.graph.initializer]
    np.testing.assert_allclose(
        Runner(program)(x)[0], np.concatenate([x @ w for w in weights], axis), rtol=1e-5, atol=1e-5
    )


def test_a_part_along_the_outer_axis_is_a_store_at_an_offset() -> None:
    for kernel in compile_model(products(2, 7, 0, shape=[1, 5, 8])).kernels:
        for text in kernel.wgsl:
            put = text[text.index("fn y_put") :].split("\n}")[0]
            assert "%" not in put and "/" not in put


def test_more_parts_than_a_kernel_binds_take_no_copies() -> None:
    program = compile_model(products(20, 3, 1))
    assert len(program.dispatches) == 20


@pytest.mark.costly
def test_joins_of_joins_are_one() -> None:
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Softmax", ["p"], ["q"]), node("Softmax", ["x2"], ["r"]),
             node("Concat", ["p", "q"], ["a"], axis=1), node("Concat", ["a", "r"], ["y"], axis=0)]  # fmt: skip
    model = make_model(nodes, {"x": (F, [4, 8]), "x2": (F, [3, 16])}, {"w": floats(8, 8)})
    program = compile_model(model)
    assert len(program.dispatches) == 3
    x, x2 = floats(4, 8), floats(3, 16)
    found = dict(zip((o.name for o in model.graph.output), Runner(program)(x, x2), strict=True))
    w = np.frombuffer(model.graph.initializer[0].raw_data, F).reshape(8, 8)

    def softmax(a: np.ndarray) -> np.ndarray:
        e = np.exp(a - a.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    p = x @ w
    wanted = np.concatenate([np.concatenate([p, softmax(p)], 1), softmax(x2)], 0)
    np.testing.assert_allclose(found["y"], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.costly
def test_a_turned_result_is_stored_turned() -> None:
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Transpose", ["p"], ["t"], perm=[0, 2, 1]),
             node("MatMul", ["u", "w"], ["q"]), node("Concat", ["t", "q"], ["y"], axis=1)]  # fmt: skip
    program = compile_model(make_model(nodes, {"x": (F, [2, 8, 8]), "u": (F, [2, "n", 8])}, {"w": floats(8, 8)}))
    assert len(program.dispatches) == 2
    x, u = floats(2, 8, 8), floats(2, 3, 8)
    (y,) = Runner(program)(x, u)
    wanted = np.concatenate([(x @ floats(8, 8)).transpose(0, 2, 1), u @ floats(8, 8)], 1)
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)


def test_halves_that_a_reader_turns_round_stay_in_its_kernel() -> None:
    """A rotary embedding: x * cos + concat(-right, left) * sin."""
    nodes = [
        node("Split", ["x"], ["left", "right"], axis=-1, num_outputs=2),
        node("Neg", ["right"], ["back"]),
        node("Concat", ["back", "left"], ["turned"], axis=-1),
        node("Mul", ["x", "cos"], ["a"]),
        node("Mul", ["turned", "sin"], ["b"]),
        node("Add", ["a", "b"], ["y"]),
    ]
    model = make_model(nodes, {"x": (F, ["b", 4, 8]), "cos": (F, [4, 8]), "sin": (F, [4, 8])})
    assert len(compile_model(model).dispatches) == 1


def test_equal_joins_are_one() -> None:
    nodes = [node("MatMul", ["x", "w"], ["p"]), *(node("Concat", ["p", "x"], [n], axis=0) for n in "ab"),
             node("Transpose", ["a"], ["at"]), node("MatMul", ["at", "b"], ["y"])]  # fmt: skip
    program = compile_model(make_model(nodes, {"x": (F, [8, 8])}, {"w": floats(8, 8)}))
    assert len(program.dispatches) == 3  # the product in place, a copy of x, the product of the two


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_])
def test_elements_that_share_a_word_are_not_stored_by_two_kernels(dtype: type) -> None:
    to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [node("Softmax", ["x"], ["s"]), node("Cast", ["s"], ["a"], to=to), node("Softmax", ["x2"], ["s2"]),
             node("Cast", ["s2"], ["a2"], to=to), node("Concat", ["a", "a2"], ["y"], axis=0)]  # fmt: skip
    for count in (3, 4):
        x, x2 = np.full((count, 1), 7, F), np.full((5, 1), 7, F)
        (y,) = run_model(make_model(nodes, {"x": (F, [count, 1]), "x2": (F, [5, 1])}), x, x2)
        np.testing.assert_array_equal(y, np.ones((count + 5, 1), dtype))


@pytest.mark.costly
def test_a_run_that_looks_at_everything_waits_for_all_parts() -> None:
    """What a part has around it is not written yet, and may be anything."""
    make: Callable[[], onnx.ModelProto] = lambda: products(3, 7, -1, node("Relu", ["y"], ["z"]))  # noqa: E731
    runner = Runner(compile_model(make()), RunSettings(stepwise=True))
    x = floats(2, 5, 8)
    for _ in range(3):
        assert np.isfinite(runner(x)[0]).all()
    nodes = [node("MatMul", ["x", "w"], ["p"], name="good"), node("Log", ["p"], ["l"], name="bad"),
             node("Softmax", ["p"], ["s"]), node("Concat", ["l", "s"], ["y"], axis=0)]  # fmt: skip
    model = make_model(nodes, {"x": (F, [4, 8])}, {"w": np.eye(8, dtype=F)})
    with pytest.raises(NonFiniteError, match="bad"):
        Runner(compile_model(model), RunSettings(stepwise=True))(-np.abs(floats(4, 8)))


@pytest.mark.costly
def test_a_trace_shows_a_joined_value_once_when_it_is_whole() -> None:
    program = compile_model(products(3, 7, -1))
    runner = Runner(program)
    x = floats(2, 5, 8)
    buffer = runner.device.buffer(x.nbytes)
    runner.device.upload(buffer, 0, x.tobytes())
    shown = [w for _, w in runner.executable.trace([DeviceTensor(DType.FLOAT32, x.shape, buffer)]) if w]
    (written,) = shown
    np.testing.assert_array_equal(*written.values(), runner(x)[0])


def dense(layers: int, begins: bool) -> list[list[int]]:
    """What each layer of a DenseNet joins: all before it, in order or the last one first. The last entry is the result."""
    return [list(range(k + 1)) if begins else list(range(k, -1, -1)) for k in range(layers)]


def subsets(layers: int, seed: int) -> list[list[int]]:
    """Each layer joins some of those before it, in any order."""
    rng = np.random.default_rng(seed)
    return [[int(f) for f in rng.permutation(k + 1)[: rng.integers(min(2, k + 1), k + 2)]] for k in range(layers)]


def layered(joins: list[list[int]], chained: bool = False) -> onnx.ModelProto:
    """A network whose layer k is two products of a join of layers before it; 0 is the first product, of the input."""
    nodes, weights = [node("MatMul", ["x", "w"], ["f0"])], {"w": floats(8, 4)}
    whole = "f0"
    for k, join in enumerate(joins):
        parts = [whole, f"f{k}"] if chained and k > 0 else [f"f{f}" for f in join]
        whole = f"c{k}" if k + 1 < len(joins) else "y"
        nodes.append(node("Concat", parts, [whole], axis=-1))
        if k + 1 == len(joins):
            break
        weights |= {f"a{k}": floats(4 * len(join), 4) / len(join), f"b{k}": floats(4, 4)}
        nodes += [node("MatMul", [whole, f"a{k}"], [f"m{k}"]), node("Relu", [f"m{k}"], [f"r{k}"]),
                  node("MatMul", [f"r{k}", f"b{k}"], [f"f{k + 1}"])]  # fmt: skip
    return make_model(nodes, {"x": (F, ["n", 8])}, weights)


def calculated(joins: list[list[int]], x: np.ndarray) -> np.ndarray:
    made = [x @ floats(8, 4)]
    for join in joins[:-1]:
        made.append(
            np.maximum(np.concatenate([made[f] for f in join], -1) @ floats(4 * len(join), 4) / len(join), 0)
            @ floats(4, 4)
        )
    return np.concatenate([made[f] for f in joins[-1]], -1)


@pytest.mark.costly
@pytest.mark.parametrize("begins", [True, False], ids=["begins", "ends"])
@pytest.mark.parametrize("layers", [2, 6, 7, 8, 9, 16, 33, 64])
def test_a_join_of_all_layers_takes_as_many_dispatches_as_one_of_the_last_join_and_a_layer(
    layers: int, begins: bool
) -> None:
    program = compile_model(layered(dense(layers, begins)))
    chained = compile_model(layered(dense(layers, True), chained=True))
    assert len(program.dispatches) <= len(chained.dispatches) <= 3 * layers
    x = floats(3, 8)
    np.testing.assert_allclose(Runner(program)(x)[0], calculated(dense(layers, begins), x), rtol=1e-3, atol=1e-4)


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(6))
def test_storing_parts_never_takes_more_dispatches_than_maps(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    joins = subsets(4 + 6 * seed, seed)
    model = layered(joins)
    program = compile_model(model)
    x = floats(3, 8)
    found = dict(zip((out.name for out in model.graph.output), Runner(program)(x), strict=True))
    np.testing.assert_allclose(found["y"], calculated(joins, x), rtol=1e-3, atol=1e-4)
    monkeypatch.setattr(place._Placer, "_is_stored", lambda *_: False)
    assert len(program.dispatches) <= len(compile_model(layered(joins)).dispatches)


@pytest.mark.parametrize("way", [Way("own"), Way("gpu")], ids=str)
@pytest.mark.parametrize("inner", ["Concat", "Pad"])
@pytest.mark.parametrize("seed", range(12))
def test_a_reshape_between_two_that_lie_in_one_another(seed: int, inner: str, way: Way) -> None:
    """What is cut of the inner one may be no rectangle of the outer one: 9 and 9 of 18 that are 3 rows of 6 there."""
    rng = np.random.default_rng(seed)
    rows, columns, copies = (int(it) for it in rng.integers(2, 5, 3))
    total = rows * columns
    first = int(rng.integers(1, total))
    dtype = rng.choice([np.float32, np.bool_, np.int64])
    x, y = (rng.integers(0, 2, n).astype(dtype) for n in (first, total - first))
    weights = {"shape": np.array([1, rows, columns]), "pads": np.array([0, total - first])}
    if inner == "Concat":
        nodes, wanted = [node("Concat", ["x", "y"], ["c"], axis=0)], np.concatenate([x, y])
    else:
        nodes, wanted = [node("Pad", ["x", "pads"], ["c"])], np.concatenate([x, np.zeros_like(y)])
    axis = int(rng.integers(3))
    nodes += [node("Reshape", ["c", "shape"], ["r"]), node("Concat", ["r"] * copies, ["z"], axis=axis)]
    given = {"x": x, "y": y} if inner == "Concat" else {"x": x}
    model = make_model(
        nodes, {name: (dtype, list(a.shape)) for name, a in given.items()}, {n: weights[n] for n in ("shape",)}
        | ({"pads": weights["pads"]} if inner == "Pad" else {}),
    )  # fmt: skip
    with using(way):
        (z,) = Runner(compile_model(model))(*given.values())
    np.testing.assert_array_equal(z, np.concatenate([wanted.reshape(1, rows, columns)] * copies, axis))
