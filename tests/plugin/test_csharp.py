"""The C# file compiles and does what it says, as far as that needs no .NET SDK: with mono, against a stand-in for the API."""

from __future__ import annotations

import os
import shutil
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from tests import patience

ROOT = Path(__file__).resolve().parents[2]
HOST = ROOT / "hosts" / "csharp"
HERE = Path(__file__).parent / "csharp"

needs_mono = pytest.mark.skipif(
    not (shutil.which("mcs") and shutil.which("mono")), reason="needs the packages mono-mcs and mono-runtime"
)


def compile_csharp(out: Path, *files: Path, kind: str = "exe") -> None:
    command = ["mcs", "-langversion:6", "-warnaserror", "-warn:4", f"-target:{kind}", f"-out:{out}", *files]
    done = patience.run(command)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_mono
def test_the_file_compiles_against_the_api_that_it_uses(tmp_path: Path) -> None:
    compile_csharp(tmp_path / "ep.dll", HOST / "WebGpuEp.cs", HERE / "OrtStandIn.cs", kind="library")


@needs_mono
def test_library_names_and_devices_are_found(tmp_path: Path) -> None:
    program = tmp_path / "program.exe"
    compile_csharp(program, HOST / "WebGpuEp.cs", HERE / "OrtStandIn.cs", HERE / "Program.cs")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = patience.run(["mono", program, sys.executable, "/nowhere/python"], env=environment)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    names, library, missing, no_device, count, registered, appended = done.stdout.strip().split("\n")
    assert names.split() == webgpu_ep.get_ep_names()
    assert library == webgpu_ep.get_library_path()
    assert "'/nowhere/python' cannot be run" in missing and "ONNXRUNTIME_EP_WGPU_PYTHON" in missing
    assert "WebGpuExecutionProvider has no device" in no_device
    assert count == "2"
    assert registered == f"webgpu_ep_registration {webgpu_ep.get_library_path()}", "once, however often it is asked"
    assert appended == "WebGpuExecutionProvider validationMode=full"


def test_the_names_in_the_file_are_those_of_the_package() -> None:
    text = (HOST / "WebGpuEp.cs").read_text()
    assert ", ".join(f'"{name}"' for name in webgpu_ep.get_ep_names()) in text


def test_the_package_description_has_the_version_and_files_that_exist() -> None:
    space = "{http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd}"
    root = xml.parse(HOST / "OnnxRuntimeEpWgpu.nuspec").getroot()
    assert root.findtext(f"{space}metadata/{space}version") == webgpu_ep.__version__
    assert [(HOST / file.attrib["src"]).is_file() for file in root.iter(f"{space}file")] == [True]
    (dependency,) = root.iter(f"{space}dependency")
    assert dependency.attrib == {"id": "Microsoft.ML.OnnxRuntime", "version": "1.24.4"}
