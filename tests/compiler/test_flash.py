"""`flash_attention`, as operators call it, beside the definition in float64: layouts, groups of heads, what a query sees, sinks,
few queries of long sequences; sizes known when it is compiled and sizes of a run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import pytest

from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.compiler.compile import compile_lowered
from onnxruntime_ep_wgpu.compiler.dims import symbol
from onnxruntime_ep_wgpu.compiler.ir import LoweredGraph, Storage, Tensor, View
from onnxruntime_ep_wgpu.compiler.lower.builder import Builder, Operand
from onnxruntime_ep_wgpu.compiler.lower.ops.attend import VisibleKeys, flash_attention
from onnxruntime_ep_wgpu.errors import UnsupportedError
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import Target
from tests.ops import test_group_query as group_query
from tests.ops.compare import model, random
from tests.support import Runner, compile_model, hardware, target

F = np.float32
LAYOUTS = {"heads first": (0, 1, 2, 3), "steps first": (0, 2, 1, 3), "elements before steps": (0, 1, 3, 2)}


@dataclass(frozen=True)
class Case:
    """What is attended to what. `starts` is "data", a number or None; `rows` are those of the cache, of which keys are seen."""

    batch: int = 2
    heads: int = 4
    groups: int = 2
    queries: int = 5
    keys: int = 37
    size: int = 32
    value_size: int = 32
    layout: str = "heads first"
    starts: object = None
    ends: bool = False
    behind: bool = False
    left: int | None = None
    right: int | None = None
    softcap: float = 0.0
    mask: str = ""
    sink: bool = False
    dtype: type = F
    dynamic: bool = False

    @property
    def scale(self) -> float:
        return 0.6 / self.size**0.5 * 3


def arrays_of(case: Case, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    order = LAYOUTS[case.layout]

    def heads(count: int, steps: int, size: int) -> np.ndarray:
        x = rng.standard_normal((case.batch, count, steps, size)).transpose(order)
        return np.ascontiguousarray(x).astype(case.dtype)

    found = {
        "q": heads(case.heads, case.queries, case.size),
        "k": heads(case.groups, case.keys, case.size),
        "v": heads(case.groups, case.keys, case.value_size),
    }
    if case.ends:
        found["ends"] = rng.integers(0, case.keys + 1, case.batch).astype(np.int32)
        found["ends"][0] = case.keys
        back = np.argsort(order)
        for name in ("k", "v"):  # what is behind the end may be anything
            whole = found[name].transpose(back)
            for sequence, end in enumerate(found["ends"]):
                whole[sequence, :, end:] = np.nan
    if case.starts == "data":
        found["starts"] = rng.integers(-3, max(1, case.keys), case.batch).astype(np.int32)
    if case.mask == "added":
        mask = rng.standard_normal((1, case.heads, case.queries, case.keys)).astype(case.dtype)
        found["mask"] = np.where(rng.random(mask.shape) < 0.1, np.array(-np.inf, case.dtype), mask)
    elif case.mask == "chosen":
        found["mask"] = rng.random((case.batch, 1, case.queries, case.keys)) < 0.8
    if case.sink:
        found["sink"] = rng.standard_normal(case.heads).astype(case.dtype)
    return found


def expected(case: Case, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """The definition, in float64."""
    back = np.argsort(LAYOUTS[case.layout])
    q, k, v = (arrays[name].transpose(back).astype(np.float64) for name in "qkv")
    shared = case.heads // case.groups
    ends = arrays.get("ends", np.full(case.batch, case.keys))
    starts = arrays.get("starts", ends - case.queries if case.starts is None else np.full(case.batch, case.starts))
    y = np.zeros((case.batch, case.heads, case.queries, case.value_size))
    for sequence in range(case.batch):
        end = int(ends[sequence])
        if case.behind:
            end = min(max(int(starts[sequence]) + case.queries, 0), end)
        at = int(starts[sequence]) + np.arange(case.queries)[:, None]
        j = np.arange(end)[None]
        seen = np.ones((case.queries, end), bool)
        if case.left is not None:
            seen &= j >= at - case.left
        if case.right is not None:
            seen &= j <= at + case.right
        for head in range(case.heads):
            scores = q[sequence, head] @ k[sequence, head // shared, :end].T * case.scale
            if case.softcap:
                scores = case.softcap * np.tanh(scores / case.softcap)
            if case.mask:
                mask = arrays["mask"][sequence % len(arrays["mask"])][head % arrays["mask"].shape[1]][:, :end]
                scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask.astype(np.float64)
            scores = np.where(seen, scores, -np.inf)
            if case.sink:
                sink = np.full((case.queries, 1), arrays["sink"][head].astype(np.float64))
                scores = np.concatenate([scores, sink], axis=1)
            highest = scores.max(-1, keepdims=True, initial=-np.inf)
            weights = np.exp(scores - np.where(np.isinf(highest), 0, highest))
            total = weights.sum(-1, keepdims=True)
            weights = np.where(total == 0, 0, weights / np.where(total == 0, 1, total))[:, :end]
            y[sequence, head] = weights @ v[sequence, head // shared, :end]
    return y


@dataclass
class Built:
    """A program of one attention, and the names of its inputs."""

    program: Program
    names: list[str] = field(default_factory=list)


def built(case: Case, on: Target) -> Built:
    arrays = arrays_of(case)
    order = LAYOUTS[case.layout]
    dims: dict[tuple[str, int], str] = {}
    if case.dynamic:
        dims = {("q", 0): "b", ("q", order.index(2)): "m", ("k", order.index(2)): "n"}
        dims |= {("k", 0): "b", ("v", 0): "b", ("v", order.index(2)): "n", ("ends", 0): "b", ("starts", 0): "b"}
        dims |= {("mask", 2): "m", ("mask", 3): "n"}
        if case.mask == "chosen":
            dims["mask", 0] = "b"
    b = Builder(on)
    b.origin = ("attention",)
    symbols: dict[str, tuple[str, int, int, bool]] = {}
    operands = {}
    for index, (name, array) in enumerate(arrays.items()):
        shape = []
        for axis, extent in enumerate(array.shape):
            label = dims.get((name, axis))
            shape.append(symbol(label) if label else extent)
            if label:
                symbols.setdefault(label, (label, index, axis, False))
        tensor = Tensor(DType.of_numpy(array.dtype), tuple(shape), Storage.INPUT, name)
        operands[name] = Operand(tensor.dtype, tensor.shape, View.of(tensor))
    back = [int(k) for k in np.argsort(order)]
    q, k, v = (b.permute(operands[name], back) for name in "qkv")
    starts = operands.get("starts", case.starts)
    visible = VisibleKeys(starts, operands.get("ends"), q.shape[2] if case.behind else None, case.left, case.right)
    mask, change = operands.get("mask"), None
    if mask is not None:
        expression = "where(m, x, -infinity)" if mask.dtype is DType.BOOL else "x + m"

        def change(scores: Operand) -> Operand:
            return b.pointwise(expression, {"x": scores, "m": mask}, DType.FLOAT32, scores.shape)

    y = flash_attention(
        b, q, k, v, scale=case.scale, softcap=case.softcap, visible=visible,
        change=change, sink=operands.get("sink"),
    )  # fmt: skip
    assert not isinstance(y, str), y
    result = b.pointwise("x", {"x": y}, y.dtype).view.tensor
    result.storage = Storage.OUTPUT
    inputs = [operands[name].view.tensor for name in arrays]
    graph = LoweredGraph(tuple(symbols.values()), inputs, [result], b.nodes, list(b.checks.items()), {})
    return Built(compile_lowered(graph, on), list(arrays))


def tolerance(dtype: type) -> float:
    return {F: 4e-6, np.float16: 2e-3, ml_dtypes.bfloat16: 2e-2}[dtype]


def check(case: Case, on: Target | None = None) -> Program:
    made = built(case, on or hardware())
    arrays = arrays_of(case)
    (y,) = Runner(made.program)(*(arrays[name] for name in made.names))
    near = tolerance(case.dtype)
    np.testing.assert_allclose(
        y.astype(np.float64), expected(case, arrays), rtol=near, atol=near * 3, err_msg=str(case)
    )
    return made.program


def drawn(seed: int) -> Case:
    """A case out of all that there are."""
    rng = np.random.default_rng(seed)

    def pick(*these):
        return these[rng.integers(len(these))]

    groups, shared = pick((1, 1), (2, 1), (1, 4), (2, 2), (2, 3), (1, 8), (3, 1))
    size = pick(8, 20, 32, 64, 80, 96, 128)
    ends = bool(pick(0, 1))
    return Case(
        batch=pick(1, 2, 3),
        heads=groups * shared,
        groups=groups,
        queries=pick(1, 1, 1, 2, 3, 5, 17, 40, 70),
        keys=pick(1, 7, 64, 65, 130, 300, 700),
        size=size,
        value_size=pick(size, size, 12, 100, 33),
        layout=pick(*LAYOUTS),
        starts=pick(None, None, 0, "data", 11),
        ends=ends,
        behind=bool(pick(0, 1)),
        left=pick(None, None, 0, 3, 90),
        right=pick(None, 0, 0, 0, 2),
        softcap=pick(0.0, 0.0, 3.0),
        mask=pick("", "", "added", "chosen"),
        sink=bool(pick(0, 0, 1)),
        dtype=pick(F, F, np.float16, ml_dtypes.bfloat16),
        dynamic=bool(pick(0, 1)),
    )


def fits(case: Case) -> bool:
    """Whether a kernel has bindings enough: four of its own, levels of parts, and those of the case; and it asks for something."""
    if case.behind and case.starts != "data":
        return False
    return 5 + (case.starts == "data") + case.ends + bool(case.mask) + case.sink <= 8


CASES = [case for seed in range(160) if fits(case := drawn(seed))]


@pytest.mark.costly
@pytest.mark.parametrize("number", range(len(CASES)))
def test_it_is_the_definition(number):
    check(CASES[number])


@pytest.mark.costly
@pytest.mark.parametrize("heads", [1, 4, 8, 16], ids=lambda n: f"{n} heads")
@pytest.mark.parametrize("size", [32, 128, 256])
def test_one_token_reads_a_long_cache_in_parts(heads, size):
    """Parts of the keys, each by a workgroup, whose results a second kernel puts together."""
    case = Case(1, heads, max(1, heads // 8), 1, 1500, size, size, ends=True, right=0)
    program = check(case)
    assert len(program.dispatches) == 2


@pytest.mark.costly
@pytest.mark.parametrize("rows", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("size", "value_size"), [(64, 64), (128, 128), (256, 256), (6, 33), (4, 3), (100, 8), (8, 256)]
)
def test_few_rows_at_the_borders_of_blocks(rows, size, value_size):
    """Of 16 to 256 keys; NaN behind the end is not seen, nor an infinite value of the last key by rows that do not see it."""
    case = Case(1, rows, 1, 1, 1, size, value_size, ends=True, right=0, sink=rows == 2, dynamic=True)
    made = built(case, hardware())
    run = Runner(made.program)
    for keys in (1, 15, 16, 17, 31, 32, 33, 64, 65, 128, 129, 255, 256, 257, 513):
        this = dataclasses.replace(case, keys=keys)
        arrays = arrays_of(this)
        arrays["ends"][0] = keys - (keys > 15) * (keys % 3)
        for name in "kv":
            arrays[name][:, :, arrays["ends"][0] :] = np.nan
        (y,) = run(*(arrays[name] for name in made.names))
        np.testing.assert_allclose(y, expected(this, arrays), rtol=4e-6, atol=1e-5, err_msg=str(this))


def test_an_infinite_value_of_the_last_key_stays_infinite():
    """What is loaded again in place of keys behind the end has no part in sums: 0 times infinity would be NaN."""
    case = Case(1, 4, 1, 1, 70, 64, 64, ends=True, right=0)
    made = built(case, hardware())
    arrays = arrays_of(case)
    arrays["v"][0, 0, 69] = np.inf
    (y,) = Runner(made.program)(*(arrays[name] for name in made.names))
    np.testing.assert_array_equal(y, np.full_like(y, np.inf))


@pytest.mark.costly
@pytest.mark.parametrize("keys", [8 * 64, 8 * 64 + 1, 16 * 64, 17 * 64])
def test_parts_are_put_together_some_at_a_time(keys):
    """As many as are loaded together, one more, and twice as many; of a full cache, and of one with room."""
    for end in (keys, 70):
        case = Case(1, 4, 1, 1, keys, 64, 64, ends=True, right=0, sink=True)
        made = built(case, hardware())
        arrays = arrays_of(case)
        arrays["ends"][0] = end
        (y,) = Runner(made.program)(*(arrays[name] for name in made.names))
        np.testing.assert_allclose(y, expected(case, arrays), rtol=4e-6, atol=1e-5)


def test_a_program_serves_every_length():
    case = Case(heads=8, groups=2, size=64, value_size=64, ends=True, right=0, dynamic=True)
    made = built(case, hardware())
    run = Runner(made.program)
    for batch, queries, keys in (
        (1, 1, 1),
        (2, 1, 900),
        (3, 9, 40),
        (1, 100, 100),
        (2, 3, 0),
        (0, 3, 5),
        (2, 0, 7),
        (1, 1, 4000),
    ):
        this = dataclasses.replace(case, batch=batch, queries=queries, keys=keys)
        if not batch:
            arrays = {
                name: np.zeros((0, *it.shape[1:]), it.dtype)
                for name, it in arrays_of(dataclasses.replace(this, batch=1)).items()
            }
        else:
            arrays = arrays_of(this)
        (y,) = run(*(arrays[name] for name in made.names))
        np.testing.assert_allclose(y, expected(this, arrays), rtol=4e-6, atol=1e-5, err_msg=str(this))


def test_sizes_of_a_run_take_parts_where_keys_may_be_more_than_queries():
    """A token behind a past, or to another sequence, and not a sequence to itself or to a short text."""

    def dispatches(queries: object, keys: object) -> int:
        b = Builder(hardware())
        shapes = ((1, 4, queries, 64), (1, 2, keys, 64), (1, 2, keys, 64))
        views = [View.of(Tensor(DType.FLOAT32, it, Storage.INPUT)) for it in shapes]
        flash_attention(b, *(Operand(it.dtype, it.shape, it) for it in views), scale=1.0)
        return len(b.nodes) - 1  # the last map is the type of the result

    m, n = symbol("m"), symbol("n")
    assert dispatches(m, m) == dispatches(m, 77) == dispatches(300, 300) == 1
    assert dispatches(m, n) == dispatches(m, m + n) == dispatches(m, 1500) == dispatches(1, 1500) == 2


def test_keys_that_no_query_sees_are_not_loaded():
    """NaN before a window and behind the last query would be found in the results, as 0 times NaN."""
    case = Case(1, 2, 1, 3, 400, 32, 32, starts=200, left=10, right=0)
    made = built(case, hardware())
    arrays = arrays_of(case)
    for name in "kv":
        arrays[name][:, :, :190] = arrays[name][:, :, 203:] = np.nan
    (y,) = Runner(made.program)(*(arrays[name] for name in made.names))
    clean = {name: np.nan_to_num(it) for name, it in arrays.items()}
    np.testing.assert_allclose(y, expected(case, clean), rtol=4e-6, atol=1e-5)


@pytest.mark.costly
@pytest.mark.parametrize("queries", [1, 3, 30])
def test_a_row_that_sees_nothing_is_zeros_and_nan_stays_in_its_row(queries):
    case = Case(1, 2, 2, queries, 700, 32, 32, mask="added")
    made = built(case, hardware())
    arrays = arrays_of(case)
    arrays["mask"][0, 0, 0] = -np.inf
    arrays["mask"][0, 1, 0, 650] = np.nan
    (y,) = Runner(made.program)(*(arrays[name] for name in made.names))
    want = expected(case, arrays)
    assert np.isnan(want[0, 1, 0]).all() and (want[0, 0, 0] == 0).all()
    np.testing.assert_allclose(y, want, rtol=4e-6, atol=1e-5)


def test_workgroup_memory_of_every_adapter_is_enough():
    for size in (32, 128, 256):
        check(Case(1, 8, 1, 1, 200, size, size, ends=True, right=0), hardware(max_workgroup_storage=16384))


def test_what_it_does_not_do_is_said():
    shapes = {"q": (1, 4, 3, 32), "k": (1, 3, 5, 32), "v": (1, 3, 5, 32)}

    def call(on: Target, **changed: tuple[int, ...]) -> object:
        b = Builder(on)
        views = [View.of(Tensor(DType.FLOAT32, it, Storage.INPUT)) for it in (shapes | changed).values()]
        return flash_attention(b, *(Operand(it.dtype, it.shape, it) for it in views), scale=1.0)

    with pytest.raises(UnsupportedError, match="4 query heads are not a multiple of 3 key heads"):
        call(hardware())
    fitting = {"k": (1, 2, 5, 300), "v": (1, 2, 5, 32)}
    assert "300 elements" in str(call(hardware(), **fitting, q=(1, 4, 3, 300)))
    assert "software" in str(call(dataclasses.replace(target(), software=True), **fitting, q=(1, 4, 3, 300)))


def test_splits_keep_a_gpu_busy_and_are_none_where_rows_do():
    on = hardware()
    assert tune.flash_splits(8, 4, 4096, 64, 64, on) == 32
    assert tune.flash_splits(32, 1, 4096, 64, 64, on) == 16
    assert tune.flash_splits(8, 4, 300, 64, 64, on) == 3
    assert tune.flash_splits(8, 4, 256, 64, 64, on) == 1  # a second dispatch takes longer
    assert tune.flash_splits(32, 1, 100, 64, 64, on) == 2
    assert tune.flash_splits(32, 2048, 2048, 64, 64, on) == 1
    assert tune.flash_splits(12, 128, 128, 64, 64, on) == 1


OPERATORS = {
    "GroupQueryAttention": group_query.Case((5, 9), steps=1, room=32),
    "GroupQueryAttention, a prompt": group_query.Case((0, 0), steps=7, room=32, bias=True),
    "Attention": (
        "Attention", 23, "", {"is_causal": 1}, [random(2, 4, 6, 16), random(2, 2, 9, 16), random(2, 2, 9, 16)],
    ),
    "MultiHeadAttention": ("MultiHeadAttention", 22, "com.microsoft", {"num_heads": 4}, [random(2, 5, 64)] * 3),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_that_are_attention_are_this_kernel_where_nobody_asks_for_scores(name):
    case = OPERATORS[name]
    if isinstance(case, group_query.Case):
        built_model = case.model(F)
    else:
        operator, opset, domain, attributes, arrays = case
        built_model = model(operator, arrays, outputs=[F], domain=domain, opset=opset, **attributes)
    labels = [it.label for it in compile_model(built_model, hardware()).kernels]
    assert "flash_attention" in labels and "softmax" not in labels
