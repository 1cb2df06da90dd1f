"""Fuzzing inputs, each a function of a kind and a number: truncated, mutated and rewritten models, and option strings.

In: `kind:number`. Out: a Case. Invariant: the same name gives the same case in every process, so a failure is repeated by
its name alone: `python -m tests.fuzz.worker rewritten:17`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxruntime_ep_wgpu.options import OPTIONS
from tests.plugin import models
from tests.support import make_model
from tests.zoo import tiny

from . import nodes

KINDS = ("truncated", "mutated", "rewritten", "options", "node")
# Numbers where integers go wrong.
NUMBERS = (-(2**63), -(2**31), -1000, -3, -2, -1, 0, 1, 2, 3, 7, 8, 255, 1000, 65536, 2**31 - 1, 2**31, 2**63 - 1)
# A valid pointer that points nowhere would end any process: no case gives a number to an option that takes one.
POINTERS = ("webgpuInstance", "webgpuDevice", "dawnProcTable")


@dataclass(frozen=True)
class Case:
    """A model and the provider options to open it with."""

    model: bytes
    options: dict[str, str] = field(default_factory=dict)
    feeds: dict[str, np.ndarray] | None = None  # of a model whose results are compared with the CPU provider's


@cache
def base_models() -> tuple[bytes, ...]:
    """Small models that between them have most families of operators."""
    node, f = helper.make_node, np.float32
    random_ = np.random.default_rng(0)
    weights = {"w": random_.standard_normal((4, 3, 3, 3)).astype(f), "roi": np.zeros(0, f)}
    weights |= {"scales": np.array([1, 1, 2, 2], f), "shape": np.array([0, 4, -1]), "k": np.array([2])}
    weights |= {"starts": np.array([1]), "ends": np.array([-1]), "axes": np.array([2]), "i": np.array([[0, 2], [1, 3]])}
    image = [
        node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 1], dilations=[1, 1]),
        node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[1, 1], ceil_mode=1),
        node("Resize", ["p", "roi", "scales"], ["r"], mode="linear", coordinate_transformation_mode="align_corners"),
        node("Slice", ["r", "starts", "ends", "axes"], ["s"]),
        node("Reshape", ["s", "shape"], ["t"]),
        node("Transpose", ["t"], ["u"], perm=[0, 2, 1]),
        node("Softmax", ["u"], ["v"], axis=1),
        node("TopK", ["v", "k"], ["values", "places"], axis=-1, largest=1),
    ]
    text = [
        node("Gather", ["table", "ids"], ["e"], axis=0),
        node("LayerNormalization", ["e", "gain", "bias"], ["n"], axis=-1, epsilon=1e-5),
        node("Einsum", ["n", "n"], ["q"], equation="bij,bkj->bik"),
        node("Cast", ["q"], ["h"], to=onnx.TensorProto.FLOAT16),
        node("ReduceMax", ["h", "last"], ["m"], keepdims=0),
        node("Concat", ["m", "m"], ["y"], axis=1),
        node("OneHot", ["ids", "depth", "onoff"], ["o"], axis=-1),
        node("CumSum", ["ids", "one"], ["z"]),
    ]
    table = {"table": random_.standard_normal((11, 8)).astype(f), "gain": np.ones(8, f), "bias": np.zeros(8, f)}
    table |= {"last": np.array([2]), "depth": np.array([5]), "onoff": np.array([0, 1]), "one": np.array(1)}
    gate = random_.standard_normal((1, 12, 4)).astype(f)
    recurrent = [
        node("LSTM", ["x", "gate", "back"], ["all", "h", "c"], hidden_size=3, direction="forward"),
        node("Pad", ["all", "pads"], ["p"], mode="reflect"),
        node("Where", ["yes", "p", "zero"], ["y"]),
    ]
    parts = {"gate": gate, "back": random_.standard_normal((1, 12, 3)).astype(f), "zero": np.zeros((), f)}
    parts |= {"pads": np.array([1, 0, 0, 0, 1, 0, 0, 0]), "yes": np.array([True])}
    return (
        models.chain(),
        models.mixed(),
        models.crossing(),
        make_model(image, {"x": (f, ["n", 3, 8, 8])}, weights).SerializeToString(),
        make_model(text, {"ids": (np.int64, ["b", 5])}, table).SerializeToString(),
        make_model(recurrent, {"x": (f, [5, "b", 4])}, parts).SerializeToString(),
        tiny.build().SerializeToString(),
    )


def make(name: str) -> Case:
    """The case called `kind:number`."""
    kind, number = name.split(":")
    if kind == "node":
        model, feeds = nodes.make(int(number))
        return Case(model, {}, feeds)
    chance = random.Random(name)
    bases = base_models()
    data = bases[int(number) % len(bases)]
    if kind == "truncated":
        return Case(data[: chance.randrange(len(data))])
    if kind == "mutated":
        return Case(mutate(data, chance))
    if kind == "rewritten":
        return Case(rewrite(data, chance))
    if kind == "options":
        return Case(models.square(), dict(_option(chance) for _ in range(chance.choice((1, 1, 2, 4)))))
    raise ValueError(f"no kind of case is called {kind!r}; there are {KINDS}")


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Bytes overwritten, removed, doubled or moved in a few places."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        place = chance.randrange(len(changed))
        length = chance.choice((1, 1, 2, 8))
        what = chance.randrange(4)
        if what == 0:
            changed[place] = chance.randrange(256)
        elif what == 1:
            changed[place] ^= 1 << chance.randrange(8)
        elif what == 2 and len(changed) > 2 * length:
            del changed[place : place + length]
        else:
            changed[place:place] = changed[place : place + length]
    return bytes(changed)


# Rewriting: a model that is still a protobuf, wrong or strange in its meaning.


def rewrite(data: bytes, chance: random.Random) -> bytes:
    model = onnx.load_from_string(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        chance.choice(REWRITES)(model, chance)
    return model.SerializeToString()


def _attribute(model: onnx.ModelProto, chance: random.Random) -> None:
    attributes = [it for node in model.graph.node for it in node.attribute]
    if not attributes:
        return
    chosen = chance.choice(attributes)
    if chosen.type == onnx.AttributeProto.INT:
        chosen.i = chance.choice(NUMBERS)
    elif chosen.type == onnx.AttributeProto.FLOAT:
        chosen.f = chance.choice((float("nan"), float("inf"), -1.0, 0.0, 1e30))
    elif chosen.type == onnx.AttributeProto.STRING:
        chosen.s = chance.choice((b"", b"linear", b"cubic", b"reverse", b"\xff\xfe", b"ij,jk->ikj", b"..." * 9))
    elif chosen.type == onnx.AttributeProto.INTS:
        values = list(chosen.ints)
        if values and chance.random() < 0.7:
            values[chance.randrange(len(values))] = chance.choice(NUMBERS)
        else:
            values = [chance.choice(NUMBERS) for _ in range(chance.choice((0, 1, 2, 4, 9)))]
        chosen.ClearField("ints")
        chosen.ints.extend(values)


def _remove_attribute(model: onnx.ModelProto, chance: random.Random) -> None:
    node = chance.choice(model.graph.node)
    if node.attribute:
        del node.attribute[chance.randrange(len(node.attribute))]


def _operator(model: onnx.ModelProto, chance: random.Random) -> None:
    names = [node.op_type for node in model.graph.node]
    more = [
        "Identity",
        "Sqrt",
        "Mod",
        "Range",
        "Tile",
        "ScatterND",
        "GatherElements",
        "Unique",
        "NoSuchOperator",
        "Not",
    ]
    chance.choice(model.graph.node).op_type = chance.choice(names + more)


def _rewire(model: onnx.ModelProto, chance: random.Random) -> None:
    node = chance.choice(model.graph.node)
    known = [name for it in model.graph.node for name in it.output] + [it.name for it in model.graph.initializer]
    if node.input:
        node.input[chance.randrange(len(node.input))] = chance.choice([*known, "", model.graph.input[0].name])


def _inputs(model: onnx.ModelProto, chance: random.Random) -> None:
    node = chance.choice(model.graph.node)
    if node.input and chance.random() < 0.5:
        del node.input[chance.randrange(len(node.input))]
    else:
        node.input.append(chance.choice([*node.input, ""]))


def _shape(model: onnx.ModelProto, chance: random.Random) -> None:
    dims = chance.choice([*model.graph.input, *model.graph.output]).type.tensor_type.shape.dim
    if dims and chance.random() < 0.8:
        dims[chance.randrange(len(dims))].dim_value = chance.choice((-1, 0, 1, 2, 3, 5, 8, 2**40))
    elif dims:
        dims[chance.randrange(len(dims))].dim_param = chance.choice(("n", "", "?", "a b", "1", "-x"))
    else:
        dims.add().dim_value = 3


def _type(model: onnx.ModelProto, chance: random.Random) -> None:
    chosen = chance.choice([*model.graph.input, *model.graph.output])
    chosen.type.tensor_type.elem_type = chance.randrange(0, 25)


def _constant(model: onnx.ModelProto, chance: random.Random) -> None:
    """A constant of another value, shape or type; its bytes fit, or do not."""
    if not model.graph.initializer:
        return
    chosen = chance.choice(model.graph.initializer)
    try:
        array = numpy_helper.to_array(chosen)
    except ValueError:  # rewritten before
        return
    what = chance.randrange(4)
    if what == 0 and array.dtype.kind in "iu" and array.size:
        array = array.copy()
        array.reshape(-1)[chance.randrange(array.size)] = chance.choice(NUMBERS[2:15])
        chosen.CopyFrom(numpy_helper.from_array(array, chosen.name))
    elif what == 1:
        kind = chance.choice(("float32", "float16", "int64", "int32", "uint8", "bool", "float64"))
        chosen.CopyFrom(numpy_helper.from_array(array.astype(kind), chosen.name))
    elif what == 2:
        shape = chance.choice(([], [0], [1], [array.size], [1, array.size, 1], [2, max(1, array.size // 2)]))
        chosen.CopyFrom(numpy_helper.from_array(np.resize(array, shape), chosen.name))
    elif chosen.dims:
        chosen.dims[chance.randrange(len(chosen.dims))] = chance.choice((0, 1, 2, 100, -1, 2**40))


def _nodes(model: onnx.ModelProto, chance: random.Random) -> None:
    place = chance.randrange(len(model.graph.node))
    if chance.random() < 0.5 and len(model.graph.node) > 1:
        del model.graph.node[place]
    else:
        model.graph.node.append(model.graph.node[place])


def _versions(model: onnx.ModelProto, chance: random.Random) -> None:
    model.opset_import[0].version = chance.choice((0, 1, 6, 7, 9, 11, 12, 13, 15, 18, 22, 99))
    model.ir_version = chance.choice((0, 3, 8, 10, 99))


REWRITES: tuple[Callable[[onnx.ModelProto, random.Random], None], ...] = (
    _attribute, _attribute, _remove_attribute, _operator, _rewire, _inputs, _shape, _type, _constant, _constant,
    _nodes, _versions,
)  # fmt: skip


def _option(chance: random.Random) -> tuple[str, str]:
    key = chance.choice(list(OPTIONS))
    text = chance.choice((_digits, _letters, _near))(chance, key)
    if key in POINTERS and text.strip("+-_ \t\n0").isdigit():
        text += "x"
    if chance.random() < 0.2:
        key = mutate(key.encode(), chance).decode("ascii", "replace").replace("\0", "?") or "k"
    return key, text.replace("\0", "?")


def _digits(chance: random.Random, _key: str) -> str:
    number = str(chance.choice((*NUMBERS, 4, 16, 64, 10**30)))
    return chance.choice(
        (number, number, f" {number}", f"{number} ", f"0{number}", f"+{number}", f"{number}.0", f"{number}\n")
    )


def _letters(chance: random.Random, _key: str) -> str:
    alphabet = "abcXYZ019 -_=;,\n\t\\\"'%{}$\u00e9\u0661\u4e2d\U0001f600"
    return "".join(chance.choice(alphabet) for _ in range(chance.choice((0, 1, 3, 20, 5000))))


def _near(chance: random.Random, key: str) -> str:
    """A valid value, or one that is nearly valid."""
    default = OPTIONS[key].default
    known = chance.choice((default, default.upper(), "NHWC", "full", "Vulkan", "simple", "high-performance"))
    return mutate(known.encode(), chance).decode("ascii", "replace") if known and chance.random() < 0.5 else known
