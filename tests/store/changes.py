"""Models, each with a twin that differs in one thing: an element of a constant, an attribute, the name of a dim, an option...

The constants of `MODELS` are of every size, and the compiler looks at most of them; random graphs have everything else.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.program.settings import CompileSettings
from onnxruntime_ep_wgpu.program.target import F16, INT64, SUBGROUP, SUBGROUPS, Target
from onnxruntime_ep_wgpu.program.tuning import Bound, Choice
from tests.compiler.attention_models import Sizes, attention_model
from tests.graphs.generate import generate
from tests.support import make_model

from .showing import Asked

F = np.float32
Rng = np.random.Generator


def normal(rng: Rng, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(F)


def masked(rng: Rng) -> onnx.ModelProto:
    rows = int(rng.choice([16, 40, 64, 96]))
    made = attention_model("scores", "added", Sizes(1, 2, rows, rows, 8, 8))
    seen = np.tril(np.ones((rows, rows), bool)) & ~np.tril(np.ones((rows, rows), bool), -int(rng.choice([4, 99])))
    kept = [it for it in made.graph.input if it.name != "mask"]
    del made.graph.input[:]
    made.graph.input.extend(kept)
    mask = np.where(seen, 0, -np.inf).astype(F)[None, None]
    made.graph.initializer.append(numpy_helper.from_array(mask, "mask"))
    return made


def tied(rng: Rng) -> onnx.ModelProto:
    table = normal(rng, 160, 128)
    head = table.copy() if rng.random() < 0.5 else np.ascontiguousarray(table.T)
    last = (
        node("Gemm", ["h", "head"], ["y"], transB=1)
        if head.shape == table.shape
        else node("MatMul", ["h", "head"], ["y"])
    )
    nodes = [node("Gather", ["table", "ids"], ["h"]), last]
    return make_model(nodes, {"ids": (np.int64, ["n"])}, {"table": table, "head": head})


def folded(rng: Rng) -> onnx.ModelProto:
    size = int(rng.choice([4, 30, 64, 128]))
    nodes = [
        node("Transpose", ["w"], ["t"], perm=[1, 0]),
        node("Mul", ["x", "t"], ["m"]),
        node("Add", ["c", "c"], ["d"]),
        node("Add", ["m", "d"], ["y"]),
    ]
    return make_model(nodes, {"x": (F, ["n", size, size])}, {"w": normal(rng, size, size), "c": normal(rng, size)})


def convolved(rng: Rng) -> onnx.ModelProto:
    channels, more = int(rng.choice([3, 16, 64])), int(rng.choice([6, 16, 40]))
    weights = {
        "w": normal(rng, more, channels, 3, 3),
        "b": normal(rng, more),
        "s": normal(rng, more),
        "z": normal(rng, more),
    }
    weights |= {"m": normal(rng, more), "v": rng.random(more).astype(F) + 1}
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "s", "z", "m", "v"], ["n"]),
        node("Relu", ["n"], ["y"]),
    ]
    return make_model(nodes, {"x": (F, ["n", channels, "h", "w"])}, weights)


def picked(rng: Rng) -> onnx.ModelProto:
    size = int(rng.choice([30, 700, 5000]))
    nodes = [
        node("Compress", ["x", "which"], ["c"], axis=1),
        node("Gather", ["x", "at"], ["g"], axis=1),
        node("ReduceSum", ["c", "one"], ["d"]),
        node("ReduceSum", ["g", "one"], ["e"]),
        node("Add", ["d", "e"], ["y"]),
    ]
    weights = {"which": rng.random(size) < 0.5, "at": rng.integers(0, size, size), "one": np.array([1])}
    return make_model(nodes, {"x": (F, ["n", size])}, weights)


def quantised(rng: Rng) -> onnx.ModelProto:
    k, n = int(rng.choice([32, 96])), int(rng.choice([16, 80]))
    weights = {
        "w": rng.integers(-9, 9, (k, n)).astype(np.int8),
        "zero": np.full(n, int(rng.integers(0, 2)), np.int8),
        "scale": (rng.random(n) + 0.1).astype(F),
    }
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
        node("MatMulInteger", ["q", "w", "qz", "zero"], ["i"]),
        node("Cast", ["i"], ["f"], to=1),
        node("Mul", ["f", "scale"], ["y"]),
    ]
    return make_model(nodes, {"x": (F, ["n", k])}, weights)


def sized(rng: Rng) -> onnx.ModelProto:
    """Small integers that become shapes, and numbers that become text."""
    rows = int(rng.integers(2, 6))
    weights = {
        "to": np.array([-1, rows * 2]),
        **{"begin": np.array([0]), "end": np.array([rows]), "axes": np.array([1]), "step": np.array([1])},
        **{"power": np.array(2, F), "low": np.array(-1, F), "high": np.array(1, F), "repeats": np.array([1, 2])},
    }
    nodes = [
        node("Reshape", ["x", "to"], ["r"]),
        node("Slice", ["r", "begin", "end", "axes", "step"], ["s"]),
        node("Pow", ["s", "power"], ["p"]),
        node("Clip", ["p", "low", "high"], ["c"]),
        node("Tile", ["c", "repeats"], ["t"]),
        node("Softmax", ["t"], ["y"], axis=-1),
    ]
    return make_model(nodes, {"x": (F, ["n", rows * 2])}, weights)


def recurrent(rng: Rng) -> onnx.ModelProto:
    size, hidden = 4, int(rng.choice([3, 24]))
    weights = {
        "w": normal(rng, 1, 4 * hidden, size),
        "r": normal(rng, 1, 4 * hidden, hidden),
        "b": normal(rng, 1, 8 * hidden),
    }
    nodes = [node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=hidden)]
    return make_model(nodes, {"x": (F, ["t", "n", size])}, weights)


def branched(rng: Rng) -> onnx.ModelProto:
    """Bodies with constants of their own and of the graph around, in a body in a body too."""
    size = int(rng.choice([4, 40]))
    text = (
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[n,{size}] x, bool c) => (float[n,{size}] y) {{'
        " r = Tanh (x)"
        f" y = If (c) <then_branch = t () => (float[n,{size}] a) {{ q = MatMul (r, w) l = Softmax <axis = -1> (q)"
        "   a = If (c) <then_branch = u () => (float[] d) { d = Add (l, r) }, else_branch = v () => (float[] e) { e = Neg (q) }> },"
        f"  else_branch = e () => (float[n,{size}] b) {{ f = Transpose <perm = [1, 0]> (w) m = MatMul (r, f) b = Mul (m, k) }}>"
        " }"
    )
    model = onnx.parser.parse_model(text)
    weights = {"w": normal(rng, size, size), "k": normal(rng, size)}
    model.graph.initializer.extend(numpy_helper.from_array(it, name) for name, it in weights.items())
    return model


def looped(rng: Rng) -> onnx.ModelProto:
    """A state whose rank ONNX does not infer, and results that are joined. What is behind reads them."""
    size = int(rng.choice([4, 40]))
    text = (
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[n,{size}] x, int64 m, bool c) => (float[] y, float[] z) {{'
        " s, o = Loop (m, c, x) <body = b (int64 i, bool c0, float[] s0) => (bool c1, float[] s1, float[] p) {"
        "   c1 = Identity (c0) q = MatMul (s0, w) s1 = Add (q, k) p = Relu (s1) }>"
        " y = Softmax <axis = -1> (s) u = Mul (o, k) z = Exp (u) }"
    )
    model = onnx.parser.parse_model(text)
    weights = {"w": normal(rng, size, size), "k": normal(rng, size)}
    model.graph.initializer.extend(numpy_helper.from_array(it, name) for name, it in weights.items())
    return model


WITH_BODIES = (branched, looped)
MODELS = (masked, tied, folded, convolved, picked, quantised, sized, recurrent)


def base(seed: int) -> Asked:
    """A model on an adapter."""
    rng = np.random.default_rng(seed)
    which = int(rng.integers(len(MODELS) + 3))
    return on_some_adapter(MODELS[which](rng) if which < len(MODELS) else generate(seed)[0].model(), rng)


def base_with_bodies(seed: int) -> Asked:
    """A model with control flow on an adapter."""
    rng = np.random.default_rng(seed)
    return on_some_adapter(WITH_BODIES[seed % len(WITH_BODIES)](rng), rng)


def on_some_adapter(model: onnx.ModelProto, rng: Rng) -> Asked:
    features = frozenset(it for it in (F16, INT64, SUBGROUP, SUBGROUPS) if rng.random() < 0.5)
    target = Target(
        name="some adapter", features=features, software=bool(rng.random() < 0.5), discrete=bool(rng.random() < 0.5)
    )
    return Asked(model, target, CompileSettings(compiled_again=True))


def nodes_of(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Those of bodies too."""
    for it in graph.node:
        yield it
        for held in it.attribute:
            if held.type == onnx.AttributeProto.GRAPH:
                yield from nodes_of(held.g)


# ---- what differs; each gives None where the model has nothing of the kind


def element(asked: Asked, rng: Rng) -> Asked | None:
    """An element of a constant."""
    tensors = asked.model.graph.initializer
    if not tensors:
        return None
    tensor = tensors[int(rng.integers(len(tensors)))]
    array = numpy_helper.to_array(tensor).copy()
    if not array.size or array.dtype == object:
        return None
    at = int(rng.integers(array.size))
    raw = array.reshape(-1)
    raw[at] = ~raw[at] if array.dtype == bool else raw[at] + 1 if np.isfinite(float(raw[at])) else 0
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return asked


def attribute(asked: Asked, rng: Rng) -> Asked | None:
    found = [it for node in nodes_of(asked.model.graph) for it in node.attribute if it.type in (1, 2, 3, 6, 7)]
    if not found:
        return None
    it = found[int(rng.integers(len(found)))]
    if it.type == onnx.AttributeProto.INT:
        it.i += int(rng.choice([-1, 1]))
    elif it.type == onnx.AttributeProto.FLOAT:
        it.f += 0.5
    elif it.type == onnx.AttributeProto.STRING:
        it.s += b"x"
    elif it.type == onnx.AttributeProto.INTS and it.ints:
        it.ints[int(rng.integers(len(it.ints)))] += 1
    elif it.floats:
        it.floats[0] += 0.5
    else:
        return None
    return asked


def dim(asked: Asked, rng: Rng) -> Asked | None:
    """The name of a free extent of an input, or its size."""
    found = [it for value in asked.model.graph.input for it in value.type.tensor_type.shape.dim]
    if not found:
        return None
    it = found[int(rng.integers(len(found)))]
    if it.dim_param:
        it.dim_param = str(rng.choice(["other", "n", "?", ""]))
    elif rng.random() < 0.5:
        it.dim_param = "other"
    else:
        it.dim_value += 1
    return asked


def option(asked: Asked, rng: Rng) -> Asked:
    changes = (
        {"with_assertions": True},
        {"rotary_switch": 4096},
        {"int8_activations": False},
        {"compiled_again": False},
    )
    return replace(asked, settings=replace(asked.settings, **changes[int(rng.integers(len(changes)))]))


def tuning(asked: Asked, rng: Rng) -> Asked:
    rows = (
        Choice(
            "matmul", tuple({"m": 64, "n": 64, "k": 16, "rows": 4, "columns": 8, "slices": 1, "unrolled": 4}.items())
        ),
        Choice("rows", (("lanes", 64), ("rows", 1)), (Bound("columns", 1),)),
    )
    return replace(asked, target=replace(asked.target, tuning=(rows[int(rng.integers(2))],)))


def adapter(asked: Asked, rng: Rng) -> Asked:
    target = asked.target
    feature = str(rng.choice([F16, INT64, SUBGROUP, SUBGROUPS]))
    changes = (
        {"name": "some adapter, newer driver"},
        {"features": target.features ^ {feature}},
        {"max_storage_buffers": int(rng.choice([6, 10, 16]))},
        {"max_invocations": int(rng.choice([128, 1024]))},
        {"max_workgroup_storage": int(rng.choice([8192, 32768]))},
        {"max_binding_bytes": int(rng.choice([4096, 1 << 30]))},
        {"offset_alignment": 32},
        {"software": not target.software},
        {"discrete": not target.discrete},
        {"max_iterations": 100},
    )
    return replace(asked, target=replace(target, **changes[int(rng.integers(len(changes)))]))


def opset(asked: Asked, rng: Rng) -> Asked:
    for it in asked.model.opset_import:
        if it.domain in ("", "ai.onnx"):
            it.version += int(rng.choice([-1, 1]))
    return asked


def dtype(asked: Asked, rng: Rng) -> Asked | None:
    """The type of an input, or of a constant."""
    graph = asked.model.graph
    floats = [it for it in graph.initializer if it.data_type == onnx.TensorProto.FLOAT]
    inputs = [it.type.tensor_type for it in graph.input if it.type.tensor_type.elem_type == onnx.TensorProto.FLOAT]
    if floats and (not inputs or rng.random() < 0.5):
        it = floats[int(rng.integers(len(floats)))]
        it.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(it).astype(np.float16), it.name))
    elif inputs:
        inputs[int(rng.integers(len(inputs)))].elem_type = onnx.TensorProto.FLOAT16
    else:
        return None
    return asked


def name(asked: Asked, rng: Rng) -> Asked:
    """The name of a node, which reports and messages have."""
    nodes = list(nodes_of(asked.model.graph))
    nodes[int(rng.integers(len(nodes)))].name = "another name"
    return asked


def forced(asked: Asked, rng: Rng) -> Asked:
    nodes = list(nodes_of(asked.model.graph))
    at = int(rng.integers(len(nodes)))
    named = nodes[at].name or f"{nodes[at].op_type}_{at}"
    return replace(asked, **{str(rng.choice(["forced", "held"])): frozenset({named})})


def operator(asked: Asked, rng: Rng) -> Asked | None:
    known = {"Relu": "Neg", "Add": "Mul", "Mul": "Sub", "Softmax": "LogSoftmax", "Exp": "Tanh", "Sub": "Add"}
    found = [it for it in nodes_of(asked.model.graph) if it.op_type in known]
    if not found:
        return None
    it = found[int(rng.integers(len(found)))]
    it.op_type = known[it.op_type]
    return asked


CHANGES: tuple[Callable[[Asked, Rng], Asked | None], ...] = (
    element, element, element, attribute, dim, option, tuning, adapter, opset, dtype, name, forced, operator,
)  # fmt: skip


def changed(asked: Asked, seed: int) -> tuple[str, Asked]:
    """What was changed, and a twin with the change."""
    rng = np.random.default_rng(seed)
    while True:
        change = CHANGES[int(rng.integers(len(CHANGES)))]
        twin = change(replace(asked, model=copy.deepcopy(asked.model)), rng)
        if twin is not None:
            return change.__name__, twin
