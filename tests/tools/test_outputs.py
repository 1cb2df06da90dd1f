"""`wgpu-ep run --output`: a file for every output, whatever the outputs are called."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from onnxruntime_ep_wgpu import cli
from onnxruntime_ep_wgpu.tools._places import file_names

NAMES = ["a_b", "a/b", "a\\b", "A_B", "a:b", "../up", "..", ".hidden", "con", "nul.txt"]
NAMES += ["\u00e9", "e\u0301", "x" * 400, "x" * 401]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(min_size=1) | st.text("aA/_-2.:", min_size=1), unique=True, max_size=8))
@example(NAMES)
@example(["a/b", "a_b-2", "a_b", "a:b"])
def test_different_names_are_different_files_everywhere(names: list[str]) -> None:
    files = file_names(names, ".npy")
    assert files.keys() == set(names)
    assert len({unicodedata.normalize("NFC", it).casefold() for it in files.values()}) == len(names)
    for file in files.values():
        assert Path(file).name == file and file.endswith(".npy") and not file.startswith(".")
        assert not set("/\\:\0") & set(file) and len(file.encode()) <= 255


def test_names_that_need_no_change_keep_theirs() -> None:
    assert file_names(["a/b", "a_b", "y"], ".npy") == {"a_b": "a_b.npy", "y": "y.npy", "a/b": "a_b-2.npy"}


def test_every_output_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = NAMES
    nodes = [helper.make_node("Mul", ["x", f"k{k}"], [name]) for k, name in enumerate(outputs)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in outputs]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    weights = [helper.make_tensor(f"k{k}", TensorProto.FLOAT, [], [float(k)]) for k in range(len(outputs))]
    graph = helper.make_graph(nodes, "g", [x], values, weights)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.ones(3, np.float32))
    line = ["run", str(tmp_path / "m.onnx"), "--input", str(tmp_path / "x.npy"), "--runs", "0"]
    assert cli.main([*line, "--output", str(tmp_path / "out"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["outputs"]
    assert [it["name"] for it in told] == outputs
    for k, it in enumerate(told):
        np.testing.assert_array_equal(np.load(tmp_path / "out" / it["file"]), np.full(3, k, np.float32))
    assert len(list((tmp_path / "out").iterdir())) == len(outputs)


def test_what_is_no_tensor_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """<ir_version: 10, opset_import: ["" : 17]> g (float[2] x) => (float[2] y, seq(float[2]) s) {
        y = Relu (x)  s = SequenceConstruct (y, y) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    assert cli.main(["run", str(tmp_path / "m.onnx"), "--runs", "0", "--output", str(tmp_path / "out")]) == 0
    assert "note: output 's' is not a tensor and is not written" in capsys.readouterr().err
    assert [it.name for it in (tmp_path / "out").iterdir()] == ["y.npy"]
