"""PagedAttention, beside what its schema says calculated in f64: prompts and tokens in one batch, pages in any order, pages without
memory, slots, windows, bidirectional queries, sinks, norms, rotations, caches of 8 bits and latent ones.

No provider for CPUs has a kernel for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import onnxruntime_ep_wgpu as wgpu
from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests import support

from .compare import random

HALF, BRAIN, FLOAT8 = np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
DTYPES = pytest.mark.parametrize("dtype", [HALF, BRAIN])
F64 = np.float64


@dataclass(frozen=True)
class Case:
    """Of sequences with `lengths` rows before this run, each with `steps` new ones; `holes` are (sequence, page) without memory."""

    lengths: tuple[int, ...] = (5, 0, 9)
    steps: tuple[int, ...] = (1, 6, 2)
    block: int = 4
    pages: int = 4
    heads: int = 4
    groups: int = 2
    size: int = 16
    packed: bool = False
    rotary: int = 0  # elements that are rotated
    offset: int = 0
    interleaved: int = 0
    sink: bool = False
    norm: bool = False
    slots: bool = False
    held: str = ""  # how the caches hold numbers: int8 or float8, by PER_TENSOR or PER_CHANNEL
    latent: int = 0
    window: int = -1
    causal: int = 1
    softcap: float = 0.0
    scale: float = 0.0
    holes: tuple[tuple[int, int], ...] = ()
    extra: int = 0  # tokens behind the last sequence

    @property
    def count(self) -> int:
        return sum(self.steps) + self.extra

    def inputs(self, dtype: Any) -> dict[str, np.ndarray]:
        batch, blocks = len(self.lengths), len(self.lengths) * self.pages + 2
        wide = [self.heads * self.size, self.groups * self.size, self.groups * self.size]
        parts = [random(self.count, n, seed=k, dtype=dtype) for k, n in enumerate(wide)]
        names = ("query", "key", "value")
        given = {"query": np.concatenate(parts, 1)} if self.packed else dict(zip(names, parts, strict=True))
        shape = (blocks, self.block, self.groups, self.size)
        caches = {name: random(*shape, seed=k, dtype=dtype) for k, name in ((5, "key_cache"), (6, "value_cache"))}
        if self.held:
            kind, _, by = self.held.partition(" ")
            scales = {"PER_TENSOR": (1,), "PER_CHANNEL": (self.groups, 1, self.size)}[by]
            narrow = {"int8": np.int8, "float8": FLOAT8}[kind]
            for k, name in enumerate(caches):
                caches[name] = (random(*shape, seed=5 + k) * 20).astype(narrow)
                given["kv"[k] + "_scale"] = (np.abs(random(*scales, seed=8 + k)) * 0.02 + 0.01).astype(np.float32)
        if self.latent:
            del given["value"], caches["value_cache"]
        pages = np.random.default_rng(1).permutation(blocks)[: batch * self.pages].reshape(batch, self.pages)
        for place in self.holes:
            pages[place] = -1
        given |= caches | {
            "cumulative_sequence_length": np.cumsum([0, *self.steps]).astype(np.int32),
            "past_seqlens": np.array(self.lengths, np.int32),
            "block_table": pages.astype(np.int32),
        }
        if self.rotary:
            angles = random(self.pages * self.block, self.rotary // 2, seed=7)
            given |= {"cos_cache": np.cos(angles).astype(dtype), "sin_cache": np.sin(angles).astype(dtype)}
        if self.sink:
            given["head_sink"] = random(self.heads, seed=9, dtype=dtype)
        if self.norm:
            given |= {f"{n}_norm_weight": random(self.size, seed=10 + k, dtype=dtype) for k, n in enumerate("qk")}
        if self.slots:
            own = np.random.default_rng(2).permutation(blocks * self.block)[: self.count]
            own[0] = -1
            given["slot_mapping"] = own.astype(np.int32)
        return given

    def attributes(self) -> dict[str, Any]:
        made: dict[str, Any] = {"num_heads": self.heads, "kv_num_heads": self.groups, "is_causal": self.causal}
        made |= {"local_window_size": self.window, "softcap": self.softcap, "do_rotary": int(self.rotary > 0)}
        made |= {"rotary_interleaved": self.interleaved, "rotary_offset": self.offset}
        if self.held:
            made |= {"k_quant_type": self.held.split()[1], "v_quant_type": self.held.split()[1]}
        if self.latent:
            made |= {"kv_cache_layout": "LATENT", "v_head_size": self.latent}
        return made | ({"scale": self.scale} if self.scale else {})


NAMES = (
    "query", "key", "value", "key_cache", "value_cache", "cumulative_sequence_length", "past_seqlens", "block_table",
    "cos_cache", "sin_cache", "slot_mapping", "head_sink", "q_norm_weight", "k_norm_weight", "k_scale", "v_scale",
    "attention_metadata",
)  # fmt: skip


def build(
    case: Case, given: dict[str, np.ndarray], symbolic: bool = False, outputs: int = 3, **more: Any
) -> onnx.ModelProto:
    names = ["output", "key_cache_out", "value_cache_out"][: 2 if case.latent else outputs]
    inputs = [it if it in given else "" for it in NAMES]
    node = helper.make_node("PagedAttention", inputs, names, domain="com.microsoft", **case.attributes() | more)
    types = {name: helper.np_dtype_to_tensor_dtype(it.dtype) for name, it in given.items()}

    def shape(name: str) -> list[Any]:
        return [f"{name}{axis}" if symbolic and axis < 2 else n for axis, n in enumerate(given[name].shape)]

    declared = [helper.make_tensor_value_info(name, types[name], shape(name)) for name in given]
    made = [helper.make_tensor_value_info(it, types["query" if it == "output" else it[:-4]], None) for it in names]
    graph = helper.make_graph([node], "paged", declared, made)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets)


def expected(case: Case, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The schema's text, one token and one head after the other; caches as they are after the run, dequantised."""
    wide = {name: np.asarray(it, F64) for name, it in given.items()}
    q, k, v = _parts(case, wide)
    caches = {it: wide[it].copy() for it in ("key_cache", "value_cache") if it in wide}
    narrow = given["query"].dtype
    pages, flat = given["block_table"], {name: it.reshape(-1, *it.shape[2:]) for name, it in caches.items()}
    scales = (
        [wide[f"{n}_scale"].reshape(-1, *([case.size] if wide[f"{n}_scale"].size > 1 else [1])) for n in "kv"]
        if case.held
        else []
    )
    if case.norm:
        q, k = (
            (x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * wide[f"{n}_norm_weight"]).astype(narrow).astype(F64)
            for n, x in (("q", q), ("k", k))
        )
    places = []  # of each token: sequence and position
    for s, (length, steps) in enumerate(zip(case.lengths, case.steps, strict=True)):
        places += [(s, length + it if 0 <= length <= case.pages * case.block - steps else -1) for it in range(steps)]
    places += [(0, -1)] * case.extra
    rows = [[p * case.block + r if p >= 0 else -1 for p in its for r in range(case.block)] for its in pages]
    for t, (s, at) in enumerate(places):
        if at < 0:
            continue
        if case.rotary:
            q[t], k[t] = (_turned(case, x[t], wide, at).astype(narrow).astype(F64) for x in (q, k))
        slot = given["slot_mapping"][t] if case.slots else rows[s][at]
        if slot >= 0:
            for number, (name, new) in enumerate(zip(flat, (k[t], v[t]), strict=False)):
                flat[name][slot] = _held(case, new, scales[number]) if case.held else new
    y = np.zeros((case.count, case.heads, case.latent or case.size))
    read = [it * scales[n] if case.held else it for n, it in enumerate(flat.values())]
    keys, values = read[0], read[0][..., : case.latent] if case.latent else read[1]
    for t, (s, at) in enumerate(places):
        if at < 0:
            continue
        last = at if case.causal else case.lengths[s] + case.steps[s] - 1
        first = 0 if case.window < 0 else max(0, at - case.window + 1)
        mine = [rows[s][j] for j in range(first, last + 1) if rows[s][j] >= 0]
        for h in range(case.heads if mine else 0):
            g = h // (case.heads // case.groups)
            scores = keys[mine, g] @ q[t, h] * (case.scale or case.size**-0.5)
            if case.softcap:
                scores = np.tanh(scores / case.softcap) * case.softcap
            below = np.exp(scores - scores.max())
            rest = np.exp(wide["head_sink"][h] - scores.max()) if case.sink else 0
            y[t, h] = below @ values[mine, g] / (below.sum() + rest)
    return [y.reshape(case.count, case.heads * y.shape[2]), *caches.values()]


def _parts(case: Case, wide: dict[str, np.ndarray]) -> list[np.ndarray]:
    counts = [case.heads, case.groups, case.groups]
    if case.packed:
        parts = np.split(wide["query"], np.cumsum(counts)[:2] * case.size, 1)
    else:
        parts = [wide[it] if it in wide else wide["key"] for it in ("query", "key", "value")]
    return [it.reshape(case.count, n, case.size).copy() for it, n in zip(parts, counts, strict=True)]


def _turned(case: Case, x: np.ndarray, wide: dict[str, np.ndarray], at: int) -> np.ndarray:
    half, y = case.rotary // 2, x.copy()
    c, s = wide["cos_cache"][at], wide["sin_cache"][at]
    first = case.offset + (np.arange(half) * 2 if case.interleaved else np.arange(half))
    second = first + (1 if case.interleaved else half)
    y[:, first], y[:, second] = c * x[:, first] - s * x[:, second], s * x[:, first] + c * x[:, second]
    return y


def _held(case: Case, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    exact = (x.astype(np.float32) / scale.astype(np.float32)).astype(np.float32)
    return exact.clip(-448, 448).astype(FLOAT8).astype(F64) if "float8" in case.held else exact.round().clip(-128, 127)


def check(case: Case, dtype: Any, symbolic: bool = False) -> None:
    given = case.inputs(dtype)
    got = support.run_model(build(case, given, symbolic), *given.values())
    want = expected(case, given)
    scale = 4 if dtype is BRAIN else 1
    assert got[0].dtype == dtype and got[1].dtype == given["key_cache"].dtype
    np.testing.assert_allclose(got[0].astype(F64), want[0], rtol=5e-3 * scale, atol=3e-3 * scale)
    for ours, theirs in zip(got[1:], want[1:], strict=True):
        np.testing.assert_allclose(
            ours.astype(F64), theirs, rtol=2e-3 * scale, atol=1.01 if case.held else 1e-3 * scale
        )


PLAIN = Case()
CASES = {
    "separate": PLAIN,
    "packed": replace(PLAIN, packed=True),
    "one head of keys": replace(PLAIN, groups=1, size=8, block=3, pages=5),
    "tokens alone": replace(PLAIN, steps=(1, 1, 1)),
    "an empty sequence": replace(PLAIN, steps=(0, 3, 0)),
    "rotated": replace(PLAIN, rotary=16),
    "neighbours rotated in part": replace(PLAIN, rotary=8, offset=8, interleaved=1, packed=True),
    "norms, sink, cap, scale": replace(PLAIN, norm=True, sink=True, softcap=3.0, scale=0.4, rotary=16),
    "slots": replace(PLAIN, slots=True),
    "window": replace(PLAIN, window=3),
    "window of nothing": replace(PLAIN, window=0),
    "both directions": replace(PLAIN, causal=0),
    "both directions, window": replace(PLAIN, causal=0, window=2),
    "pages without memory": replace(PLAIN, holes=((0, 0), (1, 1), (2, 3))),
    "too long, negative, tokens of none": replace(PLAIN, lengths=(16, -3, 9), extra=2),
    "latent": replace(PLAIN, groups=1, size=24, latent=16, scale=0.3, rotary=8, offset=16),
}
CASES |= {
    it: replace(PLAIN, held=it)
    for it in ("int8 PER_TENSOR", "int8 PER_CHANNEL", "float8 PER_TENSOR", "float8 PER_CHANNEL")
}


@pytest.mark.parametrize("name", CASES)
def test_beside_the_definition(name: str) -> None:
    check(CASES[name], HALF)


@DTYPES
@pytest.mark.parametrize("name", ["separate", "packed", "neighbours rotated in part", "pages without memory"])
def test_types_and_names_of_extents(name: str, dtype: Any) -> None:
    check(CASES[name], dtype, symbolic=True)


def test_nothing_to_do() -> None:
    check(replace(PLAIN, lengths=(3,), steps=(0,)), HALF)


@pytest.mark.parametrize(
    ("case", "more", "outputs", "text"),
    [
        (PLAIN, {}, 1, "without the outputs key_cache_out"),
        (PLAIN, {"k_cache_dtype": "int4"}, 3, "k_cache_dtype='int4'"),
        (PLAIN, {"k_quant_type": "PER_TENSOR"}, 3, "a quantised cache of mode PER_TENSOR"),
        (PLAIN, {"do_rotary": 1}, 3, "do_rotary needs cos_cache"),
        (PLAIN, {"kv_cache_layout": "LATENT"}, 3, "LATENT has one head of keys"),
    ],
)
def test_what_does_not_fit_is_named(case: Case, more: dict[str, Any], outputs: int, text: str) -> None:
    given = case.inputs(HALF)
    with pytest.raises(UnsupportedError, match=text):
        support.run_model(build(case, given, outputs=outputs, **more), *given.values())


def test_caches_are_updated_where_they_lie() -> None:
    program = support.compile_model(build(PLAIN, PLAIN.inputs(HALF)))
    assert len(program.aliases) == 2
    assert not any("cache_begin" in kernel.label for kernel in program.kernels)


def test_a_session_runs_it() -> None:
    given = PLAIN.inputs(HALF)
    session = wgpu.session(build(PLAIN, given).SerializeToString())
    for ours, theirs in zip(session.run(None, given), expected(PLAIN, given), strict=True):
        np.testing.assert_allclose(ours.astype(F64), theirs, rtol=5e-3, atol=3e-3)
