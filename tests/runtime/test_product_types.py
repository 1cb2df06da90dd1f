"""Whether a model multiplies halves is read where its file lies, and never raises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.runtime.product_types import multiplies_halves
from tests.support import make_model

F, H = np.float32, np.float16


def product(dtype: type, shape: tuple[int, ...] = (4, 3)) -> onnx.ModelProto:
    weight = np.ones(shape, dtype)
    op = "MatMul" if len(shape) > 1 else "Add"
    return make_model([node(op, ["x", "w"], ["y"])], {"x": (dtype, ["n", 4])}, {"w": weight})


@pytest.mark.parametrize(
    ("model", "halves"),
    [(product(H), True), (product(F), False), (product(H, (4,)), False), (product(H, (1, 4, 3)), True)],
    ids=["halves", "floats", "a vector", "batched"],
)
def test_a_matrix_of_halves_counts(model: onnx.ModelProto, halves: bool, tmp_path: Path) -> None:
    assert multiplies_halves(model.SerializeToString()) is halves
    onnx.save(model, tmp_path / "model.onnx")
    assert multiplies_halves(str(tmp_path / "model.onnx")) is halves


def test_weights_in_typed_fields_and_in_other_files_count(tmp_path: Path) -> None:
    typed = product(H)
    typed.graph.initializer[0].CopyFrom(onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT16, [4, 3], [1.0] * 12))
    assert multiplies_halves(typed.SerializeToString())
    apart = tmp_path / "apart.onnx"
    onnx.save(product(H, (64, 64)), apart, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert multiplies_halves(str(apart))


def test_weights_of_a_few_bits_keep_the_library_that_decodes_faster() -> None:
    model = product(H)
    model.graph.node.append(onnx.helper.make_node("MatMulNBits", ["y", "q", "s"], ["z"], domain="com.microsoft"))
    assert not multiplies_halves(model.SerializeToString())


def test_what_is_no_model_has_none(tmp_path: Path) -> None:
    whole = product(H).SerializeToString()
    for content in (b"", b"\xff" * 40, b"\x00", *(whole[:end] for end in range(len(whole)))):
        assert multiplies_halves(content) in (True, False)
    (tmp_path / "empty.onnx").write_bytes(b"")
    for path in (tmp_path / "empty.onnx", tmp_path / "missing.onnx", tmp_path):
        assert not multiplies_halves(str(path))
    assert not multiplies_halves(None)
