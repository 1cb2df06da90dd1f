"""Generates the kernels of equal groups once, such as those of a network's layers.

In: a fused group. Out: a key, and the group's tensors in order. Invariant: groups with equal keys have the same kernel, with
corresponding tensors. A key contains all fields of nodes and tensors, so that it also covers new fields. Exceptions are names,
and weights that are not part of the text. In the key, tensors and nodes are numbers in order of first use.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np

from ...program.target import Target
from ..ir import Body, Node, Tensor, Variant
from ..passes.fuse import FusedGroup
from .kernel_text import Source, generate

_NAMES = {"name", "origin"}
_OF_TENSORS = {
    "producer",
    "users",
    "data",
}  # its other readers; its values, which `_Key` reads if they are in the text

# In every class these fields have dims, types, text or booleans, or tuples of these; equal values mean the same. In other fields
# numbers and booleans are distinguished, and tensors and nodes numbered.
_PLAIN = {
    "dtype", "shape", "storage", "elements", "kept", "axes", "offset", "groups", "reuse", "vector", "run", "here", "expression",
    "body", "coordinates", "cost", "inline", "neighbours", "iterations", "template", "flops", "repeats", "loop_carried",
    "workgroups", "workgroup_size", "guard", "product_bytes",
}  # fmt: skip
_ATOMS = {int, str, type(None)}  # looked up inline where there are many, which saves a call for each

KeysOfVariants = dict[int, tuple[Variant, Hashable]]
"""Keyed by identity: layers share variants, and a variant contains no tensor."""


class Kernels:
    """Kernels for a target, each generated once for all equal groups."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._known: dict[Hashable, tuple[Source, list[Tensor]]] = {}
        self._variants: KeysOfVariants = {}

    def of(self, group: FusedGroup) -> Source:
        """Returns the kernel of a group."""
        key, tensors = key_of(group, self._variants)
        known = self._known.get(key)
        if known is None:
            source = generate(group, self._target)
            self._known[key] = source, tensors
            return source
        source, source_tensors = known
        substitutes = dict(zip(map(id, source_tensors), tensors, strict=True))
        return replace(
            source, bindings=[(substitutes[id(it)], written, byte_range) for it, written, byte_range in source.bindings]
        )


def key_of(group: FusedGroup, variants: KeysOfVariants | None = None) -> tuple[Hashable, list[Tensor]]:
    """Returns the key of a group's kernel, and its tensors in the order of the key. `variants` caches the keys of other groups'
    variants."""
    key = _Key({} if variants is None else variants)
    nodes = tuple([key.of(it) for it in group.nodes])
    anchor = None if group.anchor is None else key.of(group.anchor)
    inlined = tuple([it in group.inlined for it in group.nodes])
    return (nodes, anchor, inlined, key.of(group.stores)), key.tensors


class _Key:
    """Computes keys of the parts of one group."""

    def __init__(self, variants: KeysOfVariants) -> None:
        self._variants = variants
        self._numbers: dict[int, int] = {}
        self.tensors: list[Tensor] = []

    def of(self, value: Any) -> Hashable:
        return _KINDS[value.__class__](self, value)

    def _variant(self, variant: Variant) -> Hashable:
        known = self._variants.get(id(variant))
        if known is None:
            known = self._variants[id(variant)] = variant, _VARIANT(self, variant)
        return known[1]

    def _tensor(self, tensor: Tensor) -> Hashable:
        number = self._numbers.get(id(tensor))
        if number is not None:
            return "tensor", number
        number = self._numbers[id(tensor)] = len(self._numbers)
        self.tensors.append(tensor)
        literal = _bytes_of(tensor.data) if tensor.is_literal else b""
        return number, _TENSOR(self, tensor), literal, bool(getattr(tensor.producer, "inline", False))

    def _node(self, node: Node) -> Hashable:
        number = self._numbers.get(id(node))
        if number is not None:
            return "node", number
        number = self._numbers[id(node)] = len(self._numbers)
        kind: Any = node.__class__
        return number, _fields(kind)(self, node)


_Part = Callable[[_Key, Any], Hashable]
"""Computes the key of a value of one class."""


class _Kinds(dict[type, _Part]):
    def __missing__(self, kind: type) -> _Part:
        self[kind] = found = _key_function(kind)
        return found


_KINDS = _Kinds()


def _key_function(kind: type) -> _Part:
    if kind in (float, bool):
        return lambda _, value: (kind, repr(value))  # 1, 1.0 and True are equal, and so are 0.0 and -0.0
    if kind in (tuple, list):
        return lambda key, value: tuple(
            [it if it.__class__ in _ATOMS else _KINDS[it.__class__](key, it) for it in value]
        )
    if kind is dict:
        return lambda key, value: tuple(
            [(name, it if it.__class__ in _ATOMS else _KINDS[it.__class__](key, it)) for name, it in value.items()]
        )
    if kind in (frozenset, set):
        return lambda key, value: frozenset(map(key.of, value))
    if kind is Tensor:
        return _Key._tensor
    if kind is Variant:
        return _Key._variant
    if issubclass(kind, Node):
        return _Key._node
    if is_dataclass(kind) and kind is not Body:
        return _fields(kind)
    return lambda _, value: value  # dims, enumerations, texts of bodies


@cache
def _fields(kind: Any) -> _Part:
    """Returns the key function of a dataclass. It reads all `_PLAIN` fields at once."""
    left_out = _NAMES | (_OF_TENSORS if kind is Tensor else set())
    names = [it.name for it in fields(kind) if it.name not in left_out]
    plain, others = (_reader([it for it in names if (it in _PLAIN) == known]) for known in (True, False))
    return lambda key, value: (
        kind, plain(value), *[it if it.__class__ in _ATOMS else _KINDS[it.__class__](key, it) for it in others(value)]
    )  # fmt: skip


def _reader(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return (lambda value: (getattr(value, names[0]),)) if names else lambda _: ()


_TENSOR, _VARIANT = _fields(Tensor), _fields(Variant)


def _bytes_of(data: Any) -> bytes:
    return np.asarray(data.numpy() if hasattr(data, "numpy") else data).tobytes()
