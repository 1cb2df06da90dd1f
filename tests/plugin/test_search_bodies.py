"""Decoders as a search compiles them: what is calculated for the last token alone, and which graphs are refused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper

from onnxruntime_ep_wgpu.errors import UnsupportedError
from onnxruntime_ep_wgpu.plugin.assign.converted import converted
from onnxruntime_ep_wgpu.plugin.assign.shown import ShownAttribute, ShownGraph, ShownNode, ShownValue
from onnxruntime_ep_wgpu.plugin.search.beams import _largest
from onnxruntime_ep_wgpu.plugin.search.bodies import LAST_ROW, ROWS, SCORES, bodies_of, cut_rows
from onnxruntime_ep_wgpu.plugin.search.operators import search_of
from onnxruntime_ep_wgpu.program.dtypes import DType
from tests.store import showing

HEAD = """<ir_version: 10, opset_import: ["" : 18, "com.microsoft" : 1]>
    g (int32[b,s] input_ids, int32[b,s] position_ids, int32[b,t] attention_mask, float[2,b,2,p,3] past_0)
    => (float[b,s,7] logits, float[2,b,2,t,3] present_0)
    {{
    h = Gather (table, input_ids)
    present_0 = Identity (past_0)
    {} }}"""
WEIGHTS = {"table": (7, 4), "w": (4, 7), "bias": (7,), "gain": (4,), "square": (4, 4)}


def node(operator: str = "BeamSearch", outputs: Sequence[str] = ("sequences",), **attributes: int) -> ShownNode:
    given = {"eos_token_id": 1, "pad_token_id": 0, **attributes}
    return ShownNode(
        *("com.microsoft", operator, 1, "search"),
        [ShownValue(name) for name in ("input_ids", "max_length")],
        [ShownValue(name) for name in outputs],
        [ShownAttribute(name, "int", value) for name, value in given.items()],
    )


def graph(lines: str) -> ShownGraph:
    model = onnx.parser.parse_model(HEAD.format(lines))
    model.graph.initializer.extend(
        numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in WEIGHTS.items()
    )
    return showing.shown(model)


@pytest.mark.parametrize(
    ("lines", "read"),
    [
        ("logits = MatMul (h, w)", "h"),
        ("n = LayerNormalization (h, gain) y = MatMul (n, w) logits = Add (y, bias)", "h"),
        ("y = MatMul (h, square) r = Relu (y) logits = MatMul (r, w)", "h"),
        ("y = MatMul (h, square) z = Relu (y) logits = MatMul (y, w)", "y"),
        ("y = MatMul (h, square) z = Add (y, h) logits = MatMul (z, w)", "h"),
        ("y = MatMul (h, w) logits = Softmax <axis = 1> (y)", "logits"),
        ("n = LayerNormalization <axis = 1> (h, h) logits = MatMul (n, w)", "n"),
    ],
)
def test_what_only_the_logits_need_is_calculated_for_the_last_token(lines: str, read: str) -> None:
    found = graph(lines)
    bodies_of(search_of(node()), {"decoder": found}, ())
    made = converted(found)
    cut_rows(made)
    (gather,) = (it for it in made if it.name.startswith(LAST_ROW))
    assert gather.inputs[0] is not None and gather.inputs[0].name == read
    known = {it.name for it in (*made.inputs, *made.initializers.values())}
    for it in made:  # in topological order
        assert {value.name for value in it.inputs if value is not None} <= known
        known |= {value.name for value in it.outputs}


def test_caches_are_read_in_the_order_of_an_input() -> None:
    found = graph("logits = MatMul (h, w)")
    body = bodies_of(search_of(node()), {"decoder": found}, ())["decoder"]
    assert body.inputs == ("input_ids", "position_ids", "attention_mask", "past_0", ROWS)
    assert [it.name for it in found.inputs] == ["input_ids", "past_0", ROWS]  # what nothing reads is no input
    assert [it.name for it in found.outputs] == [SCORES, "present_0"]
    assert (body.vocabulary, body.sizes) == (7, ((DType.FLOAT32, 2, 3),))
    (reader,) = (it for it in found if it.op_type == "Identity")
    assert [it.name for it in reader.inputs if it is not None] == ["past_0/rows"]


def test_a_vocabulary_larger_than_the_logits_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="its decoder: vocab_size is 8, and the logits are of 7 tokens"):
        bodies_of(search_of(node(vocab_size=8)), {"decoder": graph("logits = MatMul (h, w)")}, ())


def test_a_decoder_without_caches_is_refused() -> None:
    found = graph("logits = MatMul (h, w)")
    found.outputs.pop()
    with pytest.raises(UnsupportedError, match="its decoder: it has 0 inputs and 0 outputs for its caches"):
        bodies_of(search_of(node()), {"decoder": found}, ())


def test_the_largest_scores_are_the_first_of_equal_ones_and_no_nan() -> None:
    values = np.array([1, 3, np.nan, 3, 2, -np.inf, 3], np.float32)
    assert _largest(values, 3).tolist() == [1, 3, 6]
    assert _largest(values, 5).tolist() == [1, 3, 6, 4, 0]
    assert len(_largest(np.full(5, np.nan, np.float32), 2)) == 2


def test_outputs_that_are_not_made_here_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="its output filtered_logits is not supported"):
        search_of(node("Sampling", ("sequences", "filtered")))
