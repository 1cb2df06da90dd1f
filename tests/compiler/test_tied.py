"""A table that a model has twice, as it is or transposed, is once on the device and nowhere in host memory."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.compiler.graph.tied import ties_of
from onnxruntime_ep_wgpu.compiler.lower.builder import Builder
from onnxruntime_ep_wgpu.plugin.group import CompiledGroup
from onnxruntime_ep_wgpu.plugin.specialise import Specialiser
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.weights import weight_array
from onnxruntime_ep_wgpu.runtime.settings import RunSettings
from onnxruntime_ep_wgpu.runtime.weight_sources import FromModel, InMemory
from tests import targets
from tests.support import Runner, compile_model, device, make_model, specialising, target

F = np.float32
WORDS, SIZE = 700, 64
SPELLINGS = ("transposed by a node", "transposed by a product", "stored transposed", "stored twice")


way = targets.each(targets.OWN, targets.Way("gpu"))


def table(dtype: type = F, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((WORDS, size)).astype(dtype)


def model(spelling: str, dtype: type = F, size: int = SIZE, head: np.ndarray | None = None) -> onnx.ModelProto:
    """An embedding, and a product with the same table (or with `head`) as its head."""
    weights = {"table": table(dtype, size), "head": table(dtype, size) if head is None else head}
    nodes = [node("Gather", ["table", "ids"], ["h"])]
    if spelling == "stored transposed":
        weights["head"] = np.ascontiguousarray(weights["head"].T)
        nodes.append(node("MatMul", ["h", "head"], ["y"]))
    elif spelling == "stored twice":
        nodes.append(node("Gemm", ["h", "head"], ["y"], transB=1))
    else:
        del weights["head"]
        if spelling == "transposed by a node":
            nodes += [node("Transpose", ["table"], ["t"], perm=[1, 0]), node("MatMul", ["h", "t"], ["y"])]
        else:
            nodes.append(node("Gemm", ["h", "table"], ["y"], transB=1))
    return make_model(nodes, {"ids": (np.int64, ["n"])}, weights)


def weight_bytes(program: Program) -> int:
    return sum(weight_array(weight).nbytes for weight in program.weights)


def ids(count: int) -> np.ndarray:
    return np.random.default_rng(1).integers(-WORDS, WORDS, count)


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [F, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_tied_table_is_one_weight(spelling: str, dtype: type) -> None:
    program = compile_model(model(spelling, dtype))
    rows = table(dtype)
    assert weight_bytes(program) == rows.nbytes
    run = Runner(program)
    for count in (1, 3, 40):
        (y,) = run(ids(count))
        want = rows.astype(np.float64)[ids(count)] @ rows.astype(np.float64).T
        np.testing.assert_allclose(
            y.astype(np.float64), want, rtol=1e-5 if dtype is F else 1e-2, atol=1e-4 if dtype is F else 0.2
        )


@pytest.mark.costly
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_table_of_several_bindings(spelling: str) -> None:
    on = dataclasses.replace(target(), max_binding_bytes=table().nbytes // 5 // 256 * 256, max_storage_buffers=8)
    run = specialising(model(spelling), on)
    for count in (1, 30):
        (y,) = run(ids(count))
        np.testing.assert_allclose(y, table()[ids(count)] @ table().T, rtol=1e-4, atol=1e-4)


@pytest.mark.costly
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_copy_of_it_stays_in_host_memory(spelling: str, tmp_path: Path) -> None:
    """What ONNX Runtime transposed is in no file, and is needed again after the loss of a device."""
    whole = ir.from_proto(model(spelling))
    onnx.save(model("transposed by a product"), path := tmp_path / "m.onnx")
    found = FromModel(path)
    copied = []

    def source_of(name: str, array: np.ndarray) -> object:
        source = found(name, array[...])
        copied.extend([name] * (isinstance(source, InMemory) and array.nbytes > 4096))
        return source

    specialiser = Specialiser(whole.graph, whole.opset_imports, target())
    program = compile_graph(whole.graph, whole.opset_imports, target())
    CompiledGroup(program, device, RunSettings(), source_of, specialiser)  # type: ignore[arg-type]
    assert not copied
    again = specialiser({"n": 5})
    assert weight_bytes(again) == table().nbytes
    np.testing.assert_allclose(Runner(again)(ids(5))[0], table()[ids(5)] @ table().T, rtol=1e-4, atol=1e-4)


def changed(value: float) -> np.ndarray:
    head = table()
    head[WORDS - 3, 7] = value
    return head


@pytest.mark.costly
@pytest.mark.parametrize("value", [1.5, np.nan])
@pytest.mark.parametrize("spelling", SPELLINGS[2:])
def test_a_table_that_differs_in_one_element_is_another_one(spelling: str, value: float) -> None:
    head = changed(value)
    program = compile_model(model(spelling, head=head))
    assert weight_bytes(program) == 2 * head.nbytes
    (y,) = Runner(program)(ids(4))
    np.testing.assert_allclose(y, table()[ids(4)] @ head.T, rtol=1e-4, atol=1e-4)


def test_equal_is_what_has_equal_bits() -> None:
    one, other = changed(0.0), changed(-0.0)
    graph = ir.from_proto(_constants(one, other, changed(np.nan), np.ascontiguousarray(changed(np.nan)))).graph
    assert {name: tie.of for name, tie in ties_of(graph).items()} == {"c3": "c2"}


def test_a_width_that_no_four_divide_is_not_read_across() -> None:
    """Products read a transposed operand by fours along k; by single elements it would cost them time."""
    assert weight_bytes(compile_model(model("stored transposed", size=63))) == 2 * table(size=63).nbytes
    assert weight_bytes(compile_model(model("stored twice", size=63))) == table(size=63).nbytes


def _constants(*arrays: np.ndarray) -> onnx.ModelProto:
    names = [f"c{k}" for k in range(len(arrays))]
    made = make_model([node("Sum", ["x", *names], ["y"])], {"x": (F, list(arrays[0].shape))})
    made.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in zip(names, arrays, strict=True))
    return made


def test_a_weight_is_one_in_each_order_of_its_axes_however_it_is_looked_at() -> None:
    """A weight that is tied is a view of another one, whose axes may be permuted once more."""
    b = Builder(target())
    array = np.arange(24, dtype=F).reshape(2, 3, 4)
    w = b.constant(array, "w")
    tied = b.permute(w, (2, 0, 1))
    for order in ((0, 2, 1), (1, 0, 2), (2, 1, 0)):
        found = b.contiguous(b.permute(tied, order))
        np.testing.assert_array_equal(weight_array(found.view.tensor.data), array.transpose(2, 0, 1).transpose(order))
        axes = tuple((2, 0, 1)[k] for k in order)
        assert found.view.is_whole and found.view.tensor is b.contiguous(b.permute(w, axes)).view.tensor
    assert b.contiguous(b.permute(tied, (1, 2, 0))).view.tensor is w.view.tensor, "that is how it lies already"
    assert not b.nodes
    b.contiguous(b.permute(b.slice(w, 0, 0, 1, 1), (2, 1, 0)))
    assert len(b.nodes) == 1, "a part of it is copied"
