"""Groups that are alike: layers of a network, whose kernels are generated once.

In: a fused group. Out: a key, and the tensors that it has in order. Invariant: groups with equal keys have the same kernel, with
the tensors of one in the places of those of the other. A key has all that nodes and tensors are made of, field by field, so that
a new field is in it; but for names, and for weights that are no part of the text. Tensors and nodes are numbers in it, in the order
in which they are met.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np

from ...program.target import Target
from ..ir import Node, Tensor
from ..passes.fuse import FusedGroup
from .kernel import Source, generate

_NAMES = {"name", "origin"}
_OF_TENSORS = {
    "producer",
    "users",
    "data",
}  # who else has it; its values, which `_Key` looks at where they are in the text


class Kernels:
    """Kernels for a target, each generated once for all groups that are alike."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._known: dict[Hashable, tuple[Source, list[Tensor]]] = {}

    def of(self, group: FusedGroup) -> Source:
        """The kernel of a group."""
        key, tensors = key_of(group)
        known = self._known.get(key)
        if known is None:
            source = generate(group, self._target)
            self._known[key] = source, tensors
            return source
        source, theirs = known
        ours = dict(zip(map(id, theirs), tensors, strict=True))
        return replace(
            source, bindings=[(ours[id(it)], written, byte_range) for it, written, byte_range in source.bindings]
        )


def key_of(group: FusedGroup) -> tuple[Hashable, list[Tensor]]:
    """What the kernel of a group is made of, and its tensors in the order in which that has them."""
    key = _Key()
    nodes = tuple([key.of(it) for it in group.nodes])
    anchor = None if group.anchor is None else key.of(group.anchor)
    inlined = tuple([it in group.inlined for it in group.nodes])
    return (nodes, anchor, inlined, key.of(group.stores)), key.tensors


class _Key:
    """Keys of the parts of one group."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self.tensors: list[Tensor] = []

    def of(self, value: Any) -> Hashable:
        kind = value.__class__
        if kind is int or kind is str or value is None:
            return value  # type: ignore[no-any-return]
        if kind is tuple or kind is list:
            return tuple([self.of(it) for it in value])
        if kind is float or kind is bool:
            return kind, repr(value)  # 1, 1.0 and True are equal, and so are 0.0 and -0.0
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, Node):
            return self._node(value)
        if isinstance(value, Mapping):
            return tuple([(name, self.of(it)) for name, it in value.items()])
        if isinstance(value, frozenset | set):
            return frozenset([self.of(it) for it in value])
        read = _fields_of(kind)
        return value if read is None else (kind, *[self.of(it) for it in read(value)])

    def _tensor(self, tensor: Tensor) -> Hashable:
        number = self._numbers.get(id(tensor))
        if number is not None:
            return "tensor", number
        number = self._numbers[id(tensor)] = len(self._numbers)
        self.tensors.append(tensor)
        read = _fields_of(Tensor)
        assert read is not None
        own = [self.of(it) for it in read(tensor)]
        literal = _bytes_of(tensor.data) if tensor.is_literal else b""
        return "tensor", number, *own, literal, bool(getattr(tensor.producer, "inline", False))

    def _node(self, node: Node) -> Hashable:
        number = self._numbers.get(id(node))
        if number is not None:
            return "node", number
        number = self._numbers[id(node)] = len(self._numbers)
        kind: Any = node.__class__
        read = _fields_of(kind)
        assert read is not None
        return kind, number, *[self.of(it) for it in read(node)]


@cache
def _fields_of(kind: type) -> Callable[[Any], tuple[Any, ...]] | None:
    """What reads the fields that matter of a dataclass; None for what is hashed as it is: dims, enumerations."""
    if not is_dataclass(kind):
        return None
    left_out = _NAMES | (_OF_TENSORS if kind is Tensor else set())
    names = [it.name for it in fields(kind) if it.name not in left_out]
    read = attrgetter(*names)
    return read if len(names) > 1 else lambda value: (read(value),)


def _bytes_of(data: Any) -> bytes:
    return np.asarray(data.numpy() if hasattr(data, "numpy") else data).tobytes()
