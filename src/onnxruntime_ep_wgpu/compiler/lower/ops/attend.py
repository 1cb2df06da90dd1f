"""Attention kernels for operators: `flash_attention` appends the kernel, or returns the reason why it does not support the
case.

In: queries, keys and values with separate heads, in any layout, since operands are views. An input (batch, sequence, heads,
size) is permuted; a cache with free rows is passed whole. The number of query heads is a multiple of the number of key and
value heads. Keys and values are loaded once for all query heads that share them. Out: results in the type of the queries.
Accumulation is in f32.

Visible keys are given by position, not by a mask, so that keys which no query of a workgroup sees are not loaded:

    causal, `past` keys before the first query        visible=VisibleKeys(starts=past, right=0)
    a cache with `used` tokens, then `steps` new ones visible=VisibleKeys(starts=used, length_from_start=steps, right=0)
    the last 4096 of these                            visible=VisibleKeys(starts=used, length_from_start=steps, left=4095, right=0)
    sequences of several lengths                      visible=VisibleKeys(ends=lengths)
    everything                                        visible=VisibleKeys()

`starts` and `ends` may be tensors, which are read on the device, so that one program serves every length of a sequence.
Memory after the end may have any content: it is not loaded. For few queries and long sequences, the keys are split between as
many workgroups as a GPU needs. Masks and biases are maps on scores, `change`.

A caller that gets a reason instead of a result emits the definition as products and a softmax (`attention/core.py`). Every
adapter runs that, and the rule in `rewrite/attention.py` may still recognise it as attention.
"""

from __future__ import annotations

from collections.abc import Callable

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ....records import dataclass
from ...dims import Dim, product, quotient
from ...ir import Inner, Map, Node, Read, Tensor, View, Write
from ...nodes.divide import too_many_bindings
from ...nodes.flash import Attention, inner_obstacle, reason_to_store_scores, unsupported_heads
from ...tune import reason_not_to_fuse
from ..builder import Builder, Operand

Change = Callable[[Operand], Operand]
"""Adds masks and biases to scores (batch, heads, queries, keys), element by element."""


@dataclass(frozen=True)
class VisibleKeys:
    """The keys that each query sees, by position.

    Query i of a sequence is at position start + i among its keys. It sees the keys from `left` before its position to `right`
    after it; None for no limit.

    * `starts`: a number, one per sequence (batch), or None if the queries are the last ones of each sequence.
    * `ends` (batch): the number of keys of each sequence. Without it, a sequence has all keys.
    * `length_from_start`: a sequence has only the keys below `starts` + `length_from_start`.
    * `longest`: no sequence has more keys, None if the host does not know. Only speed depends on it.

    Tensors are i32.
    """

    starts: Operand | Dim | None = 0
    ends: Operand | None = None
    length_from_start: Dim | None = None
    left: int | None = None
    right: int | None = None
    longest: Dim | None = None

    @property
    def hides(self) -> bool:
        """Whether there may be keys that a query does not see."""
        return any(it is not None for it in (self.ends, self.length_from_start, self.left, self.right))

    @property
    def cached(self) -> bool:
        """Whether the keys are rows of a cache, in which many rows may be unused."""
        return self.ends is not None or self.length_from_start is not None


_ALL = VisibleKeys()


def flash_attention(
    b: Builder,
    query: Operand,
    key: Operand,
    value: Operand,
    *,
    scale: float,
    softcap: float = 0.0,
    visible: VisibleKeys = _ALL,
    change: Change | None = None,
    sink: Operand | None = None,
) -> Operand | str:
    """Returns y (batch, heads, queries, size of a value) = softmax(scores) value, or the reason why there is no kernel for
    it.

    * Scores are `scale` query key, then with `softcap` c * tanh(scores / c), then the result of `change`.
    * query (batch, heads, queries, size), key (batch, groups, keys, size), value (batch, groups, keys, any size).
    * `sink` (heads or 1) is an additional score per query, of a key without a value. A sink of zeros is "smooth softmax".

    A query that sees no key gets zeros, if keys can be hidden at all.

    Raises UnsupportedError for shapes that do not fit.
    """
    batch, heads, queries, size = query.shape
    groups, keys, value_size = key.shape[1], key.shape[2], value.shape[3]
    shared = quotient(heads, groups)
    if shared is None:
        raise UnsupportedError(f"{heads} query heads are not a multiple of {groups} key heads")
    scores = Tensor(DType.FLOAT32, (batch, heads, queries, keys))
    # Unused rows of a cache are not loaded.
    stored = None if visible.cached else reason_to_store_scores(scores, b.target)
    reason = stored or unsupported_heads(size, value_size)
    if reason is not None:
        return reason
    assert isinstance(size, int) and isinstance(value_size, int)
    form = reason_not_to_fuse(product((batch, heads)), queries, keys, size, value_size, b.target, query.dtype)
    if form is not None and not visible.hides:  # hidden keys are not loaded
        return form
    mark = b.mark()
    inner = _inner(b, (batch, heads, queries, keys), (batch, groups, shared, queries, keys), scale, softcap, change)
    if isinstance(inner, str):
        b.undo(mark)
        return inner
    rows = (batch, groups, shared, queries)
    result = Tensor(DType.FLOAT32, (*rows, value_size))
    found = Attention(
        q=Read(b.reshape(query, (*rows, size)).view, (2, 2, 1), reuse=True, vector=True),
        k=Read(key.view, (2, 1, 1), reuse=True, vector=True),
        v=Read(value.view, (2, 1, 1), reuse=True, vector=True),
        inner=inner,
        y=Write(result, (2, 2, 1)),
        batch=product((batch, groups)),
        rows=product((shared, queries)),
        keys=keys,
        size=size,
        value_size=value_size,
        steps=queries,
        starts=_per_sequence(b, visible.starts if isinstance(visible.starts, Operand) else None, batch, groups),
        start=None if isinstance(visible.starts, Operand) else visible.starts,
        ends=_per_sequence(b, visible.ends, batch, groups),
        length_from_start=visible.length_from_start,
        longest=visible.longest,
        left=visible.left,
        right=visible.right,
        sink=_per_head(b, sink, rows),
        masked=visible.hides or change is not None,
        origin=b.origin,
    )
    nodes = found.nodes(b.target)
    for node in nodes:
        if (reason := too_many_bindings(node, b.target)) is not None:
            b.undo(mark)
            return reason
    b.append(nodes)
    y = b.pointwise("x", {"x": Operand(result.dtype, result.shape, View.of(result))}, query.dtype)
    return b.reshape(y, (batch, heads, queries, value_size))


def _per_sequence(b: Builder, x: Operand | None, batch: Dim, groups: Dim) -> Read | None:
    """Broadcasts one number per sequence (batch) to the heads of keys."""
    if x is None:
        return None
    return Read(b.expand(b.reshape(x, (batch, 1)), (batch, groups)).view, (2,), reuse=True)


def _per_head(b: Builder, sink: Operand | None, rows: tuple[Dim, ...]) -> Read | None:
    """Broadcasts one number per head (heads or 1) to the rows of the head."""
    if sink is None:
        return None
    each = b.reshape(b.expand(sink, (rows[1] * rows[2],)), (1, rows[1], rows[2], 1))
    return Read(b.expand(each, rows).view, (2, 2), reuse=True)


def _inner(
    b: Builder, shape: tuple[Dim, ...], grouped: tuple[Dim, ...], scale: float, softcap: float, change: Change | None
) -> Inner | str:
    """Returns the maps from products to scores. These are removed from the graph's nodes; the nodes that compute masks stay."""
    source = Tensor(DType.FLOAT32, grouped)
    begin = len(b.nodes)
    products = View.of(source).reshape(shape)
    scores = Operand(source.dtype, shape, products)
    scores = b.pointwise("x * f", {"x": scores}, DType.FLOAT32, f=scale)
    if softcap:
        scores = b.pointwise("c * tanh(x / c)", {"x": scores}, DType.FLOAT32, cost=12, c=softcap)
    if change is not None:
        scores = change(scores)
    inside, maps, beside = {source}, list[Map](), list[Node]()
    for node in b.nodes[begin:]:
        views = [view for view in node.reads if view.tensor in inside]
        if not views:
            beside.append(node)
        elif isinstance(node, Map) and node.is_pointwise and all(it.is_whole for it in views):
            inside.add(node.output)
            maps.append(node)
        else:
            return "scores are changed by more than maps of each"
    if scores.view.tensor is not maps[-1].output or not scores.view.is_whole:
        return "changed scores have another order"
    b.nodes[begin:] = beside
    inner = Inner(source, maps[-1].output, tuple(maps), (2, 2, 1))
    return inner_obstacle(inner) or inner
