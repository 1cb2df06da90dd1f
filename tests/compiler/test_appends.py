"""Attention that appends the only new row to its caches: one dispatch instead of two, with the values of two, to the last bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest

from onnxruntime_ep_wgpu.compiler import kernels
from onnxruntime_ep_wgpu.compiler.tune import use
from onnxruntime_ep_wgpu.compiler.tune.attention import SplitKeys
from onnxruntime_ep_wgpu.device import Context, Device, Place, adapters, open_device
from onnxruntime_ep_wgpu.device.contexts import claim
from onnxruntime_ep_wgpu.device.settings import Settings
from onnxruntime_ep_wgpu.program.layout import Layouts
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import Target
from onnxruntime_ep_wgpu.runtime.executable import Executable
from onnxruntime_ep_wgpu.runtime.inputs import DeviceTensor
from tests.language.models import Decoder, graph_of
from tests.ops import test_group_query as group_query
from tests.ops.compare import expected, model, random
from tests.ops.test_group_query import ROTATED, Case
from tests.support import Runner, compile_model, make_model

H, F = np.float16, np.float32
PACKED = {"packed": True, "attributes": ROTATED}
TOKENS = {
    "first": Case((0,), 1, 16),
    "next": Case((5,), 1, 16),
    "last": Case((15,), 1, 16),
    "batch": Case((5, 0, 15, 7), 1, 16),
    "growing": Case((5, 2), 1),
    "in parts": Case((150, 3, 64), 1, 200),
    "in parts, growing": Case((190, 128), 1),
}
WAYS = {
    "plain": {},
    "packed": {"packed": True},
    "rotated": PACKED,
    "apart": {"attributes": ROTATED},
    "neighbours": {"attributes": (*ROTATED, ("rotary_interleaved", 1)), "packed": True},
    "positions": {**PACKED, "positions": True},
    "window": {"attributes": (*ROTATED, ("local_window_size", 3)), "packed": True},
    "cap": {"attributes": (*ROTATED, ("softcap", 2.0), ("scale", 0.7)), "packed": True},
    "smooth": {"attributes": (*ROTATED, ("smooth_softmax", 1)), "packed": True},
    "sink": {**PACKED, "sink": True},
    "bias": {"attributes": (*ROTATED, ("softcap", 3.0), ("local_window_size", 4)), "packed": True, "bias": True},
    "one head of keys": {**PACKED, "heads": 8, "groups": 1, "size": 80},
    "as many heads of keys": {**PACKED, "heads": 3, "groups": 3, "size": 48},
    "wide heads": {**PACKED, "heads": 6, "groups": 3, "size": 256},
}  # fmt: skip


class Wide(Context):
    """A context that is taken for that of a GPU, with bindings for everything that attention may read at once."""

    @property
    def target(self) -> Target:
        return dataclasses.replace(super().target, software=False, tuning=(use(SplitKeys(64, 8, 64)),))


@cache
def device() -> Device:
    context = claim(Wide(adapters()[0], 9016))
    context.apply_settings(Settings(storage_buffers=16))
    return open_device(context.adapter, context.number)


def compiled(built: onnx.ModelProto, **changes: Any) -> Program:
    return compile_model(built, dataclasses.replace(device().target, **changes))


def run(program: Program, arrays: Sequence[np.ndarray], in_place: bool) -> list[np.ndarray]:
    """The results; `in_place`, caches that do not grow lie where those of the past do."""
    at, places, results = device(), list[Place](), list[np.ndarray]()
    for array in arrays:
        places.append(Place(at.buffer(max(16, array.nbytes)), 0))
        if array.nbytes:
            at.upload(*places[-1], np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    tensors = [
        DeviceTensor(program.values[it].dtype, array.shape, place.buffer, 0, array if array.dtype.kind == "i" else None)
        for it, array, place in zip(program.inputs, arrays, places, strict=True)
    ]
    pasts = {program.outputs.index(ours): program.inputs.index(theirs) for ours, theirs in program.aliases}
    with Executable(program, at).prepare(tensors) as prepared:
        outputs = [
            places[pasts[k]]
            if in_place and k in pasts and shape == arrays[pasts[k]].shape
            else Place(at.buffer(max(16, dtype.nbytes(int(np.prod(shape))))), 0)
            for k, (dtype, shape) in enumerate(prepared.outputs)
        ]
        prepared.submit(outputs)
        for place, (dtype, shape) in zip(outputs, prepared.outputs, strict=True):
            results.append(np.empty(shape, dtype.numpy))
            at.download(*place, results[-1].reshape(-1).view(np.uint8).data)
    return results


def appends(program: Program) -> int:
    """Whether kernels store what they attend to: one for keys in parts, or one for keys in one part, or both."""
    return int(any("new_v_at4" in it.wgsl[0] for it in program.kernels))


def check(case: Case, dtype: Any, patch: pytest.MonkeyPatch) -> None:
    """Beside the CPU provider, and beside what appends in a kernel of its own."""
    patch.setattr(group_query, "ROWS", 256)
    arrays, built = case.inputs(dtype), case.model(dtype)
    feeds = [a for a in arrays if a is not None]
    program = compiled(built)
    patch.setattr(kernels, "append_within", lambda groups, _: (groups, []))
    first = compiled(built)
    assert (appends(program), appends(first)) == (1, 0), program.declined
    assert len(first.dispatches) - len(program.dispatches) == (1 if case.rotary else 2)
    got, two = run(program, feeds, in_place=True), run(first, feeds, in_place=False)
    want = expected(built, {f"x{k}": a for k, a in enumerate(arrays) if a is not None})
    tolerance = {"rtol": 2e-2, "atol": 5e-3} if dtype == H else {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(got[0].astype(F), want[0].astype(F), **tolerance)
    for ours, theirs in zip(got, two, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for ours, theirs in zip(got[1:], want[1:], strict=True):
        for batch, past in enumerate(case.lengths):
            used = np.s_[batch, :, : past + 1]
            np.testing.assert_allclose(ours[used].astype(F), theirs[used].astype(F), **tolerance)


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [F, H])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("token", TOKENS)
def test_the_values_of_two_kernels(token: str, way: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    check(replace(TOKENS[token], **WAYS[way]), dtype, monkeypatch)


def of_any_length(built: onnx.ModelProto) -> onnx.ModelProto:
    """The model with names for the batch, its steps, and the rows of its caches: one program for prompts and tokens."""
    names = {0: ("batch", "steps"), 3: ("batch", "", "rows"), 4: ("batch", "", "rows"), 5: ("batch",)}
    for it in built.graph.input:
        dims = it.type.tensor_type.shape.dim
        for dim, name in zip(dims, names.get(int(it.name[1:]), ()), strict=False):
            if name:
                dim.dim_param = name
    return built


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [F, H])
@pytest.mark.parametrize("room", [0, 140])
def test_one_program_for_prompts_and_tokens(room: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_query, "ROWS", 256)
    program = compiled(of_any_length(Case((4,), 1, room or 8, **PACKED).model(dtype)))
    assert appends(program) == 1
    for lengths, steps in (((0,), 7), ((7,), 1), ((130, 4), 1), ((8,), 2), ((9,), 1)):
        case = Case(lengths, steps, room, **PACKED)
        arrays = case.inputs(dtype)
        feeds = [a for a in arrays if a is not None]
        got = run(program, feeds, in_place=True)
        want = expected(case.model(dtype), {f"x{k}": a for k, a in enumerate(arrays) if a is not None})
        for ours, theirs in zip(got, want, strict=True):
            if ours.ndim == 4:
                ours, theirs = (x[0, :, : lengths[0] + steps] for x in (ours, theirs))
            tolerance = {"rtol": 2e-2, "atol": 5e-3} if dtype == H else {"rtol": 1e-4, "atol": 1e-5}
            np.testing.assert_allclose(ours.astype(F), theirs.astype(F), **tolerance)


def test_halves_that_share_words(monkeypatch: pytest.MonkeyPatch) -> None:
    features = frozenset({"shader-int64"})
    built, arrays = Case((5, 2), 1, 16, **PACKED).model(H), Case((5, 2), 1, 16, **PACKED).inputs(H)
    program = compiled(built, features=features)
    assert appends(program) == 1
    assert "f16>" not in program.kernels[-1].wgsl[0]
    assert any("alias k_at4_words_t = vec2<u32>;" in it.wgsl[0] for it in program.kernels)
    feeds = [a for a in arrays if a is not None]
    monkeypatch.setattr(kernels, "append_within", lambda groups, _: (groups, []))
    for ours, theirs in zip(
        run(program, feeds, True), run(compiled(built, features=features), feeds, False), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.costly
@pytest.mark.parametrize("size", [6, 17])
def test_rows_that_are_no_multiples_of_four(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the CPU provider does not take."""
    case = Case((5, 2), 1, 16, size=size)
    built, feeds = case.model(F), [a for a in case.inputs(F) if a is not None]
    program = compiled(built)
    assert appends(program) == 1
    monkeypatch.setattr(kernels, "append_within", lambda groups, _: (groups, []))
    for ours, theirs in zip(run(program, feeds, True), run(compiled(built), feeds, False), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_what_a_cache_holds_behind_its_end_is_not_looked_at() -> None:
    case = replace(TOKENS["batch"], **PACKED)
    feeds = [a for a in case.inputs(F) if a is not None]
    program = compiled(case.model(F))
    assert appends(program) == 1
    clean = run(program, feeds, in_place=False)
    for array in feeds[1:3]:
        for batch, before in enumerate(case.lengths):
            array[batch, :, before:] = np.nan
    np.testing.assert_array_equal(clean[0], run(program, feeds, in_place=False)[0])


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [F, H])
@pytest.mark.parametrize(
    ("heads", "groups", "size"), [(3, 3, 64), (4, 2, 48), (8, 2, 64), (8, 1, 64), (7, 1, 128), (2, 1, 256)]
)
def test_a_row_at_the_borders_of_blocks(
    heads: int, groups: int, size: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 16 to 128 keys, in one part and in parts of 64 or more; what lies in the caches from the new row on is no number."""
    monkeypatch.setattr(group_query, "ROWS", 300)
    for lengths in ((0, 1, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 192, 199), (64, 128), (0, 199), (63,)):
        case = Case(lengths, 1, 200, heads, groups, size, **PACKED)
        built, feeds = case.model(dtype), [a for a in case.inputs(dtype) if a is not None]
        program = compiled(built)
        assert appends(program) == 1
        want = expected(built, {f"x{k}": a for k, a in enumerate(case.inputs(dtype)) if a is not None})
        for batch, past in enumerate(lengths):
            for array in feeds[1:3]:
                array[batch, :, past:] = np.nan
        got = run(program, feeds, in_place=True)
        tolerance = {"rtol": 2e-2, "atol": 5e-3} if dtype == H else {"rtol": 1e-4, "atol": 1e-5}
        np.testing.assert_allclose(got[0].astype(F), want[0].astype(F), **tolerance)
        for ours, theirs in zip(got[1:], want[1:], strict=True):
            for batch, past in enumerate(lengths):
                used = np.s_[batch, :, : past + 1]
                np.testing.assert_allclose(ours[used].astype(F), theirs[used].astype(F), **tolerance)
                assert np.isnan(ours[batch, :, past + 1 :]).all()


def test_keys_and_values_wait_as_they_lie_in_memory() -> None:
    """They are loaded long before they are used, in the registers that their halves take."""
    texts = {it.wgsl[0] for it in compiled(Case((5,), 1, 16).model(H)).kernels if "new_v_at4" in it.wgsl[0]}
    assert texts
    for text in texts:
        assert "alias k_at4_words_t = vec4<f16>;" in text and "alias v_at4_words_t = vec4<f16>;" in text


def test_heads_of_one_step_are_counted_when_it_is_compiled() -> None:
    """Where steps are those of a run, the kernel of a token divides by no number of them before it loads."""
    program = compiled(of_any_length(Case((4,), 1, 16, **PACKED).model(F)))
    (text,) = {it.wgsl[0] for it in program.kernels if "new_v_at4" in it.wgsl[0]}
    assert "let query = min(top + row, 2u - 1u);" in text


def test_a_token_beyond_the_caches_takes_the_last_row() -> None:
    """The caches are full, and how long the sequences are is known on the device alone."""
    case = replace(TOKENS["next"], **PACKED)
    feeds = [a for a in case.inputs(F) if a is not None]
    program = compiled(case.model(F))
    assert appends(program) == 1
    feeds[3][:] = 16
    before = [feeds[1].copy(), feeds[2].copy()]
    after = run(program, feeds, in_place=True)[1:]
    feeds[1:3], feeds[3] = [cache.copy() for cache in before], np.full_like(feeds[3], 15)
    for ours, theirs, old in zip(after, run(program, feeds, in_place=True)[1:], before, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(ours[:, :, :15], old[:, :, :15])
        assert (ours[:, :, 15] != old[:, :, 15]).any()


def dispatches(program: Program, steps: int) -> list[str]:
    """The kernels that run for a batch of one, behind whatever is in caches of 64 rows."""
    sizes = {"sequence_length": steps, "total_sequence_length": 64, "past_sequence_length": 64}
    layout = Layouts(program).layout([sizes.get(it.name, 1) for it in program.symbols])
    return [program.kernels[program.dispatches[it.dispatch].kernel].label for it in layout.steps]


def test_dispatches_of_a_token() -> None:
    program = compiled(graph_of(Decoder("fp16", layers=2, heads=8, groups=2, size=64, inner=256)))
    assert appends(program) == 1  # text, for both layers
    token, prompt = dispatches(program, 1), dispatches(program, 3)
    assert (token.count("cache_append"), token.count("flash_attention")) == (0, 2)
    assert (prompt.count("cache_append"), prompt.count("flash_attention")) == (2, 2)


def test_reasons() -> None:
    """Of a kernel with more bindings than there are, and of caches that hold other numbers than attention has."""
    said = "it does not append to its caches: "
    apart = Case((5,), 1, 16, attributes=ROTATED)
    (few,) = compiled(replace(apart, sink=True).model(F), max_storage_buffers=8).declined
    assert few.reason == f"{said}the kernel needs 9 bindings, and the adapter has 8"
    arrays = replace(apart, packed=True).inputs(F)
    arrays[3:5] = [random(*it.shape, dtype=np.int8) for it in arrays[3:5]]
    arrays += [np.full(1, 0.02, F)] * 2
    held = model(
        "GroupQueryAttention", arrays, outputs=[F, np.int8, np.int8], domain="com.microsoft", opset=22, num_heads=4,
        kv_num_heads=2, kv_cache_bit_width=8, k_quant_type="PER_TENSOR", v_quant_type="PER_TENSOR", do_rotary=1,
    )  # fmt: skip
    (other,) = compiled(held).declined
    assert other.reason == f"{said}it reads other tensors than its caches"
    assert (few.rule, other.rule) == ("one_row", "one_row")


@pytest.mark.costly
@pytest.mark.parametrize("is_read", [True, False], ids=["both read", "the other alone"])
@pytest.mark.parametrize("how", ["whole", "lengths", "spelled"])
def test_another_attention_of_the_caches(how: str, is_read: bool) -> None:
    """Which sees all that they hold, or as much as it is told: of layers that share keys and values."""
    room, size, past = 8, 16, np.array([2, 5], np.int32)
    inputs: dict[str, tuple[Any, list[Any]]] = {name: (F, ["batch", 1, 2 * size]) for name in "qkv"}
    inputs |= {name: (F, ["batch", 2, room, size]) for name in ("old_k", "old_v")}
    inputs |= {"lengths": (np.int32, ["batch"]), "total": (np.int32, []), "query": (F, ["batch", 2, 1, size])}
    names = ["q", "k", "v", "old_k", "old_v", "lengths", "total"]
    make = onnx.helper.make_node
    nodes = [
        make("GroupQueryAttention", names, ["y", "keys", "values"], domain="com.microsoft", num_heads=2, kv_num_heads=2)
    ]
    if how == "spelled":
        nodes += [
            make("Transpose", ["keys"], ["turned"], perm=[0, 1, 3, 2]),
            make("MatMul", ["query", "turned"], ["s"]),
            make("Softmax", ["s"], ["w"], axis=-1),
            make("MatMul", ["w", "values"], ["z"]),
        ]
    else:
        inputs |= {"seen": (np.int64, ["batch"])} if how == "lengths" else {}
        nodes.append(
            make("Attention", ["query", "keys", "values", "", "", "", "seen"][: 7 if how == "lengths" else 3], ["z"])
        )
    built = make_model(nodes, inputs, opset=24)
    built.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    for name in ("keys", "values", "z"):
        if name not in {it.name for it in built.graph.output}:
            built.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    if not is_read:
        del built.graph.output[[it.name for it in built.graph.output].index("y")]
    seen = np.array([8, 4])
    feeds = {name: random(2, *shape[1:], seed=k) for k, (name, (kind, shape)) in enumerate(inputs.items()) if kind is F}
    feeds |= {"lengths": past, "total": np.array(6, np.int32), "seen": seen}
    results = dict(
        zip(
            [it.name for it in built.graph.output], run(compiled(built), [feeds[n] for n in inputs], False), strict=True
        )
    )
    keys, values = feeds["old_k"].copy(), feeds["old_v"].copy()
    for held, new in ((keys, "k"), (values, "v")):
        held[[0, 1], :, past] = feeds[new].reshape(2, 2, size)
    scores = np.einsum("bhqd,bhkd->bhqk", feeds["query"], keys) / (1 if how == "spelled" else np.sqrt(size))
    if how == "lengths":
        scores = np.where(np.arange(room) < seen[:, None, None, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = np.einsum("bhqk,bhkd->bhqd", weights / weights.sum(-1, keepdims=True), values)
    np.testing.assert_allclose(results["z"], wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(results["keys"], keys)


def test_only_parts_with_keys_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row says how many these are: keys 0 to 150, 0 to 3 and 0 to 64 in parts of 128, of caches of 200."""
    monkeypatch.setattr(group_query, "ROWS", 256)
    case = replace(TOKENS["in parts"], **PACKED)
    found = Runner(compiled(case.model(F)), on=device()).stored(*[a for a in case.inputs(F) if a is not None])
    (levels,) = (array for _, array in found if array.ndim == 4 and array.shape[-1] == 3)
    with_keys = levels[..., 2].reshape(3, -1)
    np.testing.assert_array_equal(with_keys, np.array([[2], [1], [1]]) + np.zeros_like(with_keys))
