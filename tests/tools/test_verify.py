"""`wgpu-ep verify` finds the kernel that is wrong, and nothing where nothing is."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu import cli, compile
from tests.support import make_model

F = np.float32


@pytest.fixture
def model(tmp_path):
    nodes = [node("Softmax", ["x"], ["s"], name="first"), node("Exp", ["s"], ["e"], name="second"),
             node("ReduceMax", ["e"], ["m"], name="third", keepdims=1), node("NonZero", ["m"], ["i"], name="fourth"),
             node("Add", ["e", "m"], ["y"], name="fifth")]  # fmt: skip
    path = tmp_path / "model.onnx"
    onnx.save(make_model(nodes, {"x": (F, ["n", 5])}), path)
    return path


def verify(capsys, path, *arguments) -> tuple[int, dict]:
    code = cli.main(["verify", str(path), "--shape", "x=3,5", "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def test_a_right_model_passes_and_says_what_was_left_to_the_cpu(model, capsys):
    code, found = verify(capsys, model)
    assert code == 0 and found["kernels_differing"] == 0
    assert [name for name, _, _ in found["on_cpu"]] == ["fourth"]
    assert {row["value"] for row in found["kernels_by_running_order"]} >= {"e", "m", "y"}


def test_the_first_wrong_kernel_is_named_with_its_nodes(model, capsys, monkeypatch):
    right = compile.compile_graph

    def wrong(*arguments):
        program = right(*arguments)
        nine = "fn identity() -> f32 { return 9f; }"
        kernels = (
            dataclasses.replace(k, wgsl=tuple(re.sub(r"fn identity\(\) -> f32 {[^}]*}", nine, t) for t in k.wgsl))
            for k in program.kernels
        )
        return dataclasses.replace(program, kernels=tuple(kernels))

    monkeypatch.setattr(compile, "compile_graph", wrong)
    code, found = verify(capsys, model)
    assert code == 1
    assert found["first_differing"]["nodes"] == ["third"]
    assert found["kernels_differing"] == 1  # the nodes after it were given the right value
    assert found["first_differing"]["kernel"].endswith("reduce")
    assert found["kernels_by_running_order"][0]["error"] < 1e-5


def test_a_wrong_device_is_named(model, capsys):
    assert cli.main(["verify", str(model), "--device", "Voodoo"]) == 2
    assert "Voodoo" in capsys.readouterr().err
