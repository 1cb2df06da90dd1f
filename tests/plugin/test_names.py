"""The name that ONNX Runtime keeps for itself: nobody gets a session on the CPU by passing it without having been told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep

from . import models

HEAD = """
import sys, onnxruntime as ort, onnxruntime_ep_wgpu as webgpu_ep
register = lambda: ort.register_execution_provider_library("ep", webgpu_ep.get_library_path())
"""


def warned(tmp_path: Path, script: str, *flags: str) -> str:
    """Runs HEAD and a script in a process of its own; gives what it wrote to stderr."""
    path = tmp_path / "program.py"
    path.write_text(HEAD + script)
    done = subprocess.run([sys.executable, *flags, str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("line", ["register()", "webgpu_ep.register()"])
def test_who_registers_is_told_the_name_to_pass_once(tmp_path: Path, line: str) -> None:
    text = warned(tmp_path, f"{line}\nort.unregister_execution_provider_library('{{}}')\n{line}\n".format(
        "ep" if line == "register()" else "webgpu_ep_registration"
    ))  # fmt: skip
    assert text.count("ProviderNameWarning:") == 1
    assert "providers=['WgpuExecutionProvider']" in text
    assert "program.py:" in text.split("ProviderNameWarning")[0], "the warning is about the program's line"


@pytest.mark.parametrize(
    "script",
    [
        "webgpu_ep.devices()",
        "webgpu_ep.PROVIDER; register()",
        "from onnxruntime_ep_wgpu import PROVIDER\nwebgpu_ep.register()",
    ],
)
def test_nobody_is_told_who_passes_no_name_or_knows_the_right_one(tmp_path: Path, script: str) -> None:
    assert warned(tmp_path, script, "-W", "error") == ""


def test_check_raises_for_a_session_that_the_name_left_on_the_cpu(devices: list[object]) -> None:
    for providers in (["WebGpuExecutionProvider"], [("WebGpuExecutionProvider", {"preferredLayout": "NHWC"})]):
        session = ort.InferenceSession(models.square(), providers=providers)
        if session.get_providers() == ["CPUExecutionProvider"]:  # what onnxruntime does today
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
    with pytest.raises(webgpu_ep.WgpuEpError, match=r"all 1 nodes .* Mul \(mul\): .*forceCpuNodeNames"):
        webgpu_ep.check(session)
