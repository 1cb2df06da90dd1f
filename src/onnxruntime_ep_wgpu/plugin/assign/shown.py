"""A graph of ONNX Runtime as data of our own, so that cache lookups and some decisions need no other library.

In: the result of `graph`. Out: nodes, values and constants with the names of onnx_ir, to which `converted` converts them; the
key of a graph; ties of constants. Invariants: constants are views of ONNX Runtime's memory, valid as long as the OrtGraph.
Graphs with equal keys are equal, except for the elements of constants of more than KEPT_WHOLE bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np

from ...program.ties import PRODUCTS, SMALLEST, Candidate, Ties, ties_among

# The key includes constants of at most so many bytes: shapes, axes, flags. For larger ones, facts record reads.
KEPT_WHOLE = 4096
STRING = 8  # the ONNX code of strings, which have no memory here

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Extent = int | str | None


@dataclass(eq=False)
class Constant:
    """Elements in memory. `code`: the ONNX code of their type, with `bits` bits each. `raw`: empty for strings."""

    code: int
    bits: int
    shape: tuple[int, ...]
    raw: Bytes

    def digest(self) -> str:
        """Returns a digest of the elements."""
        return hashlib.sha256(self.raw.data).hexdigest()


class TiedConstant(Constant):
    """A constant that equals another one with permuted axes. Its elements take memory only after the first read."""

    def __init__(self, of: Constant, permutation: Sequence[int]) -> None:
        self.code, self.bits = of.code, of.bits
        self.shape = tuple(of.shape[axis] for axis in permutation)
        self._of, self._permutation, self._raw = of, permutation, cast("Bytes | None", None)

    @property
    def raw(self) -> Bytes:
        if self._raw is None:
            moved = np.ascontiguousarray(_elements(self._of).transpose(self._permutation))
            self._raw = moved.reshape(-1).view(np.uint8)
        return self._raw

    @raw.setter
    def raw(self, it: Bytes) -> None:
        self._raw = it


@dataclass(eq=False)
class ShownValue:
    """A value. `code`: the ONNX code of its element type, None if it is not a tensor. `shape`: None for an unknown rank."""

    name: str
    code: int | None = None
    shape: tuple[Extent, ...] | None = None
    constant: Constant | None = None
    maker: ShownNode | None = None

    def producer(self) -> ShownNode | None:
        """Returns the node that makes the value."""
        return self.maker


@dataclass(eq=False)
class ShownAttribute:
    """An attribute of a node.

    `kind`: `int`, `float`, `string`, their plurals, `tensor` (a Constant), or, without a value, `graph` (a body) and `type`.
    The values of `ints` and `floats` are arrays of int64 and float32, because tree models have millions of numbers.
    """

    name: str
    kind: str
    value: Any = None


@dataclass(eq=False)
class ShownNode:
    """A node. An omitted input is None, and an omitted output has the name "". `handle`: the OrtNode."""

    domain: str
    op_type: str
    version: int
    name: str
    inputs: list[ShownValue | None]
    outputs: list[ShownValue]
    attributes: list[ShownAttribute]
    implicit_inputs: list[ShownValue] = field(default_factory=list)
    handle: Any = None

    @property
    def meta(self) -> Mapping[str, Any]:
        """The same data as `meta` of the onnx_ir node."""
        return {"implicit_inputs": self.implicit_inputs, "ort_node": self.handle}

    @property
    def has_body(self) -> bool:
        """Whether the node has a body."""
        return any(it.kind == "graph" for it in self.attributes)


@dataclass(eq=False)
class ShownGraph:
    """A graph. `initializers`: the constants, by name. `in_files`: the places of constants in files, by memory address."""

    name: str
    inputs: list[ShownValue]
    outputs: list[ShownValue]
    nodes: list[ShownNode]
    initializers: dict[str, ShownValue]
    opset_imports: dict[str, int]
    in_files: dict[int, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[ShownNode]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)


def key_of(graph: ShownGraph, *more: object) -> str:
    """Returns a digest that is equal for equal graphs and equal `more`: numbers, strings, and sequences of these.

    The name of the graph is excluded, because ONNX Runtime generates the name of a fused graph.
    """
    described = (
        [_value(it) for it in graph.inputs],
        [(_value(it), None if it.constant is None else _constant(it.constant)) for it in graph.initializers.values()],
        list(map(_node, graph.nodes)),
        [it.name for it in graph.outputs],
        sorted(graph.opset_imports.items()),
        more,
    )
    return hashlib.sha256(repr(described).encode("utf-8", "backslashreplace")).hexdigest()


def described_node(node: ShownNode) -> tuple[object, ...]:
    """Returns all data of one node, for keys."""
    read = [None if it is None else _value(it) for it in (*node.inputs, *_implicit(node))]
    return *_node(node), read


def _node(it: ShownNode) -> tuple[object, ...]:
    return (
        *(it.domain, it.op_type, it.version, it.name),
        [None if value is None else value.name for value in it.inputs],
        [_value(value) for value in it.outputs],
        [value.name for value in _implicit(it)],
        [(a.name, a.kind, _attribute(a.value)) for a in sorted(it.attributes, key=lambda a: a.name)],
    )


def _implicit(it: ShownNode) -> list[ShownValue]:
    """Returns the implicit inputs in a fixed order. Their order has no meaning, like that of attributes, and it changes when
    ONNX Runtime writes a model and reads it again."""
    return sorted(it.implicit_inputs, key=lambda value: value.name)


def _value(it: ShownValue) -> tuple[object, ...]:
    return it.name, it.code, it.shape


def _constant(it: Constant, whole: bool = False) -> tuple[object, ...]:
    whole = whole or it.raw.nbytes <= KEPT_WHOLE
    return it.code, it.shape, it.raw.nbytes, hashlib.sha256(it.raw.data).hexdigest() if whole else None


def _attribute(value: Any) -> object:
    if isinstance(value, np.ndarray):
        return value.size, hashlib.sha256(value.data).hexdigest()
    return _constant(value, True) if isinstance(value, Constant) else value


def digests(graph: ShownGraph, names: Iterable[str]) -> dict[str, str]:
    """Returns digests of the constants with these names that are not part of the key."""
    found = {name: graph.initializers[name].constant for name in sorted(names) if name in graph.initializers}
    return {name: it.digest() for name, it in found.items() if it is not None and it.raw.nbytes > KEPT_WHOLE}


def ties_in(graph: ShownGraph) -> Ties:
    """Returns the constants that can share memory."""
    others: set[int] = set()  # values that nodes other than products read
    for node in graph:
        if node.op_type not in PRODUCTS:
            others.update(id(value) for value in node.inputs)
    return ties_among(
        Candidate(name, it.code, it.shape, id(value) not in others, partial(_elements, it))
        for name, value in graph.initializers.items()
        if (it := value.constant) is not None and it.bits in (8, 16, 32, 64) and it.raw.nbytes >= SMALLEST
    )


def _elements(it: Constant) -> Any:
    return it.raw.view(f"u{it.bits // 8}").reshape(it.shape)


def predecessors(graph: Any) -> list[list[int]]:
    """Returns, per node, the positions of the nodes that it depends on, including reads of its bodies.

    The graph may be an onnx_ir graph.
    """
    place = {id(node): index for index, node in enumerate(graph)}
    found = []
    for node in graph:
        values = [*node.inputs, *node.meta.get("implicit_inputs", ())]
        makers = [value.producer() for value in values if value is not None]
        found.append(sorted({place[id(maker)] for maker in makers if maker is not None and id(maker) in place}))
    return found
