"""The wheel for Pyodide, and what it does there, in Node with npm's pyodide."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from tests import patience

from . import node

WHEELS = node.WEB / "node_modules" / ".wheels"


@pytest.fixture(scope="module")
def wheel(built: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    script = node.WEB.parent / "scripts" / "pyodide_wheel"
    done = patience.run([script, folder])
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_is_for_every_platform_and_has_the_library(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(it for it in names if it.endswith("/METADATA"))).decode()
    assert "onnxruntime_ep_wgpu/web/ort.wgpu.whole.min.mjs" in names
    assert not [it for it in names if it.endswith((".so", ".pyd", ".dll", ".dylib"))]
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert required and all('sys_platform != "emscripten"' in line for line in required)


@pytest.mark.skipif(not list(WHEELS.glob("micropip-*.whl")), reason="micropip is missing: run `scripts/setup test`")
@pytest.mark.exhaustive
def test_it_runs_in_pyodide(wheel: Path, exported: Path) -> None:
    for other in WHEELS.glob("*.whl"):
        shutil.copy(other, wheel.parent)
    variables = {"WGPU_WEB_FIXTURES": str(exported), "WGPU_PYODIDE_WHEELS": str(wheel.parent)}
    node.check("pyodide/page.test.mjs", **variables)
