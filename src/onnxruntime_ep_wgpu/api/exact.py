"""Reference values of a graph in double precision, to decide between two providers that disagree.

In: a model file and arrays of some of its values. Out: another value, calculated from these in float64 by ONNX's reference
implementation. Also its sensitivity: the change when each array element changes by half a unit in the last place. No calculation
can be more precise than that. Invariant: no execution provider takes part. `NoReference` carries the reason for a failure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..records import dataclass
from .external_data import check_external_data, follow_links, take_in

LARGEST = 1 << 24
"""Limit of elements that a part of the graph reads and writes. Beyond it, the reference takes minutes."""
_DRAWS = 2


class NoReference(Exception):
    """The value cannot be calculated in float64; the message is the reason."""


@dataclass(frozen=True)
class Exact:
    """`value` is in float64, or of an integer type. `moves` is each element's change when the inputs' rounding changes."""

    value: Any
    moves: Any


class Reference:
    """The graph of a model file, for the calculation of single values."""

    def __init__(self, path: Path) -> None:
        import onnx

        model = onnx.load(str(path), load_external_data=False)
        check_external_data(path, model)
        take_in(model, path)
        self._folder, self._opsets = str(follow_links(model, path)), model.opset_import
        self._ir_version = model.ir_version
        self._nodes = list(model.graph.node)
        self._producers = {name: node for node in model.graph.node for name in node.output if name}
        self._weights = {weight.name: weight for weight in model.graph.initializer}

    def value(self, name: str, known: Mapping[str, Any], given: frozenset[str]) -> Exact:
        """Calculates the value `name` from known arrays. Raises NoReference.

        Inputs are the entries of `known` that are in `given` (the operands of a kernel), graph inputs, and integers, which are
        exact. All values between are calculated."""
        nodes, inputs = self._part(name, known, given)
        arrays = {it: np.asarray(known[it]) for it in inputs}
        if sum(array.size for array in arrays.values()) + np.asarray(known[name]).size > LARGEST:
            raise NoReference("it is too large for the reference implementation")
        evaluator = self._evaluator([name], nodes, inputs)
        rng = np.random.default_rng(0)
        value, *moved = (
            _run(evaluator, {it: _double(a) if k == 0 else _perturbed(rng, a) for it, a in arrays.items()})[0]
            for k in range(1 + _DRAWS)
        )
        with np.errstate(invalid="ignore"):
            moves = [np.nan_to_num(np.abs(other.astype(np.float64) - value.astype(np.float64))) for other in moved]
        return Exact(value, np.maximum.reduce(moves))

    def values(self, names: Sequence[str], feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Calculates the values `names` from all graph inputs. Raises NoReference."""
        evaluator = self._evaluator(names, self._nodes, list(feeds))
        results = _run(evaluator, {name: _double(np.asarray(array)) for name, array in feeds.items()})
        return dict(zip(names, results, strict=True))

    def _part(self, name: str, known: Mapping[str, Any], given: frozenset[str]) -> tuple[list[Any], list[str]]:
        """Returns the nodes that lead to a value, in topological order, and their inputs."""
        nodes: dict[int, Any] = {}
        inputs: dict[str, None] = {}
        done: set[str] = set()
        stack = [(name, False)]
        while stack:
            value, ready = stack.pop()
            producer = self._producers.get(value)
            if ready:
                nodes[id(producer)] = producer
                continue
            if not value or value in done or value in self._weights:
                continue
            done.add(value)
            if value != name and value in known and (value in given or producer is None or _is_exact(known[value])):
                inputs[value] = None
                continue
            if producer is None:
                raise NoReference(f"its operand {value!r} is not known")
            if any(attribute.HasField("g") or attribute.graphs for attribute in producer.attribute):
                raise NoReference(f"{producer.op_type} has a body")
            stack.append((value, True))
            stack += [(operand, False) for operand in reversed(producer.input)]
        return list(nodes.values()), list(inputs)

    def _evaluator(self, names: Sequence[str], nodes: Sequence[Any], inputs: Sequence[str]) -> Any:
        import onnx
        from onnx.reference import ReferenceEvaluator

        read = {operand for node in nodes for operand in node.input}
        weights = []
        for weight in (self._weights[it] for it in read & self._weights.keys()):
            array = onnx.numpy_helper.to_array(weight, self._folder)
            weights.append(onnx.numpy_helper.from_array(_double(array), weight.name))
        untyped = onnx.TypeProto()
        graph = onnx.helper.make_graph(
            [_in_doubles(node) for node in nodes],
            "part",
            [onnx.helper.make_value_info(it, untyped) for it in inputs],
            [onnx.helper.make_value_info(name, untyped) for name in names],
            weights,
        )
        model = onnx.helper.make_model(graph, opset_imports=self._opsets, ir_version=self._ir_version)
        try:
            return ReferenceEvaluator(model, new_ops=_operators())
        except Exception as error:  # for example an operator without implementation
            raise NoReference(_first_line(error)) from error


def _run(evaluator: Any, feeds: Mapping[str, Any]) -> Any:
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(it) for it in evaluator.run(None, feeds)]
    except Exception as error:  # the reference validates little and raises many types
        raise NoReference(_first_line(error)) from error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _is_exact(array: Any) -> bool:
    return np.asarray(array).dtype in (np.int64, np.int32, np.bool_)


def _is_float(array: Any) -> bool:
    return array.dtype.kind == "f" or array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def _double(array: Any) -> Any:
    return array.astype(np.float64) if _is_float(array) else array


def _perturbed(rng: np.random.Generator, array: Any) -> Any:
    """Returns the array with every float moved up or down at random by half a unit in the last place."""
    if not _is_float(array):
        return array
    digits = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8, "float8_e4m3fn": 4}.get(array.dtype.name, 3)
    doubles = array.astype(np.float64)
    return doubles * (1 + rng.choice([-1.0, 1.0], doubles.shape) * 2.0**-digits)


def _in_doubles(node: Any) -> Any:
    """Returns a copy of a node with its float constants and casts to float changed to double."""
    import onnx

    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for attribute in copy.attribute:
        if attribute.HasField("t") and attribute.t.data_type in floats:
            doubles = onnx.numpy_helper.to_array(attribute.t).astype(np.float64)
            attribute.t.CopyFrom(onnx.numpy_helper.from_array(doubles))
        if node.op_type == "Cast" and attribute.name == "to" and attribute.i in floats:
            attribute.i = onnx.TensorProto.DOUBLE
    return copy


def _operators() -> list[Any]:
    """Returns replacements for operators that ONNX's reference calculates in single precision, or one output at a time."""
    from onnx.reference.op_run import OpRun

    class Erf(OpRun):  # type: ignore[misc,unused-ignore]
        op_domain = ""

        def _run(self, x: Any) -> tuple[Any]:
            return (np.vectorize(math.erf, otypes=[np.float64])(x),)

    class Conv(OpRun):  # type: ignore[misc,unused-ignore]
        op_domain = ""

        def _run(self, x: Any, w: Any, bias: Any = None, **attributes: Any) -> tuple[Any]:
            return (_convolution(x, w, bias, **attributes),)

    return [Erf, Conv]


def _convolution(
    x: Any,
    w: Any,
    bias: Any,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    """Conv of opset 1 to 22: x (batch, channels, *sizes), w (features, channels / group, *kernel)."""
    rank, kernel = x.ndim - 2, w.shape[2:]
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        totals = [max(0, (-(-n // s) - 1) * s + e - n) for n, s, e in zip(x.shape[2:], strides, extents, strict=True)]
        less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
        pads = [*less, *more] if auto_pad == "SAME_UPPER" else [*more, *less]
    pads = pads or [0] * (2 * rank)
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    axes = tuple(range(2, 2 + rank))
    windows = np.lib.stride_tricks.sliding_window_view(x, extents, axis=axes)
    steps = (slice(None),) * 2 + tuple(slice(None, None, s) for s in strides)
    windows = windows[steps + tuple(slice(None, None, d) for d in dilations)]
    parts = []
    for g in range(group):
        mine = slice(g * w.shape[1], (g + 1) * w.shape[1])
        features = w.shape[0] // group
        kernels = w[g * features : (g + 1) * features]
        over = [1, *range(2 + rank, 2 + 2 * rank)]
        part = np.tensordot(windows[:, mine], kernels, (over, list(range(1, 2 + rank))))
        parts.append(np.moveaxis(part, -1, 1))
    y = np.concatenate(parts, 1)
    return y if bias is None else y + bias.reshape(1, -1, *[1] * rank)
