"""Two WebGPU libraries behind one door: both_libraries.py on SwiftShader, which both can use; what is said where one is missing.

Debian has SwiftShader in chromium-common; without it the tests run on the adapter that is here. They run in a process of their own,
because the Vulkan loader reads which drivers to use when it starts.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device import adapters, context_of
from onnxruntime_ep_wgpu.device.webgpu import dawn, header, libraries
from onnxruntime_ep_wgpu.errors import DeviceError, OptionError
from tests import apart, patience
from tests.plugin import models

HERE = Path(__file__).parent
TESTS = HERE / "both_libraries.py"
SWIFTSHADER = "/usr/lib*/chromium*/vk_swiftshader_icd.json"
INSTALLED = importlib.util.find_spec(dawn.PACKAGE) is not None


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What failed, by the name of the test."""
    if not INSTALLED:
        pytest.skip(f"needs the package {dawn.PACKAGE}: pip install {dawn.PACKAGE}=={dawn.WANTED}")
    drivers = sorted(Path("/").glob(SWIFTSHADER.lstrip("/")))
    driver = {"VK_DRIVER_FILES": str(drivers[0]), "VK_ICD_FILENAMES": str(drivers[0])} if drivers else {}
    environment = {key: value for key, value in os.environ.items() if key != libraries.VARIABLE} | driver
    seen = "from onnxruntime_ep_wgpu.device import adapters; adapters()[0].through('', 'dawn')"
    refused = patience.run([sys.executable, "-c", seen], env=environment, cwd=HERE.parents[1])
    if refused.returncode:
        pytest.skip(f"needs an adapter that Dawn can use: {refused.stderr.strip().splitlines()[-1]}")
    return apart.results_of(TESTS, environment, tmp_path_factory.mktemp("both"))


@pytest.mark.every_case
@pytest.mark.skipif(sys.platform != "linux", reason="chooses the drivers of the Vulkan loader of Linux")
@pytest.mark.parametrize("name", apart.names_of(TESTS))
def test_with_both_libraries(name: str, results: dict[str, list[str]]) -> None:
    assert name in results, "the test did not run"
    assert not results[name], "\n".join(results[name])


class Missing:
    """Finds no module of Dawn's."""

    def find_spec(self, name: str, *_: object) -> None:
        if name.split(".")[0] == dawn.PACKAGE:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.fixture
def without_dawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No package of that name can be imported."""
    for name in [it for it in sys.modules if it.split(".")[0] == dawn.PACKAGE]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == dawn.PACKAGE else find(name))
    monkeypatch.setitem(libraries._OPENERS, dawn.NAME, dawn.library.__wrapped__)


@pytest.mark.skipif(os.environ.get(libraries.VARIABLE) == dawn.NAME, reason="this process has begun with Dawn")
@pytest.mark.usefixtures("without_dawn")
def test_a_library_that_is_not_installed_is_an_error_with_the_command_to_run() -> None:
    for ask in (
        lambda: libraries.named("dawn"),
        lambda: context_of(adapters()[0], 0, "dawn"),
        lambda: webgpu_ep.session(models.square(), webgpuLibrary="dawn"),
    ):
        with pytest.raises(DeviceError, match=r"wgpudawn is not installed: pip install wgpudawn==\d"):
            ask()


@pytest.mark.usefixtures("without_dawn")
def test_auto_does_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(libraries.VARIABLE, raising=False)
    session = webgpu_ep.session(models.square(), webgpuLibrary="auto")
    assert "(wgpudawn is not installed)" in webgpu_ep.report(session).library


def test_a_library_with_another_interface_is_refused_with_the_command_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    old = SimpleNamespace(ffi=header.ffi, lib=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "wgpudawn", SimpleNamespace(__path__=[]))
    monkeypatch.setitem(sys.modules, "wgpudawn._lib", SimpleNamespace(_wgpu_dawn=old))
    with pytest.raises(DeviceError, match=r"wgpudawn .* has another wgpu\w+ than .*: pip install"):
        dawn.library.__wrapped__()


@pytest.mark.every_case
@pytest.mark.parametrize("broken", ["raise RuntimeError('boom')", "raise SystemExit(3)", "def", "ffi = lib = None"])
def test_an_installation_that_is_broken_is_an_error_of_ours(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "wgpudawn" / "_lib"
    folder.mkdir(parents=True)
    (tmp_path / "wgpudawn" / "__init__.py").write_text("")
    (folder / "__init__.py").write_text("")
    (folder / "_wgpu_dawn.py").write_text(broken)
    for name in [it for it in sys.modules if it.split(".")[0] == dawn.PACKAGE]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(DeviceError, match=r"wgpudawn .*: pip install"):
        dawn.library.__wrapped__()
    for name in [it for it in sys.modules if it.split(".")[0] == dawn.PACKAGE]:
        del sys.modules[name]


def test_structures_that_differ_are_named() -> None:
    types = {"WGPUFuture": header.ffi.typeof("WGPUFutureWaitInfo")}
    other = SimpleNamespace(error=KeyError, typeof=types.__getitem__, sizeof=header.ffi.sizeof)
    assert header.difference(other, ["WGPUFuture"]) == "WGPUFuture"
    assert header.difference(other, ["WGPULimits"]) == "WGPULimits"
    assert header.difference(header.ffi, ["WGPUFuture", "WGPULimits", "WGPUErrorType"]) == ""


def test_an_unknown_library_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match=r"'webgpuLibrary'.*'tint' is not valid"):
        webgpu_ep.session(models.square(), webgpuLibrary="tint")
    monkeypatch.setenv(libraries.VARIABLE, "tint")
    with pytest.raises(OptionError, match=r"WGPU_EP_LIBRARY='tint': .*valid: auto, wgpu-native, dawn"):
        libraries.requested()


def test_the_option_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(libraries.VARIABLE, "dawn")
    session = webgpu_ep.session(models.square(), webgpuLibrary="wgpu-native", deviceId=91)
    assert webgpu_ep.report(session).library.endswith("(webgpuLibrary)")
    with pytest.raises(OptionError, match=r"'webgpuLibrary': 'dawn' contradicts webgpuDevice"):
        webgpu_ep.session(models.square(), webgpuLibrary="dawn", webgpuInstance=1, webgpuDevice=1)
