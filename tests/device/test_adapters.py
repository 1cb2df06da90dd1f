"""Which chips are found, in which order, and what is said when there is none."""

from __future__ import annotations

import ctypes
import dataclasses
import sys

import pytest

from onnxruntime_ep_wgpu.device import Adapter, Settings, adapters, adapters_problem
from onnxruntime_ep_wgpu.device import adapters as adapters_module_function
from onnxruntime_ep_wgpu.device.adapters import has_compute_shaders, unique
from onnxruntime_ep_wgpu.errors import OptionError
from tests import patience

module = sys.modules["onnxruntime_ep_wgpu.device.adapters"]


def chip(name: str, backend: str, kind: str = "DiscreteGPU", vendor_id: int = 0x10DE, device_id: int = 0) -> Adapter:
    return Adapter(0, name, "", backend, kind, "", vendor_id, device_id, frozenset(), {})


def test_this_machine_has_an_adapter_and_no_problem() -> None:
    assert adapters()
    assert adapters_problem() is None
    assert [adapter.index for adapter in adapters()] == list(range(len(adapters())))


def test_a_chip_seen_through_vulkan_and_opengl_counts_once() -> None:
    found = unique(
        [
            chip("llvmpipe (LLVM 15.0.6, 256 bits)", "OpenGL", "CPU", 65541),
            chip("llvmpipe (LLVM 15.0.6, 256 bits)", "Vulkan", "CPU", 65541),
        ]
    )
    assert [adapter.backend for adapter in found] == ["Vulkan"]


def test_names_that_differ_only_in_decoration_are_one_chip() -> None:
    found = unique([chip("NVIDIA H200", "Vulkan", device_id=0x2335), chip("NVIDIA H200/PCIe/SSE2", "OpenGL")])
    assert [adapter.name for adapter in found] == ["NVIDIA H200"]


def test_equal_ids_are_one_chip_whatever_its_names() -> None:
    found = unique([chip("AMD Radeon RX 7600", "D3D12", device_id=7), chip("AMD RADV NAVI33", "Vulkan", device_id=7)])
    assert [adapter.backend for adapter in found] == ["Vulkan"]


def test_a_chip_is_reached_through_each_api_that_shows_it() -> None:
    (found,) = unique([chip("Radeon", "D3D12", device_id=7), chip("Radeon", "Vulkan", device_id=7)])
    assert found.through("D3D12").backend == "D3D12"
    assert found.through("Vulkan").backend == found.through("").backend == "Vulkan"
    with pytest.raises(OptionError, match=r"'Metal' does not reach the adapter 'Radeon' here; .* Vulkan or D3D12"):
        found.through("Metal")


def test_two_equal_cards_under_two_apis_are_two() -> None:
    found = unique([chip("Radeon", api, device_id=7) for api in ("D3D12", "D3D12", "Vulkan", "Vulkan")])
    assert [(adapter.index, adapter.through("D3D12").index) for adapter in found] == [(0, 0), (1, 1)]


def test_two_equal_cards_are_two() -> None:
    found = unique([chip("NVIDIA H200", "Vulkan", device_id=1), chip("NVIDIA H200", "Vulkan", device_id=1)])
    assert [adapter.index for adapter in found] == [0, 1]


def test_hardware_comes_before_software_and_discrete_before_integrated() -> None:
    found = unique(
        [
            chip("llvmpipe", "Vulkan", "CPU", 65541),
            chip("Intel UHD", "Vulkan", "IntegratedGPU", 0x8086, 5),
            chip("NVIDIA A10", "Vulkan", "DiscreteGPU", 0x10DE, 6),
        ]
    )
    assert [adapter.type for adapter in found] == ["DiscreteGPU", "IntegratedGPU", "CPU"]
    assert [adapter.software for adapter in found] == [False, False, True]


@pytest.mark.parametrize(
    ("version", "has"),
    [
        ("4.6.0 NVIDIA 580.159.04", True),
        ("4.3 (Core Profile) Mesa 22.3.6", True),
        ("4.2 (Core Profile) Mesa 22.3.6", False),
        ("3.3.0 NVIDIA 580.159.04", False),
        ("OpenGL ES 3.1 Mesa 22.3.6", True),
        ("OpenGL ES 3.0 Mesa 22.3.6", False),
        ("", True),
    ],
)
def test_opengl_counts_where_its_version_has_compute_shaders(version: str, has: bool) -> None:
    assert has_compute_shaders(dataclasses.replace(chip("Card", "OpenGL"), driver=version)) == has


def test_the_target_offers_eight_storage_buffers_unless_more_are_wished() -> None:
    adapter = adapters()[0]
    most = adapter.limits["max-storage-buffers-per-shader-stage"]
    assert adapter.target().max_storage_buffers == min(8, most)
    assert adapter.target(Settings(storage_buffers=most + 1)).max_storage_buffers == most
    assert adapter.target().software == adapter.software


def test_a_missing_vulkan_loader_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(module, "adapters", lambda: ())
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert adapters_module_function()
    problem = module.adapters_problem()
    assert problem is not None
    assert "libvulkan.so.1" in problem and "apt-get install libvulkan1" in problem


@pytest.mark.parametrize(
    ("platform", "words"),
    [("linux", "mesa-vulkan-drivers"), ("darwin", "Metal"), ("win32", "Direct3D 12")],
)
def test_a_missing_driver_is_named(platform: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "adapters", lambda: ())
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)
    assert words in (module.adapters_problem() or "")


def test_enumerating_and_opening_prints_nothing_and_leaves_the_environment_alone() -> None:
    code = (
        "import os; before = dict(os.environ)\n"
        "from onnxruntime_ep_wgpu.device import adapters, open_device\n"
        "open_device(adapters()[0]).wait(); assert dict(os.environ) == before"
    )
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    result = patience.run([sys.executable, "-c", code], env=environment)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
