"""Detects sizes that grow by constant steps, such as a sequence that is longer by one in every run.

In: the keys of runs. Out: by how much sizes grow (`Steps`), and how many steps apart two keys are. Invariant: no answer
affects the results of a run.
"""

from __future__ import annotations

from itertools import compress, count
from operator import ne, sub

from .key import Key

Steps = tuple[tuple[tuple[int, tuple[int, ...]], ...], tuple[int, ...]]
"""The growth per run: of all axes of the shapes that differ, by input number; and of all elements that set shapes."""


class Growth:
    """Detects growth. Thread safe: concurrent calls may only lose an answer."""

    def __init__(self) -> None:
        # A key, its growth since the previous key (if it is comparable), and whether that growth was a repeated one.
        self._last: tuple[Key, Steps | None, bool] | None = None

    def steps(self, key: Key) -> Steps | None:
        """Call this when a run begins. Returns its steps if sizes grew by the same steps twice in a row, otherwise None.

        After that, C code may have done some runs without a call, so a multiple of the steps also counts.
        """
        steps, grew = None, False
        if self._last is not None:
            before, known, often = self._last
            steps = difference(before, key)
            number = 0 if known is None or steps is None else times(known, steps)
            grew = number == 1 or (often and number > 1)
            steps = known if grew else steps
        self._last = key, steps, grew
        return steps if grew else None


def difference(before: Key, now: Key) -> Steps | None:
    """Returns the growth between two keys; None if they are not comparable or are equal."""
    (then, were), (shapes, elements) = before, now
    if len(then) != len(shapes) or len(were) != len(elements):
        return None
    moved = [*compress(count(), map(ne, then, shapes))]
    if any(len(then[k]) != len(shapes[k]) for k in moved):
        return None
    more = tuple(map(sub, elements, were))
    return (tuple([(k, tuple(map(sub, shapes[k], then[k]))) for k in moved]), more) if moved or any(more) else None


def times(steps: Steps, further: Steps) -> int:
    """Returns n >= 1 if `further` is n times `steps`; otherwise 0."""
    (ours, more), (theirs, further_more) = steps, further
    if [k for k, _ in ours] != [k for k, _ in theirs]:
        return 0
    a = [*(it for _, shape in ours for it in shape), *more]
    b = [*(it for _, shape in theirs for it in shape), *further_more]
    number = next((y // x for x, y in zip(a, b, strict=False) if x), 0)
    return number if number > 0 and len(a) == len(b) and b == [it * number for it in a] else 0


def number_of(key: Key, first: Key, steps: Steps) -> int | None:
    """Returns how many steps `key` is from `first`; None if it is not a multiple."""
    if key == first:
        return 0
    further = difference(first, key)
    return None if further is None else times(steps, further) or None


def further(key: Key, steps: Steps, number: int = 1) -> Key:
    """Returns the key that is this many steps away."""
    shapes = [*key[0]]
    for k, more in steps[0]:
        shapes[k] = tuple([it + number * by for it, by in zip(shapes[k], more, strict=True)])
    return tuple(shapes), tuple([it + number * by for it, by in zip(key[1], steps[1], strict=True)])


def rising(key: Key, steps: Steps, most: int) -> tuple[Key, Steps] | None:
    """Returns the first key and the steps of rising sizes that contain this key.

    Falling sizes are reversed: a series of `most` sizes then ends at this key. None if some rise and some fall.
    """
    every = [*(it for _, shape in steps[0] for it in shape), *steps[1]]
    if min(every) >= 0:
        return key, steps
    if max(every) > 0:
        return None
    back = tuple([(k, tuple([-it for it in shape])) for k, shape in steps[0]]), tuple([-it for it in steps[1]])
    falling = [(key[0][k][axis], -by) for k, shape in steps[0] for axis, by in enumerate(shape) if by]
    number = min([most - 1, *((extent - 1) // by for extent, by in falling)])
    return further(key, steps, max(number, 0)), back
