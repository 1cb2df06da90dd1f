"""Models of ONNX Runtime's operators that generate text, with tiny random decoders as their bodies.

In: nothing. Out: the models by name. Their inputs are made by `feeds`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, HIDDEN, HEADS, LONGEST = 11, 8, 2, 12
SIZE = HIDDEN // HEADS
_F, _I = TensorProto.FLOAT, TensorProto.INT32
node, info = helper.make_node, helper.make_tensor_value_info


def _weights(names: Sequence[str], seed: int) -> list[onnx.TensorProto]:
    chance = np.random.default_rng(seed)
    shapes = {"tokens": (VOCABULARY, HIDDEN), "places": (LONGEST + 8, HIDDEN), "to_vocabulary": (HIDDEN, VOCABULARY)}
    return [
        numpy_helper.from_array((2 * chance.standard_normal(shapes.get(it, (HIDDEN, HIDDEN)))).astype(np.float32), it)
        for it in names
    ]


_SHAPES = {"split": [0, 0, HEADS, SIZE], "merged": [0, 0, HIDDEN], "axis_0": [0], "axes_1_2": [1, 2]}


def _shapes() -> list[onnx.TensorProto]:
    found = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in _SHAPES.items()]
    numbers = {"scale": 1 / math.sqrt(SIZE), "much": 50}
    return [*found, *(numpy_helper.from_array(np.array(it, np.float32), name) for name, it in numbers.items())]


def _heads(made: str, read: str, weight: str) -> list[onnx.NodeProto]:
    """(batch, length, hidden) times a weight, as (batch, heads, length, size)."""
    return [
        node("MatMul", [read, weight], [f"{made}_rows"]),
        node("Reshape", [f"{made}_rows", "split"], [f"{made}_split"]),
        node("Transpose", [f"{made}_split"], [made], perm=[0, 2, 1, 3]),
    ]


def _attend(made: str, query: str, key: str, value: str, mask: str = "") -> list[onnx.NodeProto]:
    """`mask` (batch, keys) says which keys count."""
    masked = [
        node("Cast", [mask], [f"{made}_counts"], to=_F),
        node("Unsqueeze", [f"{made}_counts", "axes_1_2"], [f"{made}_mask"]),
        node("Mul", [f"{made}_mask", "much"], [f"{made}_bias"]),
        node("Add", [f"{made}_scaled", f"{made}_bias"], [f"{made}_masked"]),
    ]
    return [
        node("Transpose", [key], [f"{made}_turned"], perm=[0, 1, 3, 2]),
        node("MatMul", [query, f"{made}_turned"], [f"{made}_scores"]),
        node("Mul", [f"{made}_scores", "scale"], [f"{made}_scaled"]),
        *(masked if mask else ()),
        node("Softmax", [f"{made}_masked" if mask else f"{made}_scaled"], [f"{made}_shares"], axis=-1),
        node("MatMul", [f"{made}_shares", value], [f"{made}_heads"]),
        node("Transpose", [f"{made}_heads"], [f"{made}_back"], perm=[0, 2, 1, 3]),
        node("Reshape", [f"{made}_back", "merged"], [made]),
    ]


def gpt(nested: bool = False, outer: str = "", masked: bool = False) -> onnx.GraphProto:
    """A decoder as GPT-2's is for these operators. The logits of a nested one are made by both branches of an If; `outer` is the
    weight that is a value of the graph around; `masked` ones read their mask."""
    nodes = [
        node("Gather", ["tokens", "input_ids"], ["token"]),
        node("Gather", ["places", "position_ids"], ["place"]),
        node("Add", ["token", "place"], ["x"]),
        *_heads("q", "x", "wq"),
        *_heads("k", "x", "wk"),
        *_heads("v", "x", "wv"),
        node("Unsqueeze", ["k", "axis_0"], ["k_new"]),
        node("Unsqueeze", ["v", "axis_0"], ["v_new"]),
        node("Concat", ["k_new", "v_new"], ["new"], axis=0),
        node("Concat", ["past_0", "new"], ["present_0"], axis=3),
        node("Split", ["present_0"], ["k_all", "v_all"], axis=0, num_outputs=2),
        node("Squeeze", ["k_all", "axis_0"], ["key"]),
        node("Squeeze", ["v_all", "axis_0"], ["value"]),
        *_attend("attended", "q", "key", "value", "attention_mask" if masked else ""),
        node("Add", ["x", "attended"], ["y"]),
    ]
    logits = info("logits", _F, ["batch", "length", VOCABULARY])
    if nested:
        branches = {}
        for name in ("then", "else"):
            made = info(f"logits_{name}", _F, ["batch", "length", VOCABULARY])
            product = node("MatMul", ["y", "to_vocabulary"], [made.name])
            branches[f"{name}_branch"] = helper.make_graph([product], name, [], [made])
        nodes += [
            node("ReduceSum", ["input_ids"], ["sum"], keepdims=0),
            node("Cast", ["sum"], ["chosen"], to=TensorProto.BOOL),
            node("If", ["chosen"], ["logits"], name="choose", **branches),
        ]
    else:
        nodes.append(node("MatMul", ["y", "to_vocabulary"], ["logits"]))
    past = [2, "batch", HEADS, "before", SIZE]
    inputs = [info(name, _I, ["batch", "length"]) for name in ("input_ids", "position_ids")]
    inputs += [info("attention_mask", _I, ["batch", "all"]), info("past_0", _F, past)]
    present = info("present_0", _F, [2, "batch", HEADS, "all", SIZE])
    weights = _weights(["tokens", "places", "wq", "wk", "wv", "to_vocabulary"], 5) + _shapes()
    given = [it for it in weights if it.name != outer]
    return helper.make_graph(nodes, "gpt", inputs, [logits, present], given)


def _cache(kind: str, which: str, length: str) -> list[onnx.ValueInfoProto]:
    return [info(f"{kind}_{it}_{which}_0", _F, ["batch", HEADS, length, SIZE]) for it in ("key", "value")]


def encoder(whisper: bool) -> onnx.GraphProto:
    """The encoder of a T5, or of a Whisper, and the first step of its decoder."""
    if whisper:
        nodes = [node("Transpose", ["encoder_input_ids"], ["hidden"], perm=[0, 2, 1])]
        inputs = [info("encoder_input_ids", _F, ["batch", HIDDEN, "frames"])]
    else:
        nodes = [node("Gather", ["tokens", "encoder_input_ids"], ["hidden"])]
        inputs = [info(name, _I, ["batch", "frames"]) for name in ("encoder_input_ids", "encoder_attention_mask")]
    nodes += [
        node("MatMul", ["hidden", "wq"], ["mixed"]),
        node("Tanh", ["mixed"], ["encoder_hidden_states"]),
        node("Gather", ["tokens", "decoder_input_ids"], ["x"]),
        *_heads("q", "x", "wq"),
        *_heads("present_key_self_0", "x", "wk"),
        *_heads("present_value_self_0", "x", "wv"),
        *_heads("present_key_cross_0", "encoder_hidden_states", "wk"),
        *_heads("present_value_cross_0", "encoder_hidden_states", "wv"),
        *_attend(
            "looked", "q", "present_key_cross_0", "present_value_cross_0", "" if whisper else "encoder_attention_mask"
        ),
        node("Add", ["x", "looked"], ["y"]),
        node("MatMul", ["y", "to_vocabulary"], ["logits"]),
    ]
    inputs += [info("decoder_input_ids", _I, ["batch", "length"])]
    outputs = [info("logits", _F, ["batch", "length", VOCABULARY])]
    outputs += [info("encoder_hidden_states", _F, ["batch", "frames", HIDDEN])]
    outputs += _cache("present", "self", "length") + _cache("present", "cross", "frames")
    weights = _weights(["tokens", "wq", "wk", "wv", "to_vocabulary"], 6) + _shapes()
    return helper.make_graph(nodes, "encoder", inputs, outputs, weights)


def decoder(whisper: bool) -> onnx.GraphProto:
    """A step of a T5's decoder, or of a Whisper's."""
    nodes = [
        node("Gather", ["tokens", "input_ids"], ["x"]),
        *_heads("q", "x", "wq"),
        *_heads("k", "x", "wk"),
        *_heads("v", "x", "wv"),
        node("Concat", ["past_key_self_0", "k"], ["present_key_self_0"], axis=2),
        node("Concat", ["past_value_self_0", "v"], ["present_value_self_0"], axis=2),
        *_attend("seen", "q", "present_key_self_0", "present_value_self_0"),
        *_attend("looked", "q", "past_key_cross_0", "past_value_cross_0", "" if whisper else "encoder_attention_mask"),
        node("Add", ["seen", "looked"], ["y"]),
        node("MatMul", ["y", "to_vocabulary"], ["logits"]),
    ]
    inputs = [info("input_ids", _I, ["batch", 1])]
    if not whisper:
        inputs.append(info("encoder_attention_mask", _I, ["batch", "frames"]))
    inputs += [info("encoder_hidden_states", _F, ["batch", "frames", HIDDEN])] if not whisper else []
    inputs += _cache("past", "self", "before") + _cache("past", "cross", "frames")
    outputs = [info("logits", _F, ["batch", 1, VOCABULARY]), *_cache("present", "self", "all")]
    weights = _weights(["tokens", "wq", "wk", "wv", "to_vocabulary"], 6) + _shapes()
    return helper.make_graph(nodes, "decoder", inputs, outputs, weights)


_BEAMS = ["longest", "shortest", "beams", "sequences_of_each", "length_penalty", "repetition_penalty"]
_CONSTANTS = {"longest": [LONGEST], "shortest": [1], "beams": [2], "sequences_of_each": [1]}


def _model(
    operator: str, inputs: Sequence[str], features: bool = False, outer: bool = False, **attributes: object
) -> onnx.ModelProto:
    """A Relu makes what the operator reads, a Mul reads what it makes; with `outer` a Tanh makes a weight of its bodies."""
    ids = {"eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 2}
    if operator in ("GreedySearch", "Sampling"):
        del ids["decoder_start_token_id"]
    nodes = [
        *([node("Tanh", ["weight"], ["wq"], name="beside")] if outer else ()),
        node("Relu", ["features" if features else "input_ids"], ["read"], name="before"),
        helper.make_node(
            operator, ["read", *inputs], ["sequences"], domain="com.microsoft", name="search", **ids, **attributes
        ),
        node("Mul", ["sequences", "sequences"], ["y"], name="after"),
    ]
    given = (
        info("features", _F, ["batch", HIDDEN, "frames"]) if features else info("input_ids", _I, ["batch", "length"])
    )
    weights = [numpy_helper.from_array(np.array(value, np.int32), name) for name, value in _CONSTANTS.items()]
    weights += [numpy_helper.from_array(np.array([1], np.float32), it) for it in _BEAMS[4:]]
    all_given = [given, info("weight", _F, [HIDDEN, HIDDEN])] if outer else [given]
    graph = helper.make_graph(nodes, "search", all_given, [info("y", _I, None)], weights)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def models() -> dict[str, onnx.ModelProto]:
    """By the name of the operator and, where there are several, the kind of its bodies."""
    greedy = ["longest", "shortest", "repetition_penalty"]
    return {
        "BeamSearch": _model("BeamSearch", _BEAMS, decoder=gpt(), model_type=0),
        "BeamSearch-nested": _model("BeamSearch", _BEAMS, decoder=gpt(nested=True), model_type=0),
        "BeamSearch-two": _model("BeamSearch", _BEAMS, decoder=gpt(), init_decoder=gpt(), model_type=0),
        "BeamSearch-outer": _model("BeamSearch", _BEAMS, outer=True, decoder=gpt(outer="wq"), model_type=0),
        "BeamSearch-T5": _model("BeamSearch", _BEAMS, encoder=encoder(False), decoder=decoder(False), model_type=1),
        "GreedySearch": _model("GreedySearch", greedy, decoder=gpt(), model_type=0),
        "Sampling": _model("Sampling", greedy, decoder=gpt(), model_type=0, top_p=0.001, temperature=1.0),
        "WhisperBeamSearch": _model(
            "WhisperBeamSearch", _BEAMS, features=True, encoder=encoder(True), decoder=decoder(True), model_type=2
        ),
    }


def feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Inputs of a model: ids of two texts of three tokens, or the features of two sounds of five frames."""
    chance = np.random.default_rng(1)
    values = {
        "input_ids": np.array([[3, 4, 5], [6, 7, 2]], np.int32),
        "features": chance.standard_normal((2, HIDDEN, 5)).astype(np.float32),
        "weight": chance.standard_normal((HIDDEN, HIDDEN)).astype(np.float32),
    }
    return {it.name: values[it.name] for it in model.graph.input}
