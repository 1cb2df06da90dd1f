"""What `export` and `wgpu-ep export` write, and refuse."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper
from onnx.helper import make_node as node

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu import cli
from onnxruntime_ep_wgpu.api.model_file import read_model
from onnxruntime_ep_wgpu.api.precision import Precision
from onnxruntime_ep_wgpu.api.web_export import (
    BOTH,
    HALVES,
    LARGE,
    REDUCING,
    SOFTWARE,
    _compiled,
    _discrete,
    _large,
    _programs,
)
from onnxruntime_ep_wgpu.api.web_files import FIRST_BYTES, GRAIN, MOST_INFLATED, _deflated, read_programs
from onnxruntime_ep_wgpu.api.web_programs import encode, tight
from onnxruntime_ep_wgpu.compiler.lower.lower_node import Lowering
from onnxruntime_ep_wgpu.errors import ModelError, OptionError, PlaceTakenError, ProgramError, UnsupportedError
from onnxruntime_ep_wgpu.program.file import from_header
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE, Target, lack
from onnxruntime_ep_wgpu.program.weights import weight_array, weight_bytes
from tests import zoo
from tests.links import in_a_cache
from tests.support import make_model

F = np.float32
WEIGHT = np.random.default_rng(1).normal(size=(16, 64)).astype(F)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    pairs = [("MatMul", ["x", "w"], "m"), ("Softmax", ["m"], "s"), ("Sqrt", ["s"], "r"), ("MatMul", ["r", "t"], "y")]
    nodes = [node(kind, reads, [result]) for kind, reads, result in pairs]
    made = make_model(nodes, {"x": (F, ["batch", 16])}, {"w": WEIGHT, "t": np.ascontiguousarray(WEIGHT.T)})
    onnx.save(made, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def files_of(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return [*manifest["programs"], *manifest["weights"]["chunks"]]


def pool_of(folder: Path) -> bytes:
    """The bytes of all chunks, inflated."""
    manifest = json.loads((folder / "manifest.json").read_text())
    pool = b""
    for it in manifest["weights"]["chunks"]:
        data = (folder / it["file"]).read_bytes()
        pool += zlib.decompress(data) if "inflated" in it else data
        assert "inflated" not in it or it["inflated"] == len(zlib.decompress(data)) > it["bytes"]
    return pool


def total_of(path: Path) -> int:
    """The bytes of an export, in a folder or one file."""
    return sum(it.stat().st_size for it in (path.iterdir() if path.is_dir() else [path]))


def test_a_folder_has_programs_weights_and_their_hashes(model: Path) -> None:
    found = webgpu_ep.export(model, chunk_bytes=1000)
    assert found.path == model.with_name("model.onnx.wgpu")
    manifest = json.loads((found.path / "manifest.json").read_text())
    for entry in files_of(manifest):
        data = (found.path / entry["file"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (entry["bytes"], entry["sha256"])
    assert {it.name for it in found.path.iterdir()} == {"manifest.json", *(it["file"] for it in files_of(manifest))}
    chunks = manifest["weights"]["chunks"]
    assert all(it["bytes"] == 992 for it in chunks[:-1])  # whole grains
    pool = pool_of(found.path)
    assert len(pool) == manifest["weights"]["bytes"] == found.weights == 2 * WEIGHT.nbytes
    programs = read_programs(found.path)
    richer = ["web-large-subgroups", "web-subgroups", "web-large"]
    assert [it["target"]["name"] for it in programs] == ["web-software", *richer, "web-baseline"]
    assert [len(it["targets"]) for it in manifest["programs"]] == [1, 4]
    for header in programs:
        program = from_header(header)
        every = lack(program.target, WEB_BASELINE) is None
        assert every == (program.target.name in ("web-software", "web-baseline"))
        assert [program.values[it].name for it in program.inputs] == ["x"]
        assert program.values[program.inputs[0]].shape == (("$batch",), 16)
        names = {value.weight: value.name for value in program.values}
        offsets = {names[k]: offset for k, (_, _, _, offset, _) in enumerate(header["weights"])}
        assert pool[offsets["w"] : offsets["w"] + WEIGHT.nbytes] == WEIGHT.tobytes()
    assert programs[-1]["target"] == WEB_BASELINE.as_json()


def test_kernels_are_those_of_the_compiler_without_comments(model: Path) -> None:
    written = read_programs(webgpu_ep.export(model).path)
    targets = {it.name: it for it in (SOFTWARE, _large(REDUCING), LARGE, REDUCING, WEB_BASELINE)}
    for header in written:
        (compiled,) = _compiled(model, read_model(model), targets[header["target"]["name"]])
        texts = [[tokens(text) for text in kernel.wgsl] for kernel in compiled.kernels]
        assert [[tokens(text) for text in wgsl] for _, wgsl, *_ in header["kernels"]] == texts
        assert from_header(header).dispatches == tuple(replace(it, flops=0, traffic=0) for it in compiled.dispatches)
        assert from_header(header).values == compiled.values


def tokens(text: str) -> list[str]:
    """What WGSL reads, the longest signs first."""
    code = re.sub(r"//.*", "", text)
    return re.findall(
        r"[A-Za-z_]\w*|[\d.](?:[eEpP][+-]|[\w.])*|<<=|>>=|&&|\|\||\+\+|--|->|<<|>>|[-+*/%&|^<>=!]=|\S", code
    )


@pytest.mark.parametrize(
    "text", ["a - -b", "a & &b", "x = -1", "v: vec4<f32> = b", "1e5 - 3", "a / *p", "else if (a) {"]
)
def test_a_space_that_keeps_signs_apart_stays(text: str) -> None:
    assert tokens(" ".join(tight(text))) == tokens(text)


def test_programs_that_are_the_same_but_for_a_kernel_share_the_rest(model: Path) -> None:
    base, richer = _compiled(model, read_model(model), WEB_BASELINE, REDUCING)
    assert isinstance(base, Program) and isinstance(richer, Program)

    def places(program: Program) -> list[int]:
        return [16 * k for k in range(len(program.weights))]

    alone, together = len(encode([base], places)), len(encode([richer, base], places))
    changed = sum(a.wgsl != b.wgsl for a, b in zip(base.kernels, richer.kernels, strict=True))
    assert changed == 1 and together - alone < 0.2 * alone


FIRST = ("cnn_int8_qoperator", "detector_nms", "minilm_f16", "tiny")


@pytest.mark.costly
@pytest.mark.parametrize(
    "name", [pytest.param(it, marks=() if it in FIRST else pytest.mark.exhaustive) for it in zoo.NAMES]
)
def test_an_export_is_no_larger_than_the_model_but_for_its_code(name: str, tmp_path: Path) -> None:
    """Weights never grow, and kernels, of which nodes have none, take what deflating some of the weights saves."""
    case = zoo.load(name)
    model = onnx.load(case.path)
    stored = sum(numpy_helper.to_array(it).nbytes for it in model.graph.initializer)
    found = webgpu_ep.export(case.path, tmp_path / "m.wgpu")
    constants = sum(it.ByteSize() for it in model.graph.node if it.op_type == "Constant")
    grains = GRAIN * (len(model.graph.initializer) + sum(it.op_type == "Constant" for it in model.graph.node))
    assert found.weights <= stored + constants + grains
    assert found.programs <= 128 << 10
    if stored > 384 << 10:  # smaller weights save less than kernels take
        assert total_of(found.path) <= case.path.stat().st_size


def large(tmp_path: Path, weight: np.ndarray[Any, Any], **external: Any) -> Path:
    """A model of one product, or of one table of other types."""
    nodes = [node("MatMul" if weight.dtype == F else "Gather", ["x", "w"] if weight.dtype == F else ["w", "x"], ["y"])]
    kind, shape = (F, ["n", weight.shape[0]]) if weight.dtype == F else (np.int64, ["n"])
    path = tmp_path / "large.onnx"
    onnx.save(make_model(nodes, {"x": (kind, shape)}, {"w": weight}), path, **external)
    return path


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("external", [{}, {"save_as_external_data": True, "location": "large.data"}])
def test_of_weights_are_deflated_as_many_as_make_room_for_kernels(
    tmp_path: Path, external: dict[str, Any], single: bool
) -> None:
    weight = np.random.default_rng(2).normal(size=(512, 768)).astype(F)
    path = large(tmp_path, weight, **external)
    model = sum(it.stat().st_size for it in tmp_path.iterdir())
    found = webgpu_ep.export(path, single_file=single, chunk_bytes=1 << 19)
    assert found.weights == weight.nbytes
    assert total_of(found.path) <= model
    assert found.sources == tuple(map(str, [path, *tmp_path.glob("*.data")]))
    if single:
        return
    assert pool_of(found.path) == weight.tobytes()
    chunks = json.loads((found.path / "manifest.json").read_text())["weights"]["chunks"]
    assert ["inflated" in it for it in chunks] == [True, False, False]
    assert found.programs == total_of(found.path) - sum(it["bytes"] for it in chunks)


def test_weights_that_deflating_does_not_make_smaller_stay_as_they_are(tmp_path: Path) -> None:
    table = np.random.default_rng(2).integers(0, 256, (1024, 256), np.uint8)
    found = webgpu_ep.export(large(tmp_path, table))
    chunks = json.loads((found.path / "manifest.json").read_text())["weights"]["chunks"]
    assert not any("inflated" in it for it in chunks) and pool_of(found.path) == table.tobytes()


def test_chunks_that_take_long_to_inflate_stay_as_they_are(tmp_path: Path) -> None:
    chunks = [tmp_path / "first", tmp_path / "second"]
    chunks[0].write_bytes(np.random.default_rng(2).normal(size=1000).astype(F).tobytes())
    for size, deflated in ((MOST_INFLATED, 2), (MOST_INFLATED + 16, 0)):
        with open(chunks[1], "wb") as file:
            file.truncate(size)
        assert len(_deflated(chunks, 1 << 20)) == deflated


def test_the_first_chunk_is_short_so_that_inflating_it_is_quick(tmp_path: Path) -> None:
    weight = np.random.default_rng(2).normal(size=(1024, 1024)).astype(F)
    found = webgpu_ep.export(large(tmp_path, weight))
    chunks = json.loads((found.path / "manifest.json").read_text())["weights"]["chunks"]
    assert [it.get("inflated", it["bytes"]) for it in chunks] == [FIRST_BYTES, weight.nbytes - FIRST_BYTES]
    assert total_of(found.path) <= (tmp_path / "large.onnx").stat().st_size


@pytest.mark.parametrize(
    "name",
    [
        "minilm_f16",
        *(pytest.param(it, marks=pytest.mark.exhaustive) for it in ("lstm_gru", "cnn_int8_qdq", "t5_decoder_step")),
    ],
)
def test_programs_that_are_lowered_together_are_those_lowered_apart(name: str) -> None:
    path = zoo.load(name).path
    opened = read_model(path)
    for targets in ((WEB_BASELINE, REDUCING), (HALVES, BOTH)):
        together = _compiled(path, opened, *targets)
        for target, program in zip(targets, together, strict=True):
            (apart,) = _compiled(path, read_model(path), target)
            assert replace(program, weights=()) == replace(apart, weights=())
            assert list(map(weight_bytes, map(weight_array, program.weights))) == list(
                map(weight_bytes, map(weight_array, apart.weights))
            )
    with pytest.raises(ValueError, match="graphs have different lowerings for web-baseline, web-f16"):
        _compiled(path, opened, WEB_BASELINE, HALVES)


def test_a_model_is_lowered_once_for_all_that_it_is_lowered_alike_for(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered: list[Target] = []
    original = Lowering.__init__

    def counted(self: Lowering, opsets: Any, target: Target, *rest: Any, **more: Any) -> None:
        lowered.append(target.lowered)
        original(self, opsets, target, *rest, **more)

    monkeypatch.setattr(Lowering, "__init__", counted)
    webgpu_ep.export(model)
    discrete = _discrete(_large(REDUCING))
    assert lowered == [it.lowered for it in (WEB_BASELINE, LARGE, discrete, SOFTWARE)]


def test_inputs_that_nothing_reads_and_outputs_that_no_node_makes_stay(tmp_path: Path) -> None:
    """What is lowered to see whether it can run is a part of a graph and has neither; an export is the model."""
    nodes = [node("Neg", ["x"], ["y"])]
    graph = onnx.helper.make_graph(
        nodes,
        "whole",
        [onnx.helper.make_tensor_value_info(it, onnx.TensorProto.FLOAT, ["n"]) for it in ("x", "unread")],
        [onnx.helper.make_tensor_value_info(it, onnx.TensorProto.FLOAT, ["n"]) for it in ("y", "x")],
    )
    path = tmp_path / "whole.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10), path)
    for program in _compiled(path, read_model(path), WEB_BASELINE, REDUCING):
        assert [program.values[it].name for it in program.inputs] == ["x", "unread"]
        assert len(program.outputs) == 2


def test_equal_weights_are_there_once(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "a"], ["m"]), node("Add", ["m", "b"], ["y"])]
    square = np.random.default_rng(1).normal(size=(16, 16)).astype(F)
    onnx.save(make_model(nodes, {"x": (F, ["n", 16])}, {"a": square, "b": square}), tmp_path / "m.onnx")
    assert webgpu_ep.export(tmp_path / "m.onnx").weights == square.nbytes


def test_a_fixed_dimension_is_no_symbol(model: Path) -> None:
    webgpu_ep.export(model, overrides={"batch": 3})
    programs = read_programs(model.with_name("model.onnx.wgpu"))
    assert programs and not any(it["symbols"] for it in programs)


@pytest.mark.costly
@pytest.mark.parametrize("halves", [False, True])
def test_weights_behind_links_are_as_good_as_files(halves: bool, tmp_path: Path) -> None:
    """As in the cache of Hugging Face, which has the model and its weights in another folder."""
    made = make_model([node("MatMul", ["x", "w"], ["m"]), node("MatMul", ["m", "u"], ["y"])], {"x": (F, ["batch", 256])}, {
        name: np.random.default_rng(seed).normal(size=(256, 256)).astype(F) for seed, name in enumerate("wu")
    })  # fmt: skip
    path = tmp_path / "model" / "model.onnx"
    path.parent.mkdir()
    onnx.save(made, path, save_as_external_data=True, location="weights.bin")
    how: dict[str, Any] = {}
    if halves:
        how = {"precision": Precision(halves=True), "samples": {"x": np.ones((2, 256), F)}}
    wanted = webgpu_ep.export(path, tmp_path / "of files.wgpu", **how)
    in_a_cache(path.parent)
    assert path.is_symlink()
    found = webgpu_ep.export(path, tmp_path / "of links.wgpu", **how)
    assert pool_of(found.path) == pool_of(wanted.path)


def test_weights_behind_a_link_to_anywhere_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model" / "model.onnx"
    path.parent.mkdir()
    made = make_model([node("MatMul", ["x", "w"], ["y"])], {"x": (F, ["batch", 256])}, {"w": np.ones((256, 256), F)})
    onnx.save(made, path, save_as_external_data=True, location="weights.bin")
    secret = path.with_name("weights.bin").rename(tmp_path / "secret")
    path.with_name("weights.bin").symlink_to(secret)
    with pytest.raises(Exception, match=r"the weight 'w' is in 'weights\.bin', which leads out of the folder"):
        webgpu_ep.export(path)


def test_nodes_may_be_in_any_order(model: Path, tmp_path: Path) -> None:
    shuffled = onnx.load(model)
    nodes = list(shuffled.graph.node)[::-1]
    del shuffled.graph.node[:]
    shuffled.graph.node.extend(nodes)
    onnx.save(shuffled, tmp_path / "shuffled.onnx")
    one, other = webgpu_ep.export(model), webgpu_ep.export(tmp_path / "shuffled.onnx")
    assert [(other.path / name).read_bytes() for name, _ in one.files] == [
        (one.path / name).read_bytes() for name, _ in one.files
    ]


def test_nodes_behind_one_that_does_not_run_are_not_blamed(tmp_path: Path) -> None:
    """What branches make has the rank that both have, whatever is declared; what one of them has no kernel for is named."""
    text = """<ir_version: 8, opset_import: ["" : 16]> g (float[n,m] x, float[k] c) => (float[a,b] y) {
        s = ReduceSum <keepdims = 0> (c)  zero = Constant <value_float = 0.0> ()  which = Greater (s, zero)
        r = If (which) <then_branch = t () => (float[a,b] rt) { rt = Relu (x) },
                        else_branch = e () => (float[a,b] re) { d = Cast <to = 11> (x)  e = Erf (d)  re = Cast <to = 1> (e) }>
        u = Mul (r, zero)  y = Tanh (u) }"""
    model = onnx.parser.parse_model(text)
    (branches,) = (it for it in model.graph.node if it.op_type == "If")
    for attribute in branches.attribute:
        attribute.g.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match=r"m\.onnx has 1 node that cannot run on WebGPU: Erf 'e': no kernel"):
        webgpu_ep.export(tmp_path / "m.onnx")


def test_a_rank_that_an_input_decides_is_an_error_that_names_the_if(tmp_path: Path) -> None:
    """A fixed condition leaves one branch, also one that follows from the rank of an input alone."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,m] x, bool c) => (float[] y) {{
        {0} r = If ({1}) <then_branch = t () => (float[] a) {{ a = Mul (x, x) }},
                      else_branch = e () => (float[] b) {{ b = ReduceSum <keepdims = 0> (x) }}>
        y = Relu (r) }}"""
    rank = "s = Shape (x)  k = Size (s)  two = Constant <value_int = 2> ()  flat = Equal (k, two)"
    for name, lines, condition in (("input", "", "c"), ("rank", rank, "flat")):
        model = onnx.parser.parse_model(text.format(lines, condition))
        bodies = [it.g for made in model.graph.node for it in made.attribute if it.g.node]
        for value in (it.output[0] for it in (model.graph, *bodies)):
            value.type.tensor_type.ClearField("shape")
        onnx.save(model, tmp_path / f"{name}.onnx")
    with pytest.raises(UnsupportedError, match=r"Relu 'y': the rank of 'r' is unknown: If 'r' .*; give both branches"):
        webgpu_ep.export(tmp_path / "input.onnx")
    assert webgpu_ep.export(tmp_path / "rank.onnx").path.exists()


def test_what_does_not_run_on_webgpu_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    nodes = [node("Cast", ["x"], ["r"], to=onnx.TensorProto.DOUBLE), node("Erf", ["r"], ["y"], name="wave")]
    onnx.save(make_model(nodes, {"x": (F, ["n"])}), tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match=r"m\.onnx has 1 node that cannot run on WebGPU: Erf 'wave': "):
        webgpu_ep.export(tmp_path / "m.onnx")
    assert [it.name for it in tmp_path.iterdir()] == ["m.onnx"]


def test_wrong_arguments_are_errors_and_nothing_is_written(model: Path, tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("no model")
    for error, arguments in (
        (FileNotFoundError, {"model": tmp_path / "none.onnx"}),
        (ProgramError, {"model": tmp_path / "text.onnx"}),
        (PlaceTakenError, {"output": tmp_path / "text.onnx"}),
        (PlaceTakenError, {"output": tmp_path / "text.onnx", "overwrite": True}),
        (FileNotFoundError, {"output": tmp_path / "none" / "model.wgpu"}),
        (OptionError, {"overrides": {"bach": 1}}),
        (OptionError, {"overrides": {"batch": 0}}),
        (OptionError, {"chunk_bytes": 0}),
    ):
        with pytest.raises(error):
            webgpu_ep.export(**{"model": model, **arguments})
    assert sorted(it.name for it in tmp_path.iterdir()) == ["model.onnx", "text.onnx"]


def test_the_command_prints_sizes_and_refuses_in_one_line(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", str(model), "--override", "batch=2", "--chunk", "1KiB", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["weights"] == 2 * WEIGHT.nbytes and "web-baseline" in printed["targets"]
    assert printed["sources"] == [str(model)]
    assert cli.main(["export", str(model), "--single-file"]) == 0
    assert "needs the CPU" in capsys.readouterr().out
    for wrong in (
        ["--chunk", "0"],
        ["--chunk", "1XB"],
        ["--override", "batch"],
        ["--override", "batch=x"],
        ["--override", "batch=1", "--override", "batch=2"],
        [],
    ):
        assert cli.main(["export", str(model), *wrong]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.fixture
def hub(model: Path, tmp_path: Path) -> Path:
    """A model folder as the Hub has them."""
    folder = tmp_path / "hub" / "name"
    (folder / "onnx").mkdir(parents=True)
    for name in ("model.onnx", "model_fp16.onnx", "decoder_model_merged_q4f16.onnx"):
        (folder / "onnx" / name).write_bytes(model.read_bytes())
    config = {
        "model_type": "bert",
        "transformers.js_config": {"use_external_data_format": {"model": 1}, "dtype": "fp16"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_text("of another framework")
    return folder


def test_a_folder_of_transformers_keeps_its_names(hub: Path) -> None:
    found = webgpu_ep.export_transformers(hub)
    assert found.path == hub.with_name("name.wgpu") and found.copied == ("config.json", "tokenizer.json")
    assert {it.name for it in found.path.iterdir()} == {"config.json", "onnx", "tokenizer.json"}
    assert sorted(it.path for it in found.models) == sorted((found.path / "onnx").iterdir())
    assert all(it.path.read_bytes()[:8] == b"wgpupack" for it in found.models) and len(found.models) == 3
    # Weights are in the models, so nothing may be asked for beside them.
    config = json.loads((found.path / "config.json").read_text())
    assert config == {"model_type": "bert", "transformers.js_config": {"dtype": "fp16"}}


def test_a_folder_says_which_dtypes_it_has(hub: Path, tmp_path: Path) -> None:
    """transformers.js asks for q8 where a page names no device."""
    (hub / "config.json").write_text('{"model_type": "bert"}')
    found = webgpu_ep.export_transformers(hub, dtypes=["fp16", "q4f16"])
    config = json.loads((found.path / "config.json").read_text())
    assert config["transformers.js_config"] == {"dtype": {"model": "fp16", "decoder_model_merged": "q4f16"}}


def test_the_model_is_kept_beside_the_export(model: Path, hub: Path, tmp_path: Path) -> None:
    (tmp_path / "public").mkdir()
    data = model.read_bytes()
    for name, single_file, original in (
        ("public/a.wgpu", True, "public/a.onnx"),
        ("public/b.onnx.wgpu", False, "public/b.onnx"),
        ("public/c", False, "public/c.original.onnx"),
    ):
        webgpu_ep.export(model, tmp_path / name, single_file=single_file, with_onnx=True)
        assert (tmp_path / original).read_bytes() == data
    found = webgpu_ep.export(model, with_onnx=True)  # where it is already
    assert found.path == model.with_name("model.onnx.wgpu") and model.read_bytes() == data
    folder = webgpu_ep.export_transformers(hub, with_onnx=True).path / "onnx"
    assert (folder / "model_fp16.original.onnx").read_bytes() == data
    # Bytes say what they were made of.
    head = (folder / "model_fp16.onnx").read_bytes()
    told = json.loads(head[48 : 48 + int.from_bytes(head[12:16], "little")])["onnx"]
    assert told == {
        "of": "model_fp16.onnx", "file": "model_fp16.original.onnx", "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }  # fmt: skip
    (tmp_path / "public" / "d.onnx").write_bytes(b"another")
    for overwrite in (False, True):
        with pytest.raises(
            PlaceTakenError, match=r"d\.onnx, the place for the ONNX model, exists already and is another file"
        ):
            webgpu_ep.export(
                model, tmp_path / "public" / "d.wgpu", single_file=True, with_onnx=True, overwrite=overwrite
            )
    assert not (tmp_path / "public" / "d.wgpu").exists()
    assert (tmp_path / "public" / "d.onnx").read_bytes() == b"another"


@pytest.mark.parametrize("single_file", [False, True])
def test_an_export_that_is_there_is_replaced_where_that_is_asked_for(
    single_file: bool, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "out" / "m.wgpu"
    place.parent.mkdir()
    command = ["export", str(model), "--output", str(place), "--with-onnx", *["--single-file"] * single_file]
    assert cli.main(command) == 0
    assert cli.main(command) == 2
    shown = capsys.readouterr().err
    assert f"{place} exists already: --overwrite replaces an export, --output PATH names another place" in shown
    changed = onnx.load(model)
    changed.graph.name = "changed"
    other = tmp_path / "other.onnx"
    onnx.save(changed, other)
    before = {it: it.read_bytes() for it in place.parent.rglob("*") if it.is_file()}
    assert cli.main([*command, "--overwrite"]) == 0
    assert {it: it.read_bytes() for it in place.parent.rglob("*") if it.is_file()} == before
    found = webgpu_ep.export(other, place, single_file=not single_file, overwrite=True)
    assert place.is_dir() == single_file and found.path == place
    assert sorted(it.name for it in place.parent.iterdir()) == ["m.onnx", "m.wgpu"]
    assert b'"name":"changed"' in (place / "manifest.json" if single_file else place).read_bytes()


@pytest.mark.parametrize("kind", ["a file beside", "a damaged manifest", "another manifest", "a link to nothing"])
def test_what_no_export_wrote_is_not_replaced(kind: str, model: Path, tmp_path: Path) -> None:
    place = webgpu_ep.export(model).path
    if kind == "a file beside":
        (place / "notes.txt").write_text("mine")
    elif kind == "a damaged manifest":
        (place / "manifest.json").write_bytes((place / "manifest.json").read_bytes()[:100])
    elif kind == "another manifest":
        (place / "manifest.json").write_text('{"name": "an extension"}')
    else:
        place.rename(tmp_path / "elsewhere")
        place.symlink_to(tmp_path / "nothing")
    before = {it: it.read_bytes() for it in tmp_path.rglob("*") if it.is_file()}
    with pytest.raises(PlaceTakenError, match=r"is not replaced"):
        webgpu_ep.export(model, overwrite=True)
    assert {it: it.read_bytes() for it in tmp_path.rglob("*") if it.is_file()} == before


def test_what_a_link_leads_to_is_not_replaced(model: Path, tmp_path: Path) -> None:
    kept = webgpu_ep.export(model, tmp_path / "kept").path
    before = {it: it.read_bytes() for it in kept.iterdir()}
    (tmp_path / "link").symlink_to(kept)
    changed = onnx.load(model)
    changed.graph.name = "changed"
    onnx.save(changed, model)
    webgpu_ep.export(model, tmp_path / "link", overwrite=True)
    assert {it: it.read_bytes() for it in kept.iterdir()} == before
    assert not (tmp_path / "link").is_symlink()


def test_a_folder_of_exports_is_replaced_where_it_has_nothing_else(hub: Path) -> None:
    place = webgpu_ep.export_transformers(hub, with_onnx=True).path
    with pytest.raises(PlaceTakenError, match=r"exists already"):
        webgpu_ep.export_transformers(hub)
    webgpu_ep.export_transformers(hub, overwrite=True)
    assert not (place / "onnx" / "model.original.onnx").exists()
    for strange in (place / "notes.txt", place / "onnx" / "mine.onnx", place / "config.json.d"):
        strange.mkdir() if strange.suffix == ".d" else strange.write_text("mine")
        with pytest.raises(PlaceTakenError, match=rf"no export wrote {strange}"):
            webgpu_ep.export_transformers(hub, overwrite=True)
        strange.rmdir() if strange.is_dir() else strange.unlink()
    webgpu_ep.export_transformers(hub, overwrite=True)


def test_a_kept_model_has_the_weights_of_other_files_in_it(model: Path, tmp_path: Path) -> None:
    (tmp_path / "apart").mkdir()
    onnx.save(onnx.load(model), tmp_path / "apart" / "m.onnx", save_as_external_data=True, size_threshold=0)
    webgpu_ep.export(tmp_path / "apart" / "m.onnx", tmp_path / "m.wgpu", single_file=True, with_onnx=True)
    kept = onnx.load(tmp_path / "m.onnx")  # alone
    assert [it.raw_data or it.float_data for it in kept.graph.initializer]
    assert all(it.data_location != it.EXTERNAL for it in kept.graph.initializer)


def test_models_of_a_folder_are_chosen_by_dtype(hub: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["export", "--transformers", str(hub), "--output", str(tmp_path / "out"), "--json"]
    assert cli.main([*arguments, "--dtype", "fp32", "--dtype", "q4f16"]) == 0
    assert len(json.loads(capsys.readouterr().out)["models"]) == 2
    assert {it.name for it in (tmp_path / "out" / "onnx").iterdir()} == {
        "model.onnx",
        "decoder_model_merged_q4f16.onnx",
    }


def test_a_wrong_folder_is_an_error_and_nothing_is_written(hub: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    for error, folder, arguments in (
        (ProgramError, tmp_path, {}),
        (OptionError, hub, {"dtypes": ["q3"]}),
        (OptionError, hub, {"dtypes": ["q8"]}),
        (PlaceTakenError, hub, {"output": tmp_path}),
        (PlaceTakenError, hub, {"output": tmp_path, "overwrite": True}),
        (FileNotFoundError, hub, {"output": tmp_path / "none" / "out"}),
    ):
        with pytest.raises(error):
            webgpu_ep.export_transformers(folder, **arguments)
    assert sorted(tmp_path.rglob("*")) == before
    assert cli.main(["export"]) == cli.main(["export", "m.onnx", "--dtype", "fp32"]) == 2


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ([], "the content is"), ({"transformers.js_config": 5}, "transformers.js_config is 5; expected an object"),
        ({"transformers.js_config": {"device_config": [1]}}, "transformers.js_config.device_config is"),
        ({"transformers.js_config": {"device_config": {"wasm": "x"}}}, "transformers.js_config.device_config.wasm is 'x'"),
    ],
    ids=str,
)  # fmt: skip
def test_a_configuration_of_a_folder_that_says_something_else_is_named(said: Any, named: str, hub: Path) -> None:
    (hub / "config.json").write_text(json.dumps(said))
    with pytest.raises(ModelError, match=re.escape(f"{hub / 'config.json'}: {named}")):
        webgpu_ep.export_transformers(hub, dtypes=["fp32"])
    assert not hub.with_name("name.wgpu").exists()


def test_a_configuration_of_a_folder_may_have_halves_of_characters(hub: Path) -> None:
    (hub / "config.json").write_text(json.dumps({"name": "\ud800", "transformers.js_config": None}))
    found = webgpu_ep.export_transformers(hub, dtypes=["fp32"])
    assert json.loads((found.path / "config.json").read_text())["name"] == "\ud800"


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "onnx/model.onnx", "notes.txt"])
def test_no_file_from_elsewhere_is_exported_with_a_folder(name: str, hub: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("{}")
    (hub / name).unlink(missing_ok=True)
    (hub / name).symlink_to(secret)
    with pytest.raises(ModelError, match=re.escape(f"{hub / name} is a link to {secret}, which is out of the folder")):
        webgpu_ep.export_transformers(hub, dtypes=["fp32"])
    assert not hub.with_name("name.wgpu").exists()


def test_a_model_in_onnx_runtimes_format(model: Path, tmp_path: Path) -> None:
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.optimized_model_filepath = str(tmp_path / "model.ort")
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.add_session_config_entry("session.save_model_format", "ORT")
    ort.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    assert webgpu_ep.export(tmp_path / "model.ort").weights == 2 * WEIGHT.nbytes


@pytest.mark.parametrize("which", ["value_info", "output", "both"])
@pytest.mark.parametrize("wrong", [[3, 5], [4, 3, 1], [2, 3]])
@pytest.mark.parametrize("fp16", [False, True])
def test_a_shape_that_is_declared_wrongly_is_told_and_left_out(
    which: str, wrong: list[int], fp16: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """ONNX Runtime warns and runs, and so does an export, in which nothing else relies on a declaration."""
    nodes = [node("Transpose", ["x"], ["b"], perm=[1, 0]), node("Relu", ["b"], ["c"])]
    made = make_model(nodes, {"x": (F, [3, 4])})
    info = helper.make_tensor_value_info
    right, bad = info("b", onnx.TensorProto.FLOAT, [4, 3]), info("b", onnx.TensorProto.FLOAT, wrong)
    made.graph.value_info.append(right if which == "output" else bad)
    del made.graph.output[:]
    made.graph.output.append(info("c", onnx.TensorProto.FLOAT, [4, 3] if which == "value_info" else wrong))
    onnx.save(made, tmp_path / "m.onnx")
    assert cli.main(["export", str(tmp_path / "m.onnx"), "--json", *(["--fp16"] if fp16 else [])]) == 0
    out, err = capfd.readouterr()
    told = json.loads(out)["contradicted"]
    names = {"value_info": ["b"], "output": ["c"], "both": ["b", "c"]}[which]
    assert told == [f"{name!r} is declared as {wrong} and calculated as [4, 3]" for name in names]
    assert all(it in err for it in told) and "Traceback" not in err
    program = _programs(tmp_path / "m.onnx", read_model(tmp_path / "m.onnx"))[0][-1]
    assert [it.shape for it in program.values if it.name == "c"] == [(4, 3)]


def test_what_cannot_run_is_told_without_the_log_of_another_library(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    nodes = [
        node("Relu", ["x"], ["b"]),
        node("Cast", ["b"], ["d"], to=onnx.TensorProto.DOUBLE),
        node("Erf", ["d"], ["i"]),
    ]
    made = make_model(nodes, {"x": (F, [3, 4])})
    made.graph.value_info.append(helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, [3, 5]))
    onnx.save(made, tmp_path / "m.onnx")
    assert cli.main(["export", str(tmp_path / "m.onnx")]) == 2
    out, err = capfd.readouterr()
    assert not out and len(err.splitlines()) == 1 and "Erf" in err and "declared" not in err
