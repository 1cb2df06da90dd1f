"""Attention as exporters spell it, as models for the rule that finds it, and what it means in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx
from onnx.helper import make_node as node

from tests.support import make_model

F = np.float32
SPELLINGS = ("scores", "both sides", "keys given transposed", "divided", "batch of heads", "rows as queries", "transposed",
             "merged heads", "grouped heads", "guarded")  # fmt: skip
MASKS = ("none", "added", "chosen", "row of keys", "capped")


@dataclass(frozen=True)
class Sizes:
    batch: int
    heads: int
    queries: int
    keys: int
    size: int
    value_size: int


def attention_model(spelling: str, mask: str, sizes: Sizes, dtype: type = F, dynamic: bool = False) -> onnx.ModelProto:
    """Inputs q, k, v and, with a mask, mask; result y."""
    s = sizes
    b, m, n = ("b", "m", "n") if dynamic else (s.batch, s.queries, s.keys)
    inputs: dict[str, tuple[type, list]] = {}
    weights: dict[str, np.ndarray] = {"scale": np.array(s.size**-0.5, dtype), "root": np.array(s.size**-0.25, dtype)}
    weights["divisor"] = np.array(s.size**0.5, dtype)
    nodes: list[onnx.NodeProto] = []
    heads = [b, s.heads]
    key_heads = 1 if spelling == "grouped heads" else s.heads
    q, k, v = "q", "k", "v"
    if spelling == "merged heads":
        for name, length, size in (("q", m, s.size), ("k", n, s.size), ("v", n, s.value_size)):
            inputs[name] = (dtype, [b, length, s.heads * size])
            weights[f"split_{name}"] = np.array([0, 0, s.heads, size])
            nodes.append(node("Reshape", [name, f"split_{name}"], [f"{name}s"]))
            nodes.append(node("Transpose", [f"{name}s"], [f"{name}h"], perm=[0, 2, 1, 3]))
        q, k, v = "qh", "kh", "vh"
    elif spelling == "rows as queries":
        inputs = {"q": (dtype, [m, s.size]), "k": (dtype, [n, s.size]), "v": (dtype, [n, s.value_size])}
    else:
        transposed = spelling == "keys given transposed"
        inputs["q"] = (dtype, [*heads, m, s.size])
        inputs["k"] = (dtype, [b, key_heads, s.size, n] if transposed else [b, key_heads, n, s.size])
        inputs["v"] = (dtype, [b, key_heads, n, s.value_size])
    if spelling == "grouped heads":
        weights["repeat"] = np.array([1, s.heads, 1, 1])
        nodes += [node("Expand", [k, "repeat"], ["kx"]), node("Expand", [v, "repeat"], ["vx"])]
        k, v = "kx", "vx"
    turn = [1, 0] if spelling == "rows as queries" else [0, 1, 3, 2]
    if spelling == "transposed":  # keys by queries, values by queries: both products with their sides exchanged
        nodes += [node("Transpose", [q], ["qt"], perm=turn), node("MatMul", [k, "qt"], ["pt"])]
        nodes += [node("Mul", ["pt", "scale"], ["p"]), node("Transpose", ["p"], ["t"], perm=turn)]
    else:
        if spelling != "keys given transposed":
            nodes.append(node("Transpose", [k], ["kt"], perm=turn))
            k = "kt"
        if spelling == "both sides":
            nodes += [
                node("Mul", [q, "root"], ["qr"]),
                node("Mul", [k, "root"], ["kr"]),
                node("MatMul", ["qr", "kr"], ["t"]),
            ]
        elif spelling == "divided":
            nodes += [node("MatMul", [q, k], ["p"]), node("Div", ["p", "divisor"], ["t"])]
        else:
            nodes += [node("MatMul", [q, k], ["p"]), node("Mul", ["p", "scale"], ["t"])]
    scores = "t"
    if mask == "added":
        inputs["mask"] = (dtype, [m, n] if spelling == "rows as queries" else [b, 1, m, n])
        nodes.append(node("Add", [scores, "mask"], ["masked"]))
    elif mask == "chosen":
        inputs["mask"] = (np.bool_, [m, n])
        weights["low"] = np.array(-np.inf, dtype)
        nodes.append(node("Where", ["mask", scores, "low"], ["masked"]))
    elif mask == "row of keys":
        inputs["mask"] = (dtype, [n])
        nodes.append(node("Add", ["mask", scores], ["masked"]))
    elif mask == "capped":
        weights["cap"] = np.array(2, dtype)
        nodes += [
            node("Div", [scores, "cap"], ["c"]),
            node("Tanh", ["c"], ["d"]),
            node("Mul", ["d", "cap"], ["masked"]),
        ]
    if mask != "none":
        scores = "masked"
    nodes.append(node("Softmax", [scores], ["w"], axis=-1))
    last = "w"
    if spelling == "guarded":
        weights["zero"] = np.array(0, dtype)
        nodes += [node("IsNaN", ["w"], ["nan"]), node("Where", ["nan", "zero", "w"], ["g"])]
        last = "g"
    if spelling == "transposed":
        nodes += [node("Transpose", [last], ["wt"], perm=turn), node("Transpose", [v], ["vt"], perm=turn)]
        nodes += [node("MatMul", ["vt", "wt"], ["y"])]
    elif spelling == "merged heads":
        weights["join"] = np.array([0, 0, s.heads * s.value_size])
        nodes += [node("MatMul", [last, v], ["o"]), node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3])]
        nodes += [node("Reshape", ["ot", "join"], ["y"])]
    else:
        nodes.append(node("MatMul", [last, v], ["y"]))
    read = {name for it in nodes for name in it.input}
    return make_model(nodes, inputs, {name: value for name, value in weights.items() if name in read})


def feeds(model: onnx.ModelProto, mask: str, sizes: Sizes, rng: np.random.Generator) -> list[np.ndarray]:
    """Arrays for the inputs of the model; a mask hides some keys."""
    known = {"b": sizes.batch, "m": sizes.queries, "n": sizes.keys}
    arrays = []
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [d.dim_value if not d.dim_param else known[d.dim_param] for d in kind.shape.dim]
        if value.name != "mask":
            arrays.append(rng.standard_normal(shape).astype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)))
        elif mask == "chosen":
            arrays.append(rng.random(shape) < 0.7)
        else:
            hidden = np.where(rng.random(shape) < 0.3, -np.inf, rng.standard_normal(shape))
            arrays.append(hidden.astype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)))
    return arrays


def expected(spelling: str, mask: str, sizes: Sizes, arrays: list[np.ndarray]) -> np.ndarray:
    """y in float64, by the definition."""
    q, k, v = (x.astype(np.float64) for x in arrays[:3])
    s = sizes
    if spelling == "merged heads":
        q = q.reshape(s.batch, s.queries, s.heads, s.size).transpose(0, 2, 1, 3)
        k = k.reshape(s.batch, s.keys, s.heads, s.size).transpose(0, 2, 1, 3)
        v = v.reshape(s.batch, s.keys, s.heads, s.value_size).transpose(0, 2, 1, 3)
    scores = q @ (k if spelling == "keys given transposed" else np.swapaxes(k, -1, -2)) / math.sqrt(s.size)
    if mask in ("added", "row of keys"):
        scores = scores + arrays[3].astype(np.float64)
    elif mask == "chosen":
        scores = np.where(arrays[3], scores, -np.inf)
    elif mask == "capped":
        scores = np.tanh(scores / 2) * 2
    with np.errstate(invalid="ignore", divide="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
        weights = weights / weights.sum(-1, keepdims=True)
        if spelling == "guarded":
            weights = np.where(np.isnan(weights), 0, weights)
        y = weights @ v
    if spelling == "transposed":
        return np.swapaxes(y, -1, -2)
    return (
        y.transpose(0, 2, 1, 3).reshape(s.batch, s.queries, s.heads * s.value_size) if spelling == "merged heads" else y
    )
