"""The source archive and the wheel install into a clean environment and work there."""

from __future__ import annotations

import json
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from .building import ROOT, run

LOOK_AROUND = """
import json, pathlib, onnxruntime_ep_wgpu
from onnxruntime_ep_wgpu import _submit, cli
from onnxruntime_ep_wgpu.device import adapters
print(json.dumps({
    "package": str(pathlib.Path(onnxruntime_ep_wgpu.__file__).parent),
    "library": onnxruntime_ep_wgpu.get_library_path(),
    "adapters": len(adapters()),
}))
"""


LONG = [pytest.param(kind, marks=pytest.mark.exhaustive) for kind in ("sdist", "portable")]


@pytest.mark.parametrize("kind", ["wheel", *LONG])
def test_it_installs_into_a_clean_environment(
    kind: str, distributions: dict[str, Path], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    file = request.getfixturevalue("portable") if kind == "portable" else distributions[kind]
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # The requirements come from the environment of the tests: a path line brings its packages but not its .pth files,
    # so the copy of this package that is being developed stays out of sight.
    (site / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n" + sysconfig.get_path("platlib") + "\n")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-build-isolation")
    run(*pip, file)
    found = json.loads(run(python, "-c", LOOK_AROUND, cwd=tmp_path))
    assert Path(found["package"]).is_relative_to(environment)
    assert Path(found["library"]).is_file() and Path(found["library"]).is_relative_to(environment)
    assert found["adapters"] > 0
    assert json.loads(run(environment / "bin" / "wgpu-ep", "info", "--json"))["adapters"]
    assert run(python, ROOT / "scripts" / "loads.py", cwd=tmp_path).startswith("loaded _ort, _submit, ")


def test_the_wheel_serves_every_python_from_311_on_and_has_everything_but_tests(
    distributions: dict[str, Path],
) -> None:
    wheel = distributions["wheel"]
    assert "-cp311-abi3-" in wheel.name
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src" / "onnxruntime_ep_wgpu"
    expected = {
        path.relative_to(ROOT / "src").as_posix() for pattern in ("*.py", "*.wgsl") for path in source.rglob(pattern)
    }
    assert expected <= names
    assert not [name for name in names if name.startswith("tests") or name.endswith((".c", ".h"))]


def test_the_source_archive_has_the_c_files_and_the_licence(distributions: dict[str, Path]) -> None:
    with tarfile.open(distributions["sdist"]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    expected = {path.relative_to(ROOT).as_posix() for path in (ROOT / "csrc").iterdir() if path.is_file()}
    expected |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "licenses").iterdir()}
    assert expected | {"LICENSE", "pyproject.toml", "setup.py"} <= names
