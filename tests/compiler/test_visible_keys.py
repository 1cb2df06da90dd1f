"""Constant masks that say positions: which are found, what attention computes then, and why others stay."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.compiler.rewrite import band
from onnxruntime_ep_wgpu.plugin.assign.report import kernels_of
from onnxruntime_ep_wgpu.program.program import Program, Storage
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE
from tests.compiler.attention_models import SPELLINGS, Sizes, attention_model, expected, feeds
from tests.support import Runner, compile_model, hardware, labels, make_model

F = np.float32
FOUND = "flash_attention (mask by position)"
NO_BAND = "the constant mask does not define a band of visible keys for each query"
LOWEST = {F: -3.4028234663852886e38, np.float16: -65504.0, ml_dtypes.bfloat16: -3.3895313892515355e38}
TOLERANCE = {F: 4e-6, np.float16: 2e-3, ml_dtypes.bfloat16: 2e-2}


def masks_of(program: Program) -> list[str]:
    """The weights that are left of several numbers."""
    return [it.name for it in program.values if it.storage is Storage.WEIGHT and it.shape not in ((), (1,))]


def reasons(program: Program) -> list[str]:
    return [it.reason for it in program.declined if it.rule == "visible_keys"]


def visible(queries: int, keys: int, first: int, last: int) -> np.ndarray:
    distance = np.arange(keys) - np.arange(queries)[:, None]
    return (distance >= first) & (distance <= last)


def with_constant(model: onnx.ModelProto, mask: np.ndarray) -> onnx.ModelProto:
    """The model with this instead of its input `mask`."""
    kept = [it for it in model.graph.input if it.name != "mask"]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.append(numpy_helper.from_array(mask, "mask"))
    return model


@dataclass(frozen=True)
class Case:
    """Query i sees keys i + `first` to i + `last`; what it does not see has `hidden` added, or in its place."""

    sizes: Sizes
    first: int
    last: int
    spelling: str = "scores"
    kind: str = "added"
    hidden: float = -np.inf
    dtype: type = F
    shape: tuple[int, ...] = (1, 1)

    @property
    def seen(self) -> np.ndarray:
        return visible(self.sizes.queries, self.sizes.keys, self.first, self.last)

    @property
    def mask(self) -> np.ndarray:
        if self.kind == "chosen":
            return self.seen
        added = np.where(self.seen, 0, self.hidden).astype(self.dtype)
        return np.broadcast_to(added, (*self.shape, *added.shape))

    def model(self, mask: np.ndarray | None = None) -> onnx.ModelProto:
        made = attention_model(self.spelling, self.kind, self.sizes, self.dtype)
        for it in made.graph.initializer:
            if it.name == "low":
                it.CopyFrom(numpy_helper.from_array(np.array(self.hidden, self.dtype), "low"))
        return with_constant(made, self.mask if mask is None else mask)


def check(case: Case, mask: np.ndarray | None = None, on=None, seed: int = 1) -> Program:
    """Runs the attention, which has to be the definition whether its mask is found or not."""
    model = case.model(mask)
    program = compile_model(model, on or hardware())
    arrays = feeds(model, case.kind, case.sizes, np.random.default_rng(seed))
    (y,) = Runner(program)(*arrays)
    want = expected(case.spelling, case.kind, case.sizes, [*arrays, case.mask if mask is None else mask])
    near = TOLERANCE[case.dtype]
    np.testing.assert_allclose(y.astype(np.float64), want, rtol=near, atol=4 * near, err_msg=str(case))
    return program


def found(program: Program) -> None:
    assert FOUND in labels(program), program.declined
    assert not masks_of(program) and not reasons(program)


def drawn(seed: int) -> Case:
    """A case out of all that there are."""
    rng = np.random.default_rng(seed)

    def pick(*these):
        return these[rng.integers(len(these))]

    queries, keys = pick(1, 3, 9, 40, 70, 130), pick(2, 7, 64, 65, 130, 300)
    last = pick(0, 0, 0, max(0, keys - queries), pick(1, 5, 90), keys)
    first = pick(-queries, -queries, last - pick(0, 1, 5, 60), pick(-3, 0, 2))
    first, last = min(first, last, keys - queries), max(last, 0)
    dtype = pick(F, F, np.float16, ml_dtypes.bfloat16)
    heads = pick(1, 3)
    batch = pick(1, 2)
    return Case(
        Sizes(batch, heads, queries, keys, pick(8, 20, 64), pick(8, 20, 64)),
        first,
        last,
        spelling=pick(*(it for it in SPELLINGS if it not in ("rows as queries", "transposed"))),
        kind=pick("added", "added", "chosen"),
        hidden=-np.inf if dtype is np.float16 else pick(-np.inf, LOWEST[dtype]),
        dtype=dtype,
        shape=pick((), (1,), (1, 1), (batch, 1), (1, heads)),
    )


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(24))
def test_a_band_is_found_and_results_are_those_of_the_mask(seed):
    found(check(drawn(seed), seed=seed))


@pytest.mark.costly
@pytest.mark.parametrize("hidden", [-np.inf, LOWEST[F]])
@pytest.mark.parametrize("spelling", ["transposed", "rows as queries"])
def test_keys_by_queries_and_no_heads(spelling, hidden):
    sizes = Sizes(1, 1, 40, 60, 16, 16)
    if spelling == "rows as queries":
        found(check(Case(sizes, -40, 5, spelling, hidden=hidden, shape=())))
    else:  # the mask as it lies above scores of keys by queries
        turned = node("Add", ["p", "mask"], ["masked"])
        made = attention_model(spelling, "none", sizes)
        at = next(k for k, it in enumerate(made.graph.node) if it.output[0] == "p")
        made.graph.node.insert(at + 1, turned)
        made.graph.node[at + 2].input[0] = "masked"
        mask = np.where(visible(40, 60, -7, 5), 0, hidden).astype(F)
        model = with_constant(made, np.ascontiguousarray(mask.T))
        program = compile_model(model, hardware())
        found(program)
        arrays = feeds(model, "none", sizes, np.random.default_rng(1))
        (y,) = Runner(program)(*arrays)
        plain = expected("scores", "added", sizes, [*arrays, mask])
        np.testing.assert_allclose(y, np.swapaxes(plain, -1, -2), rtol=4e-6, atol=2e-5)


def test_a_part_of_a_larger_constant():
    sizes = Sizes(1, 2, 30, 50, 16, 16)
    whole = np.where(visible(64, 64, -64, 0), 0, -np.inf).astype(F).reshape(1, 1, 64, 64)
    made = attention_model("scores", "added", sizes)
    add = next(it for it in made.graph.node if it.op_type == "Add")
    add.input[1] = "part"
    bounds = {"starts": [20, 0], "ends": [50, 50], "axes": [2, 3]}
    made.graph.initializer.extend(numpy_helper.from_array(np.array(v), k) for k, v in bounds.items())
    made.graph.node.insert(0, node("Slice", ["mask", *bounds], ["part"]))
    model = with_constant(made, whole)
    program = compile_model(model, hardware())
    found(program)
    arrays = feeds(model, "none", sizes, np.random.default_rng(1))
    (y,) = Runner(program)(*arrays)
    np.testing.assert_allclose(y, expected("scores", "added", sizes, [*arrays, whole[..., 20:50, :50]]), 4e-6, 2e-5)


@pytest.mark.costly
@pytest.mark.parametrize("hidden", [-np.inf, LOWEST[F]])
def test_keys_are_chosen_to_be_hidden(hidden):
    """Where(hidden, lowest, scores), as `masked_fill` is exported."""
    sizes = Sizes(1, 2, 40, 40, 16, 16)
    case = Case(sizes, -40, 0, kind="chosen", hidden=hidden)
    model = case.model(~case.seen)
    where = next(it for it in model.graph.node if it.op_type == "Where")
    where.input[1], where.input[2] = where.input[2], where.input[1]
    program = compile_model(model, hardware())
    found(program)
    arrays = feeds(model, "none", sizes, np.random.default_rng(1))
    (y,) = Runner(program)(*arrays)
    np.testing.assert_allclose(y, expected("scores", "chosen", sizes, [*arrays, case.seen]), 4e-6, 2e-5)


def test_keys_beyond_are_neither_loaded_nor_multiplied():
    """NaN in keys that a query does not see is not in its scores, nor in its result; a profile counts what is left."""
    sizes = Sizes(1, 2, 200, 200, 32, 32)
    case = Case(sizes, -200, 0)
    model = case.model()
    program = compile_model(model, hardware())
    found(program)
    (dispatch,) = (it for it in program.dispatches if program.kernels[it.kernel].label == FOUND)
    assert dispatch.flops == 2 * 2 * (200 * 201 // 2) * (32 + 32)
    arrays = feeds(model, "none", sizes, np.random.default_rng(1))
    want = expected("scores", "added", sizes, [*arrays, case.mask])
    arrays[1][:, :, 100:] = np.nan
    (y,) = Runner(program)(*arrays)
    np.testing.assert_allclose(y[:, :, :100], want[:, :, :100], rtol=4e-6, atol=2e-5)
    assert np.isnan(y[:, :, 100:]).all()


ALMOST = {
    "a visible entry is -0.001": lambda m: m.__setitem__((0, 0, 9, 3), -1e-3),
    "a hidden entry is 0": lambda m: m.__setitem__((0, 0, 3, 17), 0),
    "one more is hidden": lambda m: m.__setitem__((0, 0, 20, 20), -np.inf),
    "a hole": lambda m: m.__setitem__((0, 0, 20, 17), -np.inf),
    "the first row is hidden": lambda m: m.__setitem__((0, 0, 0), -np.inf),
    "the last row is hidden": lambda m: m.__setitem__((0, 0, -1), -np.inf),
    "a row between is hidden": lambda m: m.__setitem__((0, 0, 11), -np.inf),
    "the second head sees one more": lambda m: m.__setitem__((0, 1, 5, 6), 0),
}


@pytest.mark.costly
@pytest.mark.parametrize("change", ALMOST)
@pytest.mark.parametrize("seen", [(-40, 0), (-6, 0)], ids=["causal", "window"])
def test_a_mask_that_is_almost_a_band_stays(change, seen):
    case = Case(Sizes(1, 2, 40, 40, 16, 16), *seen, shape=(1, 2))
    mask = case.mask.copy()
    ALMOST[change](mask)
    program = check(case, mask)
    assert masks_of(program) == ["mask"] and reasons(program) == [NO_BAND]


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(20))
def test_one_element_that_differs_anywhere_keeps_the_mask(seed):
    rng = np.random.default_rng(seed)
    case = Case(Sizes(1, 1, 33, 47, 8, 8), -33, int(rng.integers(0, 30)))
    mask = case.mask.copy()
    at = (0, 0, rng.integers(33), rng.integers(47))
    mask[at] = rng.standard_normal() if mask[at] == 0 or rng.random() < 0.5 else 0
    program = check(case, mask)
    assert masks_of(program) == ["mask"] and len(reasons(program)) == 1


@pytest.mark.parametrize("hidden", [-1e4, -1e9, -1e30, 1.0, np.nan, np.inf])
def test_hidden_scores_that_may_have_weights_keep_the_mask(hidden):
    case = Case(Sizes(1, 1, 20, 20, 8, 8), -20, 0, hidden=hidden)
    program = compile_model(case.model(), hardware())
    assert masks_of(program) == ["mask"]
    assert reasons(program) == [f"scores of up to 3.01e+37 may have weights where its mask adds {hidden:.6g}"]
    one = case.mask.copy()
    one[0, 0, 3, 7] = hidden
    assert len(reasons(compile_model(case.model(one), hardware()))) == 1


@pytest.mark.exhaustive
def test_the_lowest_half_hides_only_scores_that_cannot_reach_it():
    """65504 is no more than scores of two f16 keys may differ by, unless products of f16 are scaled down."""
    sizes = Sizes(1, 2, 40, 40, 16, 16)
    for spelling, fits in (("scores", True), ("divided", True), ("both sides", False)):
        program = check(Case(sizes, -40, 0, spelling, hidden=LOWEST[np.float16], dtype=np.float16))
        if fits:
            found(program)
        else:
            assert reasons(program) == ["scores of up to 6.55e+04 may have weights where its mask adds -65504"]
    narrow = Case(Sizes(1, 1, 9, 9, 4, 4), -9, 0, hidden=LOWEST[np.float16], dtype=np.float16)  # half of a product
    assert reasons(check(narrow)) == ["scores of up to 3.28e+04 may have weights where its mask adds -65504"]
    found(check(dataclasses.replace(narrow, kind="chosen")))
    found(check(dataclasses.replace(narrow, hidden=-np.inf)))


def test_scores_at_the_bound_of_a_type_have_no_weight():
    """The largest product of f16, scaled, hidden behind the least that can be seen."""
    sizes = Sizes(1, 1, 2, 2, 8, 8)
    case = Case(sizes, -2, 0, hidden=LOWEST[np.float16], dtype=np.float16)
    model = case.model()
    q, k = np.zeros((1, 1, 2, 8), np.float16), np.zeros((1, 1, 2, 8), np.float16)
    q[..., 0] = 255.9
    k[0, 0, :, 0] = -255.9, 255.9
    v = np.arange(16, dtype=np.float16).reshape(1, 1, 2, 8)
    (y,) = Runner(compile_model(model, hardware()))(q, k, v)
    np.testing.assert_array_equal(y[0, 0], v[0, 0])
    np.testing.assert_array_equal(expected("scores", "added", sizes, [q, k, v, case.mask])[0, 0], v[0, 0])


def decoder(*after: onnx.NodeProto, hidden: float = LOWEST[F], before: str = "") -> onnx.ModelProto:
    """Scores of (2, 20, 20) that are masked, with these nodes from `m` to `s` behind, and `before` it an input added."""
    mask = np.where(visible(20, 20, -20, 0), 0, hidden).astype(F)
    nodes = [node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]), node("MatMul", ["q", "kt"], ["p"])]
    nodes += [node("Mul", ["p", "scale"], ["t"])]
    nodes += [node("Add", ["t", "other"], ["u"])] if before else [node("Identity", ["t"], ["u"])]
    nodes += [
        node("Add", ["u", "mask"], ["m"]),
        *after,
        node("Softmax", ["s"], ["w"]),
        node("MatMul", ["w", "v"], ["y"]),
    ]
    inputs = {name: (F, [2, 20, 8]) for name in "qkv"} | {"other": (F, [2, 1, 20])}
    read = {name for it in nodes for name in it.input}
    weights = {"mask": mask, "scale": np.array(0.35, F), "two": np.array(2, F)}
    return make_model(nodes, *({k: v for k, v in given.items() if k in read} for given in (inputs, weights)))


KEEP = node("Identity", ["m"], ["s"])
OTHERS = [
    ("scores of up to inf may have weights where its mask adds -3.40282e+38", [KEEP], LOWEST[F], "other"),
    ("its scores pass through x + y after their mask", [node("Add", ["m", "other"], ["s"])], LOWEST[F], ""),
    ("its scores pass through x * y after their mask", [node("Mul", ["m", "two"], ["s"])], -np.inf, ""),
    (
        "its scores pass through exp(x) after their mask",
        [node("Exp", ["m"], ["e"]), node("Add", ["e", "m"], ["s"])],
        -np.inf,
        "",
    ),
    ("", [KEEP], -np.inf, "other"),
    ("", [node("Add", ["m", "m"], ["s"])], -np.inf, ""),
    ("", [node("Add", ["m", "other"], ["s"])], -np.inf, ""),
    ("", [node("Cast", ["m"], ["h"], to=10), node("Cast", ["h"], ["s"], to=1)], LOWEST[F], ""),
]


@pytest.mark.costly
@pytest.mark.parametrize("number", range(len(OTHERS)))
def test_what_else_is_done_with_scores(number):
    """Sequences with another mask: with the same lowest number in both, what two masks hide would be as what one does."""
    reason, after, hidden, before = OTHERS[number]
    model = decoder(*after, hidden=hidden, before=before)
    program = compile_model(model, hardware())
    if reason:
        assert reasons(program) == [reason]
    else:
        found(program)
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((2, 20, 8)).astype(F) for _ in "qkv")
    other = np.where(np.arange(20) < [[[5]], [[0]]], LOWEST[F], 0).astype(F)
    arrays = [q, k, v, other][: len(model.graph.input)]
    cpu = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (want,) = cpu.run(None, {it.name: array for it, array in zip(model.graph.input, arrays, strict=True)})
    (y,) = Runner(program)(*arrays)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)


@pytest.mark.costly
@pytest.mark.parametrize("operator", ["Attention", "MultiHeadAttention"])
def test_operators_with_a_constant_mask(operator):
    """Four heads of queries; of keys two in one of them, whose rows are those of two heads."""
    mask = np.where(visible(30, 50, -30, 20), 0, -np.inf).astype(F)
    shared = 2 if operator == "Attention" else 1
    shapes = {"q": [1, 30, 64], "k": [1, 50, 64 // shared], "v": [1, 50, 64 // shared]}
    inputs = {name: (F, shape) for name, shape in shapes.items()}
    if shared == 2:
        it = node(operator, ["q", "k", "v", "mask"], ["y"], q_num_heads=4, kv_num_heads=2)
        model = make_model([it], inputs, {"mask": mask}, opset=24)
    else:
        it = node(operator, ["q", "k", "v", "", "", "mask"], ["y"], domain="com.microsoft", num_heads=4)
        model = make_model([it], inputs, {"mask": mask.reshape(1, 1, 30, 50)})
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    program = compile_model(model, hardware())
    found(program)
    arrays = [np.random.default_rng(k).standard_normal(shape).astype(F) for k, shape in enumerate(shapes.values())]
    (y,) = Runner(program)(*arrays)
    q, k, v = (it.reshape(1, it.shape[1], -1, 16).transpose(0, 2, 1, 3) for it in arrays)
    k, v = (it.repeat(shared, axis=1) for it in (k, v))
    want = expected("scores", "added", Sizes(1, 4, 30, 50, 16, 16), [q, k, v, mask])
    np.testing.assert_allclose(y, want.transpose(0, 2, 1, 3).reshape(1, 30, 64), rtol=4e-6, atol=2e-5)


def layers(count: int) -> onnx.ModelProto:
    nodes, x = [], "x"
    for k in range(count):
        nodes += [node("Transpose", [x], [f"t{k}"], perm=[0, 2, 1]), node("MatMul", [x, f"t{k}"], [f"p{k}"])]
        nodes += [node("Add", [f"p{k}", "mask"], [f"m{k}"]), node("Softmax", [f"m{k}"], [f"w{k}"])]
        nodes += [node("MatMul", [f"w{k}", x], [f"x{k}"])]
        x = f"x{k}"
    mask = np.where(visible(40, 40, -40, 0), 0, -np.inf).astype(F)
    return make_model(nodes, {"x": (F, [2, 40, 16])}, {"mask": mask})


def test_layers_that_share_a_mask_have_it_looked_at_once(monkeypatch):
    looked = []
    real = band._computed_band
    monkeypatch.setattr(band, "_computed_band", lambda *given: looked.append(given) or real(*given))
    program = compile_model(layers(3), hardware())
    assert labels(program) == [FOUND] * 3 and len(looked) == 1


def test_hidden_keys_are_not_loaded_where_a_target_has_products_for_the_rest():
    products = hardware(tuning=(tune.use(tune.attention.AttentionForm(0)),))
    assert labels(compile_model(layers(1), products)) == [FOUND]
    case = Case(Sizes(1, 1, 20, 20, 8, 8), -20, 0, hidden=-1e4)
    assert "matmul" in labels(compile_model(case.model(), products))


def test_sizes_of_a_run_keep_the_mask():
    made = attention_model("scores", "added", Sizes(1, 2, 20, 20, 8, 8), dynamic=True)
    program = compile_model(with_constant(made, np.zeros((1, 1, 20, 20), F)), hardware())
    assert masks_of(program) == ["mask"] and not reasons(program)


def test_it_is_told_by_which_kernel_calculates_the_nodes():
    case = Case(Sizes(1, 1, 20, 20, 8, 8), -20, 0)
    model = case.model()
    for number, it in enumerate(model.graph.node):
        it.name = f"{it.op_type}{number}"
    program = compile_model(model, hardware())
    assert kernels_of(program)["Add3"] == (f"0 {FOUND}",)


def test_browsers_have_it_too():
    case = Case(Sizes(1, 2, 70, 70, 16, 16), -70, 0, hidden=LOWEST[F])
    found(check(case, on=WEB_BASELINE))
