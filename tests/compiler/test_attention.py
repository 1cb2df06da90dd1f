"""The rule that makes one kernel of attention, in every spelling; what the kernel computes; and why the rule declines."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler import kernels, tune
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.program.layout import Layouts
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE
from onnxruntime_ep_wgpu.program.tuning import Bound
from tests import zoo
from tests.compiler.attention_models import MASKS, SPELLINGS, Sizes, attention_model, expected, feeds
from tests.support import Runner, compile_model, hardware, make_model, target

F = np.float32
LENGTHS = ((1, 1), (1, 300), (7, 64), (65, 7), (64, 65), (300, 65))


def flashes(program) -> int:
    """The number of attentions. Each may have a kernel for keys in parts, and one for keys in one part."""
    return len({it.origin for it in program.dispatches if program.kernels[it.kernel].label == "flash_attention"})


def sizes_of(
    spelling: str, lengths: tuple[int, int], size: int, value_size: int = 0, batch: int = 2, heads: int = 3
) -> Sizes:
    return Sizes(batch, heads, *lengths, size, value_size or size)


def check(spelling, mask, sizes, dtype=F, tolerance=3e-6, on=None, **more):
    model = attention_model(spelling, mask, sizes, dtype, **more)
    program = compile_model(model, on or hardware())
    assert flashes(program) == 1, program.declined
    arrays = feeds(model, mask, sizes, np.random.default_rng(1))
    (y,) = Runner(program)(*arrays)
    want = expected(spelling, mask, sizes, arrays)
    np.testing.assert_allclose(y.astype(np.float64), want, rtol=tolerance, atol=tolerance * 4)
    return program


SPELLED = [(s, m) for s in SPELLINGS for m in MASKS if s != "transposed" or m == "none"]


@pytest.mark.costly
@pytest.mark.parametrize(("spelling", "mask"), SPELLED)
def test_every_spelling_is_one_kernel(spelling, mask):
    check(spelling, mask, sizes_of(spelling, (65, 70), 32, 20))


@pytest.mark.costly
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("size", [1, 3, 32, 64, 80, 128, 160, 256])
def test_sizes_of_heads_and_lengths(size, lengths):
    check("scores", "added", sizes_of("scores", lengths, size, batch=1, heads=2))


@pytest.mark.costly
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)], ids=["f16", "bf16"])
@pytest.mark.parametrize("spelling", ["scores", "both sides", "merged heads"])
def test_halves_are_rounded_where_they_are_stored(spelling, dtype, tolerance):
    check(spelling, "added", sizes_of(spelling, (40, 70), 64), dtype, tolerance)


@pytest.mark.costly
@pytest.mark.parametrize("value_size", [7, 64, 90, 100, 170, 256])
def test_every_tile(value_size):
    """Each tile alone, within a GPU's limits and within those that every adapter has."""
    tiles = [it for it in map(tune.parameters_of, tune.GPU) if isinstance(it, tune.attention.FlashTile)]
    first = next(it for it in tiles if value_size <= it.widest)
    for tile in tiles[tiles.index(first) : tiles.index(first) + 3]:
        if tile.workgroup_bytes <= target().max_workgroup_storage:
            on = hardware(tuning=(tune.use(tile),))
            check("both sides", "chosen", Sizes(1, 2, 70, 300, 24, value_size), on=on)


def test_tiles_fit_into_every_adapter():
    for size in (1, 32, 33, 64, 80, 128, 150, 256):
        variants = tune.flash_variants(1, 1000, 1000, 1000, size, size, 1, WEB_BASELINE)
        assert variants[-1].guard == 1
    sizes = sizes_of("scores", (33, 70), 64)
    check("scores", "added", sizes, on=hardware(max_workgroup_storage=16384))


def test_sizes_of_a_run():
    model = attention_model("merged heads", "added", sizes_of("", (1, 1), 32), dynamic=True)
    run = Runner(compile_model(model, hardware()))
    for batch, *lengths in ((1, 1, 1), (3, 40, 70), (2, 300, 64), (5, 7, 0), (0, 3, 3), (2, 0, 5)):
        sizes = Sizes(batch, 3, *lengths, 32, 32)
        arrays = feeds(model, "added", sizes, np.random.default_rng(2))
        (y,) = run(*arrays)
        want = expected("merged heads", "added", sizes, arrays) if all(lengths) else np.zeros((batch, lengths[0], 96))
        np.testing.assert_allclose(y, want, rtol=3e-6, atol=1e-5)


def test_more_heads_than_a_dimension_of_a_grid_has_workgroups():
    check("scores", "none", Sizes(70_000, 1, 2, 3, 4, 4))


@pytest.mark.costly
@pytest.mark.parametrize("spelling", ["scores", "guarded"])
def test_rows_without_keys_and_with_nan_are_those_of_the_definition(spelling):
    sizes = Sizes(1, 1, 40, 150, 16, 8)
    model = attention_model(spelling, "added", sizes)
    q, k, v, mask = feeds(model, "added", sizes, np.random.default_rng(3))
    mask[0, 0, 0] = -np.inf  # no key
    mask[0, 0, 1, :140] = -np.inf  # only keys of the last tile
    mask[0, 0, 2, 3] = np.nan
    mask[0, 0, 3, 140] = np.inf
    mask[0, 0, 4] = np.finfo(F).min
    mask[0, 0, 5, 100] = 3e38
    q[0, 0, 6] = np.nan
    (y,) = Runner(compile_model(model, hardware()))(q, k, v, mask)
    want = expected(spelling, "added", sizes, [q, k, v, mask])
    assert np.isnan(want).any() == (spelling == "scores")
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)


def test_a_value_that_is_not_finite_reaches_the_queries_that_the_definition_gives_it():
    sizes = Sizes(1, 2, 9, 70, 8, 8)
    model = attention_model("scores", "chosen", sizes)
    q, k, v, mask = feeds(model, "chosen", sizes, np.random.default_rng(4))
    v[0, 0, 69] = np.inf
    mask[:, 0] = True
    (y,) = Runner(compile_model(model, hardware()))(q, k, v, mask)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(y, expected("scores", "chosen", sizes, [q, k, v, mask]), rtol=1e-5, atol=1e-5)


def test_memory_is_linear_in_the_sequence(monkeypatch):
    model = attention_model("scores", "none", Sizes(1, 1, 1, 1, 64, 64), dynamic=True)

    def temporary(length: int) -> int:
        program = compile_model(model, hardware())
        known = {"b": 1, "m": length, "n": length}
        return sum(Layouts(program).layout([known[it.name] for it in program.symbols]).slots)

    assert temporary(8192) <= 8 * temporary(1024)
    monkeypatch.setattr(kernels, "rewrite", lambda graph, target: graph)
    assert temporary(8192) >= 8192 * 8192 * 4


EXPECTED = {
    "minilm": 6,
    "vit_f32": 2,
    "vit_opset24": 2,
    "whisper_encoder": 2,
    "unet": 6,
    "unet_f16": 6,
    "t5_decoder_step": 4,
}


@pytest.mark.costly
@pytest.mark.parametrize("name", EXPECTED)
def test_models_reach_the_rule(name):
    import onnx

    program = compile_model(onnx.load(zoo.load(name).path), hardware())
    assert flashes(program) == EXPECTED[name]
    assert not any(kernel.label == "softmax" for kernel in program.kernels)


X = [node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]), node("MatMul", ["q", "kt"], ["s"])]
LAST = node("MatMul", ["w", "v"], ["y"])
OTHERWISE = "the second product does not sum over the keys of the softmax, or has other heads"
DECLINED = {
    "the scores have another reader": [*X, node("Softmax", ["s"], ["w"]), LAST, node("Exp", ["s"], ["z"])],
    "the weights have another reader": [*X, node("Softmax", ["s"], ["w"]), LAST, node("ReduceSum", ["w"], ["z"])],
    OTHERWISE: [*X, node("Softmax", ["s"], ["w"], axis=1), LAST],
    "the scores are not a matrix product": [node("Relu", ["q"], ["s"]), node("Softmax", ["s"], ["w"]), LAST],
    "the weights pass through exp(x) before they are used": [
        *X, node("Softmax", ["s"], ["e"]), node("Exp", ["e"], ["w"]), LAST,
    ],
}  # fmt: skip


@pytest.mark.parametrize("reason", DECLINED)
def test_a_reason_is_given_where_the_rule_does_not_apply(reason):
    inputs = {name: (F, [2, 8, 8]) for name in "qkv"}
    read = {name for it in DECLINED[reason] for name in it.input}
    model = make_model(DECLINED[reason], {k: v for k, v in inputs.items() if k in read})
    program = compile_model(model, hardware())
    assert flashes(program) == 0
    assert [it.reason for it in program.declined] == [reason]


def test_heads_that_are_too_wide_and_results_that_are_weights():
    wide = compile_model(attention_model("scores", "none", Sizes(1, 1, 4, 4, 300, 8)), hardware())
    assert flashes(wide) == 0
    assert "300 elements" in wide.declined[0].reason
    classes = compile_model(make_model([node("Softmax", ["x"], ["y"])], {"x": (F, [2, 9])}), hardware())
    assert not classes.declined


def long(size: int, rows: int = 1024, keys: int = 1024, dtype: type = F, dynamic: bool = False):
    return attention_model("scores", "none", Sizes(1, 32, rows, keys, size, size), dtype, dynamic)


LARGE = (
    Bound(name, least, known=True)
    for name, least in (("batch", 16), ("rows", 1024), ("keys", 1024), ("scores_per_binding", 4))
)
WIDE = tune.use(tune.attention.AttentionForm(0), Bound("size", 65, 128), *LARGE, dtype=DType.FLOAT32)


def test_heads_are_products_where_a_target_says_so_and_their_scores_fit():
    (declined,) = compile_model(long(128), hardware(max_binding_bytes=1 << 30, tuning=(WIDE,))).declined
    assert "heads of 128 elements, 1024 queries and 1024 keys" in declined.reason
    for fused in (
        long(64),
        long(128, 512),
        long(128, dtype=np.float16),
        long(128, dynamic=True),
        long(128, 4096, 2048),
    ):
        assert flashes(compile_model(fused, hardware(max_binding_bytes=1 << 30, tuning=(WIDE,)))) == 1
    assert flashes(compile_model(long(128), hardware(max_binding_bytes=1 << 30))) == 1


def test_scores_that_nearly_fill_a_binding_are_not_kept():
    scores = 4 * 32 * 1024 * 1024
    assert flashes(compile_model(long(128), hardware(max_binding_bytes=4 * scores, tuning=(WIDE,)))) == 0
    assert flashes(compile_model(long(128), hardware(max_binding_bytes=4 * scores - 4, tuning=(WIDE,)))) == 1


def test_a_target_says_which_form_attention_has():
    products, fused = (
        tune.use(tune.attention.AttentionForm(0)),
        tune.use(tune.attention.AttentionForm(1), Bound("rows", 1000)),
    )
    small, dynamic = attention_model("scores", "added", Sizes(2, 3, 40, 50, 16, 16)), long(16, dynamic=True)
    assert flashes(compile_model(small, hardware(tuning=(fused, products)))) == 0
    assert flashes(compile_model(dynamic, hardware(tuning=(fused, products)))) == 0
    assert flashes(compile_model(long(128), hardware(tuning=(fused, products)))) == 1
    beyond = hardware(tuning=(products,), max_buffer_bytes=4 * 2 * 3 * 40 * 50 - 1)
    assert flashes(compile_model(small, beyond)) == 1
    arrays = feeds(small, "added", Sizes(2, 3, 40, 50, 16, 16), np.random.default_rng(1))
    (want,) = Runner(compile_model(small, hardware()))(*arrays)
    (found,) = Runner(compile_model(small, hardware(tuning=(products,))))(*arrays)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("causal", [0, 1])
def test_the_operator_is_products_too_unless_it_hides_keys(causal):
    shape = [1, 32, 1024, 128]
    attention = make_model(
        [node("Attention", ["q", "k", "v"], ["y"], is_causal=causal)], dict.fromkeys("qkv", (F, shape)), opset=24
    )
    assert flashes(compile_model(attention, hardware(max_binding_bytes=1 << 30, tuning=(WIDE,)))) == causal


def test_a_software_adapter_declines_with_the_reason():
    on = dataclasses.replace(target(), software=True)
    (declined,) = compile_model(attention_model("scores", "none", Sizes(1, 2, 9, 9, 8, 8)), on).declined
    assert "software" in declined.reason
