"""GroupQueryAttention, beside the CPU provider: prompts, tokens one by one and several at a time; caches that grow and that
have room; every way to hide keys and to say where a query stands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import onnxruntime_ep_wgpu as wgpu
from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.errors import InputError, OutOfRangeError, UnsupportedError
from onnxruntime_ep_wgpu.program.settings import CompileSettings
from onnxruntime_ep_wgpu.runtime.settings import RunSettings
from tests import support

from .compare import expected, model, random

ROWS = 40  # of the caches of cosines


@dataclass(frozen=True)
class Case:
    """`lengths` are those of the sequences before; `room` is the length of the cache, 0 for one that grows."""

    lengths: tuple[int, ...] = (0,)
    steps: int = 1
    room: int = 0
    heads: int = 4
    groups: int = 2
    size: int = 16
    packed: bool = False
    bias: bool = False
    sink: bool = False
    positions: bool = False
    attributes: tuple[tuple[str, Any], ...] = ()

    @property
    def rotary(self) -> bool:
        return bool(dict(self.attributes).get("do_rotary"))

    @property
    def total(self) -> int:
        return max(self.lengths) + self.steps

    def inputs(self, dtype: Any) -> list[np.ndarray | None]:
        batch, past = len(self.lengths), self.room or max(self.lengths)
        wide = [self.heads * self.size, self.groups * self.size, self.groups * self.size]
        parts = [random(batch, self.steps, n, seed=k, dtype=dtype) for k, n in enumerate(wide)]
        query = [np.concatenate(parts, 2), None, None] if self.packed else parts
        caches = [random(batch, self.groups, past, self.size, seed=k, dtype=dtype) for k in (5, 6)]
        seqlens = np.array([n + self.steps - 1 for n in self.lengths], np.int32)
        angles = random(ROWS, self.size // 2, seed=7)
        tables = [np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)] if self.rotary else [None, None]
        at = np.array(self.lengths)[:, None] + np.arange(3, 3 + self.steps) if self.positions else None
        bias = random(1, self.heads, self.steps, self.total, seed=8, dtype=dtype) if self.bias else None
        sink = random(self.heads, seed=9, dtype=dtype) if self.sink else None
        return [*query, *caches, seqlens, np.array(self.total, np.int32), *tables, at, bias, sink]

    def model(self, dtype: Any, **how: Any) -> Any:
        arrays = self.inputs(dtype)
        while arrays[-1] is None:
            arrays.pop()
        return model(
            "GroupQueryAttention", arrays, outputs=[dtype] * 3, domain="com.microsoft", opset=22, num_heads=self.heads,
            kv_num_heads=self.groups, **dict(self.attributes), **how,
        )  # fmt: skip


def check(case: Case, dtype: Any = np.float32, **how: Any) -> None:
    """Compares the result, and of the caches what is used."""
    arrays, built = case.inputs(dtype), case.model(dtype, **how)
    feeds = {f"x{k}": a for k, a in enumerate(arrays) if a is not None}
    want, got = expected(built, feeds), support.run_model(built, *feeds.values())
    tolerance = {"rtol": 2e-2, "atol": 5e-3} if dtype == np.float16 else {"rtol": 1e-4, "atol": 1e-5}
    for ours, theirs in zip(got, want, strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    np.testing.assert_allclose(got[0].astype("f"), want[0].astype("f"), **tolerance)
    for ours, theirs in zip(got[1:], want[1:], strict=True):
        for batch, before in enumerate(case.lengths):
            used = np.s_[batch, :, : before + case.steps]
            np.testing.assert_allclose(ours[used].astype("f"), theirs[used].astype("f"), **tolerance)


ROTATED = (("do_rotary", 1),)
KINDS = {
    "prompt": Case(steps=6),
    "prompt with room": Case(steps=6, room=16),
    "token": Case((5,), 1),
    "token with room": Case((5,), 1, 16),
    "tokens of a batch": Case((5, 2, 0), 1, 16),
    "several tokens": Case((4,), 3, 16),
    "several tokens, growing": Case((4,), 3),
    "prompts of a batch": Case((0, 0), 5, 16),
}
WAYS = {
    "plain": {},
    "packed": {"packed": True},
    "rotated": {"attributes": ROTATED},
    "rotated, packed": {"attributes": ROTATED, "packed": True},
    "neighbours rotated": {"attributes": (*ROTATED, ("rotary_interleaved", 1)), "packed": True},
    "positions": {"attributes": ROTATED, "positions": True},
    "window": {"attributes": (*ROTATED, ("local_window_size", 3))},
    "cap": {"attributes": (("softcap", 2.0), ("scale", 0.7))},
    "smooth": {"attributes": (("smooth_softmax", 1),)},
    "sink": {"sink": True},
    "bias": {"bias": True, "attributes": (("softcap", 3.0), ("local_window_size", 4))},
}  # fmt: skip


@pytest.mark.costly
@pytest.mark.parametrize("more", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_as_the_cpu_provider_has_it(kind: str, more: str) -> None:
    check(replace(KINDS[kind], **WAYS[more]))


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["prompt with room", "tokens of a batch", "several tokens, growing"])
def test_halves(kind: str) -> None:
    check(replace(KINDS[kind], packed=True, attributes=ROTATED), np.float16)


@pytest.mark.costly
@pytest.mark.parametrize(("heads", "groups", "size"), [(1, 1, 32), (6, 2, 64), (8, 1, 80), (3, 3, 128), (4, 2, 256)])
@pytest.mark.parametrize("kind", ["prompt with room", "token with room"])
def test_numbers_of_heads_and_their_sizes(kind: str, heads: int, groups: int, size: int) -> None:
    check(replace(KINDS[kind], heads=heads, groups=groups, size=size, attributes=ROTATED, packed=True))


@pytest.mark.costly
@pytest.mark.parametrize("kind", KINDS)
def test_sizes_that_are_not_known_before(kind: str) -> None:
    check(replace(KINDS[kind], attributes=(*ROTATED, ("scale", 0.3))), symbolic=True)


@pytest.mark.costly
def test_what_a_cache_holds_behind_its_end_is_not_looked_at() -> None:
    case = replace(KINDS["tokens of a batch"], attributes=ROTATED)
    arrays = case.inputs(np.float32)
    clean = support.run_model(case.model(np.float32), *[a for a in arrays if a is not None])
    for cache in arrays[3:5]:
        for batch, before in enumerate(case.lengths):
            cache[batch, :, before:] = np.nan
    spoilt = support.run_model(case.model(np.float32), *[a for a in arrays if a is not None])
    np.testing.assert_array_equal(clean[0], spoilt[0])


@pytest.mark.costly
@pytest.mark.parametrize("before", [0, 40, 3000])
@pytest.mark.parametrize("steps", [1, 5])
def test_a_long_cache_costs_what_is_used(before: int, steps: int) -> None:
    """No kernel has a score of every row of it in memory."""
    case = Case((before,), steps, 3100, groups=1, size=32)
    check(case)
    program = support.compile_model(case.model(np.float32))
    assert "flash_attention" in {kernel.label for kernel in program.kernels}


def quantised(case: Case, mode: str, bits: int, **how: Any) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model with caches of numbers of these bits, and its inputs."""
    arrays = case.inputs(np.float32)
    shape = arrays[3].shape
    make = np.random.default_rng(4)
    for at in (3, 4):
        if bits == 8:
            arrays[at] = make.integers(-128, 128, shape).astype(np.int8)
        else:
            arrays[at] = make.integers(0, 256, (*shape[:3], shape[3] // 2)).astype(np.uint8)
    scale = (1,) if mode == "PER_TENSOR" else (1, case.groups, 1, case.size)
    arrays += [(make.random(scale) * 0.02 + 0.02).astype(np.float32) * (1 if bits == 8 else 10) for _ in range(2)]
    cache = np.int8 if bits == 8 else np.uint8
    built = model(
        "GroupQueryAttention", arrays, outputs=[np.float32, cache, cache], domain="com.microsoft", opset=22,
        num_heads=case.heads, kv_num_heads=case.groups, kv_cache_bit_width=bits, k_quant_type=mode, v_quant_type=mode,
        do_rotary=1, **how,
    )  # fmt: skip
    feeds = {f"x{k}": a for k, a in enumerate(arrays) if a is not None}
    return built, feeds


@pytest.mark.costly
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("mode", ["PER_TENSOR", "PER_CHANNEL"])
@pytest.mark.parametrize("kind", ["prompt with room", "tokens of a batch", "several tokens", "several tokens, growing"])
def test_quantised_caches(kind: str, mode: str, bits: int) -> None:
    """What is used of the caches is the same, but for keys that were rotated and lie on an edge between two numbers."""
    case = replace(KINDS[kind], packed=True, attributes=ROTATED)
    built, feeds = quantised(case, mode, bits)
    want, got = expected(built, feeds), support.run_model(built, *feeds.values())
    for ours, theirs, exact in zip(got[1:], want[1:], (False, True), strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        for batch, before in enumerate(case.lengths):
            used = np.s_[batch, :, : before + case.steps]
            differ = np.count_nonzero(ours[used] != theirs[used])
            assert differ <= (0 if exact else ours[used].size // 200)
    if np.array_equal(got[1], want[1]):
        np.testing.assert_allclose(got[0], want[0], rtol=1e-3, atol=1e-4)
    else:
        np.testing.assert_allclose(got[0], want[0], rtol=0.1, atol=0.1)


@pytest.mark.costly
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("bits", [8, 4])
def test_quantised_caches_whose_sizes_a_run_tells(bits: int, packed: bool) -> None:
    """Kernels are made for one size of heads until another one comes."""
    usual = replace(KINDS["several tokens"], packed=packed, attributes=ROTATED)
    built, _ = quantised(usual, "PER_TENSOR", bits, symbolic=True)
    ours = wgpu.session(built.SerializeToString())
    assert not wgpu.report(ours).on_cpu
    for size in (16, 64, 32, 16):
        case = replace(usual, size=size)
        feeds = quantised(case, "PER_TENSOR", bits)[1]
        got, want = ours.run(None, feeds), expected(built, feeds)
        np.testing.assert_allclose(got[0], want[0], rtol=0.1, atol=0.1)
        for batch, before in enumerate(case.lengths):
            used = np.s_[batch, :, : before + case.steps]
            assert np.count_nonzero(got[1][used] != want[1][used]) <= got[1][used].size // 200
            np.testing.assert_array_equal(got[2][used], want[2][used])


@pytest.mark.costly
@pytest.mark.parametrize("mode", ["PER_TENSOR", "PER_CHANNEL"])
@pytest.mark.parametrize("kind", ["prompt with room", "tokens of a batch", "several tokens", "several tokens, growing"])
def test_caches_of_8_bit_floats(kind: str, mode: str) -> None:
    """The CPU provider has none: it is given the numbers that such caches hold."""
    case = KINDS[kind]
    arrays = case.inputs(np.float32)
    make, kept = np.random.default_rng(4), ml_dtypes.float8_e4m3fn
    scale = (1,) if mode == "PER_TENSOR" else (1, case.groups, 1, case.size)
    scales = [(make.random(scale) * 0.02 + 0.02).astype(np.float32) for _ in range(2)]

    def held(x: np.ndarray, by: np.ndarray) -> np.ndarray:
        return np.clip(x / by, -448, 448).astype(kept)

    ours = [*arrays[:3], *(held(arrays[at], by) for at, by in zip((3, 4), scales, strict=True)), *arrays[5:]]
    known = list(arrays)
    for at, by in zip((3, 4), scales, strict=True):
        known[at] = ours[at].astype(np.float32) * by
        new = np.swapaxes(arrays[at - 2].reshape(*arrays[at - 2].shape[:2], case.groups, case.size), 1, 2)
        new = np.swapaxes(held(new, by).astype(np.float32) * by, 1, 2)
        known[at - 2] = new.reshape(arrays[at - 2].shape)
    missing = [None] * (12 - len(arrays))
    how = {"domain": "com.microsoft", "opset": 22, "num_heads": case.heads, "kv_num_heads": case.groups}
    built = model(
        "GroupQueryAttention", [*ours, *missing, *scales], outputs=[np.float32, kept, kept],
        kv_cache_bit_width=8, k_quant_type=mode, v_quant_type=mode, **how,
    )  # fmt: skip
    plain = model("GroupQueryAttention", known, outputs=[np.float32] * 3, **how)
    want = expected(plain, {f"x{k}": a for k, a in enumerate(known) if a is not None})
    got = support.run_model(built, *[a for a in (*ours, *scales) if a is not None])
    np.testing.assert_allclose(got[0], want[0], rtol=1e-3, atol=1e-4)
    for cache, theirs, by in zip(got[1:], want[1:], scales, strict=True):
        assert cache.dtype == kept
        for batch, before in enumerate(case.lengths):
            used = np.s_[batch, :, : before + case.steps]
            numbers = (cache.astype(np.float32) * by)[used]
            np.testing.assert_allclose(numbers, theirs[used], rtol=1e-6)


@pytest.mark.parametrize("kind", ["prompt", "token", "tokens of a batch"])
def test_a_length_beyond_the_cache_is_that_of_the_cache(kind: str) -> None:
    """Some models count the new rows in `seqlens` too, which is one more than there is room for."""
    case = replace(KINDS[kind], room=0)
    built, arrays = case.model(np.float32), case.inputs(np.float32)
    arrays[5] = np.full_like(arrays[5], case.total - 1)
    feeds = [a for a in arrays if a is not None]
    right = support.run_model(built, *feeds)
    arrays[5] += 1
    got = support.run_model(built, *feeds)
    for ours, within in zip(got, right, strict=True):
        np.testing.assert_array_equal(ours, within)


def test_full_validation_says_that_rows_lie_behind_the_caches() -> None:
    """A total length that is calculated on the device is not looked at: a cache that should have grown is too short."""
    case = Case(lengths=(9,), room=9)
    built, feeds = case.model(np.float32), [a for a in case.inputs(np.float32) if a is not None]
    node, total = built.graph.node[0], built.graph.node[0].input[6]
    node.input[6] = "calculated"
    built.graph.node.insert(0, helper.make_node("Exp", [total], ["power"]))
    built.graph.node.insert(1, helper.make_node("Cast", ["power"], ["calculated"], to=6))
    next(it for it in built.graph.input if it.name == total).type.tensor_type.elem_type = 1
    feeds[-1] = feeds[-1].astype(np.float32)
    module = ir.from_proto(built)
    program = compile_graph(
        module.graph, module.opset_imports, support.target(), "test", CompileSettings(with_assertions=True)
    )
    with pytest.raises(OutOfRangeError, match=r"the index 9 .*is outside the rows of the caches"):
        support.Runner(program, RunSettings(stepwise=True))(*feeds)


def refused(case: Case, at: int, array: np.ndarray, said: str) -> None:
    """An input that the CPU provider refuses as well."""
    arrays = case.inputs(np.float32)
    arrays[at] = array
    while arrays[-1] is None:
        arrays.pop()
    built = model(
        "GroupQueryAttention", arrays, outputs=[np.float32] * 3, domain="com.microsoft", opset=22, num_heads=case.heads,
        kv_num_heads=case.groups,
    )  # fmt: skip
    feeds = {f"x{k}": a for k, a in enumerate(arrays) if a is not None}
    with pytest.raises(Exception, match=r"attention_bias|head_sink"):
        expected(built, feeds)
    with pytest.raises((InputError, UnsupportedError), match=said):
        support.run_model(built, *feeds.values())


@pytest.mark.parametrize(
    "shape",
    [*((1, 4, 3, keys) for keys in (0, 1, 6, 8, 12, 15, 16, 17)), (1, 4, 1, 7), (1, 4, 2, 7), (2, 4, 3, 7)],
    ids=str,
)
@pytest.mark.parametrize("room", [0, 16])
def test_a_bias_of_another_size_is_refused(shape: tuple[int, ...], room: int) -> None:
    """Keys of the longest sequence that it says nothing of are no keys without a bias, and rows of the cache behind these are
    none that it could say anything of."""
    refused(Case((4,), 3, room), 10, random(*shape, seed=8), "a bias|broadcast")


def test_a_bias_and_a_sink_of_other_axes_are_refused() -> None:
    refused(Case((4,), 3, 16), 10, random(4, 3, 7), r"a bias float32\[4, 3, 7\] must have the shape")
    refused(Case((4,), 3, 16), 11, random(1, 4), r"a sink float32\[1, 4\] must be one score per head")
