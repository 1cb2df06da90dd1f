"""Fuses attention: a product, maps, a softmax over keys, another product. The kernel never stores the scores.

Exporters write this in dozens of ways: scales on queries, keys or scores; additive and boolean masks; soft caps; casts; heads
split and merged; transposed keys; shared heads. Here all are one form. Scales, masks, caps and casts are maps on the scores. They
become the inner maps of `flash_attention`. The others are views of the operands.
"""

from __future__ import annotations

from dataclasses import replace

from ...program.dtypes import DType
from ...program.target import Target
from ..dims import Dim, product
from ..ir import Call, Inner, Map, Node, Read, Tensor, View, Write
from ..nodes.flash import Attention, inner_obstacle, reason_to_store_scores, unsupported_heads
from ..tune import reason_not_to_fuse
from ..tune.products import PRODUCTS
from .between import Chain, SoleReader, chains_back, only_reader, reads_elementwise, same_everywhere, swapped
from .operands import exchanged, factor, matrix_sizes
from .rule import MatchResult, Replace, Rule, origin_of
from .visible_keys import Unmasked, unmasked


def attention(soft: Call, target: Target) -> MatchResult:
    """Returns the `flash_attention` that contains a softmax."""
    reader = only_reader(soft.results["y"].tensor, PRODUCTS)
    if not isinstance(reader, SoleReader):
        return reader
    if soft.constants["LOGARITHM"]:
        return "it is a LogSoftmax"
    in_memory = reason_to_store_scores(soft.operands["x"].view.tensor, target)
    if in_memory is not None:
        return in_memory
    result: str | None = "the scores are not a matrix product"
    for chain in chains_back(soft.operands["x"].view.tensor, PRODUCTS):
        found = _Attention(soft, chain, reader)
        result = found.reason(target)
        if result is None:
            return Replace(found.nodes, tuple(found.made(target)))
    return result


class _Attention:
    """The parts of an attention around a softmax: batch b, queries m, keys n, and the sides of both products.

    The two sides of a product may be exchanged, which transposes its matrices: `keys_first` and `values_first`.
    """

    def __init__(self, soft: Call, chain: Chain, reader: SoleReader) -> None:
        assert isinstance(chain.source.producer, Call)
        self.soft, self.chain, self.reader = soft, chain, reader
        self.first, self.second = chain.source.producer, reader.call
        scores, weights = soft.operands["x"], factor(reader.call, reader.name)
        batch, rows, columns = _sizes(self.first.results["y"])
        self.keys_first = not scores.view.is_whole
        self.batch, self.queries, self.keys = batch, rows, columns
        self.ordered = scores.view.is_whole
        if self.keys_first:
            self.queries, self.keys = columns, rows
            self.ordered = swapped(scores.view, batch, rows, columns)
        self.row = product(scores.view.shape[scores.groups[0] :])
        self.sides = ("b", "a") if self.keys_first else ("a", "b")
        self.values_first = reader.name == "b"
        self.v = _values(self.second, "a" if self.values_first else "b")
        self.result = self.second.results["y"]
        after = _sizes(self.result)
        expected = (batch, after[1], self.queries) if self.values_first else (batch, self.queries, after[2])
        self.matches = after == expected and matrix_sizes(weights.view, weights.groups) == (
            (batch, self.keys, self.queries) if self.values_first else (batch, self.queries, self.keys)
        )
        if self.values_first:
            self.matches = self.matches and swapped(weights.view, batch, self.queries, self.keys)
        else:
            self.matches = self.matches and weights.view.is_whole
        queries = self.first.operands["a"]
        self.size: Dim = matrix_sizes(queries.view, queries.groups)[2]
        self.value_size: Dim = matrix_sizes(self.v.view, self.v.groups)[2]
        self.sink = self._sink()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that the kernel replaces. Casts of the weights become dead with them."""
        return (self.first, *self.chain.maps, self.soft, self.second)

    def reason(self, target: Target) -> str | None:
        """Returns why these parts form no kernel, or None."""
        if self.chain.other_readers(self.soft):
            return "the scores have another reader"
        if not self.ordered or self.row != self.keys:
            return "the softmax is over other axes than the keys"
        if not self.matches:
            return "the second product does not sum over the keys of the softmax, or has other heads"
        if any(t.dtype is not DType.FLOAT32 for t in (self.chain.source, self.result.tensor)):
            return "the products are not of floats"
        if self._reads_other_scores():
            return "the scores are read at other indices"
        if self.soft.constant("SINK") and self.sink is None:
            return "the sink is not one number for each query"
        reason = unsupported_heads(self.size, self.value_size) or inner_obstacle(self._inner())
        if reason is not None:
            return reason
        assert isinstance(self.size, int) and isinstance(self.value_size, int)
        if isinstance(unmasked(self._inner(), self.queries, self.keys, keys_first=self.keys_first), Unmasked):
            return None  # the kernel does not load keys that are hidden by position
        dtype = factor(self.first, self.sides[0]).view.dtype
        return reason_not_to_fuse(self.batch, self.queries, self.keys, self.size, self.value_size, target, dtype)

    def _sink(self) -> Read | None:
        """Returns the sink of the softmax by (batch, row), or None."""
        if not self.soft.constant("SINK"):
            return None
        view = self.soft.operands["sink"].view
        batch, rows, _ = self.first.results["y"].groups
        extents = self.chain.source.shape[: batch + rows]
        seen = None if self.keys_first else view.reshape(extents)
        return None if seen is None else Read(seen, (batch, rows), reuse=True)

    def _reads_other_scores(self) -> bool:
        """Returns whether a map between the products reads a score at another index than its own."""
        inside = set(self.chain.tensors)
        return any(v.tensor in inside and not reads_elementwise(it, v) for it in self.chain.maps for v in it.reads)

    def _inner(self) -> Inner:
        return Inner(self.chain.source, self.chain.result, self.chain.maps, self.first.results["y"].groups)

    def made(self, target: Target) -> list[Node]:
        """Returns the nodes that replace `nodes`."""
        (q, q_scale), (k, k_scale) = (_vectors(self.first, side) for side in self.sides)
        source, maps = self.chain.source, list(self.chain.maps)
        for scale in (k_scale, q_scale):
            if scale is not None:
                maps.insert(0, _scaled(source, scale))
                source = maps[0].reads[0].tensor
        assert isinstance(self.size, int) and isinstance(self.value_size, int)
        found = Attention(
            q=q,
            k=k,
            v=self.v,
            inner=replace(self._inner(), source=source, maps=tuple(maps)),
            y=Write(self.result.tensor, self.result.groups),
            batch=self.batch,
            rows=self.queries,
            keys=self.keys,
            size=self.size,
            value_size=self.value_size,
            steps=self.queries,
            sink=self.sink,
            masked=bool(self.soft.constants["MASKED"]),
            nan_is_zero=self.reader.nan_is_zero,
            keys_first=self.keys_first,
            values_first=self.values_first,
            origin=origin_of(self.nodes),
        )
        return found.nodes(target)


Scale = tuple[str, str, Map]
"""The expression of a multiplication or division, the name of the uniform operand, and the map."""


def _sizes(write: Write) -> tuple[Dim, Dim, Dim]:
    """Returns the batch, rows and columns of a product."""
    return matrix_sizes(View.of(write.tensor), write.groups)


def _vectors(call: Call, side: str) -> tuple[Read, Scale | None]:
    """Returns an operand of the first product as (batch, queries or keys, elements), before its scale, and that scale."""
    read, scale = _unscaled(factor(call, side), call)
    return (exchanged(read) if side == "b" else _read(read.view, read.groups)), scale


def _values(call: Call, side: str) -> Read:
    """Returns an operand of the second product as (batch, keys, elements)."""
    read = factor(call, side)
    return exchanged(read) if side == "a" else _read(read.view, read.groups)


def _read(view: View, groups: tuple[int, ...]) -> Read:
    return Read(view, groups, reuse=True, vector=True)


# ---- scales of queries or keys, which are applied to the scores instead


def _unscaled(read: Read, reader: Call) -> tuple[Read, Scale | None]:
    """Returns the operand before its multiplication by one number, and that multiplication. This saves a copy in memory."""
    tensor = read.view.tensor
    node = tensor.producer
    if not isinstance(node, Map) or tensor.is_stored or tensor.users != [reader] or tensor.dtype.compute != "f32":
        return read, None
    if node.expression not in ("x * y", "x / y"):
        return read, None
    for vector, scale in (("x", "y"), ("y", "x")):
        if node.expression == "x / y" and scale == "x":
            break
        views = {name: it.view for name, it in node.operands.items()}
        if not same_everywhere(views[scale]) or views[vector].tensor.dtype.compute != "f32":
            continue
        whole = read.view.reshape(tensor.shape) if read.view.is_whole else None
        if whole is not None:
            before = views[vector].reshape(read.view.shape)
        elif views[vector].is_whole and views[vector].tensor.size == tensor.size:
            before = View(views[vector].tensor, read.view.shape, read.view.axes, read.view.offset)
        else:
            before = None
        if before is not None:
            return _read(before, read.groups), (node.expression, scale, node)
    return read, None


def _scaled(scores: Tensor, scale: Scale) -> Map:
    """Returns the map that scales scores of unscaled operands."""
    expression, name, node = scale
    bare = Tensor(scores.dtype, scores.shape)
    number = node.operands[name].view
    everywhere = View(number.tensor, (1,) * len(scores.shape), ((),) * len(scores.shape), number.offset)
    vector = "y" if name == "x" else "x"
    rank = (len(scores.shape),)
    return Map(
        scores,
        {vector: Read(View.of(bare), rank), name: Read(everywhere.expand(scores.shape), rank)},
        expression=expression,
        origin=node.origin,
    )


ATTENTION = Rule("attention", "softmax", attention)
