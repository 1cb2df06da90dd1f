"""The types of matrices that a model multiplies are read where its file lies, and nothing raises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.runtime.product_types import matrix_types
from tests.support import make_model

F, H = np.float32, np.float16


def product(dtype: type, shape: tuple[int, ...] = (4, 3)) -> onnx.ModelProto:
    weight = np.ones(shape, dtype)
    op = "MatMul" if len(shape) > 1 else "Add"
    return make_model([node(op, ["x", "w"], ["y"])], {"x": (dtype, ["n", 4])}, {"w": weight})


def bytes_by(op: str) -> onnx.ModelProto:
    """A node that reads bytes, and a matrix of them; the others of its inputs do not matter here."""
    weight = np.ones((4, 3), np.int8)
    return make_model([node(op, ["x", "w"], ["y"])], {"x": (np.uint8, ["n", 4])}, {"w": weight})


@pytest.mark.parametrize(
    ("model", "types"),
    [
        (product(H), {"f16"}),
        (product(F), set()),
        (product(H, (4,)), set()),
        (product(H, (1, 4, 3)), {"f16"}),
        (bytes_by("MatMulInteger"), {"i8"}),
        (bytes_by("QGemm"), {"i8"}),
        (bytes_by("QLinearConv"), {"i8"}),
        (bytes_by("QuantizeLinear"), {"i8"}),
        (bytes_by("DequantizeLinear"), set()),
        (bytes_by("Gather"), set()),
        (bytes_by("QLinearAdd"), set()),
    ],
    ids=[
        "halves",
        "floats",
        "a vector",
        "batched",
        "integers",
        "QGemm",
        "images",
        "rounded",
        "weights alone",
        "a table",
        "sums",
    ],
)
def test_a_matrix_of_a_type_counts(model: onnx.ModelProto, types: set[str], tmp_path: Path) -> None:
    assert matrix_types(model.SerializeToString()) == types
    onnx.save(model, tmp_path / "model.onnx")
    assert matrix_types(str(tmp_path / "model.onnx")) == types


def test_weights_in_typed_fields_and_in_other_files_count(tmp_path: Path) -> None:
    typed = product(H)
    typed.graph.initializer[0].CopyFrom(onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT16, [4, 3], [1.0] * 12))
    assert matrix_types(typed.SerializeToString())
    apart = tmp_path / "apart.onnx"
    onnx.save(product(H, (64, 64)), apart, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert matrix_types(str(apart))


def test_weights_of_a_few_bits_keep_the_library_that_decodes_faster() -> None:
    model = product(H)
    model.graph.node.append(onnx.helper.make_node("MatMulNBits", ["y", "q", "s"], ["z"], domain="com.microsoft"))
    assert not matrix_types(model.SerializeToString())


def test_what_is_no_model_has_none(tmp_path: Path) -> None:
    whole = product(H).SerializeToString()
    for content in (b"", b"\xff" * 40, b"\x00", *(whole[:end] for end in range(len(whole)))):
        assert matrix_types(content) <= {"f16"}
    (tmp_path / "empty.onnx").write_bytes(b"")
    for path in (tmp_path / "empty.onnx", tmp_path / "missing.onnx", tmp_path):
        assert not matrix_types(str(path))
    assert not matrix_types(None)
