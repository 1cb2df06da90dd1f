"""Weights are found again where they lie: in the model's file, in its external data, else in host memory."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxruntime_ep_wgpu.errors import ModelChangedError
from onnxruntime_ep_wgpu.program.dtypes import packed
from onnxruntime_ep_wgpu.program.weights import Permuted, weight_array
from onnxruntime_ep_wgpu.runtime import weight_file
from onnxruntime_ep_wgpu.runtime.weight_file import FileIdentity, FileRange, MappedFiles, ModelFile
from onnxruntime_ep_wgpu.runtime.weight_sources import (
    FilePlace,
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
            MappedFiles().has_bytes(span, None, W.view(np.uint8).reshape(-1))


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


def test_a_file_is_known_by_its_identity(tmp_path: Path) -> None:
    """Whatever is written to it, or put in its place, it is another one then; whatever bytes it has."""
    path = save(tmp_path / "m.onnx", [numpy_helper.from_array(W, "w")])
    content = path.read_bytes()
    source = FromModel(path)("w", view(W))
    assert isinstance(source, InFile)
    np.testing.assert_array_equal(source.read(), W)
    path.write_bytes(content.replace(W.tobytes(), (W + 1).tobytes()))
    os.utime(path, ns=(source.identity.modified,) * 2)  # as what copies times does
    with pytest.raises(ModelChangedError, match="has changed"):
        source.read()
    (tmp_path / "other").write_bytes(content)
    os.replace(tmp_path / "other", path)
    with pytest.raises(ModelChangedError, match="has changed"):
        source.read()
    path.unlink()
    with pytest.raises(ModelChangedError, match="cannot be read"):
        source.read()


@pytest.mark.parametrize(
    ("stamp", "tick", "still_written"),
    [(10**18 + 1, 20, False), (10**18 + 1, 20, True), (10**18 + 10_000_000, 2000, False), (10**18, 2000, False)],
)
def test_a_file_that_could_be_written_again_within_a_tick_is_not_relied_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stamp: int, tick: int, still_written: bool
) -> None:
    """It may have other bytes later and the same times. How long clocks take to tick, in ms, the times themselves tell; a short
    time is waited for."""
    path = save(tmp_path / "m.onnx", [numpy_helper.from_array(W, "w")])
    stat = path.stat()
    now, waited = stamp, 0

    def times(_path: Path) -> SimpleNamespace:
        changed = stamp + waited if still_written else stamp
        return SimpleNamespace(
            st_dev=stat.st_dev, st_ino=stat.st_ino, st_size=stat.st_size, st_mtime_ns=stamp - 10**9, st_ctime_ns=changed
        )

    def wait(seconds: float) -> None:
        nonlocal now, waited
        waited += round(seconds * 1e9)
        now += round(seconds * 1e9)

    monkeypatch.setattr(Path, "stat", times)
    monkeypatch.setattr(weight_file, "time", SimpleNamespace(time_ns=lambda: now, sleep=wait))
    for since in (-30, -1, 0, 5, tick - 21, tick - 19, tick, tick + 1):
        now, waited = stamp + since * 1_000_000, 0
        left = tick - since
        kind = InFile if left < 0 or (left <= 20 and not still_written) else InMemory
        begun, array = now, view(W.copy())
        found = FromModel(path)("w", array)
        assert type(found) is kind, since
        assert waited <= 40_000_002 and bool(waited) == (0 <= left <= 20)
        array[...] = 0
        np.testing.assert_array_equal(found.read(), W)
        now, lent = begun, view(W.copy())
        place = FilePlace(FileRange(path, 0, W.nbytes), FileIdentity.settled(path))
        assert type(FromModel(path, lent={lent.ctypes.data: place})("w", lent)) is kind


def test_no_byte_is_looked_at_of_memory_that_is_known_to_be_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But of nothing else: a part of it, or what was calculated into other memory, is compared."""
    path = save(
        tmp_path / "m.onnx", [numpy_helper.from_array(W, "w")], save_as_external_data=True, location="data",
        size_threshold=0,
    )  # fmt: skip
    (span,) = ModelFile(path).spans("w")
    place = FilePlace(span, FileIdentity.settled(span.path))
    memory = view(W.copy())
    constants_read: list[int] = []
    hold = MappedFiles.has_bytes
    monkeypatch.setattr(
        MappedFiles, "has_bytes", lambda self, *of: constants_read.append(len(of[-1])) or hold(self, *of)
    )
    find = FromModel(path, lent={memory.ctypes.data: place})
    for array in (memory, memory.reshape(-1), memory.view(np.uint8)):
        source = find("w", array)
        assert isinstance(source, InFile) and (source.span, constants_read) == (span, [])
        np.testing.assert_array_equal(source.read(), array)
    for array in (memory[:3], memory.T, W + 1):
        assert (
            isinstance(find("w", array[...]), InMemory) and constants_read.pop() == array.nbytes and not constants_read
        )
    assert isinstance(find("w", view(W)), InFile) and constants_read == [W.nbytes]


def test_what_lies_where_lent_memory_was_is_something_else(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [numpy_helper.from_array(W, "w")])
    (span,) = ModelFile(path).spans("w")
    memory = view(W.copy())
    find = FromModel(path, lent={memory.ctypes.data: FilePlace(span, FileIdentity.settled(span.path))})
    assert isinstance(find("w", memory), InFile)
    find.freed()
    memory[...] = -1
    for name in ("", "w"):
        np.testing.assert_array_equal(find(name, memory).read(), memory)


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


@pytest.mark.parametrize("kind", [ir.DataType.INT4, ir.DataType.UINT4, ir.DataType.INT2, ir.DataType.UINT2])
@pytest.mark.parametrize("count", [1, 7, 64])
def test_elements_that_share_bytes_are_taken_as_they_lie(kind: ir.DataType, count: int) -> None:
    """As ONNX Runtime's memory, which a file may have; not unpacked and packed again."""
    least = -(1 << kind.bitwidth - 1) if kind.is_signed() else 0
    values = (np.arange(count) % (1 << kind.bitwidth) + least).astype(kind.numpy())
    memory = packed(values)
    found = weight_array(ir.PackedTensor(memory, kind, shape=ir.Shape([count])))
    assert np.shares_memory(found, memory)
    np.testing.assert_array_equal(found, weight_array(ir.Tensor(values, kind)))
