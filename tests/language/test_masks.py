"""Caches have one length where a model leaves out what its mask says, else they grow: the ids are the CPU provider's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.language.mask_reach import reaches_scores
from onnxruntime_ep_wgpu.api.language.mask_trial import leaves_out_rows

from .models import Decoder, growing_graph_of, write_growing
from .test_generate import PROMPTS, greedy, reference

DECODER = Decoder(groups=4)
KEYS = [f"past_key_values.{layer}.key" for layer in range(DECODER.layers)]
ONE = numpy_helper.from_array(np.ones(1, np.int64))
SPELLINGS: dict[str, list[tuple[str, list[str], dict[str, object]]]] = {
    "its values": [("Identity", ["attention_mask"], {})],
    "its values, in other types": [
        ("Cast", ["attention_mask"], {"to": 9}), ("Not", [""], {}), ("Not", [""], {}), ("Cast", [""], {"to": 7}),
    ],
    "its values, where they are one": [("Equal", ["attention_mask", "one"], {}), ("Where", ["", "one", "zero"], {})],
    "ones, as many": [("Shape", ["attention_mask"], {}), ("ConstantOfShape", [""], {"value": ONE})],
    "ones, by expanding": [("Shape", ["attention_mask"], {}), ("Expand", ["one", ""], {})],
    "nothing of it": [("Mul", ["attention_mask", "zero"], {}), ("Add", ["", "one"], {})],
    "all of it": [("Max", ["attention_mask", "one"], {})],
}  # fmt: skip
HONOURS = [it for it in SPELLINGS if it.startswith("its values")]
LOOKS_AS_IF = ["nothing of it", "all of it"]


def model_of(spelling: str, layers: tuple[int, ...]) -> onnx.ModelProto:
    """A growing model in which the mask of these layers is spelled otherwise."""
    model = growing_graph_of(DECODER)
    nodes, name = [], ""
    for number, (op, inputs, how) in enumerate(SPELLINGS[spelling]):
        nodes.append(helper.make_node(op, [it or name for it in inputs], [f"spelled{number}"], **how))
        name = f"spelled{number}"
    nodes.append(helper.make_node("Cast", [name], ["mask of some"], to=6))
    attentions = [it for it in model.graph.node if it.op_type == "MultiHeadAttention"]
    for layer in layers:
        attentions[layer].input[4] = "mask of some"
    model.graph.initializer.extend(
        numpy_helper.from_array(np.array([k], np.int64), n) for n, k in (("one", 1), ("zero", 0))
    )
    rest = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*nodes, *rest])
    return model


@pytest.mark.costly
@pytest.mark.parametrize("layers", [(0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_rows_that_mean_nothing_are_kept_where_a_mask_leaves_them_out(
    spelling: str, layers: tuple[int, ...], tmp_path: Path
) -> None:
    path, structure = write_growing(DECODER, tmp_path / "model"), model_of(spelling, layers)
    onnx.save(structure, path / "model.onnx")
    model = webgpu_ep.LanguageModel(path)
    assert reaches_scores(structure, "attention_mask", KEYS) == (spelling in HONOURS + LOOKS_AS_IF)
    assert model.decoder.takes_rows == (spelling in HONOURS + LOOKS_AS_IF)
    assert model.decoder.keeps_rows == (spelling in HONOURS)
    assert greedy(model, PROMPTS[0]) == reference(path, PROMPTS[0], 12)


def test_positions_that_are_told_and_counted_besides_are_no_reason_to_keep_rows(tmp_path: Path) -> None:
    path, structure = write_growing(DECODER, tmp_path / "model"), growing_graph_of(DECODER)
    graph = structure.graph
    before = [
        helper.make_node("Shape", [KEYS[0]], ["rows there"], start=2, end=3),
        helper.make_node("Mul", ["position_ids", "no"], ["nothing"]),
        helper.make_node("CumSum", ["ones", "axis"], ["counted"]),
        helper.make_node("Add", ["counted", "rows there"], ["behind"]),
        helper.make_node("Sub", ["behind", "one"], ["all counted"]),
        helper.make_node("Add", ["all counted", "nothing"], ["positions"]),
        helper.make_node("Shape", ["input_ids"], ["extents"]),
    ]
    ones = helper.make_node("ConstantOfShape", ["extents"], ["ones"], value=ONE)
    (reader,) = (it for it in graph.node if "position_ids" in it.input)
    reader.input[list(reader.input).index("position_ids")] = "positions"
    for name, value in (("no", [0]), ("one", [1]), ("axis", 1)):
        graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([before[-1], ones, *before[:-1], *rest])
    onnx.save(structure, path / "model.onnx")
    model = webgpu_ep.LanguageModel(path)
    assert model.decoder.takes_rows and not model.decoder.keeps_rows
    assert greedy(model, PROMPTS[0]) == reference(path, PROMPTS[0], 12)


def attention_of(mask: str, *between: str) -> onnx.ModelProto:
    """An attention spelled out, with the mask, or something of it, added to its scores; `between` is what keys go through."""
    nodes = [helper.make_node("Concat", ["past", "new"], ["present"], axis=2)]
    name = "present"
    for k, op in enumerate(between):
        nodes.append(helper.make_node(op, [name], [f"keys{k}"]))
        name = f"keys{k}"
    nodes += [
        helper.make_node("Transpose", [name], ["keys"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["queries", "keys"], ["products"]),
        helper.make_node("Cast", ["mask"], ["floats"], to=1),
        helper.make_node("Sub", ["one", "floats"], ["left out"]),
        helper.make_node("Mul", ["left out", "least"], ["values"]),
        helper.make_node("CumSum", ["mask", "axis"], ["counted"]),
        helper.make_node("Cast", ["counted"], ["count"], to=1),
        helper.make_node("Gather", ["table", "mask"], ["looked up"]),
        helper.make_node("Add", ["products", mask], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
    ]
    return helper.make_model(helper.make_graph(nodes, "attention", [], []))


@pytest.mark.parametrize("between", [(), ("Identity",), ("Tanh", "Neg"), ("Unknown",)], ids=str)
@pytest.mark.parametrize("mask", ["values", "count", "looked up", "one"])
def test_a_mask_reaches_scores_by_its_values_on_ways_that_are_known(mask: str, between: tuple[str, ...]) -> None:
    known = mask == "values" and "Unknown" not in between
    assert reaches_scores(attention_of(mask, *between), "mask", ["past"]) == known


def test_a_model_that_was_made_for_less_than_a_trial_needs_has_none(tmp_path: Path) -> None:
    model = webgpu_ep.LanguageModel(write_growing(Decoder(groups=4, length=4), tmp_path / "model"))
    assert model.decoder.takes_rows and not model.decoder.keeps_rows and not leaves_out_rows(model.decoder)
    assert greedy(model, [5, 6], 2, ends=()) == reference(tmp_path / "model", [5, 6], 2)
