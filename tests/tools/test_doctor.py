"""`wgpu-ep doctor`, `bench` and `completion`: what they find, and what they say of what is wrong."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import onnx
import pytest

from onnxruntime_ep_wgpu import cli
from onnxruntime_ep_wgpu.tools import completion, doctor
from tests import patience


def _told(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    return {it["check"]: it for it in json.loads(capsys.readouterr().out)}


def test_every_adapter_runs_and_each_part_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["doctor", "--json"])
    found = _told(capsys)
    runs = [it for name, it in found.items() if name.startswith("run on ")]
    assert code == 0 and runs and all(it["result"] == "ok" and it["found"].startswith("right") for it in runs)
    assert {"Python", "onnxruntime", "program cache", "adapters", "provider"} <= found.keys()
    assert found["program cache"]["remedy"].startswith("unset WGPU_EP_CACHE")


def test_what_fails_is_told_with_what_mends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_adapter: object) -> str:
        raise RuntimeError("wrong values of a matrix product")

    monkeypatch.setattr(doctor, "_run", fails)
    monkeypatch.setattr(doctor.importlib.metadata, "version", lambda _name: "1.2.3")
    assert cli.main(["doctor", "--json"]) == 1
    found = _told(capsys)
    assert found["onnxruntime"]["result"] == "failed" and found["onnxruntime"]["remedy"].startswith("pip install")
    run = next(it for name, it in found.items() if name.startswith("run on 0"))
    assert run["result"] == "failed" and "wrong values" in run["found"] and "driver" in run["remedy"]


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_a_cache_that_others_can_write_to_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs").chmod(0o777)
    monkeypatch.setenv("WGPU_EP_CACHE", str(tmp_path))
    assert cli.main(["doctor", "--json"]) == 0
    found = _told(capsys)["program cache"]
    assert found["result"] == "warning" and "others can write to it" in found["found"]


def test_a_library_that_cannot_use_the_adapter_is_told_with_its_own_remedy() -> None:
    environment = {**os.environ, "WGPU_EP_LIBRARY": "dawn"}
    for command, code in (("doctor", 1), ("info", 0)):
        ran = patience.run([sys.executable, "-m", "onnxruntime_ep_wgpu", command, "--json"], env=environment)
        found = json.loads(ran.stdout)
        assert ran.returncode == code
        runs = [it for it in found if it["check"].startswith("run on 0")] if command == "doctor" else []
        told = runs[0]["remedy"] if runs else found["adapters"][0]["library_problem"]
        # Mesa 22.3 lacks what Dawn needs; without wgpudawn the command that installs it is told.
        assert "WGPU_EP_LIBRARY=wgpu-native" in told or "pip install" in told


def test_without_an_adapter_the_way_to_one_is_told(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "VK_DRIVER_FILES": str(tmp_path / "none.json"),
        "VK_ICD_FILENAMES": str(tmp_path / "no.json"),
    }
    ran = patience.run([sys.executable, "-m", "onnxruntime_ep_wgpu", "doctor"], env=environment)
    assert ran.returncode == 1 and "apt-get install mesa-vulkan-drivers" in ran.stdout and not ran.stderr


@pytest.fixture
def model(tmp_path: Path) -> Path:
    text = """<ir_version: 10, opset_import: ["" : 17]> g (float[N, 8] x) => (float[N, 8] y) { y = Relu (x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_providers_are_compared_in_one_table(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", str(model), "--runs", "2", "--dim", "N=3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["inputs"] == {"x": [3, 8]}
    rows = {it["provider"]: it for it in found["providers"]}
    assert {"WebGPU", "CPUExecutionProvider"} <= rows.keys()
    assert all(len(it["times"]) == 2 and it["difference"] == 0 and not it["problem"] for it in rows.values())
    assert cli.main(["bench", str(model), "--runs", "1"]) == 0
    table = capsys.readouterr().out
    assert "x [1, 8]" in table and table.count("ExecutionProvider") == len(rows) - 1


def test_a_library_that_is_none_is_refused_by_name(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", str(model), "--custom-ops", str(model)]) == 2
    assert f"--custom-ops {model}: " in capsys.readouterr().err
    assert cli.main(["run", str(model), "--custom-ops", "away.so", "--json"]) == 2
    error = json.loads(capsys.readouterr().err)["error"]
    assert error["type"] == "FileNotFoundError" and "away.so" in error["message"]


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_every_command_and_option_is_completed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name, _ in cli.commands()) and "override" in text and "clear" in text
    if shutil.which(shell):
        assert patience.run([shell, "-n"], input=text).stderr == ""


def test_bash_completes_words() -> None:
    script = "source <(cat); COMP_WORDS=(wgpu-ep cache s); COMP_CWORD=2; _wgpu_ep; echo ${COMPREPLY[@]}"
    made = patience.run([sys.executable, "-m", "onnxruntime_ep_wgpu", "completion", "bash"])
    ran = patience.run(["bash", "-c", script], input=made.stdout)
    assert ran.stdout == "size\n"
