"""The library works in programs that are not Python, and for several copies of ONNX Runtime in one process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from tests import patience

from . import models
from .c_api import CLIENT, Runtime, ort_abi

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C program."""
    program = tmp_path_factory.mktemp("host") / "host"
    source = Path(__file__).with_name("host.c")
    patience.run(["gcc", "-Wall", "-o", program, source, "-ldl", "-lpthread"], check=True)
    return program


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "square.onnx"
    path.write_bytes(models.square())
    return path


def ort_library() -> Path:
    (path,) = (Path(ort.__file__).parent / "capi").glob("libonnxruntime.so.*")
    return path


def run_host(host: Path, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [host, ort_library(), *arguments]
    return patience.run(command, env=clean | environment)


def shared_python() -> bool:
    return bool(sysconfig.get_config_var("Py_ENABLE_SHARED"))


# The package may lie in a source tree, from where no environment is found; installed, no variable is needed.
HERE = {"ONNXRUNTIME_EP_WGPU_PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "src")}


@pytest.mark.skipif(not shared_python(), reason="this Python has no shared libpython")
@pytest.mark.parametrize("unregister", [["unregister"], pytest.param([], marks=pytest.mark.exhaustive)])
def test_a_c_program_runs_a_model_from_several_threads(host: Path, model: Path, unregister: list[str]) -> None:
    result = run_host(host, webgpu_ep.get_library_path(), model, *unregister, **HERE)
    assert (result.returncode, result.stdout) == (0, "ok\n"), result.stdout + result.stderr


@pytest.mark.skipif(not shared_python(), reason="this Python has no shared libpython")
def test_a_c_program_is_told_why_the_package_cannot_be_imported(host: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / "onnxruntime_ep_wgpu").mkdir()
    (tmp_path / "onnxruntime_ep_wgpu" / "__init__.py").write_text("raise ImportError('broken on purpose')")
    result = run_host(host, webgpu_ep.get_library_path(), model, **(HERE | {"PYTHONPATH": str(tmp_path)}))
    assert result.returncode == 2
    assert result.stdout.startswith("register: ")
    assert "ImportError('broken on purpose')" in result.stdout


CONSTANTS = """
#define ORT_API_VERSION 24
enum { ORT_LOGGING_LEVEL_WARNING = 2, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT = 1, OrtArenaAllocator = 1, OrtMemTypeDefault = 0 };
const OrtApiBase *OrtGetApiBase(void);
"""


@pytest.mark.skipif(not shared_python(), reason="this Python has no shared libpython")
def test_the_c_program_of_a_document_runs(model: Path, tmp_path: Path) -> None:
    """With a header of the slots that it calls: the package of ONNX Runtime has none."""
    (program,) = re.findall(r"```c\n(.*?)```", (ROOT / "docs" / "hosts.md").read_text(), re.DOTALL)
    create = "    7   OrtStatus *CreateSession(OrtEnv *env, const ORTCHAR_T *path, const OrtSessionOptions *options, OrtSession **out)"  # noqa: E501
    table = "\n".join(sorted([*CLIENT.strip("\n").splitlines(), create], key=lambda it: int(it.split()[0])))
    types = "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n" + ort_abi.CHARACTERS
    (tmp_path / "onnxruntime_c_api.h").write_text(types + ort_abi.declarations({"OrtApi": table}) + CONSTANTS)
    (tmp_path / "app.c").write_text(program)
    app = tmp_path / "app"
    build = ["gcc", "-Wall", "-Werror", tmp_path / "app.c", "-o", app, "-I", tmp_path, ort_library()]
    patience.run([*build, f"-Wl,-rpath,{tmp_path}"], check=True)
    (tmp_path / "libonnxruntime.so.1").symlink_to(ort_library())
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    result = patience.run([app, webgpu_ep.get_library_path(), model], env=clean | HERE)
    assert (result.returncode, result.stdout) == (0, "0 1 4 9 16 25 36 49 \n"), result.stdout + result.stderr


@pytest.mark.exhaustive
@pytest.mark.skipif(not shared_python(), reason="this Python has no shared libpython")
def test_a_c_program_needs_no_environment_variable_for_an_installed_package(
    host: Path, model: Path, tmp_path: Path
) -> None:
    environment = tmp_path / "environment"
    patience.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    ask = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(patience.run(ask, check=True).stdout.strip())
    # The requirements come from this environment.
    (site / "requirements.pth").write_text(sysconfig.get_path("purelib"))
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-build-isolation", ROOT]
    patience.run(pip, check=True)
    library = next((site / "onnxruntime_ep_wgpu").glob("*onnxruntime_ep_wgpu.so"))
    command = [host, ort_library(), library, model]
    result = patience.run(command, env={"PATH": "/usr/bin:/bin"})
    assert (result.returncode, result.stdout) == (0, "ok\n"), result.stdout + result.stderr


def test_a_c_program_is_told_when_there_is_no_python(host: Path, model: Path) -> None:
    result = run_host(host, webgpu_ep.get_library_path(), model, ONNXRUNTIME_EP_WGPU_PYTHON="/nowhere/python")
    assert result.returncode == 2
    assert "/nowhere/python" in result.stdout


@pytest.fixture(scope="module")
def second() -> Runtime:
    """The second copy of ONNX Runtime."""
    return Runtime()


def test_two_copies_of_onnx_runtime_use_the_library_side_by_side(second: Runtime, open_session: Any) -> None:
    first = open_session(models.square())
    second.register("beside", webgpu_ep.get_library_path())
    assert second.version == ort.__version__
    (device, *_) = second.devices(webgpu_ep.get_ep_name())
    session = second.session(models.square(), device)
    x = np.random.default_rng(0).standard_normal((3, 8), np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(second.run(session, x), x * x)
        np.testing.assert_array_equal(first.run(None, {"x": x})[0], x * x)
    errors: list[BaseException] = []

    def work(mine: bool) -> None:
        try:
            for rows in range(1, 20):
                y = np.full((rows, 8), rows, np.float32)
                got = first.run(None, {"x": y})[0] if mine else second.run(session, y)
                np.testing.assert_array_equal(got, y * y)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(bool(i % 2),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    second.api.ReleaseSession(session)
    second.unregister("beside")
    np.testing.assert_array_equal(first.run(None, {"x": x})[0], x * x)


def test_one_library_is_registered_under_two_names(second: Runtime) -> None:
    second.register("one", webgpu_ep.get_library_path())
    second.register("two", webgpu_ep.get_library_path())
    assert len(second.devices(webgpu_ep.get_ep_name())) == 2 * len(webgpu_ep.devices())
    second.unregister("one")
    (device, *_) = second.devices(webgpu_ep.get_ep_name())
    session = second.session(models.square(), device)
    x = np.ones((2, 8), np.float32)
    np.testing.assert_array_equal(second.run(session, x), x)
    second.api.ReleaseSession(session)
    second.unregister("two")


def test_a_wrong_option_reaches_a_client_of_the_c_interface(second: Runtime) -> None:
    second.register("options", webgpu_ep.get_library_path())
    (device, *_) = second.devices(webgpu_ep.get_ep_name())
    with pytest.raises(RuntimeError, match="OptionError: option 'validationMode': 'loud' is not valid"):
        second.session(models.square(), device, {"validationMode": "loud"})
    second.unregister("options")


def test_memory_of_one_session_is_used_in_others_and_outlives_it(second: Runtime) -> None:
    """onnxruntime-genai keeps a hidden session only to allocate from: it asks for the memory by name."""
    ffi, api = second.ffi, second.api
    second.register("memory", webgpu_ep.get_library_path())
    (device, *_) = second.devices(webgpu_ep.get_ep_name())
    hidden = second.session(models.square(), device)
    # Its words: CreateMemoryInfo("WebGPU_Buf", device allocator, id 0, default memory).
    info = second.out(api.CreateMemoryInfo, "OrtMemoryInfo *", second.text("WebGPU_Buf"), 0, 0, 0)
    allocator = second.out(api.CreateAllocator, "OrtAllocator *", hidden, info)
    block = second.out(api.AllocatorAlloc, "void *", allocator, 2048)
    host = second.out(api.CreateCpuMemoryInfo, "OrtMemoryInfo *", 1, 0)

    def bytes_at(where: object, pointer: object, nbytes: int) -> object:
        dims = ffi.new("int64_t[]", [nbytes])
        return second.out(api.CreateTensorWithDataAsOrtValue, "OrtValue *", where, pointer, nbytes, dims, 1, 2)

    def copy(source: object, destination: object) -> None:
        sources, destinations = ffi.new("const OrtValue *[]", [source]), ffi.new("OrtValue *[]", [destination])
        second.check_status(api.CopyTensors(second.env, sources, destinations, ffi.NULL, 1))

    content, back = np.arange(112, dtype=np.uint8), np.zeros(112, np.uint8)
    on_device = bytes_at(info, block, 112)  # less than was allocated
    copy(bytes_at(host, ffi.cast("void *", content.ctypes.data), 112), on_device)
    copy(on_device, bytes_at(host, ffi.cast("void *", back.ctypes.data), 112))
    np.testing.assert_array_equal(back, content)
    other = second.session(models.square(), device)
    api.ReleaseSession(other)
    back[:] = 0
    copy(on_device, bytes_at(host, ffi.cast("void *", back.ctypes.data), 112))
    np.testing.assert_array_equal(back, content)
    second.check_status(api.AllocatorFree(allocator, block))
    api.ReleaseAllocator(allocator)
    api.ReleaseSession(hidden)
    second.unregister("memory")
