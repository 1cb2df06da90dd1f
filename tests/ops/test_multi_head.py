"""MultiHeadAttention, the Attention of com.microsoft and their decoders of one token, beside the CPU provider."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.errors import InputError, OutOfRangeError, UnsupportedError
from onnxruntime_ep_wgpu.program.settings import CompileSettings
from onnxruntime_ep_wgpu.runtime.settings import RunSettings
from tests import support

from .compare import check, expected, model, random

BATCH, HEADS, SIZE, STEPS, KEYS, PAST = 2, 3, 8, 5, 7, 4
WIDE = HEADS * SIZE
HOW: dict[str, Any] = {"domain": "com.microsoft", "rtol": 1e-4, "atol": 1e-5}
MASKS = {
    "none": None,
    "ends": np.array([5, 3], np.int32),
    "keys": np.array([[1, 1, 1, 0, 1, 0, 0], [1, 0, 1, 1, 1, 1, 0]], np.int32),
    "queries and keys": (np.arange(BATCH * STEPS * KEYS).reshape(BATCH, STEPS, KEYS) % 3 > 0).astype(np.int32),
}


def parts(keys: int = KEYS, steps: int = STEPS, dtype: Any = np.float32) -> list[np.ndarray]:
    return [random(BATCH, n, WIDE, seed=k, dtype=dtype) for k, n in enumerate((steps, keys, keys))]


@pytest.mark.costly
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("bias", [False, True])
def test_masks_of_keys(mask: str, bias: bool) -> None:
    added = random(1, HEADS, STEPS, KEYS, seed=8) if bias else None
    check("MultiHeadAttention", *parts(), random(3 * WIDE, seed=5), MASKS[mask], added, num_heads=HEADS, **HOW)


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_types_and_scales(dtype: type) -> None:
    arrays, how = parts(dtype=dtype), {"num_heads": HEADS, "scale": 0.2, **HOW}
    if dtype == np.float16:  # the CPU provider has no kernel
        wide = [a.astype(np.float32) for a in arrays]
        want = expected(model("MultiHeadAttention", wide, domain="com.microsoft", num_heads=HEADS, scale=0.2),
                        {f"x{k}": a for k, a in enumerate(wide)})  # fmt: skip
        how["want"] = [w.astype(dtype) for w in want]
    check("MultiHeadAttention", *arrays, **how)


@pytest.mark.costly
def test_projections_that_are_packed() -> None:
    whole = random(BATCH, STEPS, HEADS, 3, SIZE)
    q, k, v = (np.ascontiguousarray(whole[:, :, :, n].reshape(BATCH, STEPS, WIDE)) for n in range(3))
    (want,) = check("MultiHeadAttention", q, k, v, num_heads=HEADS, **HOW)
    check("MultiHeadAttention", whole, num_heads=HEADS, want=[want], **HOW)
    both = np.ascontiguousarray(whole[:, :, :, 1:])
    check("MultiHeadAttention", q, both, num_heads=HEADS, want=[want], **HOW)


@pytest.mark.costly
def test_keys_of_an_encoder() -> None:
    q = random(BATCH, STEPS, WIDE)
    k, v = (random(BATCH, HEADS, KEYS, SIZE, seed=n) for n in (1, 2))
    check("MultiHeadAttention", q, k, v, random(3 * WIDE, seed=5), num_heads=HEADS, **HOW)


@pytest.mark.costly
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("symbolic", [False, True])
def test_a_past_that_is_copied(causal: int, masked: bool, symbolic: bool) -> None:
    past = [random(BATCH, HEADS, PAST, SIZE, seed=n) for n in (6, 7)]
    mask = np.array([[1] * 9, [0, 0] + [1] * 7], np.int32) if masked else None
    more = {"scale": 0.3, "symbolic": symbolic}
    check(
        "MultiHeadAttention", *parts(STEPS), None, mask, None, *past, outputs=[np.float32] * 3, num_heads=HEADS,
        unidirectional=causal, **more, **HOW,
    )  # fmt: skip


@pytest.mark.costly
@pytest.mark.parametrize("beams", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_a_token_in_a_cache_with_room(beams: bool, masked: bool) -> None:
    """The rows behind the token are not compared; nothing looks at them."""
    rows = 9
    past = [random(BATCH, HEADS, rows, SIZE, seed=n) for n in (6, 7)]
    mask = np.array([[1] * (PAST + 1), [0, 0] + [1] * (PAST - 1)], np.int32) if masked else None
    at = [np.array([PAST], np.int32)]
    if beams:
        which = np.random.default_rng(0).integers(0, 2, (1, 2, rows)).astype(np.int32)
        at += [np.array([2], np.int32), which]
    arrays = [*parts(1, 1), mask, None, *past, *at]
    while arrays[-1] is None:
        arrays.pop()
    built = model("DecoderMaskedMultiHeadAttention", arrays, outputs=[np.float32] * 3, num_heads=HEADS,
                  past_present_share_buffer=1, domain="com.microsoft")  # fmt: skip
    feeds = {f"x{k}": a for k, a in enumerate(arrays) if a is not None}
    want, got = expected(built, feeds), support.run_model(built, *feeds.values())
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(got[1:], want[1:], strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_array_equal(ours[:, :, : PAST + 1], theirs[:, :, : PAST + 1])
    for array in arrays[5:7]:
        array[:, :, PAST:] = np.nan
    np.testing.assert_array_equal(support.run_model(built, *feeds.values())[0], got[0])


@pytest.mark.costly
def test_a_token_behind_a_past_that_is_copied() -> None:
    """As MultiHeadAttention has it: the CPU provider has no kernel for it."""
    past = [random(BATCH, HEADS, PAST, SIZE, seed=n) for n in (6, 7)]
    how = {"outputs": [np.float32] * 3, "num_heads": HEADS, **HOW}
    want = check("MultiHeadAttention", *parts(1, 1), None, None, None, *past, **how)
    check("DecoderMaskedMultiHeadAttention", *parts(1, 1), None, None, *past, want=want, **how)


@pytest.mark.costly
def test_a_token_beside_an_encoder() -> None:
    keys = [random(BATCH, HEADS, KEYS, SIZE, seed=n) for n in (1, 2)]
    check("DecoderMaskedMultiHeadAttention", random(BATCH, 1, WIDE), *keys, num_heads=HEADS, **HOW)


INPUTS = 16
PROJECTED = {
    "none": None,
    "ends": np.array([5, 3], np.int32),
    "ends and beginnings": np.array([5, 4, 1, 0], np.int32),
    "keys": np.array([[1, 1, 1, 0, 1], [0, 0, 1, 1, 1]], np.int32),
    "queries and keys": (np.arange(BATCH * STEPS * STEPS).reshape(BATCH, STEPS, STEPS) % 4 > 0).astype(np.int32),
}


def projection(wide: int = 3 * WIDE) -> list[np.ndarray]:
    return [random(BATCH, STEPS, INPUTS), random(INPUTS, wide, seed=1) * 0.3, random(wide, seed=2)]


@pytest.mark.costly
@pytest.mark.parametrize("mask", PROJECTED)
@pytest.mark.parametrize("causal", [0, 1])
def test_projections_inside(mask: str, causal: int) -> None:
    check("Attention", *projection(), PROJECTED[mask], num_heads=HEADS, unidirectional=causal, **HOW)


@pytest.mark.costly
def test_values_of_another_size() -> None:
    sizes = [WIDE, WIDE, 2 * WIDE]
    check("Attention", *projection(sum(sizes)), None, num_heads=HEADS, qkv_hidden_sizes=sizes, **HOW)


@pytest.mark.costly
@pytest.mark.parametrize("causal", [0, 1])
def test_projections_with_a_past(causal: int) -> None:
    past = random(2, BATCH, HEADS, PAST, SIZE, seed=6)
    how = {"num_heads": HEADS, "unidirectional": causal, "outputs": [np.float32] * 2, **HOW}
    check("Attention", *projection(), None, past, **how)


@pytest.mark.costly
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("steps", [1, STEPS])
def test_projections_with_keys_and_values_in_one_buffer(causal: int, masked: bool, steps: int) -> None:
    """As with a past that has no room, which is what the CPU provider can; rows behind are not looked at, and stay."""
    rows, total = PAST + steps + 3, PAST + steps
    x, *weights = projection()
    past = random(2, BATCH, HEADS, rows, SIZE, seed=6)
    mask = np.array([[1] * total, [0, 0] + [1] * (total - 2)], np.int32) if masked else None
    how = {"num_heads": HEADS, "unidirectional": causal, "outputs": [np.float32] * 2, "domain": "com.microsoft"}
    arrays = [x[:, :steps], *weights, mask, past[:, :, :, :PAST]]
    wanted = expected(model("Attention", arrays, **how), {f"x{k}": a for k, a in enumerate(arrays) if a is not None})
    past[:, :, :, PAST:] = np.nan
    arrays = [x[:, :steps], *weights, mask, past, None, np.array([PAST], np.int32)]
    built = model("Attention", arrays, past_present_share_buffer=1, **how)
    y, present = support.run_model(built, *(a for a in arrays if a is not None))
    np.testing.assert_allclose(y, wanted[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(present[:, :, :, :total], wanted[1], rtol=1e-5, atol=1e-6)
    assert present.shape == past.shape and np.isnan(present[:, :, :, total:]).all()


def packed() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of sequences of 3, 0 and 5 tokens: the place of each token in the padded batch, where they are, and their ends."""
    lengths = [3, 0, STEPS]
    inside = np.arange(STEPS) < np.array(lengths)[:, None]
    places = np.arange(3 * STEPS).reshape(3, STEPS)
    offsets = np.concatenate([places[inside], places[~inside]]).reshape(3, STEPS)
    return inside, offsets.astype(np.int32), np.cumsum([0, *lengths]).astype(np.int32)


@pytest.mark.costly
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_sequences_without_their_padding(biased: bool, together: bool) -> None:
    inside, offsets, ends = packed()
    q, k, v = (random(3, STEPS, WIDE, seed=n) for n in range(3))
    added = random(1, HEADS, STEPS, STEPS, seed=8) if biased else None
    lengths = np.diff(ends).astype(np.int32)
    arrays = [q, k, v, None, lengths, added]
    while arrays[-1] is None:
        arrays.pop()
    want = expected(
        model("MultiHeadAttention", arrays, domain="com.microsoft", num_heads=HEADS, mask_filter_value=-1e30),
        {f"x{n}": a for n, a in enumerate(arrays) if a is not None},
    )[0][inside]
    tokens = [x[inside] for x in (q, k, v)]
    if together:
        whole = np.stack([x.reshape(-1, HEADS, SIZE) for x in tokens], 2)
        tokens = [whole, None, None]
    how = {"num_heads": HEADS, "want": [want], **HOW}
    check("PackedMultiHeadAttention", *tokens, None, offsets, ends, added, **how)


@pytest.mark.costly
def test_projections_of_sequences_without_their_padding() -> None:
    inside, offsets, ends = packed()
    x, weights, bias = random(3, STEPS, INPUTS), random(INPUTS, 3 * WIDE, seed=1) * 0.3, random(3 * WIDE, seed=2)
    lengths = np.diff(ends).astype(np.int32)
    arrays = [x, weights, bias, lengths]
    want = expected(
        model("Attention", arrays, domain="com.microsoft", num_heads=HEADS, mask_filter_value=-1e30),
        {f"x{n}": a for n, a in enumerate(arrays)},
    )[0][inside]
    check("PackedAttention", x[inside], weights, bias, offsets, ends, num_heads=HEADS, want=[want], **HOW)


def packed_inputs(**instead: np.ndarray) -> list[np.ndarray]:
    inside, offsets, ends = packed()
    arrays = {f"{name}": random(3, STEPS, WIDE, seed=n)[inside] for n, name in enumerate(("query", "key", "value"))}
    arrays |= {"offsets": offsets, "ends": ends} | instead
    return list(arrays.values())


def packed_result(arrays: list[np.ndarray], **how: Any) -> np.ndarray:
    given = [*arrays[:3], None, *arrays[3:]]
    made = model("PackedMultiHeadAttention", given, domain="com.microsoft", num_heads=HEADS, scale=0.3, **how)
    (y,) = support.Runner(support.compile_model(made))(*arrays)
    return y


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("ends", lambda it: it[:-1], "3 ends of sequences for a batch of 3"),
        ("ends", lambda it: np.append(it, 8), "5 ends of sequences for a batch of 3"),
        ("key", lambda it: it[:-1], "8 tokens of queries, 7 of keys or values"),
        ("value", lambda it: np.concatenate([it, it]), "8 tokens of queries, 16 of keys or values"),
        ("offsets", lambda it: it[:, :2], "8 tokens in a batch of 3 sequences of 2 steps"),
        ("offsets", lambda it: it.reshape(-1), r"offsets int32\[.*\] of tokens must have the shape \(batch, steps\)"),
    ],
)  # fmt: skip
def test_packed_sequences_that_do_not_fit_are_refused(name: str, change: Any, said: str, symbolic: bool) -> None:
    names = ("query", "key", "value", "offsets", "ends")
    right = dict(zip(names, packed_inputs(), strict=True))
    with pytest.raises((InputError, UnsupportedError), match=said):
        packed_result(packed_inputs(**{name: np.ascontiguousarray(change(right[name]))}), symbolic=symbolic)


@pytest.mark.costly
def test_packed_sequences_read_nothing_outside_of_their_tokens() -> None:
    """Places and ends that are none give zeros, whatever lies behind the tensors."""
    _, offsets, ends = packed()
    right = packed_result(packed_inputs())
    wild = offsets.copy()
    wild[0, :3] = (99, 3 * STEPS, -1)
    got = packed_result(packed_inputs(offsets=wild))
    np.testing.assert_array_equal(got[:2], 0)
    np.testing.assert_array_equal(got[3:], right[3:])
    beyond = packed_result(packed_inputs(ends=ends + 100))
    np.testing.assert_array_equal(beyond, 0)


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        ({"offsets": np.full((3, STEPS), 3 * STEPS, np.int32)}, "the index 15 .*is outside the places of the padded batch"),
        ({"ends": np.array([0, 3, 3, 9], np.int32)}, "the index 9 .*is outside the tokens of all sequences"),
    ],
)  # fmt: skip
def test_full_validation_names_places_and_ends_that_are_none(instead: dict[str, np.ndarray], said: str) -> None:
    arrays = packed_inputs(**instead)
    given = [*arrays[:3], None, *arrays[3:]]
    module = ir.from_proto(model("PackedMultiHeadAttention", given, domain="com.microsoft", num_heads=HEADS))
    checked = CompileSettings(with_assertions=True)
    program = compile_graph(module.graph, module.opset_imports, support.target(), "test", checked)
    with pytest.raises(OutOfRangeError, match=said):
        support.Runner(program, RunSettings(stepwise=True))(*arrays)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("shape", [(2, 4), (2, 9), (1, 7), (2, 4, 7), (2, 5, 8), (3, 5, 7)], ids=str)
def test_masks_of_another_size_are_refused(shape: tuple[int, ...], symbolic: bool) -> None:
    """As the CPU provider does: what a mask does not say of a key is read nowhere."""
    arrays = [*parts(), np.ones(shape, np.int32)]
    made = model(
        "MultiHeadAttention", [*arrays[:3], None, arrays[3]], domain="com.microsoft", symbolic=symbolic,
        num_heads=HEADS, scale=0.3,
    )  # fmt: skip
    with pytest.raises((InputError, UnsupportedError), match="a mask"):
        support.Runner(support.compile_model(made))(*arrays)


BIASED = {
    "MultiHeadAttention": (BATCH, KEYS),
    "PackedMultiHeadAttention": (3, STEPS),
    "PackedAttention": (3, STEPS),
}


def biased(name: str, added: np.ndarray) -> list[np.ndarray | None]:
    """The inputs of an operator, the last of which is what is added to its scores."""
    if name == "MultiHeadAttention":
        return [*parts(), None, None, added]
    inside, offsets, ends = packed()
    if name == "PackedAttention":
        x, weights, bias = random(3, STEPS, INPUTS), random(INPUTS, 3 * WIDE, seed=1), random(3 * WIDE, seed=2)
        return [x[inside], weights, bias, offsets, ends, added]
    return [*(random(3, STEPS, WIDE, seed=n)[inside] for n in range(3)), None, offsets, ends, added]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("change", [(3, -1), (3, 1), (3, "one"), (2, -1), (2, 1), (2, "one"), (1, -1), (0, 1)], ids=str)
@pytest.mark.parametrize("name", BIASED)
def test_a_bias_of_another_size_is_refused(name: str, change: tuple[int, int | str], symbolic: bool) -> None:
    """As the CPU provider does, where it has the operator: what a bias does not say of a key is read nowhere."""
    batch, keys = BIASED[name]
    shape, (axis, by) = [batch, HEADS, STEPS, keys], change
    shape[axis] = 1 if isinstance(by, str) else shape[axis] + by
    arrays = biased(name, random(*shape, seed=8))
    how = {"domain": "com.microsoft", "num_heads": HEADS, "scale": 0.3}
    made, feeds = model(name, arrays, symbolic=symbolic, **how), {f"x{k}": a for k, a in enumerate(arrays)}
    if name == "MultiHeadAttention":
        with pytest.raises(Exception, match="attention_bias"):
            expected(made, {name: a for name, a in feeds.items() if a is not None})
    with pytest.raises((InputError, UnsupportedError), match=r"a bias|broadcast"):
        support.Runner(support.compile_model(made))(*(a for a in arrays if a is not None))


@pytest.mark.parametrize("name", BIASED)
def test_a_bias_that_has_other_axes_is_refused(name: str) -> None:
    arrays = biased(name, random(HEADS, STEPS, BIASED[name][1]))
    made = model(name, arrays, domain="com.microsoft", num_heads=HEADS)
    with pytest.raises(UnsupportedError, match=r"a bias float32\[3, 5, \d\] must have the shape"):
        support.compile_model(made)
