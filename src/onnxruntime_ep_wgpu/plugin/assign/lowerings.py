"""Groups that were lowered to decide on them, kept until they are compiled: what was claimed is what is compiled.

In: a group cut out of its graph, and its lowering. Out: the lowering, once, for the group as ONNX Runtime cuts it out.
Invariants: a lowering is given only for a group of equal content, as far as that was looked at; nothing kept here points into
memory that ONNX Runtime lends for one call. Weights are therefore kept by name, and those of the group that is compiled are put
in their place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ...compiler.graph.facts import digests, read_unrecorded
from ...compiler.graph.tied import hold, pass_ties, places_of, ties_of
from ...compiler.ir import LoweredGraph
from ...program.ties import Ties
from ...program.weights import Permuted
from ...records import dataclass
from .converted import NumbersAttribute
from .shown import KEPT_WHOLE


@dataclass(frozen=True)
class _Named:
    """Stands for a weight of the model."""

    name: str


@dataclass(frozen=True)
class _Kept:
    """A lowering, and what it depends on beyond the group's structure: constants that were looked at, and ties of constants."""

    lowered: LoweredGraph
    facts: Mapping[str, str]
    ties: Ties
    places: Mapping[str, int]

    def fits(self, group: ir.Graph) -> bool:
        """Whether it is a lowering of a group of the same structure."""
        return digests(group, self.facts) == self.facts and hold(self.ties, group, self.places)


class Lowerings:
    """The lowerings of one session. What is kept belongs to groups that will be compiled next."""

    def __init__(self) -> None:
        self._kept: dict[str, list[_Kept]] = {}

    def keep(self, group: ir.Graph, lowered: LoweredGraph, facts: Mapping[str, str]) -> None:
        """Keeps the lowering of a group, unless it has data that could not be found again. `facts` are those of its graph."""
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
        self._kept.setdefault(_key(group), []).append(_Kept(lowered, own, ties, places_of(ties, group)))

    def take(self, group: ir.Graph) -> LoweredGraph | None:
        """The lowering of a group of equal content, with the weights of this one; None when there is none."""
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
        """Lets go of what was not compiled."""
        self._kept.clear()


def order_as(graph: ir.Graph, lowered: LoweredGraph) -> None:
    """Puts inputs and outputs of a graph in the order of its lowering: ONNX Runtime lists them in another one."""
    for values, tensors in ((graph.inputs, lowered.inputs), (graph.outputs, lowered.outputs)):
        by_name = {it.name: it for it in values}
        values[:] = [by_name[it.name] for it in tensors if it.name in by_name]  # without the shapes of outputs


def _as_in_model(weight: Any) -> Any:
    """The elements of a weight as the model has them."""
    return weight.data if isinstance(weight, Permuted) else weight


def _made_of(data: Any, like: Any) -> Any:
    """A weight of other elements, permuted where `like` is."""
    return replace(like, data=data) if isinstance(like, Permuted) else data


def _own(data: Any) -> Any | None:
    """The same data in memory of our own; None for a kind of tensor that is not just an array."""
    if isinstance(data, ir.Tensor):
        array = data.numpy()
        return data if _owns(array) else ir.Tensor(array.copy(), data.dtype, name=data.name)
    if isinstance(data, np.ndarray):
        return data if _owns(data) else data.copy()
    return None


def _owns(array: np.ndarray[Any, Any]) -> bool:
    """Whether the memory behind an array is numpy's, so that the array keeps it."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.base is None


def _key(group: ir.Graph) -> str:
    """Equal for a group that is cut out here and by ONNX Runtime, which may order nodes and values in another way."""
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
    """The value of an attribute; None for a body, of which nothing is known here."""
    if attribute.type == ir.AttributeType.TENSOR:
        return _whole(attribute.as_tensor())
    if isinstance(attribute, NumbersAttribute):
        return attribute.array.size, hashlib.sha256(attribute.array.data).hexdigest()
    return None if attribute.type == ir.AttributeType.GRAPH else attribute.value


def _content(tensor: ir.TensorProtocol) -> bytes:
    """What an answer may depend on of a constant, but for facts."""
    if tensor.dtype == ir.DataType.STRING or tensor.nbytes > KEPT_WHOLE:
        return f"{tensor.dtype}{tensor.shape}".encode()
    return _whole(tensor)


def _whole(tensor: ir.TensorProtocol) -> bytes:
    """All of a tensor."""
    elements = b"" if tensor.dtype == ir.DataType.STRING else np.ascontiguousarray(read_unrecorded(tensor)).tobytes()
    return f"{tensor.dtype}{tensor.shape}".encode() + elements
