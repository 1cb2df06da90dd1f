"""`wgpu-ep verify` finds the kernel that is wrong, and nothing where nothing is."""

from __future__ import annotations

import json
import re

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu import cli
from tests.support import make_model
from tests.tools.changed_kernels import change_kernels

F = np.float32


@pytest.fixture
def model(tmp_path):
    nodes = [node("Softmax", ["x"], ["s"], name="first"), node("Exp", ["s"], ["e"], name="second"),
             node("ReduceSum", ["e"], ["m"], name="third", keepdims=1), node("NonZero", ["m"], ["i"], name="fourth"),
             node("Add", ["e", "m"], ["y"], name="fifth")]  # fmt: skip
    path = tmp_path / "model.onnx"
    onnx.save(make_model(nodes, {"x": (F, ["n", 5])}), path)
    return path


ON_CPU = ("--option", "forceCpuNodeNames=fourth")


def verify(capsys, path, *arguments) -> tuple[int, dict]:
    code = cli.main(["verify", str(path), "--shape", "x=3,5", "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def test_a_right_model_passes_and_says_what_was_left_to_the_cpu(model, capsys):
    code, found = verify(capsys, model, *ON_CPU)
    assert code == 0 and found["kernels_differing"] == 0
    assert [name for name, _, _ in found["on_cpu"]] == ["fourth"]
    assert {row["value"] for row in found["kernels_by_running_order"]} >= {"e", "m", "y"}


def test_the_first_wrong_kernel_is_named_with_its_nodes(model, capsys, monkeypatch):
    change_kernels(monkeypatch, lambda text: text.replace("y_put(row, finish(", "y_put(row, 9f + finish("))
    code, found = verify(capsys, model, *ON_CPU)
    assert code == 1
    assert found["first_differing"]["nodes"] == ["third"]
    assert found["kernels_differing"] == 1  # the nodes after it were given the right value
    assert found["first_differing"]["kernel"].endswith("reduce")
    assert found["kernels_by_running_order"][0]["error"] < 1e-5


@pytest.mark.parametrize("operator", ["NonZero", "Unique"])
def test_a_model_with_a_result_of_any_size_passes(operator, tmp_path, capsys):
    path = tmp_path / "model.onnx"
    onnx.save(make_model([node("Relu", ["x"], ["r"]), node(operator, ["r"], ["y"])], {"x": (F, ["n", 5])}), path)
    code, found = verify(capsys, path)
    assert code == 0 and [it["output"] for it in found["outputs"]] == ["y"]
    assert not found["on_cpu"] and found["outputs_differing"] == 0


@pytest.fixture
def far_sigmoid(tmp_path):
    """A Sigmoid of about -17, where the CPU provider's approximation is off by more than the values."""
    nodes = [node("Sub", ["x", "c"], ["d"], name="sub"), node("Sigmoid", ["d"], ["y"], name="sigmoid")]
    path = tmp_path / "model.onnx"
    onnx.save(make_model(nodes, {"x": (F, ["n", 5])}, {"c": np.array(17, F)}), path)
    return path


def test_the_cpu_providers_error_is_not_ours(far_sigmoid, capsys):
    code, found = verify(capsys, far_sigmoid, "--tolerance", "1e-5")
    (row,) = found["kernels_by_running_order"]
    assert code == 0 and found["kernels_differing"] == 0 and found["kernels_cleared_in_f64"] == 1
    assert row["error"] > 1e-2 and row["to_f64"] < 1e-5 < 1e-2 < row["cpu_to_f64"]


def test_a_kernel_that_is_further_off_than_the_cpu_provider_is_named(far_sigmoid, capsys, monkeypatch):
    change_kernels(monkeypatch, lambda text: re.sub(r"(?<!fn )\b(times_exp|exp)\(", r"\1(1.5f * ", text))
    code, found = verify(capsys, far_sigmoid)
    assert code == 1 and found["first_differing"]["nodes"] == ["sub", "sigmoid"]
    assert found["first_differing"]["to_f64"] > found["first_differing"]["cpu_to_f64"]


def test_cancellation_is_no_fault(tmp_path, capsys):
    """A mean of large numbers, taken off again: what is left is the rounding of the operands."""
    nodes = [node("Add", ["x", "c"], ["a"], name="add"), node("ReduceMean", ["a"], ["m"], name="mean", axes=[1]),
             node("Sub", ["a", "m"], ["y"], name="sub")]  # fmt: skip
    path = tmp_path / "model.onnx"
    onnx.save(make_model(nodes, {"x": (F, [3, 5])}, {"c": np.array(1e6, F)}, opset=17), path)
    code, found = verify(capsys, path, "--tolerance", "1e-7")
    assert code == 0, found["first_differing"]


def test_values_that_were_not_compared_are_named(tmp_path, capsys):
    path = tmp_path / "model.onnx"
    onnx.save(make_model([node("LpNormalization", ["x"], ["y"], name="norm")], {"x": (F, [3, 5])}), path)
    code, found = verify(capsys, path)
    assert code == 0
    assert found["values_stored"] == found["values_compared"] + len(found["uncompared"])
    (norm,) = found["uncompared"]
    assert norm == {
        "kernel": "0 reduce",
        "value": "",
        "nodes": ["norm"],
        "reason": "is an intermediate value within one node",
    }
    assert cli.main(["verify", str(path)]) == 0
    assert "values that were not compared\n" in capsys.readouterr().out


@pytest.mark.costly
@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_as_many_rows_as_asked_for_are_shown_of_every_table(rows, tmp_path, capsys):
    nodes = [
        node("Softmax" if k % 2 else "LpNormalization", [f"x{k}"], [f"x{k + 1}"], name=f"node{k}") for k in range(6)
    ]
    path = tmp_path / "model.onnx"
    onnx.save(make_model(nodes, {"x0": (F, [3, 5])}), path)
    command = ["verify", str(path), "--rows", str(rows), "--option", "forceCpuNodeNames=node1\nnode3\nnode5"]
    assert cli.main(command) == 0
    tables = capsys.readouterr().out.split("\n\n")
    for title, all_rows in (("largest errors", 3), ("values that were not compared", 3), ("nodes on the CPU", 3)):
        (table,) = (it.rstrip("\n").split("\n") for it in tables if it.startswith(title))
        shown = min(rows, all_rows)
        assert len([line for line in table[2:] if line.strip("- ")]) == shown, table
        assert (f"{rows} of 3 (--json has all)" in table[0]) == (rows < all_rows and title != "largest errors")


def test_a_wrong_device_is_named(model, capsys):
    assert cli.main(["verify", str(model), "--device", "Voodoo"]) == 2
    assert "Voodoo" in capsys.readouterr().err


def test_sizes_beyond_a_limit_are_compared_in_the_program_that_ran(tmp_path, capsys):
    """Longer than software adapters can loop, so the graph is compiled once more for these sizes."""
    path = tmp_path / "long.onnx"
    product = make_model([node("MatMul", ["b", "a"], ["y"])], {"a": (F, ["k", 3]), "b": (F, [2, "k"])})
    onnx.save(product, path)
    assert cli.main(["verify", str(path), "--dim", "k=70000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (product,) = found["kernels_by_running_order"]
    assert product["value"] == "y" and product["kernel"].split()[0] != "0"  # the last of several
