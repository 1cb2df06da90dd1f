"""Attention for operators that are one: `flash_attention` appends the kernel of attention, or says why it cannot.

In: queries, keys and values with heads apart, in any layout, since operands are views: what came as (batch, sequence, heads,
size) is permuted, rows of a longer cache are sliced or given whole with `Seen.ends`. Heads of queries are a multiple of those
of keys and values, which are loaded once for all that share them. Out: results in the type of the queries; sums are in f32.

Which keys a query sees is said by position, not by a mask, so that keys which no query of a workgroup sees are not loaded:

    causal attention to a cache     seen=Seen(ends=used, right=0)          used (batch): tokens so far, the new ones included
    the last 4096 tokens            seen=Seen(ends=used, left=4095, right=0)
    sequences of several lengths    seen=Seen(ends=lengths, starts=0)
    everything                      seen=Seen()

`starts` and `ends` are read on the device, so the same program serves every length of a sequence. What is behind the end may
be anything: it is not loaded. Few queries of long sequences are calculated in parts by as many workgroups as a GPU needs.

Whoever has a reason instead of a result writes the definition as products and a softmax (`attention/core.py`), which every
adapter runs, and which the rule in `rewrite/attention.py` still may find to be attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import UnsupportedError
from ...program.dtypes import DType
from ..builder import Builder, Operand
from ..dims import Dim, product, quotient
from ..flash import Attention
from ..ir import Inner, Map, Read, Tensor, View, Write
from ..tune import WIDEST_HEAD, flash_splits
from ..windows import of_node


@dataclass(frozen=True)
class Seen:
    """Which keys a query sees, by position.

    Query i of a sequence stands at position start + i among its keys; `starts` is a number, one for each sequence (batch),
    or None for the queries that are the last of each sequence. It sees keys from `left` before its position to `right` behind
    it, None for as many as there are, below `ends` (batch), or all of the keys. Tensors are i32.
    """

    starts: Operand | Dim | None = None
    ends: Operand | None = None
    left: int | None = None
    right: int | None = None

    @property
    def hides(self) -> bool:
        """Whether a query may see nothing."""
        return self.ends is not None or self.left is not None or self.right is not None


def flash_attention(
    b: Builder,
    query: Operand,
    key: Operand,
    value: Operand,
    *,
    scale: float,
    softcap: float = 0.0,
    seen: Seen = Seen(),
    mask: Operand | None = None,
    sink: Operand | None = None,
) -> Operand | str:
    """y (batch, heads, queries, size of a value) = softmax(scores) value, or why there is no kernel for it here.

    Scores are `scale` query key, then with `softcap` c * tanh(scores / c), plus a `mask` of floats, or those that a mask of
    bools has, which broadcasts to (batch, heads, queries, keys). query (batch, heads, queries, size), key (batch, groups,
    keys, size), value (batch, groups, keys, any size). `sink` (heads or 1) is a score more for each query, of a key without a
    value; zeros of it are what "smooth softmax" means. A query that sees no key gets zeros where something may hide keys.

    Raises UnsupportedError for shapes that do not fit.
    """
    batch, heads, queries, size = query.shape
    groups, keys, value_size = key.shape[1], key.shape[2], value.shape[3]
    shared = quotient(heads, groups)
    if shared is None:
        raise UnsupportedError(f"{heads} heads of queries for {groups} heads of keys")
    if b.target.software:
        return "on software adapters scores in memory are as fast"
    for number in (size, value_size):
        if not isinstance(number, int) or not 0 < number <= WIDEST_HEAD:
            return f"a head has {number} elements, the kernel has a constant number up to {WIDEST_HEAD}"
    assert isinstance(size, int) and isinstance(value_size, int)

    def by_group(x: Operand) -> Operand:
        """(batch, heads, ...) as (batch, groups, shared, ...)."""
        if x.shape[1] == 1:
            return b.reshape(x, (x.shape[0], 1, 1, *x.shape[2:]))
        return b.reshape(x, (x.shape[0], groups, shared, *x.shape[2:]))

    shape = (batch, groups, queries, shared, keys)
    masked = None
    if mask is not None:
        mask = b.reshape(mask, (*(1,) * (4 - mask.rank), *mask.shape))
        masked = b.expand(b.permute(by_group(mask), (0, 1, 3, 2, 4)), shape)
    each = None
    if sink is not None:
        each = b.reshape(b.expand(sink, (heads,)), (1, groups, 1, shared))
        if each.dtype is not DType.FLOAT32:
            each = b.pointwise("x", {"x": each}, DType.FLOAT32)
        each = b.expand(each, shape[:4])
    inner = _inner(b, shape, scale, softcap, masked)
    result = Tensor(DType.FLOAT32, (batch, groups, queries, shared, value_size))
    starts = seen.starts if isinstance(seen.starts, Operand) else None
    found = Attention(
        Read(b.permute(by_group(query), (0, 1, 3, 2, 4)).view, (2, 2, 1), reuse=True, vector=True),
        Read(key.view, (2, 1, 1), reuse=True, vector=True),
        Read(value.view, (2, 1, 1), reuse=True, vector=True),
        inner,
        Write(result, (2, 2, 1)),
        product((batch, groups)),
        product((queries, shared)),
        keys,
        size,
        value_size,
        per=shared,
        steps=queries,
        starts=_of_sequences(b, starts, shape),
        start=None if isinstance(seen.starts, Operand) else seen.starts,
        ends=_of_sequences(b, seen.ends, shape),
        left=seen.left,
        right=seen.right,
        sink=None if each is None else Read(each.view, (2, 2), reuse=True),
        masked=seen.hides or mask is not None,
        origin=b.origin,
    )
    nodes = found.nodes(b.target, flash_splits(found.batch, found.rows, keys, b.target))
    needed = of_node(nodes[0], b.target).bindings
    if needed > b.target.max_storage_buffers:
        return f"it would read {needed} buffers, and a kernel has {b.target.max_storage_buffers}"
    b.append(nodes)
    y = b.pointwise("x", {"x": Operand(result.dtype, result.shape, View.of(result))}, query.dtype)
    return b.reshape(b.permute(y, (0, 1, 3, 2, 4)), (batch, heads, queries, value_size))


def _of_sequences(b: Builder, x: Operand | None, shape: tuple[Dim, ...]) -> Read | None:
    """A number of each sequence (batch), for each head of keys."""
    if x is None:
        return None
    return Read(b.expand(b.reshape(x, (shape[0], 1)), shape[:2]).view, (2,), reuse=True)


def _inner(b: Builder, shape: tuple[Dim, ...], scale: float, softcap: float, mask: Operand | None) -> Inner:
    """The maps from products to scores. They are no nodes of the graph."""
    source = Tensor(DType.FLOAT32, shape)
    scores = Operand(source.dtype, shape, View.of(source))
    steps: list[tuple[str, Mapping[str, Operand], dict[str, Any], int]] = [("x * f", {}, {"f": scale}, 1)]
    if softcap:
        steps.append(("c * tanh(x / c)", {}, {"c": softcap}, 12))
    if mask is not None:
        steps.append(("where(m, x, -infinity)" if mask.dtype is DType.BOOL else "x + m", {"m": mask}, {}, 1))
    begin = len(b.nodes)
    for expression, operands, constants, cost in steps:
        scores = b.pointwise(expression, {"x": scores, **operands}, DType.FLOAT32, shape, cost=cost, **constants)
    maps = tuple(node for node in b.nodes[begin:] if isinstance(node, Map))
    del b.nodes[begin:]
    return Inner(source, scores.view.tensor, maps, (2, 2, 1))
