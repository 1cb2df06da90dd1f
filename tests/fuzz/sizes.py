"""Models whose sizes are strange: one number of a node, huge, negative or beyond its type.

In: a number. Out: a model, made of a node case of the package onnx: integer inputs are constants, and one integer of an
attribute, a constant or a shape has another value. Behind the node is one that makes more of its result. Invariant: operators
take turns, so a range of numbers has as many cases of each.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.test.loader import load_model_tests

VALUES = (10**7, 2**62, -(2**63), 2**31 - 1, -1, 10**9, 2**32 + 1, 0, 2**63 - 1, -(2**31) - 1, 10**5, 2**40)
SMALL = 64  # elements of a constant whose values are sizes or indices
_INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
_OF_ALL = ("", "Tile", "Concat", "Transpose", "Slice", "Expand")  # what stands behind
_OF_FLOATS = ("Resize", "ReduceSum", "Pad", "MatMul", "Conv", "Split", "Softmax")


@cache
def operators() -> tuple[tuple[onnx.ModelProto, ...], ...]:
    """The models with an integer to change, by operator."""
    found: dict[str, list[onnx.ModelProto]] = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        suite = load_model_tests(kind="node")
    for case in suite:
        if case.model is not None and len(case.model.graph.node) == 1:
            model = _with_constants(case.model, case.data_sets[0][0])
            if _places(model):
                found.setdefault(model.graph.node[0].op_type, []).append(model)
    return tuple(tuple(models) for _, models in sorted(found.items()))


def make(number: int) -> tuple[bytes, dict[str, np.ndarray]]:
    """The model of this number and, where a run is to tell the sizes, the inputs that do."""
    every = operators()
    chance = random.Random(number)
    model = onnx.ModelProto()
    model.CopyFrom(chance.choice(every[number % len(every)]))
    what, which, at = chance.choice(_places(model))
    _change(model, (what, which, at), chance.choice(VALUES))
    _behind(model, chance)
    for info in model.graph.output:
        info.type.tensor_type.ClearField("shape")
    return model.SerializeToString(), _as_inputs(model) if what == "constant" and chance.random() < 0.4 else {}


def _with_constants(case: onnx.ModelProto, values: Sequence[Any]) -> onnx.ModelProto:
    """The model of a node case, whose short inputs of integers are constants."""
    model = onnx.ModelProto()
    model.CopyFrom(case)
    inputs = list(model.graph.input)
    del model.graph.input[:]
    for info, value in zip(inputs, values, strict=False):
        if info.type.tensor_type.elem_type in _INTEGERS and np.size(value) <= SMALL:
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), info.name))
        else:
            model.graph.input.append(info)
    return model


_Place = tuple[str, int, int]
"""What is changed: an attribute, a constant or the shape of an input by its number, and which integer of it, -1 for each."""


def _places(model: onnx.ModelProto) -> list[_Place]:
    found: list[_Place] = []
    for number, attribute in enumerate(model.graph.node[0].attribute):
        if attribute.type == onnx.AttributeProto.INT:
            found.append(("attribute", number, 0))
        elif attribute.type == onnx.AttributeProto.INTS:
            found += [("attribute", number, at) for at in (-1, *range(len(attribute.ints)))]
    for number, tensor in enumerate(model.graph.initializer):
        if tensor.data_type in _INTEGERS:
            found += [("constant", number, at) for at in (-1, *range(int(np.prod(tensor.dims))))]
    for number, value in enumerate(model.graph.input):
        found += [("shape", number, at) for at in range(len(value.type.tensor_type.shape.dim))]
    return found


def _change(model: onnx.ModelProto, place: _Place, value: int) -> None:
    what, number, at = place
    if what == "attribute":
        attribute = model.graph.node[0].attribute[number]
        if attribute.type == onnx.AttributeProto.INT:
            attribute.i = value
        else:
            attribute.ints[:] = [value if at in (-1, k) else it for k, it in enumerate(attribute.ints)]
    elif what == "constant":
        tensor = model.graph.initializer[number]
        array = numpy_helper.to_array(tensor).copy()
        limits = np.iinfo(array.dtype)
        flat = array.reshape(-1)
        flat[slice(None) if at < 0 else at] = min(max(value, limits.min), limits.max)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    else:
        model.graph.input[number].type.tensor_type.shape.dim[at].dim_value = max(0, value)


def _as_inputs(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """The constants of a model by name, which become inputs of it."""
    feeds = {it.name: numpy_helper.to_array(it) for it in model.graph.initializer if it.data_type in _INTEGERS}
    kept = [it for it in model.graph.initializer if it.name not in feeds]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    for name, array in feeds.items():
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        model.graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
    return feeds


def _behind(model: onnx.ModelProto, chance: random.Random) -> None:
    """A node that makes more of the first result, or less, as far as its type and rank are known to fit."""
    first = model.graph.output[0]
    rank = len(first.type.tensor_type.shape.dim)
    kind = first.type.tensor_type.elem_type
    several = [*_OF_ALL, *(_OF_FLOATS if kind == onnx.TensorProto.FLOAT else ())] if kind and rank else [""]
    operator = chance.choice([it for it in several if it != "Conv" or rank > 2])
    inputs, outputs, attributes = [first.name], ["behind"], dict[str, int]()
    constants: dict[str, np.ndarray] = {}
    if operator == "Resize":
        inputs.append("")
        constants["scales"] = np.full(rank, 2, np.float32)
    elif operator in ("Tile", "Expand"):
        constants["repeats"] = np.full(rank, 3)
    elif operator == "Pad":
        constants["pads"] = np.full(2 * rank, 10**6)
    elif operator == "Slice":
        constants |= {"starts": np.array([1]), "ends": np.array([2**63 - 1])}
    elif operator in ("Concat", "MatMul", "Conv"):
        inputs.append(first.name)
        attributes |= {"axis": 0} if operator == "Concat" else {}
    elif operator == "Split":
        outputs.append("rest")
        attributes["num_outputs"] = 2
    if operator:
        model.graph.node.append(helper.make_node(operator, [*inputs, *constants], outputs, **attributes))
        model.graph.initializer.extend(numpy_helper.from_array(it, name) for name, it in constants.items())
        model.graph.output.append(helper.make_tensor_value_info("behind", kind, None))
