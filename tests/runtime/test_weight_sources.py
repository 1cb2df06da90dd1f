"""Weights are found again where they lie: in the model's file, in its external data, else in host memory."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxruntime_ep_wgpu.errors import ModelChangedError
from onnxruntime_ep_wgpu.program.weights import Permuted, weight_array
from onnxruntime_ep_wgpu.runtime import weight_file
from onnxruntime_ep_wgpu.runtime.weight_file import ModelFile
from onnxruntime_ep_wgpu.runtime.weight_sources import (
    FromModel,
    InFile,
    InMemory,
    PermutedSource,
    WeightSource,
    WeightSources,
)

W = np.random.default_rng(1).standard_normal((7, 5), np.float32)
TYPES = ["float32", "float64", "float16", "int64", "int32", "uint8", "bool"]


def view(array: np.ndarray) -> np.ndarray:
    """As ONNX Runtime shows its memory: an array that does not own it."""
    return array[...]


def save(path: Path, tensors: list[TensorProto], **how: object) -> Path:
    nodes = [helper.make_node("Identity", [tensor.name], [f"{tensor.name}_copy"]) for tensor in tensors]
    outputs = [onnx.ValueInfoProto(name=node.output[0]) for node in nodes]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [], outputs, tensors)), path, **how)
    return path


def arrays() -> dict[str, np.ndarray]:
    return {name: (W * 10).astype(name) for name in TYPES}


@pytest.mark.parametrize("external", [False, True])
def test_tensors_of_every_type_are_found_in_the_file(tmp_path: Path, external: bool) -> None:
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays().items()]
    how = {"save_as_external_data": True, "location": "data", "size_threshold": 0} if external else {}
    find = FromModel(save(tmp_path / "m.onnx", tensors, **how))
    for name, array in arrays().items():
        source = find(name, view(array))
        assert isinstance(source, InFile) and source.span.path.name == ("data" if external else "m.onnx")
        found = source.read()
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found, array)


def test_numbers_in_typed_fields_are_found_when_they_lie_there_as_in_memory(tmp_path: Path) -> None:
    kinds = {"f": TensorProto.FLOAT, "d": TensorProto.DOUBLE, "i": TensorProto.INT32, "l": TensorProto.INT64}
    find = FromModel(save(tmp_path / "m.onnx", [helper.make_tensor(n, k, [3], [1, 2, 3]) for n, k in kinds.items()]))
    found = {n: find(n, view(np.array([1, 2, 3], helper.tensor_dtype_to_np_dtype(k)))) for n, k in kinds.items()}
    assert {name: type(source) for name, source in found.items()} == {
        "f": InFile, "d": InFile, "i": InMemory, "l": InMemory
    }  # fmt: skip
    assert all(source.read().tolist() == [1, 2, 3] for source in found.values())


@pytest.mark.parametrize(
    ("name", "array"),
    [("float32", W * 10 + 1), ("float32", (W * 10)[:, :4]), ("other", W * 10), ("float32", np.zeros(0, np.float32))],
    ids=["other values", "other size", "other name", "empty"],
)
def test_what_is_not_in_the_file_as_it_is_stays_in_memory(tmp_path: Path, name: str, array: np.ndarray) -> None:
    find = FromModel(save(tmp_path / "m.onnx", [numpy_helper.from_array((W * 10), "float32")]))
    lent = view(array.copy())
    source = find(name, lent)
    assert isinstance(source, InMemory)
    lent[...] = 0
    np.testing.assert_array_equal(source.read(), array)


@pytest.mark.parametrize(
    "content", [b"", b"ORTM....", b"\x3a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80", b"\x3a\xff\x01\x2a"]
)
def test_a_file_that_is_no_model_holds_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.ort").write_bytes(content)
    assert ModelFile(tmp_path / "m.ort").spans("w") == []
    assert ModelFile(tmp_path / "absent").spans("w") == []
    assert isinstance(FromModel("")("w", view(W)), InMemory)


def test_a_truncated_or_mutated_model_never_raises(tmp_path: Path) -> None:
    content = save(tmp_path / "m.onnx", [numpy_helper.from_array(W, "w")]).read_bytes()
    random = np.random.default_rng(0)
    for case in range(500):
        data = bytearray(content[: int(random.integers(1, len(content)))] if case % 2 else content)
        for place in random.integers(0, len(data), 3):
            data[place] = int(random.integers(256))
        (tmp_path / "bad.onnx").write_bytes(data)
        for span in ModelFile(tmp_path / "bad.onnx").spans("w"):
            span.holds(W.view(np.uint8).reshape(-1))


def test_external_data_of_a_model_that_is_bytes_is_found(tmp_path: Path) -> None:
    how = {"save_as_external_data": True, "location": "data", "size_threshold": 100}
    tensors = [numpy_helper.from_array(W, "large"), numpy_helper.from_array(W[:2], "small")]
    content = save(tmp_path / "m.onnx", tensors, **how).read_bytes()
    (tmp_path / "m.onnx").unlink()
    find = FromModel(tmp_path / "virtual_model.onnx", content)
    source = find("large", view(W))
    assert isinstance(source, InFile) and source.span.path == tmp_path / "data"
    np.testing.assert_array_equal(source.read(), W)
    assert isinstance(find("small", view(W[:2])), InMemory), "bytes that no file holds"


def test_a_source_notices_that_its_file_has_changed(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [numpy_helper.from_array(W, "w")])
    source = FromModel(path)("w", view(W))
    content = bytearray(path.read_bytes())
    content[content.index(W.tobytes()) + 9] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelChangedError, match=r"'w' \(140 bytes at offset \d+ of .*m\.onnx\).*has changed"):
        source.read()
    path.write_bytes(b"short")
    with pytest.raises(ModelChangedError, match="cannot be read"):
        source.read()


def test_a_file_that_nobody_wrote_for_long_is_known_by_its_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No byte of it is digested; whatever is written to it, or put in its place, it is another one then."""
    path = save(tmp_path / "m.onnx", [numpy_helper.from_array(W, "w")])
    content = path.read_bytes()
    young = FromModel(path)("w", view(W))
    assert isinstance(young, InFile) and young.digest is not None
    later = time.time_ns() + (weight_file.SETTLED_SECONDS + 1) * 10**9
    monkeypatch.setattr(weight_file, "time", SimpleNamespace(time_ns=lambda: later))
    settled = FromModel(path)("w", view(W))
    assert isinstance(settled, InFile) and settled.digest is None
    np.testing.assert_array_equal(settled.read(), W)
    path.write_bytes(content.replace(W.tobytes(), (W + 1).tobytes()))
    os.utime(path, ns=(settled.identity.modified,) * 2)  # as what copies times does
    with pytest.raises(ModelChangedError, match="has changed"):
        settled.read()
    (tmp_path / "other").write_bytes(content)
    os.replace(tmp_path / "other", path)
    with pytest.raises(ModelChangedError, match="has changed"):
        settled.read()
    np.testing.assert_array_equal(young.read(), W)  # its bytes are known
    path.unlink()
    with pytest.raises(ModelChangedError, match="cannot be read"):
        settled.read()


def test_a_weight_with_its_axes_in_another_order_is_found_where_the_model_has_it(tmp_path: Path) -> None:
    find = FromModel(save(tmp_path / "m.onnx", [numpy_helper.from_array(W, "w")]))
    sources = WeightSources(find)
    weight = Permuted("w", (1, 0), view(W))
    source = sources.of(weight.name, weight)
    assert isinstance(source, PermutedSource) and isinstance(source.source, InFile)
    np.testing.assert_array_equal(source.read(), W.T)
    np.testing.assert_array_equal(weight_array(weight), W.T)
    assert weight.name != "w" and Permuted("w", (0, 1)).name != weight.name  # memory of one is not the other's


def test_a_weight_is_looked_for_once_however_often_it_is_permuted(tmp_path: Path) -> None:
    asked: list[str] = []
    find = FromModel(save(tmp_path / "m.onnx", [numpy_helper.from_array(W, "w")]))

    def source_of(name: str, array: np.ndarray) -> WeightSource:
        asked.append(name)
        return find(name, array)

    sources = WeightSources(source_of)
    found = [sources.of("w", view(W)), *(sources.of("tied", Permuted("w", it)) for it in ((1, 0), (0, 1)))]
    assert asked == ["w"] and list(sources.by_name) == ["w"]
    for source, expected in zip(found, (W, W.T, W), strict=True):
        np.testing.assert_array_equal(source.read(), expected)
    sources.of("", view(W))
    assert asked == ["w", ""] and list(sources.by_name) == ["w"], "what was calculated has no name to be found by"
