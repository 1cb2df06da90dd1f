"""Cases of other suites come from a folder, in either form, and their part of the page replaces that of the same name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from . import page, suites, table
from .worker import Setup, run_case

WEB = """
// operators
[
 {"name": "relu", "operator": "Relu", "cases": [
  {"name": "a // b",
   "inputs": [{"data": [-1, 2, "NaN"], "dims": [3], "type": "float32"}], /* none */
   "outputs": [{"data": [0, 2, "NaN"], "dims": [3], "type": "float32"}]}]},
 {"name": "clip", "operator": "Clip", "opset": {"domain": "", "version": 13}, "inputShapeDefinitions": "static", "cases": [
  {"name": "above",
   "inputs": [{"data": [1, 2, 3, 4], "dims": [2, 2], "type": "int32"}, {"data": null, "type": "int32"},
              {"data": [3], "dims": [], "type": "int32"}],
   "outputs": [{"data": [1, 2, 3, 3], "dims": [2, 2], "type": "int32"}]},
  {"name": "wrong",
   "inputs": [{"data": [7], "dims": [1], "type": "int32"}],
   "outputs": [{"data": [8], "dims": [1], "type": "int32"}]},
 ]},
 {"name": "bytes", "operator": "DequantizeLinear", "opset": {"domain": "", "version": 21}, "cases": [
  {"name": "two in one",
   "inputs": [{"data": [33, 243], "dims": [4], "type": "int4x2"}, {"data": [2], "dims": [], "type": "float32"}],
   "outputs": [{"data": [2, 4, 6, -2], "dims": [4], "type": "float32"}]}]}
]
"""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "ops.jsonc").write_text(WEB)
    _write(tmp_path / "add", 6, "Add", [np.ones(2, np.float32), np.arange(2, dtype=np.float32)], np.float32([1, 2]))
    return str(tmp_path)


def _write(folder: Path, opset: int, operator: str, inputs: list[np.ndarray], result: np.ndarray) -> None:
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    values = [helper.make_tensor_value_info(f"x{n}", onnx.TensorProto.FLOAT, it.shape) for n, it in enumerate(inputs)]
    graph = helper.make_graph(
        [helper.make_node(operator, [it.name for it in values], ["y"])],
        "case",
        values,
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, result.shape)],
    )
    model = helper.make_model(graph, ir_version=4, opset_imports=[helper.make_opsetid("", opset)])
    onnx.save(model, folder / "model.onnx")
    for name, array in [*((f"input_{n}", it) for n, it in enumerate(inputs)), ("output_0", result)]:
        (data / f"{name}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())


def test_every_case_of_a_folder_runs(folder: str) -> None:
    found = {name: run_case(name, Setup(optimize=True, suite=folder)) for name in suites.index(folder)}
    assert {name: row["status"] for name, row in found.items()} == {
        "add:0:0": "right",  # of opset 6: converted
        "ops.jsonc:0:0": "right",
        "ops.jsonc:1:0": "right",
        "ops.jsonc:1:1": "wrong",
        "ops.jsonc:2:0": "right",
    }
    assert all(table.on_gpu(row) for row in found.values())


def test_a_folder_without_cases_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="is no folder"):
        suites.index(str(tmp_path / "none"))


def test_a_part_of_the_page_replaces_that_of_its_name() -> None:
    bare = f"# Conformance\n\n{table.DIFFERENCES}"
    one = page.with_suite(bare, "b", "### b\n\nold\n")
    both = page.with_suite(page.with_suite(one, "a", "### a\n\nfirst\n"), "b", "### b\n\nnew\n")
    assert both == f"# Conformance\n\n{page.ABOUT}\n### a\n\nfirst\n\n### b\n\nnew\n\n{table.DIFFERENCES}"
    assert page.with_suites_of(bare, both) == both, "the node suite's table keeps the others"
    assert page.with_suites_of(bare, bare) == bare
