"""Stores the lowerings of groups from the decision until compilation, so that a claimed group is compiled as it was claimed.

In: a group cut out of its graph, and its lowering. Out: the lowering, once, for the group as ONNX Runtime cuts it out.
Invariants: a lowering is returned only for a group with equal structure and equal elements of all constants that were read.
Nothing stored here points into memory that ONNX Runtime lends for one call. Therefore weights are stored by name, and replaced
by those of the compiled group.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ...compiler.graph.facts import digests, read_unrecorded
from ...compiler.graph.tied import pass_ties, places_of, ties_hold, ties_of
from ...compiler.ir import LoweredGraph
from ...program.ties import Ties
from ...program.weights import Permuted
from ...records import dataclass
from .converted import NumbersAttribute
from .shown import KEPT_WHOLE


@dataclass(frozen=True)
class _Named:
    """Placeholder of a weight of the model."""

    name: str


@dataclass(frozen=True)
class _KeptLowering:
    """A lowering, with its dependencies besides the group's structure: constants that were read, and ties of constants."""

    lowered: LoweredGraph
    facts: Mapping[str, str]
    ties: Ties
    places: Mapping[str, int]

    def fits(self, group: ir.Graph) -> bool:
        """Whether this is also a lowering of `group`, which has the same structure."""
        return digests(group, self.facts) == self.facts and ties_hold(self.ties, group, self.places)


class Lowerings:
    """The lowerings of one session, for the groups that are compiled next."""

    def __init__(self) -> None:
        self._kept: dict[str, list[_KeptLowering]] = {}

    def keep(self, group: ir.Graph, lowered: LoweredGraph, facts: Mapping[str, str]) -> None:
        """Stores the lowering of a group, unless it has data that has no name and cannot be copied. `facts`: its graph's."""
        names = {id(value.const_value): name for name, value in group.initializers.items()}
        instead: list[tuple[Any, Any]] = []
        for tensor in lowered.weights():
            source = _as_in_model(tensor.data)
            name = names.get(id(source))
            data = _Named(name) if name is not None else _own(source)
            if data is None:
                return
            instead.append((tensor, _made_of(data, tensor.data)))
        for tensor, data in instead:
            tensor.data = data
        ties, own = ties_of(group), {name: digest for name, digest in facts.items() if name in group.initializers}
        self._kept.setdefault(_key(group), []).append(_KeptLowering(lowered, own, ties, places_of(ties, group)))

    def take(self, group: ir.Graph) -> LoweredGraph | None:
        """Removes and returns the lowering of an equal group, with the weights of this group; None if there is none."""
        alike = self._kept.get(_key(group), [])
        kept = next((it for it in alike if it.fits(group)), None)
        if kept is None:
            return None
        alike.remove(kept)
        pass_ties(kept.ties, group)
        for tensor in kept.lowered.weights():
            source = _as_in_model(tensor.data)
            if isinstance(source, _Named):
                tensor.data = _made_of(group.initializers[source.name].const_value, tensor.data)
        return kept.lowered

    def clear(self) -> None:
        """Removes the lowerings of groups that were not compiled."""
        self._kept.clear()


def order_as(graph: ir.Graph, lowered: LoweredGraph) -> None:
    """Sorts inputs and outputs of a graph in the order of its lowering. ONNX Runtime lists them in another order."""
    for values, tensors in ((graph.inputs, lowered.inputs), (graph.outputs, lowered.outputs)):
        by_name = {it.name: it for it in values}
        values[:] = [by_name[it.name] for it in tensors if it.name in by_name]  # not shapes of outputs


def _as_in_model(weight: Any) -> Any:
    """Returns a weight in the model's order of axes."""
    return weight.data if isinstance(weight, Permuted) else weight


def _made_of(data: Any, like: Any) -> Any:
    """Returns a weight with other elements, permuted as `like` is."""
    return replace(like, data=data) if isinstance(like, Permuted) else data


def _own(data: Any) -> Any | None:
    """Returns the same data in our own memory; None for a kind of tensor that is not a plain array."""
    if isinstance(data, ir.Tensor):
        array = data.numpy()
        return data if _owns(array) else ir.Tensor(array.copy(), data.dtype, name=data.name)
    if isinstance(data, np.ndarray):
        return data if _owns(data) else data.copy()
    return None


def _owns(array: np.ndarray[Any, Any]) -> bool:
    """Whether numpy allocated the memory of an array, so that the array keeps it alive."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.base is None


def _key(group: ir.Graph) -> str:
    """Returns the key of a group. It does not depend on the order of nodes and values, which ONNX Runtime may change."""
    read = {value for node in group for value in node.inputs if value is not None}
    lines = [
        f"{value.name} {value.dtype} {value.shape}".encode()
        + (_content(value.const_value) if value.const_value is not None else b"")
        for value in read
        if value.producer() is None
    ]
    for node in group:
        inputs = [None if value is None else value.name for value in node.inputs]
        outputs = [value.name for value in node.outputs]
        attributes = sorted((name, repr(_value(it))) for name, it in node.attributes.items())
        lines.append(
            f"{node.domain} {node.op_type} {node.version} {node.name} {inputs} {outputs} {attributes}".encode()
        )
    lines += [f"-> {value.name}".encode() for value in group.outputs if value.producer() is not None]
    digest = hashlib.sha256(repr(dict(group.opset_imports)).encode())
    for line in sorted(lines):
        digest.update(line + b"\n")
    return digest.hexdigest()


def _value(attribute: ir.Attr) -> Any:
    """Returns the value of an attribute; None for a body, because its attribute is empty here."""
    if attribute.type == ir.AttributeType.TENSOR:
        return _whole(attribute.as_tensor())
    if isinstance(attribute, NumbersAttribute):
        return attribute.array.size, hashlib.sha256(attribute.array.data).hexdigest()
    return None if attribute.type == ir.AttributeType.GRAPH else attribute.value


def _content(tensor: ir.TensorProtocol) -> bytes:
    """Returns the part of a constant that belongs to the key. Facts cover the elements of large constants."""
    if tensor.dtype == ir.DataType.STRING or tensor.nbytes > KEPT_WHOLE:
        return f"{tensor.dtype}{tensor.shape}".encode()
    return _whole(tensor)


def _whole(tensor: ir.TensorProtocol) -> bytes:
    """Returns type, shape and elements of a tensor."""
    elements = b"" if tensor.dtype == ir.DataType.STRING else np.ascontiguousarray(read_unrecorded(tensor)).tobytes()
    return f"{tensor.dtype}{tensor.shape}".encode() + elements
