"""Chooses consistent sizes for a decoder's made-up inputs: cached length + new length = total length of a mask.

In: the inputs' shapes, and known sizes. Out: sizes that are consistent with these. Invariant: known sizes never change. The
role of an axis follows from the exporter's name for it, else from the input's name. A name such as "past + 1" is itself a sum.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ..errors import InputError
from ..records import dataclass

LENGTH = 128  # default length of a text and of a cache
_CACHED, _TOTAL, _NEW = re.compile(r"past|cache|history"), re.compile(r"total|attention_mask"), re.compile(r"seq")
# Excluded: cross attention to another text, images and audio beside the text, and caches with spare room.
_APART = re.compile(r"(^|_)enc|cross|max|pixel|image|vision|audio")
_IDS, _EMBEDDED = re.compile(r"(^|_)(input_ids|ids|tokens?)$"), re.compile(r"embed")

Shape = Sequence["int | str | None"]
Free = str | tuple[str, int]
"""The key of a size: the name of a dimension or, without one, its input and axis."""


@dataclass(frozen=True)
class _Sum:
    """An equation `total = sum of parts + fixed`, where `fixed` is the sum of the constant parts."""

    total: Free | int
    parts: tuple[Free, ...]
    fixed: int = 0


def free_in(name: str, shape: Shape, axis: int) -> Free | int:
    """Returns the key of an input's axis, or its size if that is fixed."""
    dim = shape[axis]
    return dim if isinstance(dim, str) or (dim is not None and dim >= 0) else (name, axis % len(shape))


def agreeing(inputs: Mapping[str, Shape], known: Mapping[Free, int]) -> dict[Free, int]:
    """Returns sizes for the free dimensions of a decoder, consistent with each other and with the known ones; {} for other
    models.

    Raises InputError if a total is smaller than its parts."""
    groups, sums = _groups(inputs), [*_named_sums(inputs)]
    cached = [it for it in groups[_CACHED] if not isinstance(it, int)]  # a cache of fixed size may be used partly
    new, totals = groups[_NEW], groups[_TOTAL]
    if not cached:
        totals = [it for it in totals if isinstance(it, str) and "total" in it.lower()]
    parts = [*cached[:1], *new[:1]]
    sums += [_sum(total, *parts) for total in totals if parts and total not in new]
    sizes = dict(known)
    for group in (cached, new):
        _level(group, sizes)
    for it in sums:
        _divide(it, sizes)
    for group in (cached, new):
        _level(group, sizes)
    for part in (*cached, *(part for it in sums for part in it.parts)):
        sizes.setdefault(part, LENGTH)
    for group in (cached, new):
        _level(group, sizes)
    for it in sums:
        if not isinstance(it.total, int):
            sizes.setdefault(it.total, it.fixed + sum(sizes[part] for part in it.parts))
    return {it: size for it, size in sizes.items() if it not in known}


def _sum(total: Free | int, *parts: Free | int) -> _Sum:
    numbers = [it for it in parts if isinstance(it, int)]
    return _Sum(total, tuple(it for it in parts if not isinstance(it, int)), sum(numbers))


def _named_sums(inputs: Mapping[str, Shape]) -> Iterator[_Sum]:
    """Yields the sums in names, such as "past + 1", if their terms are numbers and names of other dimensions."""
    names = {dim for shape in inputs.values() for dim in shape if isinstance(dim, str)}
    for name in sorted(names):
        terms = [it.strip() for it in name.split("+")]
        if len(terms) > 1 and all(it.isdecimal() or it in names for it in terms):
            yield _sum(name, *(int(it) if it.isdecimal() else it for it in terms))


def _groups(inputs: Mapping[str, Shape]) -> dict[re.Pattern[str], list[Free | int]]:
    """Returns the cached, new and total lengths, by the pattern of each role."""
    found: dict[re.Pattern[str], list[Free | int]] = {_CACHED: [], _NEW: [], _TOTAL: []}
    for name, shape in inputs.items():
        if _APART.search(name.lower()):
            continue
        for axis, kind in enumerate(_kinds(name.lower(), shape)):
            what = free_in(name, shape, axis)
            if kind is not None and what not in found[kind]:
                found[kind].append(what)
    return found


def _kinds(name: str, shape: Shape) -> list[re.Pattern[str] | None]:
    """Returns the role of every axis of an input; None for other axes."""
    found = [_kind(dim.lower()) if isinstance(dim, str) else None for dim in shape]
    apart = [isinstance(dim, str) and ("+" in dim or bool(_APART.search(dim.lower()))) for dim in shape]

    def call(kind: re.Pattern[str], *axes: int) -> None:
        """Assigns a role that no axis name has: to the first free axis of `axes`, else to the first."""
        inner = [axis for axis in axes if -len(shape) < axis < len(shape) and axis % len(shape)]
        axis = next((it for it in inner if not isinstance(shape[it], int) or shape[it] == -1), next(iter(inner), None))
        if axis is not None and kind not in found and found[axis] is None and not apart[axis]:
            found[axis] = kind

    if _CACHED.search(name) and len(shape) > 2:
        call(_CACHED, -2, 1, -1)
    elif "mask" in name:
        call(_TOTAL, -1)
        if len(shape) > 2:
            call(_NEW, -2)
    elif _IDS.search(name):
        call(_NEW, -1)
    elif _EMBEDDED.search(name):
        call(_NEW, 1)
    return found


def _kind(dim: str) -> re.Pattern[str] | None:
    if "+" in dim or _APART.search(dim):
        return None
    return next((it for it in (_TOTAL, _CACHED, _NEW) if it.search(dim)), None)


def _level(group: Sequence[Free | int], sizes: dict[Free, int]) -> None:
    """Assigns the known size of any member of a group to all of it."""
    known = [it if isinstance(it, int) else sizes[it] for it in group if isinstance(it, int) or it in sizes]
    for it in group:
        if known and not isinstance(it, int):
            sizes.setdefault(it, known[0])


def _divide(it: _Sum, sizes: dict[Free, int]) -> None:
    """Divides the rest of a known total among its unknown parts. Raises InputError if the total is too small."""
    total = it.total if isinstance(it.total, int) else sizes.get(it.total)
    missing = [part for part in it.parts if part not in sizes]
    if total is None or not missing:
        return
    left = total - it.fixed - sum(sizes[part] for part in it.parts if part in sizes)
    if left < 0:
        parts = " + ".join([*(f"{_shown(part)}={sizes[part]}" for part in it.parts if part in sizes), *(["new"])])
        raise InputError(f"{_shown(it.total)} is {total}, and consists of {parts}: give sizes that fit together")
    for k, part in enumerate(missing):
        sizes[part] = left * (k + 1) // len(missing) - left * k // len(missing)


def _shown(what: Free | int) -> str:
    return f"axis {what[1]} of {what[0]}" if isinstance(what, tuple) else str(what)
