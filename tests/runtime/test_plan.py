"""Plans: buffers from liveness, few pipelines, bounded caches, callers' buffers that cannot be bound as they are."""

from __future__ import annotations

import dataclasses
import itertools
import threading

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler.ir import Storage
from onnxruntime_ep_wgpu.device import Device, Place, Settings, adapters, open_device, release_dead
from onnxruntime_ep_wgpu.device import device as device_module
from onnxruntime_ep_wgpu.errors import InputError, LimitError
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.program.layout import fold_grid
from onnxruntime_ep_wgpu.runtime.executable import Executable
from onnxruntime_ep_wgpu.runtime.inputs import DeviceTensor
from onnxruntime_ep_wgpu.runtime.plans import MAX_PLANS
from onnxruntime_ep_wgpu.runtime.settings import RunSettings
from onnxruntime_ep_wgpu.runtime.uniforms import UniformBuffers
from tests import patience
from tests.support import Runner, compile_model, device, make_model

F = np.float32
_contexts = itertools.count(94_700)


def chain(length: int):
    """Reductions keep the maps apart, so that every step is a dispatch."""
    nodes = []
    for k in range(length):
        nodes += [node("Softmax", [f"v{k}"], [f"s{k}"]), node("Add", [f"s{k}", f"v{k}"], [f"v{k + 1}"])]
    return make_model(nodes, {"v0": (F, ["n", 8])})


def run_chain(x: np.ndarray, length: int) -> np.ndarray:
    for _ in range(length):
        e = np.exp(x - x.max(-1, keepdims=True))
        x = e / e.sum(-1, keepdims=True) + x
    return x


def test_intermediate_buffers_are_reused_and_never_read_and_written_by_one_dispatch():
    run = Runner(compile_model(chain(12)))
    x = np.random.rand(5, 8).astype(F)
    np.testing.assert_allclose(run(x)[0], run_chain(x, 12), rtol=1e-4)
    (plan,) = run.executable.plans.values()
    temps = {v: b for v, b in plan.buffers.items() if run.executable.program.values[v].storage is Storage.TEMP}
    assert len(temps) >= 11 and len(set(map(id, temps.values()))) <= 3
    for dispatch in run.executable.program.dispatches:
        buffers = [id(temps[a]) for a in dispatch.args if a in temps]
        assert len(buffers) == len(set(buffers))


def test_new_shapes_bring_no_new_pipelines_and_share_the_intermediate_buffers():
    run = Runner(compile_model(chain(3)))
    rng = np.random.default_rng(0)
    run(rng.random((40, 8), F))
    run(rng.random((2, 8), F))
    pipelines = device().counters["pipelines"]
    temps = len(run.executable._plans.of_graph.temps._buffers)
    for n in (3, 35, 7, 1, 39):
        x = rng.random((n, 8), F)
        np.testing.assert_allclose(run(x)[0], run_chain(x, 3), rtol=1e-4)
    assert device().counters["pipelines"] == pipelines
    assert len(run.executable._plans.of_graph.temps._buffers) == temps


def test_plans_are_bounded():
    run = Runner(compile_model(chain(1)))
    for k in range(1, MAX_PLANS + 10):
        run(np.zeros((k * (k + 1) // 2, 8), F))
    assert len(run.executable.plans) == MAX_PLANS


def products(count: int):
    """Matrix products of dynamic size, every one of which reads its sizes from uniforms; every other has other ones."""
    nodes = [node("MatMul", [f"v{k}", "wide" if k % 2 == 0 else "tall"], [f"v{k + 1}"]) for k in range(count)]
    wide = np.eye(8, 12, dtype=F)
    return make_model(nodes, {"v0": (F, ["n", 8])}, {"wide": wide, "tall": wide.T.copy()})


def test_a_group_may_have_any_number_of_matrix_products():
    run = Runner(compile_model(products(1000)))
    before = device().counters
    for n in (3, 5, 7):
        x = np.random.rand(n, 8).astype(F)
        np.testing.assert_array_equal(run(x)[0], x)
    after = device().counters
    assert after["pipelines"] - before["pipelines"] < 20
    # Equal layers share their numbers, and intermediate buffers are reused.
    assert after["buffers"] - before["buffers"] < 20 and after["buffer_bytes"] - before["buffer_bytes"] < 1 << 16


SHOW_UNIFORMS = """
@group(0) @binding(0) var<storage, read_write> y: vec4u;
@group(0) @binding(1) var<uniform> numbers: vec4u;
@compute @workgroup_size(1) fn main() { y = numbers; }
"""


def test_uniforms_are_spread_over_as_many_buffers_as_it_takes():
    small = Device(device().adapter, dataclasses.replace(device().target, max_buffer_bytes=4096))
    blocks = [[k, 2**31 + k, 2**32 - 1] for k in range(100)] + [[0, 0, 0]] * 50 + [[]]
    uniforms = UniformBuffers(small, {tuple(it): it for it in blocks})
    assert len(uniforms.buffers) == 7
    pipeline, copied = small.pipeline(SHOW_UNIFORMS, ("read_write", "uniform"), "show"), small.buffer(16)
    used = set()
    for values in blocks[:-1]:
        buffer, offset, nbytes = uniforms.entry(tuple(values))
        assert offset % 256 == 0 and nbytes == 16
        group = small.bind_group(pipeline, [(copied, 0, 16), (buffer, offset, nbytes)])
        small.submit([(pipeline, group, (1, 1, 1))])
        data = np.empty(4, np.uint32)
        small.download(copied, 0, memoryview(data.view(np.uint8)))
        assert data.tolist() == [*values, 0]
        used.add((id(buffer), offset))
    assert len(used) == 101
    uniforms.give_back()
    with pytest.raises(LimitError, match=r"16385 numbers of 4 bytes.*65536 bytes"):
        UniformBuffers(small, {(): [1] * 16385})


@pytest.mark.costly
@pytest.mark.parametrize("mode", ["disabled", "lazyRelease"])
def test_with_caches_off_nothing_of_the_callers_memory_is_kept_beyond_a_run(mode):
    modes = dict.fromkeys(("storage_cache", "uniform_cache", "query_resolve_cache", "default_cache"), mode)
    alone = open_device(adapters()[0], next(_contexts), Settings(**modes))
    executable = Executable(compile_model(chain(1)), alone, RunSettings(temp_generations=0))
    before = alone.counters["buffer_bytes"]
    for n in range(1, 40):
        rows = 1 << 10
        x, y = alone.buffer(32 * rows * n), alone.buffer(32 * rows * n)
        executable.run([DeviceTensor(DType.FLOAT32, (rows * n, 8), x)], [Place(y, 0)])
        del x, y
        alone.caches.end_of_run()
        # The numbers of the last plans stay, 256 bytes each; a tensor here has 32 KiB and more.
        assert alone.counters["buffer_bytes"] < before + (16 << 10)
        assert not [
            it for plan in executable.plans.values() for it in plan.recordings.kept.values() if it.recording is not None
        ]


def test_what_is_bound_ends_with_the_first_of_its_buffers_and_not_before():
    executable = Executable(compile_model(chain(1)), device())
    x, ys = device().buffer(96), [device().buffer(96) for _ in range(3)]

    def run(x, y):
        executable.run([DeviceTensor(DType.FLOAT32, (3, 8), x)], [Place(y, 0)])

    for _ in range(3):
        for y in ys:
            run(x, y)
    (plan,) = executable.plans.values()
    bound = list(plan.recordings.kept.values())
    assert len(bound) == 3 and all(it.recording is not None for it in bound)
    groups = device().counters["bind_groups"]
    for y in ys:
        run(x, y)
    assert device().counters["bind_groups"] == groups
    gone = ys.pop(0)
    del gone, y
    release_dead()
    assert [it.recording is not None for it in bound] == [False, True, True]
    del x
    release_dead()
    assert not any(it.recording for it in bound)


def test_runs_of_known_shapes_go_on_while_another_shape_compiles(monkeypatch):
    run = Runner(compile_model(chain(2)))
    x = np.random.rand(3, 8).astype(F)
    run(x)
    compiling, go_on = threading.Event(), threading.Event()
    prepare = Device.prepare

    def slow(self, *arguments):
        compiling.set()
        assert go_on.wait(patience.SECONDS)
        return prepare(self, *arguments)

    monkeypatch.setattr(Device, "prepare", slow)
    run.executable._plans.pipelines._made.clear()  # as if the next shape needed others
    other = np.random.rand(5, 8).astype(F)
    results = []
    thread = threading.Thread(target=lambda: results.append(run(other)[0]))
    thread.start()
    assert compiling.wait(patience.SECONDS)
    for _ in range(3):
        np.testing.assert_allclose(run(x)[0], run_chain(x, 2), rtol=1e-4)
    assert thread.is_alive() and not results
    go_on.set()
    thread.join()
    np.testing.assert_allclose(results[0], run_chain(other, 2), rtol=1e-4)


def test_a_thousand_shapes_in_turn_leave_nothing_behind():
    alone = open_device(adapters()[0], next(_contexts))
    run = Runner(compile_model(chain(1)), None, alone)
    settled = []
    for k in range(1000):
        n = 1 + (k * 7919) % 997
        x, y = alone.caches.storage.take(32 * n, "x"), alone.caches.storage.take(32 * n, "y")
        run.executable.run([DeviceTensor(DType.FLOAT32, (n, 8), x)], [Place(y, 0)])
        alone.caches.storage.give(x)
        alone.caches.storage.give(y)
        del x, y
        if k % 250 == 249:
            settled.append(alone.counters)
    for name in ("pipelines", "held_pipelines", "buffers", "buffer_bytes"):
        assert settled[-1][name] <= 1.1 * settled[1][name], (name, [it[name] for it in settled])
    assert len(run.executable.plans) <= MAX_PLANS


def test_pipelines_belong_to_programs_and_go_with_them_but_for_the_last(monkeypatch):
    monkeypatch.setattr(device_module, "KEPT_PIPELINES", 4)
    alone = open_device(adapters()[0], next(_contexts))
    kept = Runner(compile_model(chain(2)), None, alone)
    kept(np.zeros((2, 8), F))
    base = alone.counters["held_pipelines"]
    for k in range(12):
        model = make_model([node("Add", ["x", "c"], ["y"])], {"x": (F, [4 + k])}, {"c": np.full(4 + k, 2, F)})
        assert Runner(compile_model(model), None, alone)(np.ones(4 + k, F))[0].sum() == 3 * (4 + k)
    assert alone.counters["held_pipelines"] <= base + 4
    compiled = alone.counters["pipelines"]
    assert compiled >= base + 12
    kept(np.zeros((2, 8), F))
    Runner(compile_model(model), None, alone)(np.ones(4 + k, F))  # one of the last
    assert alone.counters["pipelines"] == compiled


def test_a_run_is_one_submit():
    run = Runner(compile_model(chain(4)))
    x = np.zeros((2, 8), F)
    run(x)
    before = device().counters["submits"]
    run.executable.run([DeviceTensor(DType.FLOAT32, (2, 8), device().buffer(64))], [Place(device().buffer(64), 0)])
    assert device().counters["submits"] == before + 1


def one_buffer(executable: Executable, x: np.ndarray, input_offset: int, output_offset: int) -> np.ndarray:
    """Runs with input and output in one buffer, as ONNX Runtime's memory pattern lays them out."""
    buffer = device().buffer(4096)
    device().upload(buffer, input_offset, x.tobytes())
    executable.run([DeviceTensor(DType.FLOAT32, x.shape, buffer, input_offset)], [Place(buffer, output_offset)])
    y = np.empty_like(x)
    device().download(buffer, output_offset, memoryview(y.reshape(-1).view(np.uint8)))
    return y


@pytest.mark.parametrize(("read", "written"), [(0, 256), (256, 0), (0, 1024), (4, 512), (0, 260), (12, 1300)])
def test_inputs_and_outputs_may_share_a_buffer_at_any_offsets(read, written):
    executable = Executable(compile_model(chain(2)), device())
    for _ in range(3):
        x = np.random.rand(3, 8).astype(F)
        np.testing.assert_allclose(one_buffer(executable, x, read, written), run_chain(x, 2), rtol=1e-4)
    assert executable.copied_inputs == 3


@pytest.mark.parametrize("count", [1, 6])
def test_an_output_that_is_read_may_share_a_buffer_with_all_others(count):
    """A relu, and what is calculated of it: all of them outputs."""
    names = [f"y{k}" for k in range(count)]
    nodes = [node("Relu", ["x"], ["r"]), *[node("Transpose", ["r"], [y], perm=[1, 0]) for y in names]]
    model = make_model(nodes, {"x": (F, [3, "n"])})
    model.graph.output.insert(0, onnx.ValueInfoProto(name="r"))
    executable = Executable(compile_model(model), device())
    for n in (5, 8, 5):
        x = np.random.default_rng(n).standard_normal((3, n), dtype=F)
        source, shared = device().buffer(1024), device().buffer(4096)
        device().upload(source, 0, x.tobytes())
        places = [Place(shared, 512 * k) for k in range(count + 1)]
        executable.run([DeviceTensor(DType.FLOAT32, x.shape, source)], places)
        for place, expected in zip(places, [x.clip(0), *[x.clip(0).T] * count], strict=True):
            result = np.empty(expected.shape, F)
            device().download(shared, place.offset, memoryview(result.reshape(-1).view(np.uint8)))
            np.testing.assert_array_equal(result, expected)


def test_one_tensor_may_be_several_inputs():
    executable = Executable(
        compile_model(make_model([node("Mul", ["a", "b"], ["y"])], {"a": (F, ["n"]), "b": (F, ["n"])})), device()
    )
    x, y = np.arange(5, dtype=F), np.empty(5, F)
    source, result = device().buffer(20), device().buffer(20)
    device().upload(source, 0, x.tobytes())
    tensor = DeviceTensor(DType.FLOAT32, (5,), source)
    executable.run([tensor, tensor], [Place(result, 0)])
    device().download(result, 0, memoryview(y.view(np.uint8)))
    np.testing.assert_array_equal(y, x * x)


@pytest.mark.parametrize("shape", [(0, 8), (1, 8)])
def test_empty_tensors_run(shape):
    run = Runner(compile_model(chain(2)))
    x = np.random.rand(*shape).astype(F)
    np.testing.assert_allclose(run(x)[0], run_chain(x, 2) if x.size else x, rtol=1e-4)


def test_a_grid_of_more_than_65535_workgroups_is_folded():
    assert fold_grid(65535) == (65535, 1, 1)
    x, y, z = fold_grid(200_001)
    assert x <= 65535 and x * y * z >= 200_001
    run = Runner(compile_model(make_model([node("Neg", ["x"], ["y"])], {"x": (F, ["n"])})))
    data = np.arange(65536 * 64 + 77, dtype=F)
    np.testing.assert_array_equal(run(data)[0], -data)


def test_a_tensor_above_the_binding_limit_is_refused_before_anything_runs():
    limit = device().target.max_binding_bytes
    columns = 40000
    nodes = [node("Expand", ["x", "s"], ["e"]), node("Neg", ["e"], ["y"])]
    run = Runner(compile_model(make_model(nodes, {"x": (F, ["n", 1])}, {"s": np.array([1, columns])})))
    rows = limit // (4 * columns) + 1
    with pytest.raises(LimitError, match=rf"shape \[{rows}, {columns}\] takes {4 * rows * columns} bytes.*{limit}"):
        run(np.zeros((rows, 1), F))
    assert run(np.ones((2, 1), F))[0].sum() == -2 * columns


def test_wrong_inputs_are_named():
    run = Runner(compile_model(chain(1)))
    with pytest.raises(InputError, match="'v0' has rank 3"):
        run(np.zeros((1, 2, 8), F))
    with pytest.raises(InputError, match="'v0' is float16, the model needs float32"):
        run(np.zeros((2, 8), np.float16))
    with pytest.raises(InputError, match="'v0' has 7 elements along axis 1, the model needs 8"):
        run(np.zeros((2, 7), F))
    with pytest.raises(InputError, match="2 inputs are given"):
        run(np.zeros((2, 8), F), np.zeros(1, F))
