"""`session()` gives a session on WebGPU or raises, and `report()` tells what runs where."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.reports import NAMES_SINCE
from onnxruntime_ep_wgpu.device import Context
from onnxruntime_ep_wgpu.names import version
from onnxruntime_ep_wgpu.plugin import watch

from . import models
from .fakes import Fake

X = np.random.default_rng(1).standard_normal((5, 8), np.float32)


def test_one_line_opens_a_model_from_a_file_or_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(models.chain())
    for model in (path, str(path), models.chain()):
        session = webgpu_ep.session(model)
        assert isinstance(session, ort.InferenceSession)
        assert session.get_providers()[0] == "WebGpuExecutionProvider"
        np.testing.assert_allclose(session.run(None, {"x": X})[0], models.chain_reference(X), rtol=1e-4, atol=1e-5)


def test_devices_are_chosen_by_number_name_or_object() -> None:
    found = webgpu_ep.devices()
    name = found[0].ep_metadata["name"]
    for device in (0, np.int64(0), name, name[:5].upper(), found[0], None):
        report = webgpu_ep.report(webgpu_ep.session(models.square(), device=device))
        assert report.device == name
    if any("software" in device.ep_metadata for device in found):
        webgpu_ep.session(models.square(), device="software")


@pytest.mark.parametrize("device", [99, -1, np.int64(-1), "Voodoo 2"])
def test_a_device_that_is_not_there_is_an_error_that_names_the_others(device: Any) -> None:
    with pytest.raises(webgpu_ep.DeviceError, match=re.escape(webgpu_ep.devices()[0].ep_metadata["name"])):
        webgpu_ep.session(models.square(), device=device)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"preferedLayout": "NHWC"}, "did you mean 'preferredLayout'"),
        ({"powerPreference": "low"}, "did you mean 'low-power'"),
        ({"deviceId": -1}, "an integer, 0 to"),
        ({"webgpuDevice": 1234}, "give the addresses of both"),
    ],
)
def test_a_wrong_option_raises_from_session_and_from_inference_session(
    options: dict[str, Any], part: str, devices: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(webgpu_ep.OptionError, match=part):
        webgpu_ep.session(models.square(), **options)
    so = ort.SessionOptions()
    so.log_severity_level = 4
    so.add_provider_for_devices(devices, {key: str(value) for key, value in options.items()})
    # Other providers' wrong options end in a session on the CPU with a printed notice.
    with pytest.raises(Exception, match=part):
        ort.InferenceSession(models.square(), so)
    assert "EP Error" not in capsys.readouterr().out


def test_an_error_of_the_device_reaches_the_user_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise webgpu_ep.DeviceError("the device is on fire")

    monkeypatch.setattr(Context, "device", broken)
    with pytest.raises(webgpu_ep.DeviceError, match="on fire"):
        webgpu_ep.session(models.square())
    assert "EP Error" not in capsys.readouterr().out


@pytest.mark.parametrize("place", ["assign.claim.attempt", "compiling.compile_lowered", "session.CompiledGroup"])
def test_a_defect_in_any_stage_is_raised_and_not_run_on_the_cpu(
    place: str, monkeypatch: pytest.MonkeyPatch, open_session: Any
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(f"onnxruntime_ep_wgpu.plugin.{place}", broken)
    with pytest.raises(ZeroDivisionError, match="a defect"):
        webgpu_ep.session(models.square())
    with pytest.raises(Exception, match=r"ZeroDivisionError: a defect \[test_session.py:\d+ in broken\]"):
        open_session(models.square(), log_severity_level=4)


def test_a_report_names_provider_group_kernels_and_reason_of_every_node(fake: Fake) -> None:
    session = webgpu_ep.session(models.mixed(), forceCpuNodeNames=["double"])
    report = webgpu_ep.report(session)
    nodes = {node.name: node for node in report.nodes}
    assert (nodes["mul"].provider, nodes["mul"].partition, nodes["mul"].reason) == ("WebGpuExecutionProvider", 0, None)
    assert nodes["mul"].kernels == ("0 mul",)
    assert (nodes["softmax"].provider, nodes["softmax"].partition) == ("CPUExecutionProvider", None)
    assert nodes["softmax"].reason == "no Softmax"
    assert nodes["add"].partition == 1
    assert nodes["double"].reason == "named in forceCpuNodeNames"
    assert report.partitions == 2
    assert {node.name for node in report.on_cpu} == {"softmax", "double"}
    assert {node.name for node in report.nodes if not node.on_webgpu} == {"softmax", "double"}


def test_a_report_is_a_table_in_notebooks_whatever_names_hold(fake: Fake) -> None:
    node = onnx.helper.make_node("Relu", ["x"], ["y"], "<img src=x onerror=alert(1)>")
    value = ("x", onnx.TensorProto.FLOAT, [2])
    session = webgpu_ep.session(models.model([node], [value], [("y", *value[1:])]))
    shown = webgpu_ep.report(session)._repr_html_()
    assert shown.startswith("<table>") and "&lt;img src=x" in shown and "<img" not in shown and "Relu" in shown


def test_a_report_tells_whether_a_node_is_here_under_both_names(fake: Fake, open_session: Any) -> None:
    webgpu_ep.register()
    made = [webgpu_ep.session(models.mixed(), forceCpuNodeNames=["double"])]
    if version(ort.__version__) >= NAMES_SINCE:
        made.append(ort.InferenceSession(models.square(), providers=[webgpu_ep.PROVIDER]))
    for session, name in zip(made, ("WebGpuExecutionProvider", "WgpuExecutionProvider"), strict=False):
        here = [node for node in webgpu_ep.report(session).nodes if node.on_webgpu]
        assert here and {node.provider for node in here} == {name} == {session.get_providers()[0]}


def test_a_report_finds_a_session_that_onnx_runtime_made(fake: Fake, open_session: Any) -> None:
    nodes = [models.node("Mul", ["u", "u"], ["v"], "first"), models.node("Relu", ["v"], ["w"], "second")]
    model = models.model(nodes, [("u", models.FLOAT, [2])], [("w", models.FLOAT, [2])])
    session = open_session(model)
    assert [node.name for node in webgpu_ep.report(session).nodes] == ["first", "second"]
    other = open_session(model, {"forceCpuNodeNames": "second"})
    with pytest.raises(LookupError, match=r"session\(\)"):
        webgpu_ep.report(other)
    mine = webgpu_ep.session(model, forceCpuNodeNames="first")
    assert [node.name for node in webgpu_ep.report(mine).on_cpu] == ["first"]
    cpu = ort.InferenceSession(models.square(), providers=["CPUExecutionProvider"])
    with pytest.raises(LookupError, match="CPUExecutionProvider"):
        webgpu_ep.report(cpu)


def test_the_same_answer_is_in_onnx_runtimes_own_account(fake: Fake) -> None:
    so = ort.SessionOptions()
    so.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = webgpu_ep.session(models.mixed(), sess_options=so)
    theirs = {
        node.name: part.ep_name for part in session.get_provider_graph_assignment_info() for node in part.get_nodes()
    }
    assert theirs == {node.name: node.provider for node in webgpu_ep.report(session).nodes}


def test_nodes_without_names_are_reported(fake: Fake) -> None:
    nodes = [
        models.node("Mul", ["x", "x"], ["a"]),
        models.node("Softmax", ["a"], ["b"]),
        models.node("Mul", ["b", "b"], ["y"]),
    ]
    model = models.model(nodes, [("x", models.FLOAT, [2])], [("y", models.FLOAT, [2])])
    report = webgpu_ep.report(webgpu_ep.session(model))
    names = [node.name for node in report.nodes]
    assert len(set(names)) == 3 and all(names)
    assert [node.kernels for node in report.nodes] == [("0 mul",), (), ("0 mul",)]


def test_sessions_that_are_gone_leave_nothing_behind() -> None:
    from onnxruntime_ep_wgpu.plugin.callbacks import held

    webgpu_ep.session(models.mixed()).run(None, {"x": X})
    gc.collect()
    before, providers = len(held), len(watch.live())
    for _ in range(3):
        session = webgpu_ep.session(models.mixed())
        session.run(None, {"x": X})
        del session
    gc.collect()
    assert len(held) == before
    assert len(watch.live()) <= providers


@pytest.mark.costly
@pytest.mark.parametrize("captured", ["0", "1"])
@pytest.mark.parametrize("bound", [False, True], ids=["plain", "bound"])
@pytest.mark.parametrize("ours", [True, False], ids=["ours", "stock"])
def test_a_session_that_is_gone_is_not_taken_for_a_live_one(
    open_session: Callable[..., ort.InferenceSession], ours: bool, bound: bool, captured: str
) -> None:
    """Whether or not garbage is collected: another session with the same names of inputs and outputs is told from it."""
    options = {"enableGraphCapture": captured}
    mark = f"{ours}{bound}{captured}"  # sessions of other tests may live

    def named(text: bytes) -> bytes:
        model = onnx.load_from_string(text)
        for it in (*model.graph.input, *model.graph.output):
            it.name += mark
        for made in model.graph.node:
            for names in (made.input, made.output):
                names[:] = [f"{name}{mark}" if name in ("x", "y") else name for name in names]
        return model.SerializeToString()

    def use(model: bytes) -> ort.InferenceSession:
        session = webgpu_ep.session(model, **options) if ours else open_session(model, options)
        if bound:
            binding = session.io_binding()
            value = ort.OrtValue.ortvalue_from_numpy(X, "webgpu", 0)
            binding.bind_ortvalue_input(f"x{mark}", value)
            binding.bind_output(f"y{mark}", "webgpu")
            session.run_with_iobinding(binding)
        else:
            session.run(None, {f"x{mark}": X})
        return session

    gc.collect()
    gc.disable()
    try:
        before = watch.live()
        use(named(models.square()))
        assert watch.live() == before
        session = open_session(named(models.chain()))
        assert (
            len(webgpu_ep.report(session).nodes)
            == len(webgpu_ep.report(webgpu_ep.session(named(models.chain()))).nodes)
            > 1
        )
    finally:
        gc.enable()


def test_a_model_that_needs_the_cpu_is_refused_when_the_user_forbids_it(fake: Fake) -> None:
    so = ort.SessionOptions()
    so.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with pytest.raises(Exception, match="fallback"):
        webgpu_ep.session(models.mixed(), sess_options=so)


def test_a_node_that_no_provider_runs_is_an_error_of_ours_that_names_it() -> None:
    floats = [(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    nodes = [
        onnx.helper.make_node("Cast", ["x"], ["low"], "down", to=onnx.TensorProto.BFLOAT16),
        onnx.helper.make_node("Tanh", ["low"], ["twice"], "double"),
        onnx.helper.make_node("Cast", ["twice"], ["y"], "up", to=onnx.TensorProto.FLOAT),
    ]
    model = models.model(nodes, floats[:1], floats[1:])
    assert webgpu_ep.session(model).run(None, {"x": np.zeros(2, np.float32)})[0].tolist() == [0, 0]
    with pytest.raises(
        webgpu_ep.UnsupportedError, match=r"node 'double' \(Tanh\): the CPU provider .*forceCpuNodeNames"
    ):
        webgpu_ep.session(model, forceCpuNodeNames=["double"])


def test_one_object_of_session_options_serves_several_sessions_with_options_of_their_own() -> None:
    settings = ort.SessionOptions()
    kept = []
    for options in (
        {"validationMode": "full"},
        {},
        {"deviceId": 71, "enableRobustness": 1},
        {"validationMode": "basic"},
        {},
    ):
        session = webgpu_ep.session(models.chain(), sess_options=settings, **options)
        provider = watch.live()[-1].state
        assert provider is not None
        assert provider.options.given == {key: str(value) for key, value in options.items()}
        np.testing.assert_allclose(session.run(None, {"x": X})[0], models.chain_reference(X), rtol=1e-4, atol=1e-5)
        kept.append(session)


def test_options_that_a_caller_put_into_session_options_hold_for_all_and_arguments_win() -> None:
    settings = ort.SessionOptions()
    settings.add_session_config_entry("ep.webgpuexecutionprovider.validationMode", "disabled")
    for arguments, mode in (({}, "disabled"), ({"validationMode": "full"}, "full"), ({}, "disabled")):
        kept = webgpu_ep.session(models.square(), sess_options=settings, **arguments)
        provider = watch.live()[-1].state
        assert provider is not None and provider.options["validationMode"] == mode
        del kept, provider


def test_session_options_keep_what_cannot_be_taken_out_and_refuse_anything_else() -> None:
    settings = ort.SessionOptions()
    for _ in range(2):
        session = webgpu_ep.session(models.square(), sess_options=settings, free_dimensions={"N": 5})
        assert session.get_inputs()[0].shape == [5, 8]
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * X)
    for sizes in (None, {"N": 6}):
        with pytest.raises(webgpu_ep.OptionError, match=r"free_dimensions \{'N': 5\} of an earlier session"):
            webgpu_ep.session(models.square(), sess_options=settings, free_dimensions=sizes)
