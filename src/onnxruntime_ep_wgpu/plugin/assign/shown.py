"""A graph as ONNX Runtime shows it, as data of our own: what is decided about it, or looked up, needs no other library.

In: what `graph` reads. Out: nodes, values and constants under the names that they have in onnx_ir, into which `converted` turns
them; the key of a graph; ties of constants. Invariants: constants are views of ONNX Runtime's memory, valid while the OrtGraph is;
equal keys mean equal graphs, up to the elements of constants of more than KEPT_WHOLE bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np

from ...program.ties import PRODUCTS, SMALLEST, Candidate, Ties, ties_among

# Bytes of a constant that is part of the key: shapes, axes, flags. Of larger ones, weights, the facts say what was looked at.
KEPT_WHOLE = 4096
STRING = 8  # the ONNX code of texts, which have no memory here

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Extent = int | str | None


@dataclass(eq=False)
class Constant:
    """Elements in memory: `code` is the ONNX code of their type, of `bits` bits; `raw` is empty for texts."""

    code: int
    bits: int
    shape: tuple[int, ...]
    raw: Bytes

    def digest(self) -> str:
        """Equal for equal elements."""
        return hashlib.sha256(self.raw.data).hexdigest()


class TiedConstant(Constant):
    """A constant that is another one with its axes permuted. Its elements are in memory once they are asked for."""

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
    """`code` is the ONNX code of its element type, None for what is no tensor; `shape` is None for an unknown rank."""

    name: str
    code: int | None = None
    shape: tuple[Extent, ...] | None = None
    constant: Constant | None = None
    maker: ShownNode | None = None

    def producer(self) -> ShownNode | None:
        """The node that makes it."""
        return self.maker


@dataclass(eq=False)
class ShownAttribute:
    """`kind` is `int`, `float`, `string`, the same in the plural, `tensor` (a Constant), or, without a value, `graph` (a body) and
    `type`. The value of `ints` is an array of int64, that of `floats` one of float32: models of trees have millions of them."""

    name: str
    kind: str
    value: Any = None


@dataclass(eq=False)
class ShownNode:
    """An input is None where it was left out; an output has no name then. `handle` is the OrtNode."""

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
        """As onnx_ir has it."""
        return {"implicit_inputs": self.implicit_inputs, "ort_node": self.handle}

    @property
    def has_body(self) -> bool:
        """Whether it has a graph of its own."""
        return any(it.kind == "graph" for it in self.attributes)


@dataclass(eq=False)
class ShownGraph:
    """`initializers` are the constants, by name; `in_files` says of memory, by its address, which bytes of a file it has."""

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
    """Equal for equal graphs, of which equal things are asked: `more`, numbers, texts and tuples of these. The name of the graph is
    no part of it: ONNX Runtime makes up that of a fused one."""
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
    """All that is known of a node by itself, for keys."""
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
    """The order of these says nothing, nor does that of attributes: ONNX Runtime shows those of a model that it has written in
    another one."""
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
    """Digests of those constants of these names that are no part of the key."""
    found = {name: graph.initializers[name].constant for name in sorted(names) if name in graph.initializers}
    return {name: it.digest() for name, it in found.items() if it is not None and it.raw.nbytes > KEPT_WHOLE}


def ties_in(graph: ShownGraph) -> Ties:
    """The constants that are one in memory."""
    others: set[int] = set()  # what is read by nodes that are no products
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
    """Per node of a graph, which may be one of onnx_ir, the places of the nodes that it waits for; its bodies read too."""
    place = {id(node): index for index, node in enumerate(graph)}
    found = []
    for node in graph:
        values = [*node.inputs, *node.meta.get("implicit_inputs", ())]
        makers = [value.producer() for value in values if value is not None]
        found.append(sorted({place[id(maker)] for maker in makers if maker is not None and id(maker) in place}))
    return found
