"""Weights in other files are read from the folder of the model alone, whoever reads them and whatever the model says."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.exact import Reference
from onnxruntime_ep_wgpu.api.external_data import check_external_data
from onnxruntime_ep_wgpu.api.language.model_file import read
from onnxruntime_ep_wgpu.api.precision import Precision
from onnxruntime_ep_wgpu.api.web_files import read_programs
from onnxruntime_ep_wgpu.errors import ModelError
from onnxruntime_ep_wgpu.runtime.external_path import external_file
from onnxruntime_ep_wgpu.runtime.weight_file import ModelFile
from tests.links import in_a_cache

W = np.arange(1024, dtype=np.float32)
OTHER = -W


def external(location: str, name: str = "w", **more: str) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=W.shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def as_initializer(tensor: TensorProto) -> onnx.ModelProto:
    return model_of([helper.make_node("Add", ["x", "w"], ["y"])], [tensor])


def as_constant(tensor: TensorProto) -> onnx.ModelProto:
    nodes = [helper.make_node("Constant", [], ["w"], value=tensor), helper.make_node("Add", ["x", "w"], ["y"])]
    return model_of(nodes, [])


def in_a_body(tensor: TensorProto) -> onnx.ModelProto:
    """An initializer of the branches of an If, whose condition is known."""
    tensor.name = "inner"
    out = helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n"])
    add = helper.make_node("Add", ["x", "inner"], ["z"])
    body = helper.make_graph([add], "body", [], [out], [tensor])
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "other", [], [out])
    yes = numpy_helper.from_array(np.array(True), "yes")
    return model_of([helper.make_node("If", ["yes"], ["y"], then_branch=body, else_branch=other)], [yes])


def in_a_function(tensor: TensorProto) -> onnx.ModelProto:
    nodes = [helper.make_node("Constant", [], ["w"], value=tensor), helper.make_node("Add", ["a", "w"], ["b"])]
    opsets = [helper.make_opsetid("", 17)]
    model = model_of([helper.make_node("Shifted", ["x"], ["y"], domain="own")], [])
    model.functions.append(helper.make_function("own", "Shifted", ["a"], ["b"], nodes, opsets))
    model.opset_import.append(helper.make_opsetid("own", 1))
    return model


def model_of(nodes: list[onnx.NodeProto], weights: list[TensorProto]) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(it, TensorProto.FLOAT, ["n"]) for it in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


PLACES: tuple[Callable[[TensorProto], onnx.ModelProto], ...] = (as_initializer, as_constant, in_a_body, in_a_function)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a model, with what a model may name, and what it may not, around it and in it; the working folder is another
    one, in which there are files of the same names."""
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "model2").mkdir()
    for place in (tmp_path / "secret", tmp_path / "w", tmp_path / "model2" / "w"):
        OTHER.tofile(place)
    for place in (folder / "w", folder / "sub" / "w", folder / "w:0", folder / "..w"):
        W.tofile(place)
    (folder / "link").symlink_to("../secret")
    (folder / "far").symlink_to(tmp_path / "secret")
    (folder / "twice").symlink_to("link")
    (folder / "up").symlink_to("..")
    (folder / "inner").symlink_to("sub/w")
    (folder / "sub" / "back").symlink_to("../w")
    (folder / "null").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for name in ("w", "secret"):
        OTHER.tofile(name)
    # What onnx_ir looks at depends on its version.
    monkeypatch.setattr(ir.ExternalTensor, "_check_path_containment", lambda _: None, raising=False)
    return folder


INSIDE = ["w", "./w", "sub/w", "sub/../w", "inner", "sub/back", "up/model/w", "sub//w", "w:0", "..w"]
OUTSIDE = [
    "../secret", "sub/../../secret", "./../secret", "../model2/w", "..", "up/secret", "link", "far", "twice", "null", "pipe",
    "/dev/zero", "/proc/self/mem", "", ".", "sub",
    "w\0", "\0", "../secret\0w", "w\0/../../secret", "../" * 30 + "etc/hostname", "ABSOLUTE", "file://w/",
    "../Model/w", "../MODEL/w", "w" * 5000, "w/" * 3000,
]  # fmt: skip


def stored(path: Path, model: onnx.ModelProto) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def named(location: str, folder: Path) -> str:
    return str(folder / "w") if location == "ABSOLUTE" else location


def exported(path: Path) -> Any:
    found = webgpu_ep.export(path)
    (chunk,) = found.path.glob("weights-*")
    weights = chunk.read_bytes()
    assert read_programs(found.path)
    return np.frombuffer(zlib.decompress(weights) if chunk.suffix == ".deflated" else weights, np.float32)


def halved(path: Path) -> Any:
    samples = {"x": np.zeros(1024, np.float32)}
    return webgpu_ep.export(
        path, path.with_name("halves.wgpu"), precision=Precision(halves=True), samples=samples
    ).reduced


def spans(path: Path) -> Any:
    return [span.map().view(np.float32) for span in ModelFile(path).spans("w")]


READERS: dict[str, Callable[[Path], Any]] = {
    "check": check_external_data,
    "export": exported,
    "halves": halved,
    "decoder": read,
    "reference": Reference,
}


@pytest.mark.parametrize("location", OUTSIDE)
def test_a_path_out_of_the_folder_is_refused_by_every_reader(location: str, folder: Path) -> None:
    for k, make in enumerate(PLACES):
        path = stored(folder / f"m{k}.onnx", make(external(named(location, folder))))
        for name, reader in READERS.items():
            with pytest.raises(ModelError) as caught:
                reader(path)
            assert "the weight '" in str(caught.value) or "is missing" in str(caught.value), (name, make)
        assert spans(path) == []
    assert not list(folder.glob("*.wgpu"))


@pytest.mark.parametrize("location", INSIDE)
def test_a_path_inside_of_the_folder_is_read(location: str, folder: Path) -> None:
    path = stored(folder / "m.onnx", as_initializer(external(location)))
    np.testing.assert_array_equal(spans(path), [W])
    np.testing.assert_array_equal(exported(path), W)
    check_external_data(path)


@pytest.mark.parametrize("make", PLACES)
@pytest.mark.parametrize("relative", [False, True])
def test_files_are_those_beside_the_model_wherever_it_says_so(
    make: Callable[[TensorProto], onnx.ModelProto], relative: bool, folder: Path
) -> None:
    path = stored(folder / "m.onnx", make(external("w")))
    np.testing.assert_array_equal(exported(Path(os.path.relpath(path)) if relative else path), W)
    error = halved(stored(folder / "halves.onnx", make(external("w")))).errors[0]
    assert error.scale == 1023 and error.largest == 0


def test_weights_of_a_cache_lie_beside_the_real_file(folder: Path) -> None:
    cached = folder.parent / "cache" / "snapshot"
    cached.mkdir(parents=True)
    W.tofile(cached / "w")
    path = stored(cached / "m.onnx", as_initializer(external("w")))
    in_a_cache(cached)
    assert path.is_symlink() and path.with_name("w").is_symlink()
    np.testing.assert_array_equal(spans(path), [W])
    np.testing.assert_array_equal(exported(path), W)
    for name in ("check", "reference", "decoder", "halves"):
        READERS[name](path)
    for made in ("m.onnx.wgpu", "halves.wgpu"):
        shutil.rmtree(cached / made)
    path.with_name("w").unlink()
    path.with_name("w").symlink_to(folder / "w")  # to another folder than that of the model's file
    for reader in READERS.values():
        with pytest.raises(ModelError, match="leads out of the folder"):
            reader(path)


def test_what_is_said_of_another_file_counts_only_where_the_weight_lies_there(folder: Path) -> None:
    tensor = numpy_helper.from_array(W, "w")
    tensor.external_data.add(key="location", value="sub/w")
    path = stored(folder / "m.onnx", as_initializer(tensor))
    (span,) = ModelFile(path).spans("w")
    assert span.path == path
    tensor.data_location = TensorProto.EXTERNAL
    (span,) = ModelFile(stored(path, as_initializer(tensor))).spans("w")
    assert span.path == folder / "sub" / "w"


@pytest.mark.parametrize(
    ("key", "value"),
    [("offset", "-4"), ("offset", str(1 << 64)), ("offset", "9" * 5000), ("length", "-1"), ("length", "\u0664")],
)  # fmt: skip
def test_a_place_that_makes_no_sense_is_refused(key: str, value: str, folder: Path) -> None:
    path = stored(folder / "m.onnx", as_initializer(external("w", **{key: value})))
    for reader in READERS.values():
        with pytest.raises(ModelError, match="the location of the weight 'w' is invalid"):
            reader(path)
    assert spans(path) == []


@pytest.mark.parametrize("dims", [[1 << 40], [1 << 62, 1 << 62], [-4], [1025]])
def test_a_weight_larger_than_its_file_is_refused_before_it_is_read(dims: list[int], folder: Path) -> None:
    for make in (as_initializer, as_constant):
        tensor = external("w")
        tensor.dims[:] = dims
        path = stored(folder / "m.onnx", make(tensor))
        for reader in READERS.values():
            with pytest.raises(ModelError, match="the weight 'w'"):
                reader(path)


def test_a_session_names_the_weight_and_the_file_that_is_missing(folder: Path) -> None:
    path = stored(folder / "m.onnx", as_initializer(external("away")))
    with pytest.raises(ModelError, match="away, which is missing \\('w' is the first\\)") as caught:
        webgpu_ep.session(path)
    assert caught.value.__cause__ is not None


def test_one_weight_that_lies_nowhere_hides_no_other(folder: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "w"], ["t"]), helper.make_node("Add", ["t", "gone"], ["y"])]
    path = stored(folder / "m.onnx", model_of(nodes, [external("away", "gone"), external("w")]))
    np.testing.assert_array_equal(spans(path), [W])
    assert ModelFile(path).spans("gone") == []


def test_the_case_of_a_name_is_that_of_the_file_system(folder: Path) -> None:
    """A name in another case is another file where they differ, and the same one where they do not; never one outside."""
    same = (folder / "W").exists()
    path = stored(folder / "m.onnx", as_initializer(external("W")))
    if same:
        check_external_data(path)
    else:
        with pytest.raises(ModelError, match="which is missing"):
            check_external_data(path)
    assert external_file(path, "w", "W").parent == folder.resolve()
