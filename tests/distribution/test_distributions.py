"""The source archive and the wheel install into a clean environment and work there."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests import patience

ROOT = Path(__file__).resolve().parents[2]

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


def run(*command: str | Path, **options: object) -> str:
    # Where Python finds this tree is not for the environments that are made here.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    result = patience.run(command, env=clean, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return str(result.stdout)


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The source archive of this tree, and the wheel made from that archive."""
    out = tmp_path_factory.mktemp("dist")
    # Without isolation: the environment of the tests has the build requirements, and nothing is downloaded.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT)
    (archive,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return {"sdist": archive, "wheel": wheel}


@pytest.mark.parametrize("kind", ["wheel", pytest.param("sdist", marks=pytest.mark.exhaustive)])
def test_it_installs_into_a_clean_environment(kind: str, distributions: dict[str, Path], tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # The requirements come from the environment of the tests: a path line brings its packages but not its .pth files,
    # so the copy of this package that is being developed stays out of sight.
    (site / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n" + sysconfig.get_path("platlib") + "\n")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-build-isolation")
    run(*pip, distributions[kind])
    found = json.loads(run(python, "-c", LOOK_AROUND, cwd=tmp_path))
    assert Path(found["package"]).is_relative_to(environment)
    assert Path(found["library"]).is_file() and Path(found["library"]).is_relative_to(environment)
    assert found["adapters"] > 0
    assert json.loads(run(environment / "bin" / "wgpu-ep", "info", "--json"))["adapters"]


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
    assert expected | {"LICENSE", "pyproject.toml", "setup.py"} <= names
