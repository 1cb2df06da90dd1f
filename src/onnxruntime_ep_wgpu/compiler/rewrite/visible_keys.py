"""Attention with a mask that depends only on positions: the kernel gets the positions instead of the mask.

In: a call that adds a constant to its scores, or replaces scores by a number where a constant selects it. Exporters write causal
masks and sliding windows in these ways. Out: the call without the mask. It does not load keys that no query of a workgroup sees.

Invariant: for finite scores no weight changes. This requires that

- the constant is exactly 0 for visible keys,
- each query sees at least one key,
- and a hidden score is so far below all visible ones that its weight is 0 in f32.

With minus infinity the last condition always holds. With the lowest number of a type it holds for scores below about half of its
magnitude:

- Scores in f16 satisfy it if the model scales a product in f16 down, and not if it scales queries and keys.
- Scores in f32 are assumed to satisfy it (`_ASSUMED_BOUND`).

A hidden score that is NaN or infinite is ignored, although its sum with the mask may be NaN. Operators with bounds for visible
keys do not load the others either. The purpose of a mask is that later tokens do not affect a result.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from ...program.dtypes import DType
from ...program.target import Target
from ...records import dataclass
from ..dims import Dim, floordiv
from ..ir import Call, Inner, Map, Storage, Tensor, View
from ..nodes.flash import with_positions
from .band import Band, band_of
from .between import CASTS, literal
from .rule import MatchResult, Replace, Rule

_ASSUMED_BOUND = 2.0**126
"""The assumed bound of f32 scores: a quarter of the largest number. Beyond it, the order of summation decides whether a product
overflows."""
_UNROUNDED = 0.99  # of a difference between numbers rounded to any type
_NO_WEIGHT = 104.0  # exp(-104) is 0 in f32

_SUM = re.compile(r"(\w+) \+ (\w+)")
_CHOICE = re.compile(r"where\((\w+), (\w+), (-?\w+)\)")
_SCALED = re.compile(r"(\w+) ([*/]) (\w+)")


def visible_keys(call: Call, target: Target) -> MatchResult:
    """Returns the attention without its mask, or None if it has no constant mask or already uses positions."""
    queries, keys, constant = call.parameters["steps"], call.parameters["keys"], call.constant
    if constant("BANDED") or constant("BEHIND") or not constant("STARTED"):
        return None
    found = unmasked(call.inner["scored"], queries, keys, keys_first=bool(constant("KEYS_FIRST")))
    if not isinstance(found, Unmasked):
        return found
    assert isinstance(queries, int) and isinstance(keys, int)
    band = found.band
    start = max(band.first, 0)
    made = with_positions(
        call,
        found.inner,
        start=start,
        left=start - band.first if band.first > 1 - queries else None,
        right=band.last - start if band.last < keys - 1 else None,
        flops=floordiv(call.flops, queries * keys) * band.scores(queries, keys),
    )
    return Replace((call,), (made,))


@dataclass(frozen=True)
class Unmasked:
    """The maps between the products of an attention without its mask, and the band that the mask defined."""

    inner: Inner
    band: Band


def unmasked(inner: Inner, queries: Dim, keys: Dim, *, keys_first: bool) -> Unmasked | str | None:
    """Returns the maps without a constant mask, the reason why a constant has to stay, or None if there is none.

    Scores are `queries` by `keys` for any number of heads, or `keys` by `queries` with `keys_first`. Graphs of unknown sizes
    calculate their masks.
    """
    if not isinstance(queries, int) or not isinstance(keys, int) or inner.source.size == 0:
        return None
    reason: str | None = None
    for node in inner.maps:
        mask = _mask(node, inner)
        if mask is None:
            continue
        found = _band(mask, queries, keys, keys_first) or _NO_BAND
        reason = found if isinstance(found, str) else _visibility_risk(mask, found[1], inner)
        if reason is None and not isinstance(found, str):
            same = Map(node.output, {"x": node.operands[mask.scores]}, expression="x", origin=node.origin)
            maps = tuple(same if it is node else it for it in inner.maps)
            return Unmasked(replace(inner, maps=maps), found[0])
    return reason


_NO_BAND = "the constant mask does not define a band of visible keys for each query"


@dataclass(frozen=True)
class _Mask:
    """A map that hides its operand `scores` where a constant is not `seen`. It adds the constant, or replaces the score by
    `instead`."""

    node: Map
    scores: str
    constant: View
    seen: float | bool = 0.0
    instead: float | None = None


def _mask(node: Map, inner: Inner) -> _Mask | None:
    """Returns how a map hides scores by a constant of several numbers, or None."""
    views = {name: read.view for name, read in node.operands.items()}
    scores = [name for name, view in views.items() if view.tensor in _inside(inner)]
    if len(scores) != 1:
        return None
    if (found := _SUM.fullmatch(node.expression)) is not None:
        left, right = found.groups()
        added = right if left in scores else left
        return _Mask(node, scores[0], views[added]) if added in views and _is_constant(views[added]) else None
    if (found := _CHOICE.fullmatch(node.expression)) is None:
        return None
    condition, yes, no = found.groups()
    other = no if yes in scores else yes
    instead = -math.inf if other == "-infinity" else _number(node, other)
    if instead is None or condition not in views or not _is_constant(views[condition]):
        return None
    return _Mask(node, scores[0], views[condition], yes in scores, instead)


def _inside(inner: Inner) -> set[Tensor]:
    return {inner.source, *(it.output for it in inner.maps)}


def _is_constant(view: View) -> bool:
    return view.tensor.storage is Storage.WEIGHT and not view.tensor.is_literal and view.dtype.bits >= 8


def _number(node: Map, name: str) -> float | None:
    """Returns the number that a name in an expression stands for, or None."""
    if name in node.operands:
        return literal(node.operands[name].view)
    value = node.constants.get(name)
    return float(value) if isinstance(value, (int, float)) else None


def _band(mask: _Mask, queries: int, keys: int, keys_first: bool) -> tuple[Band, float] | None:
    """Returns the band of keys that each query sees, and the largest number that hides a score."""
    rows = (keys, queries) if keys_first else (queries, keys)
    constant = mask.constant.reshape((floordiv(mask.node.output.size, queries * keys), *rows))
    if constant is None:
        return None
    found = band_of(constant.permute((0, 2, 1)) if keys_first else constant, mask.seen)
    if found is None or mask.instead is None or found[1] == -math.inf:
        return found
    return found[0], mask.instead


def _visibility_risk(mask: _Mask, hidden: float, inner: Inner) -> str | None:
    """Returns why a hidden score may have a weight, or None."""
    changed = _changed_after_mask(mask, hidden, inner)
    if changed is not None or hidden == -math.inf:
        return changed
    limit = _limits(inner).get(mask.node.operands[mask.scores].view.tensor, math.inf)
    largest = (2 if mask.instead is None else 1) * limit
    if largest <= -hidden * _UNROUNDED - _NO_WEIGHT:
        return None
    verb = "adds" if mask.instead is None else "has"
    return f"scores of up to {limit:.3g} may have weights where its mask {verb} {hidden:.6g}"


def _changed_after_mask(mask: _Mask, hidden: float, inner: Inner) -> str | None:
    """Returns why a hidden score may be visible at the softmax, or None. Casts may follow, and sums that preserve infinity."""
    tensor, inside = mask.node.output, _inside(inner)
    while tensor is not inner.result:
        readers = [it for it in inner.maps if any(view.tensor is tensor for view in it.reads)]
        changed = f"its scores pass through {readers[0].expression or 'a map'} after their mask"
        added = hidden == -math.inf and _SUM.fullmatch(readers[0].expression) is not None
        others = [view.tensor for view in readers[0].reads if view.tensor in inside and view.tensor is not tensor]
        if len(readers) > 1 or others or not (added or readers[0].expression in CASTS):
            return changed
        tensor = readers[0].output
    return None


def _limits(inner: Inner) -> Mapping[Tensor, float]:
    """Returns known upper bounds of the magnitude of finite scores at each step. Added values may be as low as a mask."""
    limits = {inner.source: _largest_magnitude(inner.source.dtype)}
    for node in inner.maps:
        limit = _limit(node, limits)
        if limit is not None:
            limits[node.output] = min(limit, _largest_magnitude(node.output.dtype))
    return limits


def _largest_magnitude(dtype: DType) -> float:
    return min(dtype.largest, _ASSUMED_BOUND)


def _limit(node: Map, limits: Mapping[Tensor, float]) -> float | None:
    """Returns an upper bound of the magnitude of a map's results, or None if unknown."""
    if node.expression == "tanh(x)":
        return 1.0
    if node.expression == "c * tanh(x / c)":
        return abs(float(node.constants["c"]))
    known = {name: limits[read.view.tensor] for name, read in node.operands.items() if read.view.tensor in limits}
    if node.expression in CASTS:
        return known.get("x")
    if (found := _SCALED.fullmatch(node.expression)) is None:
        return None
    left, sign, right = found.groups()
    if sign == "*" and left not in known:
        left, right = right, left
    factor = _number(node, right)
    if left not in known or not factor:
        return None
    return known[left] * abs(factor) if sign == "*" else known[left] / abs(factor)


VISIBLE_KEYS = Rule("visible_keys", "flash_attention", visible_keys)
