"""The documented ways to a session, and what ONNX Runtime shows of the devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device import Adapter, adapters
from onnxruntime_ep_wgpu.options import parse
from onnxruntime_ep_wgpu.plugin import device_choice as choosing
from onnxruntime_ep_wgpu.plugin import factory
from onnxruntime_ep_wgpu.plugin.device_choice import choose

from . import models

X = np.random.default_rng(1).standard_normal((5, 8), np.float32)


def test_the_names_are_the_one_clients_look_for_and_the_alias() -> None:
    assert webgpu_ep.get_ep_name() == "WebGpuExecutionProvider"
    assert webgpu_ep.get_ep_names() == ["WebGpuExecutionProvider", "WgpuExecutionProvider"]
    assert tuple(webgpu_ep.get_ep_names()) == factory.NAMES


def test_the_documented_snippet_runs(devices: list[Any]) -> None:
    so = ort.SessionOptions()
    so.log_severity_level = 3
    so.add_provider_for_devices(devices, {"preferredLayout": "NHWC", "enableGraphCapture": "1"})
    session = ort.InferenceSession(models.chain(), sess_options=so)
    assert session.get_providers() == ["WebGpuExecutionProvider", "CPUExecutionProvider"]
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"x": X})[0], models.chain_reference(X), rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(
    tuple(map(int, ort.__version__.split(".")[:2])) < (1, 25), reason="1.24 knows only the names of built-in providers"
)
def test_the_alias_works_as_a_provider_name(devices: list[Any]) -> None:
    session = ort.InferenceSession(models.chain(), providers=["WgpuExecutionProvider"])
    assert session.get_providers() == ["WgpuExecutionProvider", "CPUExecutionProvider"]
    assert webgpu_ep.report(session).partitions == 1
    np.testing.assert_allclose(session.run(None, {"x": X})[0], models.chain_reference(X), rtol=1e-4, atol=1e-5)


def test_there_is_one_device_per_adapter_under_each_name(devices: list[Any]) -> None:
    assert len(devices) == len(adapters())
    for device, adapter in zip(devices, adapters(), strict=True):
        shown = device.ep_metadata
        assert device.ep_vendor == "onnxruntime-ep-wgpu"
        assert (shown["name"], shown["backend"], shown["type"]) == (adapter.name, adapter.backend, adapter.type)
        assert shown["driver"] == adapter.driver
        assert set(filter(None, shown["features"].split(","))) == adapter.target().features
        assert int(shown["max-buffer-size"]) == adapter.limits["max-buffer-size"]
        assert shown.get("software") == ("1" if adapter.software else None)
        assert (device.device.vendor_id, device.device.device_id) == (adapter.vendor_id, adapter.device_id)
        assert device.device.type == ort.OrtHardwareDeviceType.GPU
    aliases = [device for device in ort.get_ep_devices() if device.ep_name == "WgpuExecutionProvider"]
    assert [it.ep_metadata["name"] for it in aliases] == [it.ep_metadata["name"] for it in devices]


def test_the_memory_is_what_clients_ask_for(devices: list[Any]) -> None:
    info = devices[0].memory_info(ort.OrtDeviceMemoryType.DEFAULT)
    assert (info.name, info.device_id, info.device_vendor_id) == ("WebGPU_Buf", 0, 0)


def test_the_selection_policies_find_the_device(devices: list[Any]) -> None:
    so = ort.SessionOptions()
    so.set_provider_selection_policy(ort.OrtExecutionProviderDevicePolicy.PREFER_GPU)
    session = ort.InferenceSession(models.square(), so)
    assert session.get_providers()[0] in webgpu_ep.get_ep_names()
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * X)


def adapter(index: int, name: str, kind: str) -> Adapter:
    return Adapter(index, name, "vendor", "Vulkan", kind, "driver", 1, index, frozenset(), {})


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ({}, "laptop"),
        ({"powerPreference": "high-performance"}, "big"),
        ({"powerPreference": "low-power"}, "laptop"),
        ({"validationMode": "full"}, "laptop"),
    ],
)
def test_of_several_devices_the_first_is_used_or_the_one_that_power_preference_names(
    options: dict[str, str], chosen: str
) -> None:
    passed = [adapter(1, "laptop", "IntegratedGPU"), adapter(0, "big", "DiscreteGPU"), adapter(2, "software", "CPU")]
    assert choose(passed, parse(options))[0].name == chosen


def test_the_adapter_index_names_one_of_the_devices_that_were_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = (adapter(0, "big", "DiscreteGPU"), adapter(1, "laptop", "IntegratedGPU"))
    monkeypatch.setattr(choosing, "adapters", lambda: found)
    assert choose(found, parse({"adapterIndex": "1", "powerPreference": "high-performance"}))[0].name == "laptop"
    with pytest.raises(webgpu_ep.OptionError, match=r"1 \(laptop\) contradicts the device .* 0 \(big\)"):
        choose(found[:1], parse({"adapterIndex": "1"}))
    with pytest.raises(webgpu_ep.OptionError, match=r"there is no adapter 2; there are 0: big, 1: laptop"):
        choose(found, parse({"adapterIndex": "2"}))


def test_the_adapter_index_picks_the_device_of_a_session_that_is_given_none(devices: list[Any]) -> None:
    last = len(adapters()) - 1
    session = webgpu_ep.session(models.square(), adapterIndex=last)
    assert webgpu_ep.report(session).device == adapters()[last].name
    with pytest.raises(webgpu_ep.OptionError, match="there is no adapter 99"):
        webgpu_ep.session(models.square(), adapterIndex=99)


def test_a_device_passed_twice_is_no_problem(devices: list[Any]) -> None:
    so = ort.SessionOptions()
    so.add_provider_for_devices([devices[0]] * 2, {})
    np.testing.assert_array_equal(ort.InferenceSession(models.square(), so).run(None, {"x": X})[0], X * X)


def test_free_dimension_overrides_and_optimisation_levels_work(open_session: Any) -> None:
    for level in (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL):
        session = open_session(models.mixed(), graph_optimization_level=level)
        np.testing.assert_allclose(session.run(None, {"x": X})[0], models.mixed_reference(X), rtol=1e-4, atol=1e-5)
    so = ort.SessionOptions()
    so.add_free_dimension_override_by_name("N", 5)
    session = webgpu_ep.session(models.square(), sess_options=so)
    assert session.get_inputs()[0].shape == [5, 8]
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * X)
