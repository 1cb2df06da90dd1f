"""The declarations of wgpu-native are those of the library that is opened."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import pytest
from wgpu import enums
from wgpu.backends.wgpu_native import _api, _ffi, version_info
from wgpu.backends.wgpu_native._mappings import enum_str2int, enummap

from onnxruntime_ep_wgpu.device import adapters
from onnxruntime_ep_wgpu.device.webgpu import header, libraries, wgpu_native
from onnxruntime_ep_wgpu.errors import OptionError
from tests import patience


def test_wgpu_opens_the_same_file_and_the_version_is_the_one_that_was_declared() -> None:
    library = libraries.base()
    assert Path(wgpu_native.path()).samefile(_ffi.lib_path)
    assert library.version.split()[0] == ".".join(map(str, version_info))
    assert library.lib.wgpuGetVersion() == library.lib.BUILT_FOR_VERSION == int.from_bytes(version_info)
    assert wgpu_native._header() == library.lib.BUILT_FOR_HEADER
    assert header.address(library.lib.wgpuCreateInstance) == header.address(_ffi.lib.wgpuCreateInstance)


def test_features_have_the_names_and_numbers_that_wgpu_gives_them() -> None:
    theirs = {name: enummap[f"FeatureName.{name}"] for name in enums.FeatureName} | enum_str2int["NativeFeature"]
    assert theirs == libraries.base().features


def test_an_adapter_has_the_features_that_wgpu_finds() -> None:
    for adapter in adapters():
        handle = _ffi.ffi.cast("WGPUAdapter", header.address(adapter.handle))
        asked = _api._get_features(handle, adapter=True)
        # wgpu leaves out four that wgpu-native used to mishandle.
        left_out = {"subgroups", "core-features-and-limits", "texture-formats-tier1", "texture-formats-tier2"}
        assert adapter.features - left_out == asked


def opened(tmp_path: Path, version: str, **environment: str) -> str:
    """What opening says when the library gives another version; "" when it opens."""
    number = int.from_bytes(map(int, version.split(".")))
    source = tmp_path / "other.c"
    source.write_text(f"#include <stdint.h>\nuint32_t wgpuGetVersion(void) {{ return {number}u; }}\n")
    library_file = tmp_path / "libother.so"
    patience.run(
        [sysconfig.get_config_var("CC").split()[0], "-shared", "-fPIC", "-o", library_file, source], check=True
    )
    script = "from onnxruntime_ep_wgpu.device.webgpu import libraries; print(libraries.base().version)"
    environment = {**os.environ, **{key: value.format(library_file) for key, value in environment.items()}}
    done = patience.run([sys.executable, "-c", script], env=environment)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


@pytest.mark.skipif(sys.platform != "linux", reason="makes a library with the C compiler")
def test_a_library_of_another_version_is_refused_with_both_versions(tmp_path: Path) -> None:
    message = opened(tmp_path, "28.0.0.1", WGPU_LIB_PATH="{}")
    assert "libother.so is wgpu-native 28.0.0.1, and onnxruntime-ep-wgpu was built for 29." in message
    assert "unset WGPU_LIB_PATH" in message
    same = opened(tmp_path, ".".join(map(str, version_info)), WGPU_LIB_PATH="{}")
    assert "symbol" in same and "was built for" not in same, "that library has no other function"


def test_a_name_of_no_library_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(OptionError, match=r"no WebGPU library 'wgpu_native'; valid: wgpu-native, dawn$"):
        libraries.named("wgpu_native")


def test_a_library_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    environment = {**os.environ, "WGPU_LIB_PATH": str(tmp_path / "none.so")}
    script = "from onnxruntime_ep_wgpu.device import adapters; adapters()"
    done = patience.run([sys.executable, "-c", script], env=environment)
    assert "DeviceError: the wgpu-native library cannot be loaded: " in done.stderr and "none.so" in done.stderr
