"""Folders with graphs that are malformed: a model, or an error that names the defect. Nothing runs without end."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper
from onnx.helper import make_node as node

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.language.last_row import of_last_row
from onnxruntime_ep_wgpu.api.language.mask_length import decides_by_length
from onnxruntime_ep_wgpu.api.language.mask_reach import reaches_scores
from onnxruntime_ep_wgpu.errors import InternalError, ModelError, WgpuEpError
from tests.fuzz.cases import NUMBERS

from .models import Decoder, config_of, graph_of, growing_graph_of, write_beside

MASK, KEY, PRESENT = "attention_mask", "past_key_values.0.key", "present.0.key"
DECODER = Decoder(layers=1)
GRAPHS = (graph_of, growing_graph_of)
OPERATORS = (
    "Identity", "Cast", "Shape", "Size", "Concat", "Slice", "Gather", "Reshape", "Add", "Where", "If", "Loop", "Softmax",
    "GroupQueryAttention", "MultiHeadAttention", "Attention", "Transpose", "Squeeze", "Split", "MatMul", "ReduceMean", "Constant",
)  # fmt: skip
NAMES = (
    "input_ids", MASK, "position_ids", "logits", KEY, PRESENT, "past_key_values.0.value", "present.0.value", "past_1.key", "",
    "present.1.key", "x\0y", "past.٣.key", f"past.{'9' * 5000}.key",
)  # fmt: skip
TYPES = (*range(26), 99, -1, 2**31 - 1)


# ---- one defect


def changed(make: Callable[[Decoder], onnx.ModelProto]) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(make(DECODER))
    return model


def value(model: onnx.ModelProto, name: str) -> Any:
    return next(it for it in (*model.graph.input, *model.graph.output) if it.name == name).type.tensor_type


def opened(folder: Path, model: onnx.ModelProto, head_size: Any = DECODER.size) -> webgpu_ep.LanguageModel:
    onnx.save(model, folder / "model.onnx")
    write_beside(DECODER, folder)
    settings = config_of(DECODER)
    settings["model"]["decoder"]["head_size"] = head_size
    (folder / "genai_config.json").write_text(json.dumps(settings))
    return webgpu_ep.LanguageModel(folder)


def test_walks_over_a_graph_end_where_it_has_a_cycle() -> None:
    model = changed(graph_of)
    model.graph.node.extend(
        [node("Identity", [MASK, "b"], ["a"]), node("Identity", ["a"], ["b"]), node("Neg", [MASK], ["c"])]
    )
    model.graph.node.append(node("Concat", ["d"], ["d"], axis=0))
    model.graph.node.append(node("Reshape", ["logits", "d"], ["e"]))
    assert not decides_by_length(model, MASK)
    assert not reaches_scores(model, MASK, [KEY])
    of_last_row(model, "logits")


def test_walks_over_a_graph_are_linear_in_its_nodes() -> None:
    model = changed(graph_of)
    nodes = [node("Unsqueeze", [MASK, "one"], ["size0"])]
    nodes += [node("Concat", [f"size{k}", f"size{k}"], [f"size{k + 1}"], axis=0) for k in range(200)]
    nodes += [node("Reshape", ["logits", "size200"], ["shaped"]), node("Identity", [MASK], ["same0"])]
    nodes += [node("Identity", [f"same{k}"], [f"same{k + 1}", f"same{k + 1}"]) for k in range(200)]
    model.graph.node.extend(nodes)
    assert not decides_by_length(model, MASK)
    del model.graph.node[-201:]  # onnx_ir accepts one output of a name
    of_last_row(model, "logits")


@pytest.mark.parametrize(
    "operator", ["MatMul", "Add", "ReduceMean", "Split", "Reshape", "SkipSimplifiedLayerNormalization"]
)
def test_nodes_without_inputs_stay_as_they_are(operator: str) -> None:
    model = changed(growing_graph_of)
    last = model.graph.node[-1]
    last.op_type, last.domain = operator, "com.microsoft" if operator.startswith("Skip") else ""
    del last.input[:]
    of_last_row(model, "logits")
    assert [it.op_type for it in model.graph.node[-2:]] == [operator, "Slice"]


def test_a_concat_without_inputs_passes_no_mask_on() -> None:
    model = changed(growing_graph_of)
    body = helper.make_graph([node("Identity", [MASK], ["q"])], "b", [], [helper.make_tensor_value_info("q", 7, None)])
    model.graph.node.append(node("Concat", [], ["w"], body=body))
    assert reaches_scores(model, MASK, [KEY])


def test_outputs_need_no_shape(tmp_path: Path) -> None:
    model = changed(growing_graph_of)
    ids = [list(range(3, 9))]
    wanted = list(opened(tmp_path, model).tokens(ids, max_new_tokens=4))
    for name in (PRESENT, "present.0.value"):
        value(model, name).ClearField("shape")
    found = opened(tmp_path, model)
    assert found.decoder.takes_rows and list(found.tokens(ids, max_new_tokens=4)) == wanted


def size(number: int, axis: int, name: str = KEY) -> Callable[[onnx.ModelProto], object]:
    return lambda it: setattr(value(it, name).shape.dim[axis], "dim_value", number)


def extra(model: onnx.ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info(f"past_key_values.{'9' * 5000}.key", 1, ["b", 2, "p", 16]))


DEFECTS: dict[str, tuple[Callable[[onnx.ModelProto], object], str]] = {
    "rank of a result": (lambda it: value(it, PRESENT).shape.dim.pop(), r"'present\.0\.key' has the shape \(.*, .*, .*\); "),
    "strings": (lambda it: setattr(value(it, KEY), "elem_type", 8), r"key' has the element type 8; "),
    "no type": (lambda it: setattr(value(it, KEY), "elem_type", 0), r"key' has the element type 0; "),
    "unknown type": (lambda it: setattr(value(it, KEY), "elem_type", 99), r"key' has the element type 99; "),
    "heads": (size(2**62, 1), rf"key' has {2**62} heads of size 16, which are {2**62 * 16 * 128} elements for max_length=128"),
    "negative heads": (size(-3, 1), r"key' has the shape \(batch_size, -3, past_sequence_length, 16\); "),
    "negative vocabulary": (size(-3, 2, "logits"), "declares -3 logits"),
    "large vocabulary": (size(2**31, 2, "logits"), "declares 2147483648 logits"),
    "digits": (extra, "lacks .*past_key_values.9999"),
    "two values of a name": (lambda it: it.graph.node.add().CopyFrom(it.graph.node[0]), r"the graph of .* is invalid \(SerdeError"),
}  # fmt: skip


@pytest.mark.parametrize("what", DEFECTS)
def test_a_defect_is_named(what: str, tmp_path: Path) -> None:
    change, message = DEFECTS[what]
    model = changed(growing_graph_of)
    change(model)
    with pytest.raises(ModelError, match=message) as error:
        opened(tmp_path, model)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize("head_size", [2**62, 2**70])
def test_a_size_that_nothing_has_is_named(head_size: int, tmp_path: Path) -> None:
    model = changed(graph_of)
    for it in (*model.graph.input, *model.graph.output):
        if it.name.startswith(("past", "present")):
            it.type.tensor_type.shape.dim[3].dim_param = "size"
    with pytest.raises(ModelError, match=f"{head_size}.*(max_length|genai_config.json|and at most)"):
        opened(tmp_path, model, head_size)


# ---- several


def mutate(model: onnx.ModelProto, chance: random.Random) -> None:
    """Changes nodes, values or weights in a few places."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        with suppress(IndexError, TypeError, ValueError):  # where another change left nothing to change
            chance.choice(CHANGES)(model.graph, chance)


def _name(graph: onnx.GraphProto, chance: random.Random) -> str:
    return chance.choice([*(name for it in graph.node for name in (*it.input, *it.output)), *NAMES])


def _rename(graph: onnx.GraphProto, chance: random.Random) -> None:
    it = chance.choice(graph.node)
    names = chance.choice((it.input, it.output))
    names[chance.randrange(len(names))] = _name(graph, chance)


def _unname(graph: onnx.GraphProto, chance: random.Random) -> None:
    it = chance.choice(graph.node)
    del chance.choice((it.input, it.output))[chance.randrange(2) :]


def _add(graph: onnx.GraphProto, chance: random.Random) -> None:
    names = [[_name(graph, chance) for _ in range(chance.randrange(4))] for _ in range(2)]
    names[1].append(f"new{chance.randrange(9)}")
    made = node(chance.choice(OPERATORS), *names)
    if chance.random() < 0.3:
        inner = [node("Identity", [chance.choice(NAMES)], ["q"])]
        body = helper.make_graph(inner, "b", [], [helper.make_tensor_value_info("q", 7, None)])
        made.attribute.append(helper.make_attribute("body", body))
    graph.node.insert(chance.randrange(len(graph.node) + 1), made)


def _declared(graph: onnx.GraphProto, chance: random.Random) -> None:
    it = chance.choice([*graph.input, *graph.output])
    kind = it.type.tensor_type
    what = chance.randrange(5)
    if what == 0:
        it.name = _name(graph, chance)
    elif what == 1:
        kind.elem_type = chance.choice(TYPES)
    elif what == 2:
        kind.shape.dim[chance.randrange(len(kind.shape.dim))].dim_value = chance.choice(NUMBERS)
    elif what == 3:
        del kind.shape.dim[chance.randrange(len(kind.shape.dim))]
    elif chance.random() < 0.6:
        kind.ClearField("shape")
    else:
        it.ClearField("type")


def _weight(graph: onnx.GraphProto, chance: random.Random) -> None:
    it = chance.choice(graph.initializer)
    what = chance.randrange(4)
    if what == 0:
        it.dims.append(chance.choice(NUMBERS))
    elif what == 1:
        it.data_type = chance.choice(TYPES)
    elif what == 2:
        it.name = _name(graph, chance)
    else:
        it.ClearField("raw_data")


CHANGES: tuple[Callable[[onnx.GraphProto, random.Random], object], ...] = (
    _rename, _rename, _unname, _add, _add, _declared, _declared, _declared, _weight,
    lambda graph, chance: setattr(chance.choice(graph.node), "op_type", chance.choice(OPERATORS)),
    lambda graph, chance: graph.node.pop(chance.randrange(len(graph.node))),
    lambda graph, chance: graph.initializer.add().CopyFrom(graph.initializer[0]),
)  # fmt: skip


def of_onnx_runtime(error: Exception) -> bool:
    return type(error).__module__.startswith("onnxruntime.") or (
        type(error) is RuntimeError and any(it in str(error) for it in ("onnxruntime_src", "Error in execution"))
    )


def check_folders(folder: Path, seeds: range) -> None:
    """Uses what a folder has: a text, or an error that names what is wrong."""
    settings = config_of(DECODER)
    write_beside(DECODER, folder)
    for seed in seeds:
        chance = random.Random(seed)
        model, described = changed(GRAPHS[seed % 2]), copy.deepcopy(settings)
        mutate(model, chance)
        if chance.random() < 0.1:
            described["model"]["decoder"]["head_size"] = chance.choice(NUMBERS)
            described["model"]["context_length"] = chance.choice(NUMBERS)
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        (folder / "genai_config.json").write_text(json.dumps(described))
        try:
            webgpu_ep.LanguageModel(folder).generate("ab", max_new_tokens=2)
        except Exception as error:
            expected = isinstance(error, WgpuEpError) and not isinstance(error, InternalError)
            if not (expected or of_onnx_runtime(error)):
                raise AssertionError(f"seed {seed}") from error


def test_malformed_folders(tmp_path: Path) -> None:
    check_folders(tmp_path, range(40))


@pytest.mark.exhaustive
def test_thousands_of_malformed_folders(tmp_path: Path) -> None:
    check_folders(tmp_path, range(1000, 4000))
