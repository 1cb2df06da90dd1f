"""A cache is updated where it lies when past and present are one place, copied by the host when they are two of one shape,
and by a kernel when it grows; whatever else looks at it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxruntime_ep_wgpu.device import Place
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.program.file import load, save
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.runtime.executable import Executable
from onnxruntime_ep_wgpu.runtime.executable import Run as Prepared
from onnxruntime_ep_wgpu.runtime.inputs import DeviceTensor
from onnxruntime_ep_wgpu.runtime.settings import RunSettings
from tests.support import compile_model, device, make_model

F = np.float32
SIZE, GROUPS, USED = 16, 2, 5


def model(*more: onnx.NodeProto, outputs: tuple[str, ...] = ("y", "present_k", "present_v")) -> onnx.ModelProto:
    """One token of grouped attention; the caches have any number of rows. The total length is that of a mask."""
    nodes = [
        helper.make_node("Shape", ["mask"], ["extents"]),
        helper.make_node("Gather", ["extents", "one"], ["total"]),
        helper.make_node("Cast", ["total"], ["total32"], to=6),
        helper.make_node(
            "GroupQueryAttention", ["q", "k", "v", "past_k", "past_v", "seqlens", "total32"],
            ["y", "present_k", "present_v"], domain="com.microsoft", num_heads=4, kv_num_heads=GROUPS,
        ),
        *more,
    ]  # fmt: skip
    cache = [1, GROUPS, "rows", SIZE]
    shapes = {
        "q": [1, 1, 4 * SIZE],
        "k": [1, 1, GROUPS * SIZE],
        "v": [1, 1, GROUPS * SIZE],
        "past_k": cache,
        "past_v": cache,
    }
    inputs = [helper.make_tensor_value_info(n, 1, s) for n, s in shapes.items()]
    inputs += [helper.make_tensor_value_info("seqlens", 6, [1]), helper.make_tensor_value_info("mask", 7, [1, "total"])]
    graph = helper.make_graph(
        nodes, "cached", inputs, [onnx.ValueInfoProto(name=n) for n in outputs],
        [onnx.numpy_helper.from_array(np.array(1), "one")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def arrays(rows: int, total: int = USED + 1) -> dict[str, np.ndarray]:
    make = np.random.default_rng(3).standard_normal
    out = {n: make((1, 1, w * SIZE)).astype(F) for n, w in (("q", 4), ("k", GROUPS), ("v", GROUPS))}
    out |= {n: make((1, GROUPS, rows, SIZE)).astype(F) for n in ("past_k", "past_v")}
    return out | {"seqlens": np.array([USED], np.int32), "mask": np.ones((1, total), np.int64)}


class Run:
    """The tensors of a run on the device. `shared`: present and past lie in one place."""

    def __init__(self, executable: Executable, feeds: dict[str, np.ndarray], shared: bool) -> None:
        self.executable, self.feeds, self.shared = executable, feeds, shared
        program = executable.program
        self.places: dict[str, Place] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.tensors = []
        for value in program.inputs:
            name = program.values[value].name
            buffer = device().buffer(max(16, feeds[name].nbytes))
            if feeds[name].nbytes:
                device().upload(buffer, 0, np.ascontiguousarray(feeds[name]).tobytes())
            self.places[name] = Place(buffer, 0)
            self.tensors.append(DeviceTensor(DType.of_numpy(feeds[name].dtype), feeds[name].shape, buffer))

    def allocate(self, index: int, dtype: DType, shape: tuple[int, ...]) -> Place:
        name = self.executable.program.values[self.executable.program.outputs[index]].name
        past = name.replace("present", "past")
        self.shapes[name] = shape
        if not (self.shared and past in self.places):
            self.places[name] = Place(device().buffer(max(16, dtype.nbytes(int(np.prod(shape))))), 0)
        else:
            self.places[name] = self.places[past]
        return self.places[name]

    def outputs(self, run: Prepared) -> list[Place]:
        return [self.allocate(index, *wanted) for index, wanted in enumerate(run.outputs)]

    def __call__(self) -> dict[str, np.ndarray]:
        with self.executable.prepare(self.tensors) as run:
            run.submit(self.outputs(run))
        return {name: self.get(name, shape) for name, shape in self.shapes.items()}

    def get(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        y = np.empty(shape, F)
        device().download(*self.places[name], y.reshape(-1).view(np.uint8).data)
        return y


def wanted(feeds: dict[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
    out = {}
    for x in "kv":
        cache = np.zeros((1, GROUPS, rows, SIZE), F)
        cache[:, :, : feeds[f"past_{x}"].shape[2]] = feeds[f"past_{x}"]
        cache[:, :, USED] = feeds[x].reshape(1, GROUPS, SIZE)
        out[f"present_{x}"] = cache
    key, value = (np.repeat(out[f"present_{x}"][0, :, : USED + 1], 4 // GROUPS, 0) for x in "kv")
    scores = np.einsum("hd,hkd->hk", feeds["q"].reshape(4, SIZE), key) / 4
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return out | {"y": np.einsum("hk,hkd->hd", weights, value).reshape(1, 1, -1)}


def close(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    for name, array in got.items():
        np.testing.assert_allclose(array, want[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.fixture(scope="module")
def program() -> Program:
    return compile_model(model())


def kernels(executable: Executable, run: Run) -> list[str]:
    return [it.label for it in executable.plan(run.tensors).dispatches]


@pytest.mark.costly
@pytest.mark.parametrize("settings", [RunSettings(), RunSettings(stepwise=True)], ids=["", "stepwise"])
def test_one_place_is_updated_and_nothing_copied(program: Program, settings: RunSettings) -> None:
    executable = Executable(program, device(), settings)
    feeds = arrays(16)
    run = Run(executable, feeds, shared=True)
    close(run(), wanted(feeds, 16))
    assert executable.copied_inputs == 0
    assert "cache_begin" not in kernels(executable, run)


def test_keys_and_values_in_one_tensor_are_updated_where_they_lie() -> None:
    wide, heads, rows, used = 24, 2, 7, 3
    make = np.random.default_rng(0).standard_normal
    feeds = {"x": make((2, 1, wide)).astype(F), "past": make((2, 2, heads, rows, SIZE)).astype(F)}
    feeds["length"] = np.array([used], np.int32)
    weights = {"w": make((wide, 3 * heads * SIZE)).astype(F), "b": make(3 * heads * SIZE).astype(F)}
    how = {"domain": "com.microsoft", "num_heads": heads, "unidirectional": 1, "past_present_share_buffer": 1}
    node = helper.make_node("Attention", ["x", "w", "b", "", "past", "", "length"], ["y", "present"], **how)
    program = compile_model(make_model([node], {n: (a.dtype.type, list(a.shape)) for n, a in feeds.items()}, weights))
    executable = Executable(program, device())
    apart = Run(executable, feeds, shared=False)()
    assert executable.copied_inputs == 1
    run = Run(executable, feeds, shared=True)
    close(run(), apart)
    assert executable.copied_inputs == 1 and "cache_begin" not in kernels(executable, run)
    kept = np.delete(np.arange(rows), used)
    np.testing.assert_array_equal(apart["present"][:, :, :, kept], feeds["past"][:, :, :, kept])
    new = (feeds["x"] @ weights["w"] + weights["b"]).reshape(2, 3, heads, SIZE)
    np.testing.assert_allclose(apart["present"][:, :, :, used], new.transpose(1, 0, 2, 3)[1:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [16, 6])
def test_two_places_of_one_shape_are_copied_by_the_host(program: Program, rows: int) -> None:
    executable = Executable(program, device())
    feeds = arrays(rows)
    run = Run(executable, feeds, shared=False)
    close(run(), wanted(feeds, rows))
    assert executable.copied_inputs == 2
    assert "cache_begin" not in kernels(executable, run)
    np.testing.assert_array_equal(run.get("past_k", feeds["past_k"].shape), feeds["past_k"])


def test_a_cache_that_grows_is_copied_by_a_kernel(program: Program) -> None:
    executable = Executable(program, device())
    feeds = arrays(USED)
    run = Run(executable, feeds, shared=False)
    close(run(), wanted(feeds, USED + 1))
    assert executable.copied_inputs == 0
    assert "cache_begin" in kernels(executable, run)


def test_what_lies_behind_the_rows_in_use_may_be_anything(program: Program) -> None:
    """Also for runs that look for NaN: it was there before."""
    executable = Executable(program, device(), RunSettings(stepwise=True))
    feeds = arrays(16)
    for x in "kv":
        feeds[f"past_{x}"][:, :, USED + 1 :] = np.nan
    close(Run(executable, feeds, shared=True)(), wanted(feeds, 16))


def test_places_in_one_buffer_are_kept_apart(program: Program) -> None:
    """As ONNX Runtime's memory pattern puts them: past and present in one buffer, at different offsets."""
    executable = Executable(program, device())
    feeds = arrays(16)
    run = Run(executable, feeds, shared=False)
    nbytes = feeds["past_k"].nbytes
    both = device().buffer(2 * nbytes)
    device().upload(both, 0, feeds["past_k"].tobytes())
    at = [executable.program.values[v].name for v in executable.program.inputs].index("past_k")
    run.tensors[at] = run.tensors[at]._replace(buffer=both)

    def allocate(index: int, dtype: DType, shape: tuple[int, ...]) -> Place:
        place = run.allocate(index, dtype, shape)
        name = executable.program.values[executable.program.outputs[index]].name
        run.places[name] = Place(both, nbytes) if name == "present_k" else place
        return run.places[name]

    with executable.prepare(run.tensors) as prepared:
        prepared.submit([allocate(index, *wanted) for index, wanted in enumerate(prepared.outputs)])
    close({name: run.get(name, shape) for name, shape in run.shapes.items()}, wanted(feeds, 16))


@pytest.mark.parametrize("shared", [True, False])
def test_a_past_that_is_read_elsewhere_too_is_no_alias(shared: bool) -> None:
    extra = helper.make_node("Neg", ["past_k"], ["negative"])
    compiled = compile_model(model(extra, outputs=("negative", "y", "present_k", "present_v")))
    assert len(compiled.aliases) == 1
    executable, feeds = Executable(compiled, device()), arrays(16)
    got = Run(executable, feeds, shared)()
    np.testing.assert_array_equal(got.pop("negative"), -feeds["past_k"])
    close(got, wanted(feeds, 16))


def test_who_reads_a_present_reads_all_of_it() -> None:
    extra = helper.make_node("Neg", ["present_k"], ["negative"])
    executable = Executable(compile_model(model(extra, outputs=("negative", "y", "present_k", "present_v"))), device())
    feeds = arrays(16)
    got = Run(executable, feeds, shared=True)()
    np.testing.assert_array_equal(got.pop("negative"), -wanted(feeds, 16)["present_k"])


def test_a_present_that_is_no_result_is_made_in_memory_of_its_own() -> None:
    compiled = compile_model(model(outputs=("y",)))
    assert not compiled.aliases
    executable, feeds = Executable(compiled, device()), arrays(16)
    close(Run(executable, feeds, shared=False)(), wanted(feeds, 16))


@pytest.mark.parametrize("kept", [True, False])
def test_a_capture_updates_what_it_is_given(program: Program, kept: bool) -> None:
    executable = Executable(program, device())
    feeds = arrays(16)
    first = Run(executable, feeds, shared=True)
    plan = executable.plan(first.tensors)
    runs = [first] if kept else [first, Run(executable, feeds, shared=True)]
    capture = None
    for run in runs:
        with executable.prepare(run.tensors) as prepared:
            places = prepared.places(run.outputs(prepared))
        capture = capture or executable.capture(plan, places, (kept,) * len(places))
        assert capture.difference(plan, places) is None
        executable.replay(capture, places)
        close({name: run.get(name, shape) for name, shape in run.shapes.items()}, wanted(feeds, 16))


def test_aliases_are_in_a_file(program: Program, tmp_path) -> None:
    save(program, tmp_path / "cached.wgpu")
    assert load(tmp_path / "cached.wgpu").aliases == program.aliases != ()
