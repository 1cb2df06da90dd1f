"""The name that ONNX Runtime keeps for itself: nobody gets a session on the CPU by passing it without having been told."""

from __future__ import annotations

import sys
from pathlib import Path

import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu import names
from onnxruntime_ep_wgpu.registration import noted
from tests import patience

from . import models

ROOT = Path(__file__).resolve().parents[2]

HEAD = """
import sys, onnxruntime as ort, onnxruntime_ep_wgpu as webgpu_ep
register = lambda: ort.register_execution_provider_library("ep", webgpu_ep.get_library_path())
"""


# What ONNX Runtime documents: devices are passed and no name.
DEVICES = """
from tests.plugin import models
{}
found = [it for it in ort.get_ep_devices() if it.ep_name == webgpu_ep.get_ep_name()]
so = ort.SessionOptions()
so.add_provider_for_devices(found, {{}})
assert webgpu_ep.get_ep_name() in ort.InferenceSession(models.square(), so).get_providers()
"""


def warned(tmp_path: Path, script: str, *flags: str) -> str:
    """Runs HEAD and a script in a process of its own; gives what it wrote to stderr."""
    path = tmp_path / "program.py"
    path.write_text(HEAD + script)
    done = patience.run([sys.executable, *flags, str(path)], env=patience.here())
    assert done.returncode == 0, done.stderr
    return done.stderr


WRONG_NAME = """
from tests.plugin import models
session = ort.InferenceSession(models.square(), providers=["WebGpuExecutionProvider"])
"""


@pytest.mark.parametrize("line", ["register()", pytest.param("webgpu_ep.register()", marks=pytest.mark.exhaustive)])
def test_who_registers_and_makes_no_session_here_is_told_the_name_to_pass_once(tmp_path: Path, line: str) -> None:
    own = "ep" if line == "register()" else "onnxruntime_ep_wgpu"
    text = warned(tmp_path, f"{line}\nort.unregister_execution_provider_library('{own}')\n{line}{WRONG_NAME}")
    if not names.reserves_name(ort.__version__):
        all_here = "\nassert not webgpu_ep.report(session).on_cpu"
        assert "ProviderNameWarning" not in text + warned(tmp_path, line + WRONG_NAME + all_here)
        return
    assert text.count("ProviderNameWarning:") == 1
    assert "providers=['WgpuExecutionProvider']" in text
    assert f"program.py:{3 if own == 'ep' else 4}:" in text, "the warning is about the program's line"


def test_the_name_is_called_no_cause_where_it_is_none(tmp_path: Path) -> None:
    """An onnxruntime that gives the name to libraries, and a machine without an adapter, which is logged once."""
    given_back = "ort.__version__ = '1.32.0'\nregister()"
    assert warned(tmp_path, given_back) == ""
    no_driver = "import os\nos.environ['VK_DRIVER_FILES'] = os.environ['VK_ICD_FILENAMES'] = os.devnull\nregister()"
    text = warned(tmp_path, no_driver + WRONG_NAME)
    assert text.count("no WebGPU adapter: ") == 1 and "ProviderNameWarning" not in text


@pytest.mark.costly
@pytest.mark.parametrize(
    "script",
    [
        "webgpu_ep.devices()",
        DEVICES.format("register()"),
        "webgpu_ep.PROVIDER; register()",
        *(
            pytest.param(it, marks=pytest.mark.exhaustive)
            for it in (
                DEVICES.format("webgpu_ep.register()"),
                DEVICES.format("webgpu_ep.session(models.square()); register()"),
                "from onnxruntime_ep_wgpu import PROVIDER\nwebgpu_ep.register()",
            )
        ),
    ],
)
def test_nobody_is_told_who_passes_no_name_or_knows_the_right_one(tmp_path: Path, script: str) -> None:
    assert warned(tmp_path, script, "-W", "error") == ""


def test_check_raises_for_a_session_that_the_name_left_on_the_cpu(devices: list[object]) -> None:
    for providers in (["WebGpuExecutionProvider"], [("WebGpuExecutionProvider", {"preferredLayout": "NHWC"})]):
        session = ort.InferenceSession(models.square(), providers=providers)
        on_the_cpu = session.get_providers() == ["CPUExecutionProvider"]
        assert on_the_cpu == names.reserves_name(ort.__version__)
        if on_the_cpu:
            with pytest.raises(
                webgpu_ep.WgpuEpError, match=r"CPUExecutionProvider .* providers=\['WgpuExecutionProvider'\]"
            ):
                webgpu_ep.check(session)
            with pytest.raises(LookupError, match=r"providers=\['WgpuExecutionProvider'\]"):
                webgpu_ep.report(session)


def test_check_gives_back_a_session_that_runs_here(devices: list[object]) -> None:
    for session in (
        webgpu_ep.session(models.square()),
        ort.InferenceSession(models.square(), providers=[webgpu_ep.PROVIDER]),
    ):
        assert webgpu_ep.check(session) is session


def test_check_names_the_reasons_when_no_node_was_taken(devices: list[object]) -> None:
    session = webgpu_ep.session(models.square(), forceCpuNodeNames=["mul"])
    with pytest.raises(webgpu_ep.WgpuEpError, match=r"the only node .* Mul \(mul\): .*forceCpuNodeNames"):
        webgpu_ep.check(session)


@pytest.fixture
def on_the_cpu(devices: list[object]) -> ort.InferenceSession:
    return ort.InferenceSession(models.square(), providers=["CPUExecutionProvider"])


def test_check_tries_the_causes_in_turn(on_the_cpu: ort.InferenceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def why() -> str:
        with pytest.raises(webgpu_ep.WgpuEpError) as caught:
            webgpu_ep.check(on_the_cpu)
        return str(caught.value)

    monkeypatch.setattr(noted, "knows_the_name", False)
    monkeypatch.setattr(ort, "__version__", "1.31.1")
    assert "onnxruntime 1.31.1 reserves 'WebGpuExecutionProvider', passed as text, for its own provider" in why()
    monkeypatch.setattr(ort, "__version__", "1.32.0")
    assert "did not reach InferenceSession" in why() and "for its own provider" not in why()
    monkeypatch.setattr(ort, "__version__", "1.31.1")
    monkeypatch.setattr(noted, "knows_the_name", True)
    assert "did not reach InferenceSession" in why() and "chooses providers itself" in why()
    assert "such as 'WebGpuExecutionProvider', which this onnxruntime reserves" in why()
    monkeypatch.setattr(ort, "__version__", "1.24.4")
    assert "onnxruntime 1.24.4 does not support the names of providers in libraries; install 1.25" in why()
    monkeypatch.setattr(ort, "get_ep_devices", list)
    assert "not registered: call onnxruntime_ep_wgpu.register()" in why()
    monkeypatch.setattr("onnxruntime_ep_wgpu.device.adapters_problem", lambda: "no WebGPU adapter: install a driver")
    assert "no WebGPU adapter: install a driver" in why()
    with pytest.raises(webgpu_ep.DeviceError):
        webgpu_ep.check(on_the_cpu)


def test_registering_without_an_adapter_is_loud(tmp_path: Path) -> None:
    """Nobody passes a name afterwards and gets a session on the CPU."""
    script = """
import os
os.environ["VK_DRIVER_FILES"] = os.environ["VK_ICD_FILENAMES"] = os.devnull
try:
    webgpu_ep.register()
except webgpu_ep.DeviceError as error:
    assert "no WebGPU adapter" in str(error), error
    assert webgpu_ep.PROVIDER
else:
    raise SystemExit("registered without a device")
"""
    warned(tmp_path, script)


def test_a_session_of_which_nothing_runs_here_is_an_error_unless_it_is_allowed(devices: list[object]) -> None:
    model = models.doubles()
    with pytest.raises(
        webgpu_ep.UnsupportedError, match=r"the only node .* LpNormalization \(double\): .*allow_cpu_only"
    ):
        webgpu_ep.session(model)
    session = webgpu_ep.session(model, allow_cpu_only=True)
    assert len(webgpu_ep.report(session).on_cpu) == 1
    with pytest.raises(webgpu_ep.UnsupportedError):
        webgpu_ep.check(session)


def test_nodes_on_the_cpu_are_one_warning_in_the_log(devices: list[object], capfd: pytest.CaptureFixture[str]) -> None:
    def logged(model: bytes, **options: object) -> list[str]:
        webgpu_ep.session(model, **options)  # type: ignore[arg-type]
        return [line for line in capfd.readouterr().err.splitlines() if "nodes on the CPU" in line]

    (line,) = logged(models.doubles_beside())
    assert "1 of 2 nodes on the CPU: LpNormalization (double): " in line
    assert logged(models.square()) == []
    assert logged(models.chain(), forceCpuNodeNames=["relu"]) == [], "who sends nodes there knows"
