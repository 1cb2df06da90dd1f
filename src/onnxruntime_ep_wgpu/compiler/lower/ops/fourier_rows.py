"""Fourier transforms of rows that fit into workgroup memory: one kernel, `fourier_rows.wgsl`.

A row goes through a few passes, one per factor of its length. An invocation computes transforms of that many elements in
registers.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from ....program.dtypes import DType
from ...dims import ceildiv, equal
from ...ir import Read, Variant
from ..builder import Builder, Operand

_SHORT = 1024  # elements of a workgroup, which processes several rows if these are short
_OF_LANE = 16  # elements that an invocation has in registers
_PARTS = {
    2: (2, 1), 3: (3, 1), 4: (4, 1), 5: (5, 1), 6: (3, 2), 7: (7, 1), 8: (4, 2), 9: (3, 3), 10: (5, 2), 12: (3, 4), 14: (7, 2),
    15: (5, 3), 16: (4, 4),
}  # fmt: skip
"""Maps the elements of a pass to a product of two small transforms. The second one has an even size if one has."""


def in_workgroups(
    b: Builder, x: Operand, roots: Operand, count: int, half: bool, onesided: bool, turn: float, scale: float
) -> Operand | None:
    """Appends one kernel that loads and stores each element once. It supports lengths with small factors that fit into
    workgroup memory. Returns None for others. `turn` is the sign of the angles."""
    passes = _passes(count)
    if passes is None:
        return None
    group = max(1, _SHORT // count)
    room = group * count
    lanes = max(-(-(room // r) // max(1, _OF_LANE // r)) for r in passes)
    if lanes > b.target.max_invocations or 8 * (room + room // 32) > b.target.max_workgroup_storage:
        return None
    rows, inputs, parts = x.shape
    assert isinstance(parts, int)
    bins, results = count // 2 + 1 if onesided and not half else count, 1 if half else 2
    fours_out = results == 2 and bins == count and 2 * passes[-1] <= _OF_LANE and count // passes[-1] % 2 == 0
    whole = equal(inputs, count // 2 + 1 if half else count) == 1
    pairs = Read(x.view, (1, 2), vector=True)
    fours_in = (
        parts == 2
        and not half
        and whole
        and 2 * passes[0] <= _OF_LANE
        and count // passes[0] % 2 == 0
        and pairs.loads_vectors
    )
    constants: dict[str, Any] = {}
    length = 1
    for s, radix in enumerate(passes):
        twins = fours_in if s == 0 else fours_out and s == len(passes) - 1
        share = -(-(room // radix) // lanes)
        first, second = _PARTS[radix]
        constants |= {f"RADIX{s}": radix, f"PART{s}_0": first, f"PART{s}_1": second}
        constants |= {f"APART{s}_0": second, f"APART{s}_1": first, f"LENGTH{s}": length}
        constants |= {f"REST{s}": count // (length * radix), f"EACH{s}": count // radix, f"UNITS{s}": room // radix}
        constants |= {f"TWINS{s}": twins, f"SHARE{s}": share + share % 2 if twins else share}
        for n in (radix, first, second):
            for k in range(n):
                angle = 2 * math.pi * k / n
                constants |= {f"COS{n}_{k}": math.cos(angle), f"SIN{n}_{k}": turn * math.sin(angle)}
        length *= radix
    return b.call(
        "fourier_rows",
        {"x": pairs if fours_in else Read(x.view, (1, 1, 1)), "roots": Read(roots.view, (1, 1), reuse=True)},
        {"y": (DType.FLOAT32, (rows, bins, results), (1, 2) if fours_out else (1, 1, 1))},
        (Variant(ceildiv(rows, group), lanes),),
        parameters={"rows": rows, "inputs": inputs},
        flops=rows * (5 * count * max(1, count.bit_length())),
        vectors=fours_out,
        STEPS=len(passes),
        ROOM=room,
        GROUP=group,
        ALL=count,
        PARTS=parts,
        BINS=bins,
        RESULTS=results,
        WHOLE=whole,
        FOURS_IN=fours_in,
        FOURS_OUT=fours_out,
        HALF=half,
        TURN=turn,
        SCALE=scale,
        **constants,
    )[0]


@cache
def _passes(count: int) -> tuple[int, ...] | None:
    """Returns the fewest factors of `count` that are in _PARTS, and the smallest of these; None if there are none.

    * The last factor is even if `count` is. The element at half of `count` is then a sum of unrotated elements, so it is real
      for real input.
    * The largest of three factors is in the middle: the first and the last pass load and store two elements at a time.
    * Rows of at most 64 elements have no factor above 8. More rows are then loaded at the same time, and their elements are
      contiguous.
    """
    found = _fewest(count, 16 if count > 64 else 8)
    if not found:
        return None
    last = min(found, key=lambda radix: (radix % 2, radix))
    others = sorted(found)
    others.remove(last)
    return (*others, last)


@cache
def _fewest(count: int, largest: int) -> tuple[int, ...] | None:
    if count == 1:
        return ()
    found = []
    for radix in _PARTS:
        if radix <= largest and count % radix == 0:
            rest = _fewest(count // radix, largest)
            if rest is not None:
                found.append((radix, *rest))
    return min(found, key=lambda it: (len(it), sum(it)), default=None)
