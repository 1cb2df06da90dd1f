"""Attention as nodes: a kernel that never stores its scores, and a second kernel where few rows would leave a GPU idle.

In: an `Attention`, from a rule that finds it in a graph or from an attention operator. Out: the nodes that write its result. A
row is a query of a head. Heads that share keys and values form one batch, which loads these once.

If rows are few, the keys of each row are split between workgroups. Each stores its results relative to its highest score. A map
combines them ("Flash-Decoding", Dao et al., 2023).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ...program.dtypes import DType
from ...program.target import Target
from ..dims import Dim, ceildiv, maximum, minimum
from ..ir import MAX_COST, Body, Call, Constant, Inner, Map, Node, Read, Tensor, View, Write
from ..ir.binding_ranges import is_storable
from ..tune import WIDEST_HEAD, flash_splits, flash_variants

UNBOUNDED = 1 << 30  # keys on one side of a query that sees all keys there
_FEW_KEYS = 512
_PARTS_AT_ONCE = 8  # loaded together by the map that combines the parts
_HELD_COST = 16  # operations on a score; up to this many, the text repeats them for each score of an invocation


def reason_to_store_scores(scores: Tensor, target: Target) -> str | None:
    """Returns why scores should be stored, before any other check, or None."""
    if target.software and is_storable(scores, target):
        return "stored scores are equally fast on software adapters"
    return None


def unsupported_heads(*sizes: Dim) -> str | None:
    """Returns why no kernel exists for heads of these sizes, or None."""
    for size in sizes:
        if not isinstance(size, int) or not 0 < size <= WIDEST_HEAD:
            return f"a head has {size} elements; the kernel needs a constant number up to {WIDEST_HEAD}"
    return None


def inner_obstacle(inner: Inner) -> str | None:
    """Returns why these maps cannot become inner maps of the kernel, or None."""
    if not inner.is_countable:
        return f"{inner.source.size} scores exceed the range of indices, which a mask needs"
    cost = sum(it.cost for it in inner.maps)
    if cost > MAX_COST:
        return f"{cost} operations per score exceed the limit of a kernel ({MAX_COST})"
    return None


@dataclass(frozen=True, kw_only=True)
class Attention:
    """y = softmax(inner(q k^T)) v.

    - `q` is read by (batch, row, element), `k` and `v` by (batch, key, element).
    - `inner` maps scores by (batch, row, key), or (batch, key, row) with `keys_first`.
    - `y` is written by (batch, row, element), or (batch, element, row) with `values_first`.
    - Rows are `steps` queries of one head after those of another.
    - Query i stands at position `starts[batch]` + i, or `start` + i. If `start` is None, the last query stands at the last key.
    - A query sees keys from `left` before it to `right` after it, None for all of them. It sees only keys below `ends[batch]`,
      and below `starts[batch]` + `length_from_start`. `starts` and `ends` are i32. No query sees more than `longest` keys.
    - `sink` (batch, row) is a score of a key without a value.
    - With `masked`, a row without visible keys becomes zeros instead of NaN.
    """

    q: Read
    k: Read
    v: Read
    inner: Inner
    y: Write
    batch: Dim
    rows: Dim
    keys: Dim
    size: int
    value_size: int
    steps: Dim
    starts: Read | None = None
    start: Dim | None = 0
    ends: Read | None = None
    length_from_start: Dim | None = None
    longest: Dim | None = None
    left: int | None = None
    right: int | None = None
    sink: Read | None = None
    masked: bool = False
    nan_is_zero: bool = False
    keys_first: bool = False
    values_first: bool = False
    origin: tuple[str, ...] = field(default=())

    def splits(self, target: Target) -> Dim:
        """Returns the number of parts into which the keys of each row are split.

        If rows and keys are unknown, the run decides, provided that keys may outnumber rows: after a past, or in another
        sequence.
        """
        keys = self.keys if self.longest is None else minimum(self.keys, self.longest)
        found = flash_splits(self.batch, self.rows, keys, self.size, self.value_size, target)
        few = self.keys == self.steps or (isinstance(self.keys, int) and self.keys <= _FEW_KEYS)
        return 1 if few and not isinstance(found, int) else found

    def nodes(self, target: Target) -> list[Node]:
        """Returns the call, and if the keys are split, the map after it that writes `y`."""
        splits = self.splits(target)
        if splits == 1:
            return [self._call({"y": self.y}, splits, target)]
        shape = (self.batch, self.rows, splits)
        parts = Tensor(DType.FLOAT32, (*shape, self.value_size))
        levels = Tensor(
            DType.FLOAT32, (*shape, 3)
        )  # the highest score, the sum of weights, and the number of parts with keys
        groups = (1, 1, 1, 1)
        call = self._call({"y": Write(parts, groups), "levels": Write(levels, groups)}, splits, target)
        for tensor in (parts, levels):
            tensor.producer = call
        constants: dict[str, Constant] = {
            "MASKED": self.masked,
            "NAN_IS_ZERO": self.nan_is_zero,
            "AT_ONCE": _PARTS_AT_ONCE,
        }
        combining = Map(
            self.y.tensor,
            {"parts": Read(View.of(parts), groups), "levels": Read(View.of(levels), groups, reuse=True)},
            body=Body.made("flash_parts", constants),
            coordinates=("batch", "d", "row") if self.values_first else ("batch", "row", "d"),
            groups=self.y.groups,
            parameters={"splits": splits, "keys": self.keys},
            constants=constants,
            cost=8,
            iterations=ceildiv(splits, _PARTS_AT_ONCE),
            origin=self.origin,
        )
        return [call, combining]

    def _call(self, results: dict[str, Write], splits: Dim, target: Target) -> Call:
        results = {**results, "y": replace(results["y"], by_matrices=not self.values_first)}
        own = {"starts": self.starts, "ends": self.ends, "sink": self.sink}
        return Call(
            "flash_attention",
            {
                "q": self.q,
                "k": self.k,
                "v": self.v,
                **{name: it for name, it in own.items() if it},
                **_inner_operands(self.inner),
            },
            results,
            flash_variants(
                self.batch,
                self.rows,
                self.steps,
                self.keys,
                self.size,
                self.value_size,
                splits,
                target,
                (self.q.view.dtype, self.k.view.dtype, self.v.view.dtype),
            ),
            {
                "MASKED": self.masked,
                "NAN_IS_ZERO": self.nan_is_zero,
                "KEYS_FIRST": self.keys_first,
                "VALUES_FIRST": self.values_first,
                "Q_ALONG": self.q.loads_vectors,
                "K_ALONG": self.k.loads_vectors,
                "V_ALONG": self.v.loads_vectors,
                "HELD": _fits_registers(self.inner),
                "BANDED": self.left is not None or self.right is not None,
                "SIZE": self.size,
                "VALUE_SIZE": self.value_size,
            },
            {
                "rows": self.rows,
                "keys": self.keys,
                "steps": maximum(1, self.steps),
                **({} if self.length_from_start is None else {"behind": self.length_from_start}),
                **({} if self.starts is not None or self.start is None else {"start": self.start}),
                **_window(self.left, self.right),
                "splits": splits,
            },
            origin=self.origin,
            flops=2 * self.batch * self.rows * self.keys * (self.size + self.value_size),
            inner={"scored": self.inner},
        )


def with_positions(call: Call, inner: Inner, *, start: int, left: int | None, right: int | None, flops: Dim) -> Call:
    """Returns a call without positions as one with positions and new inner maps. `Attention` defines which keys a query sees."""
    operands = {name: read for name, read in call.operands.items() if name not in _inner_operands(call.inner["scored"])}
    return replace(
        call,
        operands=operands | _inner_operands(inner),
        constants=call.constants | {"HELD": _fits_registers(inner), "BANDED": left is not None or right is not None},
        parameters=call.parameters | {"start": start} | _window(left, right),
        inner={"scored": inner},
        flops=flops,
        note="mask by position",
    )


def _window(left: int | None, right: int | None) -> dict[str, Dim]:
    return {"left": UNBOUNDED if left is None else left, "right": UNBOUNDED if right is None else right}


def _fits_registers(inner: Inner) -> bool:
    """Whether the scores of an invocation are separate variables."""
    return sum(it.cost for it in inner.maps) <= _HELD_COST


def _inner_operands(inner: Inner) -> dict[str, Read]:
    """Returns the operands of the inner maps. Elements of a smaller tensor are read repeatedly."""
    views = dict.fromkeys(inner.operands)
    return {f"inner{at}": Read(it, (it.rank,), reuse=it.size != it.tensor.size) for at, it in enumerate(views)}
