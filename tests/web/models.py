"""Models that the tests of the web runtime run, exported into a folder, each with inputs and what the CPU provider gives."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.api.web_export import MATRICES, export
from onnxruntime_ep_wgpu.api.web_files import write_folder
from onnxruntime_ep_wgpu.compiler.tune import use
from onnxruntime_ep_wgpu.compiler.tune.matrices import MatrixTile
from onnxruntime_ep_wgpu.program.dtypes import DType, packed
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE
from tests.language import models as decoders
from tests.support import compile_model, make_model
from tests.zoo import tiny

from . import causal, flows, host, kernels

F, H, I64 = np.float32, np.float16, np.int64


@dataclass(frozen=True)
class Sample:
    """Inputs and outputs of one run, by name."""

    inputs: dict[str, Any]
    outputs: dict[str, Any]


def _rng() -> np.random.Generator:
    return np.random.default_rng(3)


def _tiny() -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    sizes = [(1, 8, 8), (2, 8, 12), (3, 10, 6)]
    return tiny.build(), [{"x": _rng().normal(size=(b, 3, h, w)).astype(F)} for b, h, w in sizes]


def _types() -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """Two outputs of 64-bit integers and bools, wide and negative numbers, a size that is no multiple of four bytes."""
    nodes = [
        node("Add", ["a", "big"], ["sum"]),
        node("Less", ["a", "zero"], ["negative"]),
        node("Cast", ["a"], ["float"], to=TensorProto.FLOAT),
    ]
    weights = {"big": np.array([2**40 + 1], I64), "zero": np.array([0], I64)}
    model = make_model(nodes, {"a": (I64, ["n"])}, weights)
    return model, [{"a": np.array([-(2**33), 5, -1, 2**52 + 1, 7], I64)}, {"a": np.array([], I64)}]


def _numbers() -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """Every type of tensor that both libraries have goes in and comes out."""
    kinds = (
        np.int8,
        np.uint8,
        np.int16,
        np.uint16,
        np.int32,
        np.uint32,
        np.int64,
        np.uint64,
        np.bool_,
        H,
        F,
        np.float64,
    )
    inputs = {f"x_{np.dtype(kind).name}": (kind, ["n"]) for kind in kinds}
    nodes = [node("Concat", [name, name], [name.replace("x_", "y_")], axis=0) for name in inputs]
    rng = _rng()

    def array(kind: Any, count: int) -> Any:
        if np.dtype(kind).kind == "f":
            return rng.normal(size=count).astype(kind)
        if kind is np.bool_:
            return rng.integers(0, 2, count).astype(kind)
        limits = np.iinfo(kind)
        return rng.integers(limits.min, limits.max, count, kind, endpoint=True)

    feeds = [{name: array(kind, count) for name, (kind, _) in inputs.items()} for count in (5, 8)]
    return make_model(nodes, inputs), feeds


def _half() -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    w = _rng().normal(size=(6, 5)).astype(H)
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["y"])]
    return make_model(nodes, {"x": (H, ["n", 6])}, {"w": w}), [{"x": _rng().normal(size=(3, 6)).astype(H)}]


def _reduced() -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """Sums and maxima of rows, by as many invocations as a workgroup has."""
    scale = _rng().normal(size=(96,)).astype(H)
    nodes = [node("LayerNormalization", ["x", "scale"], ["n"]), node("Softmax", ["n"], ["y"])]
    return make_model(nodes, {"x": (H, ["n", 96])}, {"scale": scale}), [{"x": _rng().normal(size=(3, 96)).astype(H)}]


def _elements() -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """A shape that an integer input sets."""
    model = make_model([node("Expand", ["x", "shape"], ["y"])], {"x": (F, ["n", 1]), "shape": (I64, [2])})
    x = np.arange(3, dtype=F).reshape(3, 1)
    return model, [{"x": x, "shape": np.array([3, k], I64)} for k in (4, 2)]


def _listed() -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """A shape that a list sets, whose length the run decides."""
    model = make_model([node("Tile", ["x", "repeats"], ["y"])], {"x": (F, ["n", 3, "w"]), "repeats": (I64, ["k"])})
    x = _rng().normal(size=(1, 3, 2)).astype(F)
    return model, [{"x": x, "repeats": np.array(it, I64)} for it in ((4, 1, 3), (1, 2, 2))]


def _chunks() -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """Weights of several chunks, the first of which are deflated, two of them equal, one across a border."""
    rng = _rng()
    # Of few digits: two chunks make up for the bytes of kernels, and some more.
    w, v = (np.round(it * 2**14).astype(F) / 2**14 for it in rng.normal(size=(2, 40, 40)))
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "v"], ["b"]), node("Add", ["b", "w2"], ["y"])]
    weights = {"w": w, "v": v, "w2": w}
    return make_model(nodes, {"x": (F, ["rows", 40])}, weights), [{"x": rng.normal(size=(40, 40)).astype(F)}]


def _conv() -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """Weights across several chunks, none deflated, which software adapters read in another order, padded."""
    rng = _rng()
    nodes = [node("Conv", ["x", "w"], ["h"], pads=[1, 1, 1, 1]), node("Conv", ["h", "v"], ["y"], group=2)]
    weights = {"w": rng.normal(size=(12, 30, 3, 3)).astype(F) / 16, "v": rng.normal(size=(18, 6, 2, 2)).astype(F) / 5}
    return make_model(nodes, {"x": (F, ["n", 30, 9, 7])}, weights), [{"x": rng.normal(size=(2, 30, 9, 7)).astype(F)}]


def _growing() -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """A sequence that grows by one per run, and a short one, with kernels that have variants."""
    w = _rng().normal(size=(32, 32)).astype(F) / 6
    nodes = [
        node("MatMul", ["x", "w"], ["q"]),
        node("Transpose", ["x"], ["t"], perm=[1, 0]),
        node("MatMul", ["q", "t"], ["s"]),
        node("Softmax", ["s"], ["p"]),
        node("MatMul", ["p", "x"], ["y"]),
    ]
    x = _rng().normal(size=(80, 32)).astype(F)
    return make_model(nodes, {"x": (F, ["n", 32])}, {"w": w}), [{"x": x[:n]} for n in (*range(28, 40), 2)]


def _chain() -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """Products that are one kernel, one after another."""
    names = ["x", "a", "b", "c", "d", "y"]
    nodes = [node("MatMul", [a, "w"], [b]) for a, b in itertools.pairwise(names)]
    w = _rng().normal(size=(4, 4)).astype(F)
    return make_model(nodes, {"x": (F, [4, 4])}, {"w": w}), [{"x": _rng().normal(size=(4, 4)).astype(F)}]


def _pass_on() -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """A state that goes round: the next run reads what the last one wrote."""
    nodes = [node("Mul", ["state", "two"], ["next"]), node("ReduceSum", ["next"], ["total"], keepdims=0)]
    model = make_model(nodes, {"state": (F, [4])}, {"two": np.array(2, F)})
    return model, [{"state": np.arange(4, dtype=F)}]


def _apart() -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """Three results that have nothing to do with each other, each of a size of its own, one by way of an intermediate."""
    nodes = [
        node("Softmax", ["a"], ["t"]),
        node("Softmax", ["t"], ["u"]),
        node("Softmax", ["b"], ["y"]),
        node("Softmax", ["c"], ["z"]),
    ]
    model = make_model(nodes, {"a": (F, ["n"]), "b": (F, ["m"]), "c": (F, ["k"])})
    rng = _rng()
    sizes = [{"a": 1000, "b": 64, "c": 1000}, {"a": 64, "b": 5, "c": 64}]
    return model, [{name: rng.normal(size=size).astype(F) for name, size in it.items()} for it in sizes]


def _branch() -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """A condition that kernels make."""
    return _case("a condition that kernels make")


def _rounds() -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """A loop whose number of rounds is known, with a state and what is side by side."""
    text = """(float[n,3] x, int64 m) => (float[p,3] y, float[r,s,3] all) {
        e = Neg (x)
        y, all = Loop (m, , e) <body = b (int64 i, bool c, float[p,3] s) => (bool c2, float[p,3] s2, float[p,3] o) {
            t = Add (s, x)  f = Cast <to = 1> (i)  u = Add (t, f)  s2 = Sin (u)  o = Softmax (s2)  c2 = Identity (c) }> }"""
    x = _rng().normal(size=(4, 3)).astype(F)
    case = flows.Case("", text, [{"x": x[:n], "m": np.array(m, I64)} for n, m in ((2, 3), (4, 0), (2, 70))])
    return case.model, case.runs


def _found() -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """As many elements as data says."""
    return _case("as many elements as data says")


def _case(name: str) -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    (case,) = (it for it in flows.CASES if it.name == name)
    return case.model, case.runs


MODELS: dict[str, Callable[[], tuple[onnx.ModelProto, list[dict[str, Any]]]]] = {
    "tiny": _tiny, "types": _types, "numbers": _numbers, "half": _half, "reduced": _reduced, "elements": _elements,
    "listed": _listed, "chunks": _chunks, "conv": _conv, "growing": _growing, "chain": _chain, "state": _pass_on, "apart": _apart,
    "branch": _branch, "rounds": _rounds, "found": _found,
}  # fmt: skip


def write(folder: Path) -> None:
    """For each model NAME: NAME.onnx, NAME.onnx.wgpu/, NAME.wgpu, and NAME.json with its samples; and what the others write."""
    for name, make in MODELS.items():
        model, feeds = make()
        if name == "state":
            _name_outputs(model, ["next", "total"])
        path = folder / f"{name}.onnx"
        onnx.save(model, path)
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        names = [it.name for it in session.get_outputs()]
        samples = [Sample(feed, dict(zip(names, session.run(None, feed), strict=True))) for feed in feeds]
        (folder / f"{name}.json").write_text(json.dumps([_described(it) for it in samples]))
        export(path, chunk_bytes=4096)
        export(path, single_file=True)
    write_narrow(folder)
    write_host(folder / "host.json")
    write_causal(folder)
    write_decoders(folder)
    write_outputs(folder)
    write_large(folder)
    write_plain(folder)
    write_apart(folder / "apart")
    write_endless(folder)
    write_units(folder)
    kernels.write(folder)


def write_units(folder: Path) -> None:
    """units.onnx.wgpu, a product of halves by matrix units, which are calculated in plain WGSL, and one for adapters without units;
    units.json has its samples."""
    x, w = (_rng().normal(size=it).astype(H) for it in ((33, 40), (40, 21)))
    model = make_model([node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["y"])], {"x": (H, ["n", 40])}, {"w": w})
    units = replace(WEB_BASELINE, name="web-units", matrices=MATRICES, tuning=(use(MatrixTile(16, 16, 16, 1, 1)),))
    programs = [compile_model(model, it) for it in (units, WEB_BASELINE)]
    assert ["matrix_sum" in it.kernels[0].wgsl[0] for it in programs] == [True, False]
    place = folder / "units.onnx.wgpu"
    place.mkdir()
    write_folder(place, programs, 1 << 14)
    sample = Sample({"x": x}, {"y": np.maximum(x.astype(np.float64) @ w.astype(np.float64), 0).astype(H)})
    (folder / "units.json").write_text(json.dumps([_described(sample)]))


def write_endless(folder: Path) -> None:
    """endless.wgpu, a loop that nothing ends."""
    text = """(float[n] x) => (float[n] y) { y = Loop ( , , x) <body = b (int64 i, bool c, float[n] s) => (bool c2, float[n] s2) {
        s2 = Sqrt (s)  c2 = Identity (c) }> }"""
    onnx.save(flows.Case("", text, []).model, folder / "endless.onnx")
    export(folder / "endless.onnx", single_file=True)


def write_narrow(folder: Path) -> None:
    """narrow.wgpu, each of whose outputs is an input twice, of types that ONNX Runtime's arrays do not have; with an input of
    each type that no kernel calculates with, which nothing reads. unfed.wgpu has an input that no tensor carries."""
    kinds = (DType.INT4, DType.UINT4, DType.BFLOAT16, DType.FLOAT8E4M3FN, DType.FLOAT8E5M2)
    inputs = [(f"x_{it.label}", it.code, ["n"]) for it in kinds]
    unread = [("text", TensorProto.STRING, [2]), ("double", TensorProto.DOUBLE, [2])]
    nodes = [node("Concat", [name, name], [name.replace("x_", "y_")], axis=0) for name, *_ in inputs]
    outputs = [(name.replace("x_", "y_"), code, [None]) for name, code, _ in inputs]
    _write(folder / "narrow.onnx", nodes, [*inputs, *unread], outputs)
    samples = []
    for count in (5, 8):
        arrays = {
            name: _rng().normal(size=count).astype(it.numpy) for (name, *_), it in zip(inputs, kinds, strict=True)
        }
        twice = {name.replace("x_", "y_"): np.concatenate([a, a]) for name, a in arrays.items()}
        samples.append(Sample(arrays, twice))
    (folder / "narrow.json").write_text(json.dumps([_described(it) for it in samples]))
    _write(
        folder / "unfed.onnx",
        [node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)],
        [("x", DType.INT2.code, ["n"])],
        [("y", TensorProto.FLOAT, ["n"])],
    )


def _write(path: Path, nodes: list[onnx.NodeProto], inputs: list[Any], outputs: list[Any]) -> None:
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(nodes, "test", [info(*it) for it in inputs], [info(*it) for it in outputs])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 25)], ir_version=12), path)
    export(path, single_file=True)


PROMPT = tuple(range(3, 12))
CACHE = 64  # tokens


def write_causal(folder: Path) -> None:
    """causal.wgpu with a KV cache, stateless.wgpu without one, and in causal.json the tokens that follow a prompt."""
    for name, cache in (("causal", True), ("stateless", False)):
        onnx.save(causal.build(cache=cache), folder / f"{name}.onnx")
        export(folder / f"{name}.onnx", single_file=True)
    session = ort.InferenceSession(folder / "causal.onnx", providers=["CPUExecutionProvider"])
    tokens = causal.continued(session, list(PROMPT), 100)
    others = [list(PROMPT[:4]), [40, 3], list(PROMPT)]
    batch = [{"prompt": it, "tokens": causal.continued(session, it, 20)} for it in others]
    (folder / "causal.json").write_text(json.dumps({"prompt": PROMPT, "tokens": tokens, "batch": batch}))


def write_outputs(folder: Path) -> None:
    """Models of tokens by what comes out: NAME.wgpu of a table of words, whose largest element is the next word."""
    words = np.roll(np.eye(8, dtype=F), 1, axis=1)  # after k comes k + 1
    known = {"table": words[:, ::-1].copy(), "back": np.eye(8, dtype=F)[::-1].copy(), "axis": np.array([1], I64)}
    hidden = node("Gather", ["table", "input_ids"], ["last_hidden_state"])
    logits = node("MatMul", ["last_hidden_state", "back"], ["logits"])
    for name, nodes, outputs in (
        ("hidden-first", [hidden, logits], ["last_hidden_state", "logits"]),
        ("hidden", [hidden], ["last_hidden_state"]),
        ("logits-flat", [hidden, node("ReduceMax", ["last_hidden_state", "axis"], ["logits"], keepdims=0)], ["logits"]),
        ("logits-int", [hidden, node("Cast", ["last_hidden_state"], ["logits"], to=TensorProto.INT32)], ["logits"]),
    ):
        model = make_model(nodes, {"input_ids": (I64, ["batch", "n"])}, known)
        _name_outputs(model, outputs)
        onnx.save(model, folder / f"{name}.onnx")
        export(folder / f"{name}.onnx", single_file=True)


def write_decoders(folder: Path) -> None:
    """decoder.wgpu, whose caches may have any length, static.wgpu, in which everything but the prompt has a fixed size, and in
    decoder.json the tokens that follow prompts."""
    for name, captured in (("decoder", False), ("static", True)):
        onnx.save(decoders.graph_of(decoders.Decoder(captured=captured)), folder / f"{name}.onnx")
    decoders.write(decoders.Decoder(), folder / "tokenizer")
    fixed = {"batch_size": 1, "past_sequence_length": CACHE, "total_sequence_length": CACHE}
    export(folder / "decoder.onnx", single_file=True)
    export(folder / "static.onnx", overrides=fixed, single_file=True)
    session = ort.InferenceSession(folder / "decoder.onnx", providers=["CPUExecutionProvider"])
    prompts = [list(PROMPT), [200 - k for k in PROMPT]]
    tokens = [causal.continued(session, prompt, CACHE - len(prompt)) for prompt in prompts]
    (folder / "decoder.json").write_text(json.dumps({"prompts": prompts, "tokens": tokens, "cache": CACHE}))


def write_large(folder: Path) -> None:
    """large.onnx.wgpu/, whose weights are many chunks of a megabyte."""
    rng = _rng()
    names = [f"w{k}" for k in range(8)]
    nodes = [node("MatMul", [f"x{k}" if k else "x", name], [f"x{k + 1}"]) for k, name in enumerate(names)]
    weights = {name: rng.normal(size=(512, 512)).astype(F) / 24 for name in names}
    onnx.save(make_model(nodes, {"x": (F, ["n", 512])}, weights), folder / "large.onnx")
    export(folder / "large.onnx", chunk_bytes=1 << 20)


def write_plain(folder: Path) -> None:
    """unexported.onnx, which no page runs: its input decides which branch of an If gives the result."""
    branches = []
    for name, kind in (("then_branch", "Neg"), ("else_branch", "Abs")):
        value = onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"])
        branches.append((name, onnx.helper.make_graph([node(kind, ["x"], [name])], name, [], [value])))
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Less", ["sum", "zero"], ["negative"]),
        node("If", ["negative"], ["y"], **dict(branches)),
    ]
    model = make_model(nodes, {"x": (F, ["n"])}, {"zero": np.array(0, F)})
    onnx.save(model, folder / "unexported.onnx")


def write_apart(folder: Path) -> None:
    """model.onnx, whose weights lie in weights.bin, not exported."""
    folder.mkdir(exist_ok=True)
    onnx.save(
        tiny.build(), folder / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=100
    )


def write_host(path: Path) -> None:
    """Cases of models of one node, as JSON."""
    rows = [
        {
            "operator": model.graph.node[0].op_type,
            "model": model.SerializeToString().hex(),
            **_described(Sample(*arrays)),
        }
        for model, *arrays in host.cases(_rng())
    ]
    path.write_text(json.dumps(rows))


def _name_outputs(model: onnx.ModelProto, names: list[str]) -> None:
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)


def _described(sample: Sample) -> dict[str, Any]:
    return {"inputs": _tensors(sample.inputs), "outputs": _tensors(sample.outputs)}


def _tensors(arrays: dict[str, Any]) -> dict[str, Any]:
    """Type, shape and the bytes in hexadecimal, of each."""
    return {
        name: {
            "type": DType.of_numpy(a.dtype).label,
            "dims": list(a.shape),
            "hex": packed(a).tobytes().hex(),
        }
        for name, a in ((name, np.asarray(array)) for name, array in arrays.items())
    }
