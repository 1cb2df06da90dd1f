"""Samples the next id of every sequence on the device, with a small model that is generated for the sampling settings.

In: the logits of the last tokens. Out: ids, and the inputs of the decoder's next step: lengths, positions and masks. Only the
ids are downloaded. If a logit is NaN, the id is NAN; if all logits are -infinity, it is NOTHING.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...errors import InputError, cut
from ...records import dataclass

CANDIDATES = 1024
"""The number of likeliest ids that `top_p` considers if `top_k` is not set."""

NAN, NOTHING = -1, -2
"""Returned instead of an id."""

COLDEST = 1e-30
"""A smaller temperature counts as 0, because differences of scores divided by it exceed float32."""

_MOST = float(np.finfo(np.float32).max)

_RANGES: dict[str, tuple[Any, Any]] = {
    "temperature": (0, np.inf),
    "top_k": (0, np.inf),
    "top_p": (1e-9, 1),
    "min_p": (0, 1),
    "repetition_penalty": (1e-9, np.inf),
}


@dataclass(frozen=True)
class Sampling:
    """The settings for the choice of the next id.

    - `temperature`: 0, or less than 1e-30, selects the likeliest id. Otherwise ids are drawn at random.
    - `top_k`: draws only from so many likeliest ids; 0 means all.
    - `top_p`: draws only from the fewest likeliest ids with this total probability.
    - `min_p`: draws only from ids that are at least `min_p` times as likely as the likeliest.
    - `repetition_penalty`: divides positive scores of ids that occurred, and multiplies negative ones.
    - `seed`: equal seeds give equal texts; None means a random seed.

    Raises InputError for a value out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value: Any = getattr(self, name)
            whole = name == "top_k"
            if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
                words = "an integer" if whole else "a number"
                raise InputError(f"{name} is {cut(value)}; expected {words} from {low:g} to {high:g}")
            if not low <= value <= high:
                raise InputError(f"{name} is {value}; expected a value from {low:g} to {high:g}")
        seed: Any = self.seed
        if seed is not None and (not isinstance(seed, Integral) or seed < 0):
            raise InputError(f"seed is {cut(seed)}; expected an integer of at least 0, or None for a new one")

    @property
    def is_greedy(self) -> bool:
        return self.temperature < COLDEST

    @property
    def remembers(self) -> bool:
        return self.repetition_penalty != 1


class _Graph:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def __call__(self, op: str, *inputs: str | np.ndarray[Any, Any], to: str = "", **attributes: Any) -> str:
        names = [self.constant(it) if isinstance(it, np.ndarray) else it for it in inputs]
        output = to or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [output], name=output, **attributes))
        return output

    def constant(self, value: np.ndarray[Any, Any]) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(value, name))
        return name


def model_of(settings: Sampling, kind: int, vocabulary: int, positions: bool = True) -> onnx.ModelProto:
    """Returns the sampler's model. `kind` is the ONNX type of the logits.

    Inputs:

    - `logits` (batch, 1, vocabulary), `lengths` (batch), `columns` (keys)
    - `uniform` (batch, 1): random numbers from 0 to 1, unless greedy
    - `seen` (batch, vocabulary): 1 for ids that occurred, with a repetition penalty

    Outputs:

    - `ids` (batch, 1), `lengths_next` (batch)
    - `mask` (batch, keys): 1 where `columns` is less than `lengths_next`
    - `positions` (batch, 1), if requested; `seen_next`, with a repetition penalty
    """
    g = _Graph()
    one, axes, first = np.array(1, np.int64), np.array([1], np.int64), np.array([0], np.int64)
    logits = g("Squeeze", "logits", axes)
    x = _cast(g, logits, 1)
    largest = ""
    if settings.remembers:
        largest = g("ReduceMax", x, axes, keepdims=1)
        penalty = _number(settings.repetition_penalty)
        less = g("Where", g("Greater", x, np.array(0, np.float32)), g("Div", x, penalty), g("Mul", x, penalty))
        x = g("Where", g("Greater", "seen", np.array(0.5, np.float32)), less, x)
    elif not settings.is_greedy:
        x = logits  # the cast would not change the order, and these are in memory
    if settings.is_greedy:
        chosen, found = g("ArgMax", x, axis=1, keepdims=1), largest or g("ReduceMax", x, axes, keepdims=1)
    else:
        chosen, found = _sampled(g, settings, x, vocabulary)
    largest = largest or found  # a penalty may make all logits infinite
    for problem, number in ((g("IsInf", largest, detect_positive=0), NOTHING), (g("IsNaN", largest), NAN)):
        to = "ids" if number == NAN else ""
        chosen = g("Where", problem, np.array([[number]], np.int64), chosen, to=to)
    g("Add", "lengths", one, to="lengths_next")
    if positions:
        g("Unsqueeze", "lengths", axes, to="positions")
    ends = g("Unsqueeze", "lengths_next", axes)
    _cast(g, g("Less", "columns", ends), 7, to="mask")
    if settings.remembers:
        ones = g("ConstantOfShape", g("Shape", "ids"), value=numpy_helper.from_array(np.ones(1, np.float32)))
        g("ScatterElements", "seen", g("Max", "ids", first), ones, axis=1, to="seen_next")
    value = helper.make_tensor_value_info
    inputs = [
        value("logits", kind, ["batch", 1, vocabulary]),
        value("lengths", 7, ["batch"]),
        value("columns", 7, ["keys"]),
    ]
    outputs = [
        value("ids", 7, ["batch", 1]), value("lengths_next", 7, ["batch"]), value("mask", 7, ["batch", "keys"]),
    ]  # fmt: skip
    if positions:
        outputs.append(value("positions", 7, ["batch", 1]))
    if not settings.is_greedy:
        inputs.append(value("uniform", 1, ["batch", 1]))
    if settings.remembers:
        inputs.append(value("seen", 1, ["batch", vocabulary]))
        outputs.append(value("seen_next", 1, ["batch", vocabulary]))
    graph = helper.make_graph(g.nodes, "sampler", inputs, outputs, g.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _number(value: float) -> np.ndarray[Any, Any]:
    """Returns a positive number, clamped to the largest float32, because infinity times 0 is NaN."""
    return np.array(min(value, _MOST), np.float32)


def _cast(g: _Graph, x: str, kind: int, to: str = "") -> str:
    output = to or f"v{len(g.nodes)}"
    g.nodes.append(helper.make_node("Cast", [x], [output], name=output, to=kind))
    return output


def _sampled(g: _Graph, settings: Sampling, x: str, vocabulary: int) -> tuple[str, str]:
    """Returns ids sampled with the random numbers `uniform`, and the largest element of each row of x, NaN if there is one.

    The id is the first one with a cumulative weight above `uniform` times the sum of all weights.

    A weight is a probability relative to the likeliest id's, which has weight 1, so no normalisation is necessary. Candidates
    are in descending order if they are fewer than all ids, or if `top_p` needs the order.
    """
    count = min(settings.top_k or (CANDIDATES if settings.top_p < 1 else vocabulary), vocabulary)
    axis, order = np.array([1], np.int64), ""
    if count < vocabulary or settings.top_p < 1:
        order, values = f"v{len(g.nodes)}_order", f"v{len(g.nodes)}"
        amount = g.constant(np.array([count], np.int64))
        g.nodes.append(helper.make_node("TopK", [x, amount], [values, order], name=values, axis=1))
        x = _cast(g, values, 1)
        largest = g("Slice", x, np.array([0]), np.array([1]), axis)
    else:
        x = _cast(g, x, 1)
        largest = g("ReduceMax", x, axis, keepdims=1)
    # The largest score becomes 0 even if it is infinite. Otherwise a low temperature could make infinity minus infinity.
    less = g("Div", g("Sub", x, largest), _number(settings.temperature))
    weights = g("Exp", g("Where", g("Equal", x, largest), np.array(0, np.float32), less))
    nothing = np.array(0, np.float32)
    if settings.min_p > 0:
        weights = g("Where", g("Less", weights, np.array(settings.min_p, np.float32)), nothing, weights)
    sums = g("CumSum", weights, np.array(1, np.int64))
    if settings.top_p < 1:
        before = g("Div", g("Sub", sums, weights), _last(g, sums, count))
        weights = g("Where", g("Less", before, np.array(settings.top_p, np.float32)), weights, nothing)
        sums = g("CumSum", weights, np.array(1, np.int64))
    beyond = _cast(g, g("Greater", g("Div", sums, _last(g, sums, count)), "uniform"), 6)
    place = g("ArgMax", beyond, axis=1, keepdims=1)
    return g("GatherElements", order, place, axis=1) if order else place, largest


def _last(g: _Graph, sums: str, count: int) -> str:
    return g("Slice", sums, np.array([count - 1]), np.array([count]), np.array([1], np.int64))
