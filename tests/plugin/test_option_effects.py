"""What options about nodes, memory and submission do. Every test has a device of its own, so that counters are its own."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.device import Device, Settings, adapters
from onnxruntime_ep_wgpu.errors import OptionError
from onnxruntime_ep_wgpu.fields import option_names, settings_from
from onnxruntime_ep_wgpu.options import OPTIONS, parse
from onnxruntime_ep_wgpu.plugin import watch
from onnxruntime_ep_wgpu.plugin.settings import settings_of
from onnxruntime_ep_wgpu.program.settings import CompileSettings
from onnxruntime_ep_wgpu.program.tuning import write_choices
from onnxruntime_ep_wgpu.runtime.settings import RunSettings
from tests import patience
from tests.device.test_submission import renderdoc

from . import models

__all__ = ["renderdoc"]
_contexts = itertools.count(93_000)


def own(**options: str) -> dict[str, str]:
    """Options of a session with a device of its own."""
    return {"deviceId": str(next(_contexts)), **options}


def device_of_last() -> Device:
    state = watch.live()[-1].state
    assert state is not None
    return state.device()


def sums(length: int = 12) -> bytes:
    """y = x with `length` products and sums in a row, none of which can be computed in the kernel of another."""
    weights = [np.eye(8, dtype=np.float32) * (1 + i / 8) for i in range(length)]
    nodes = [
        helper.make_node("MatMul", [f"v{i}" if i else "x", f"w{i}"], [f"v{i + 1}" if i + 1 < length else "y"], f"mm{i}")
        for i in range(length)
    ]
    values = [("x", TensorProto.FLOAT, ["N", 8])], [("y", TensorProto.FLOAT, ["N", 8])]
    return models.model(nodes, *values, [(f"w{i}", w) for i, w in enumerate(weights)])


def sums_reference(x: np.ndarray, length: int = 12) -> np.ndarray:
    return x * np.prod([1 + i / 8 for i in range(length)], dtype=np.float64)


def check(session: Any, *rows: int) -> None:
    for count in rows:
        x = np.random.default_rng(count).standard_normal((count, 8), np.float32)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], sums_reference(x), rtol=1e-5)


# Nodes


def test_a_name_that_no_node_has_is_an_error_that_names_the_nearest(open_session: Callable[..., Any]) -> None:
    with pytest.raises(Exception, match=r"'forceCpuNodeNames': no node has the name 'mull' \(did you mean 'mul'\?\)"):
        open_session(models.square(), {"forceCpuNodeNames": "mull"})
    with pytest.raises(OptionError, match=r"no node has the name 'nobody'"):
        webgpu_ep.session(models.square(), forceCpuNodeNames=["mul", "", "nobody"])


def _choice() -> bytes:
    def body(name: str, operator: str) -> onnx.GraphProto:
        result = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(operator, ["x"], [name], f"{name} node")], name, [], [result])

    node = helper.make_node(
        "If", ["c"], ["y"], "choose", then_branch=body("one", "Neg"), else_branch=body("two", "Abs")
    )
    inputs = [("c", TensorProto.BOOL, []), ("x", TensorProto.FLOAT, ["N", 8])]
    return models.model([node], inputs, [("y", TensorProto.FLOAT, ["N", 8])])


def test_names_within_control_flow_count() -> None:
    session = webgpu_ep.session(_choice(), forceCpuNodeNames="one node")
    placed = {node.name: node.provider for node in webgpu_ep.report(session).nodes}
    assert placed["one node"] == "CPUExecutionProvider"
    assert placed["two node"] == webgpu_ep.get_ep_name()
    with pytest.raises(OptionError, match="no node has the name 'three node'"):
        webgpu_ep.session(_choice(), forceCpuNodeNames="three node")


def _with_function(*, first: bool = False) -> bytes:
    inner = [helper.make_node("Relu", ["a"], ["t"], "inner"), helper.make_node("Neg", ["t"], ["b"], "last")]
    function = helper.make_function("own", "Act", ["a"], ["b"], inner, [helper.make_opsetid("", 17)])
    nodes = [
        helper.make_node("Exp", ["x"], ["e"], "exp"),
        helper.make_node("Act", ["e"], ["h"], "act", domain="own"),
        helper.make_node("Exp", ["h"], ["y"], "after"),
    ][first:]
    if first:
        nodes[0].input[0] = "x"
    values = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 8])] for name in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    graph = helper.make_graph(nodes, "graph", *values)
    return helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=8).SerializeToString()


def test_what_a_named_function_expands_to_stays_on_the_cpu() -> None:
    session = webgpu_ep.session(_with_function(), forceCpuNodeNames="act")
    placed = {node.op_type: node.provider for node in webgpu_ep.report(session).nodes if node.op_type != "Exp"}
    assert placed == {"Relu": "CPUExecutionProvider", "Neg": "CPUExecutionProvider"}
    outside = {node.name: node.provider for node in webgpu_ep.report(session).nodes if node.op_type == "Exp"}
    assert outside == {"exp": webgpu_ep.get_ep_name(), "after": webgpu_ep.get_ep_name()}


def test_a_session_is_refused_also_when_a_function_of_the_model_comes_first() -> None:
    with pytest.raises(OptionError, match="no node has the name 'nobody'"):
        webgpu_ep.session(_with_function(first=True), forceCpuNodeNames="nobody")
    session = webgpu_ep.session(_with_function(first=True))
    x = np.full((2, 8), 2, np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], np.exp(-x), rtol=1e-6)


def _fused_away() -> bytes:
    """ONNX Runtime makes one Gemm `dense/MatMulAddFusion` of the first two and takes the third out."""
    weights = [("w", np.eye(8, dtype=np.float32)), ("b", np.ones(8, np.float32))]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "dense"),
        helper.make_node("Add", ["h", "b"], ["i"], "bias"),
        helper.make_node("Identity", ["i"], ["j"], "nothing"),
        helper.make_node("Exp", ["j"], ["y"], "exp"),
    ]
    return models.model(nodes, [("x", models.FLOAT, [2, 8])], [("y", models.FLOAT, [2, 8])], weights)


def test_a_node_that_was_fused_into_stays_on_the_cpu_and_one_that_is_gone_is_no_error(tmp_path: Path) -> None:
    session = webgpu_ep.session(_fused_away(), forceCpuNodeNames=["dense", "nothing"])
    placed = {node.name: node.provider for node in webgpu_ep.report(session).nodes}
    assert placed == {"dense/MatMulAddFusion": "CPUExecutionProvider", "exp": webgpu_ep.get_ep_name()}
    path = tmp_path / "model.onnx"
    path.write_bytes(_fused_away())
    webgpu_ep.session(path, forceCpuNodeNames="nothing")
    with pytest.raises(OptionError, match="no node has the name 'nothin'"):
        webgpu_ep.session(path, forceCpuNodeNames="nothin")


def test_a_model_file_is_looked_into_for_sessions_of_onnx_runtime_too(
    tmp_path: Path, open_session: Callable[..., Any]
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(_fused_away())
    open_session(str(path), {"forceCpuNodeNames": "nothing"})
    with pytest.raises(Exception, match=r"no node has the name 'nothing', or ONNX Runtime's optimisation removed it"):
        open_session(_fused_away(), {"forceCpuNodeNames": "nothing"})


@pytest.mark.parametrize("value", ["0", "1"])
def test_64_bit_integers_stay_here_and_are_exact_with_both_values(value: str) -> None:
    node = helper.make_node("Mul", ["x", "x"], ["y"], "mul")
    model = models.model([node], [("x", TensorProto.INT64, ["N"])], [("y", TensorProto.INT64, ["N"])])
    session = webgpu_ep.session(model, enableInt64=value)
    assert not webgpu_ep.report(session).on_cpu
    x = np.array([3, -(2**31) - 7, 123456789012], np.int64)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x * x)


@pytest.mark.parametrize("value", ["NCHW", "NHWC"])
def test_convolutions_are_equal_in_both_layouts(value: str) -> None:
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3), np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[1, 1, 1, 1])
    values = [("x", TensorProto.FLOAT, [1, 3, 8, 8])], [("y", TensorProto.FLOAT, [1, 4, 8, 8])]
    model = models.model([node], *values, [("w", weights)])
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8), np.float32)
    got, usual = (webgpu_ep.session(model, **o).run(None, {"x": x})[0] for o in ({"preferredLayout": value}, {}))
    np.testing.assert_array_equal(got, usual)


# Memory


MODES = ("disabled", "lazyRelease", "simple", "bucket")


@pytest.mark.costly
@pytest.mark.parametrize("mode", MODES)
def test_buffers_are_kept_as_the_cache_modes_say(mode: str) -> None:
    keys = ("storageBufferCacheMode", "uniformBufferCacheMode", "defaultBufferCacheMode", "queryResolveBufferCacheMode")
    session = webgpu_ep.session(sums(), **own(**dict.fromkeys(keys, mode)))
    device = device_of_last()
    check(session, 3, 3, 40, 3, 40)
    device.caches.end_of_run()  # the next run, for what the last download gave back
    counters = device.caches.counters()
    kept = mode in ("simple", "bucket")
    assert (counters["storage"].hits > 0) is kept
    assert (counters["default"].hits > 0) is kept
    assert all(it.held_bytes == 0 for it in counters.values()) is (not kept)
    if not kept:
        assert counters["storage"].released > 0


def test_a_report_shows_what_the_caches_did() -> None:
    session = webgpu_ep.session(sums(), **own(storageBufferCacheMode="bucket"))
    check(session, 3, 3, 3)
    caches = webgpu_ep.report(session).caches
    assert list(caches) == ["storage", "uniform", "query_resolve", "default"]
    assert caches["storage"].hits > 0
    assert caches["storage"].held_bytes > 0


def test_without_caches_no_memory_is_left_between_runs() -> None:
    modes = {"storageBufferCacheMode": "disabled", "defaultBufferCacheMode": "disabled"}
    session = webgpu_ep.session(sums(), **own(**modes, sessionBufferPoolGenerations="0"))
    device = device_of_last()
    check(session, 2)
    session.run(None, {"x": np.zeros((2, 8), np.float32)})
    before = device.counters["buffer_bytes"]
    check(session, 4000, 2)
    assert device.counters["buffer_bytes"] <= before


def test_alternating_shapes_share_buffers_and_make_none() -> None:
    session = webgpu_ep.session(sums(), **own())
    device = device_of_last()
    check(session, 2, 500, 2, 500)
    before = device.counters
    check(session, 2, 500, 2, 500)
    after = device.counters
    assert (after["buffers"], after["buffer_bytes"]) == (before["buffers"], before["buffer_bytes"])
    assert after["pipelines"] == before["pipelines"]


# Submission and limits


@pytest.mark.parametrize(("value", "submits"), [("1", 12), ("5", 3), ("4096", 1)])
def test_a_run_is_submitted_in_parts(value: str, submits: int) -> None:
    session = webgpu_ep.session(sums(), **own(maxNumPendingDispatches=value))
    device = device_of_last()
    check(session, 3, 5)
    x = ort.OrtValue.ortvalue_from_numpy(np.zeros((3, 8), np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    before = device.counters
    session.run_with_iobinding(binding)
    after = device.counters
    dispatches = after["dispatches"] - before["dispatches"]
    assert dispatches == 12
    assert after["submits"] - before["submits"] == submits


def test_a_binding_size_above_the_adapters_is_an_error_that_names_the_limit(open_session: Callable[..., Any]) -> None:
    limit = adapters()[0].limits["max-storage-buffer-binding-size"]
    with pytest.raises(Exception, match=rf"'maxStorageBufferBindingSize': {limit + 16} is more than .*up to {limit}"):
        open_session(models.square(), {"maxStorageBufferBindingSize": str(limit + 16)})


def test_a_binding_size_lowers_the_target() -> None:
    adapter = adapters()[0]
    large = replace(adapter, limits={**adapter.limits, "max-storage-buffer-binding-size": 1 << 30})
    options = parse({"maxStorageBufferBindingSize": str(256 << 20)})
    assert large.target(settings_of(options, large)).max_binding_bytes == 256 << 20
    assert large.target(settings_of(parse({}), large)).max_binding_bytes == 1 << 30


def test_a_table_of_choices_is_the_targets(tmp_path: Path) -> None:
    adapter, path = replace(adapters()[0], type="DiscreteGPU"), tmp_path / "table.json"
    table = (tune.use(tune.maps.Grid(128)), tune.use(tune.products.Tile(64, 64, 16, 4, 4, 1)))
    write_choices(table, path, adapter.target().name)
    settings = settings_of(parse({"tuningTable": str(path)}), adapter)
    assert adapter.target(settings).tuning == table
    assert replace(adapter, type="CPU").target(settings).tuning == (), "its loops have to stay short"
    assert settings_of(parse({}), adapter) == Settings()


def test_a_table_that_does_not_fit_is_an_error_that_says_why(open_session: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    for choice, adapter, said in (
        (tune.use(tune.maps.Grid(128)), "another card", "measured on 'another card', and the adapter is"),
        (replace(tune.use(tune.maps.Grid(128)), kernel="mop"), "", "no kernel 'mop'"),
    ):
        write_choices((choice,), path, adapter)
        with pytest.raises(Exception, match=f"'tuningTable': .*{said}"):
            open_session(models.square(), {"tuningTable": str(path)})
    with pytest.raises(Exception, match=r"'tuningTable': .*nowhere\.json"):
        open_session(models.square(), {"tuningTable": str(tmp_path / "nowhere.json")})


def test_a_tensor_above_the_binding_size_is_bound_in_ranges(open_session: Callable[..., Any]) -> None:
    session = open_session(models.square(), {"maxStorageBufferBindingSize": str(128 << 20), "deviceId": "71"})
    x = np.zeros(((128 << 20) // 32 + 1, 8), np.float32)
    x[0, 0], x[-1, -1] = 3, 4
    (y,) = session.run(None, {"x": x})
    assert y[0, 0] == 9 and y[-1, -1] == 16 and np.count_nonzero(y) == 2


def test_robustness_compiles_bounds_checks_without_full_validation() -> None:
    def settings(**options: str) -> Any:
        return settings_from(RunSettings, parse(options).values)

    assert settings(enableRobustness="1").bounds_checks
    assert not settings(enableRobustness="1").stepwise
    assert not settings().bounds_checks
    check(webgpu_ep.session(sums(), **own(enableRobustness="1")), 3)


# Captures


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have other debuggers")
def test_a_capture_needs_a_debugger_and_the_error_names_them(open_session: Callable[..., Any]) -> None:
    with pytest.raises(Exception, match=r"'enablePIXCapture': no graphics debugger.*RenderDoc.*PIX.*Xcode"):
        open_session(models.square(), {"enablePIXCapture": "1"})


CAPTURED = """
import ctypes, sys
fake = ctypes.CDLL(sys.argv[1])
fake.fake_calls.restype = ctypes.POINTER(ctypes.c_int)
import numpy as np
import onnxruntime_ep_wgpu as webgpu_ep
from tests.plugin import models
session = webgpu_ep.session(models.square(), enablePIXCapture=True)
for _ in range(3):
    session.run(None, {"x": np.ones((2, 8), np.float32)})
print(fake.fake_calls()[:3])
"""


def test_every_run_is_a_capture(renderdoc: Path) -> None:
    root = Path(__file__).parents[2]
    result = patience.run([sys.executable, "-c", CAPTURED, renderdoc], cwd=root)
    assert (result.returncode, result.stdout) == (0, "[3, 3, 0]\n"), result.stderr


def test_every_setting_has_the_default_of_the_option_that_sets_it() -> None:
    for kind in (Settings, RunSettings, CompileSettings):
        for field in fields(kind):
            if field.name in ("compiled_again", "reads_sizes", "reads_conditions"):
                continue  # said by who compiles
            assert option_names(field) and {*option_names(field)} <= set(OPTIONS), field.name
    assert settings_from(RunSettings, parse({}).values) == RunSettings()
    assert settings_from(CompileSettings, parse({}).values) == CompileSettings()
    changed = {"maxNumPendingDispatches": "7", "sessionBufferPoolGenerations": "5", "enablePIXCapture": "1"}
    assert settings_from(RunSettings, parse(changed).values) == RunSettings(
        per_submission=7, temp_generations=5, debugger_capture=True
    )
