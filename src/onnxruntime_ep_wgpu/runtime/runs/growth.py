"""Sizes that grow from run to run by as much each time, as of a sequence that is longer by one in every run.

In: the keys of runs. Out: how much more sizes are each time (`Steps`), and how many steps a key is from another one. Invariant:
a run finds the same results whatever is said here.
"""

from __future__ import annotations

from itertools import compress, count
from operator import ne, sub

from .key import Key

Steps = tuple[tuple[tuple[int, tuple[int, ...]], ...], tuple[int, ...]]
"""How much more sizes are: of the shapes that differ, by number, of all their axes; and of all elements that set shapes."""


class Growth:
    """Whether sizes grow. Thread safe: what threads do at once costs an answer."""

    def __init__(self) -> None:
        # A key, how much more its sizes are than those before, if at all, and whether they were before.
        self._last: tuple[Key, Steps | None, bool] | None = None

    def steps(self, key: Key) -> Steps | None:
        """A run begins. How much its sizes grew twice in a row; after that C code may have done some runs without a notice.
        None where they did not."""
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
    """None where there are not as many of them, or all are the same."""
    (then, were), (shapes, elements) = before, now
    if len(then) != len(shapes) or len(were) != len(elements):
        return None
    moved = [*compress(count(), map(ne, then, shapes))]
    if any(len(then[k]) != len(shapes[k]) for k in moved):
        return None
    more = tuple(map(sub, elements, were))
    return (tuple([(k, tuple(map(sub, shapes[k], then[k]))) for k in moved]), more) if moved or any(more) else None


def times(steps: Steps, further: Steps) -> int:
    """How many of these steps others are, 1 at least; 0 where they are not."""
    (ours, more), (theirs, further_more) = steps, further
    if [k for k, _ in ours] != [k for k, _ in theirs]:
        return 0
    a = [*(it for _, shape in ours for it in shape), *more]
    b = [*(it for _, shape in theirs for it in shape), *further_more]
    number = next((y // x for x, y in zip(a, b, strict=False) if x), 0)
    return number if number > 0 and len(a) == len(b) and b == [it * number for it in a] else 0


def number_of(key: Key, first: Key, steps: Steps) -> int | None:
    """How many steps a key is from the first one; None where it is not so many."""
    if key == first:
        return 0
    further = difference(first, key)
    return None if further is None else times(steps, further) or None


def further(key: Key, steps: Steps, number: int = 1) -> Key:
    """The key that is so many steps from this one."""
    shapes = [*key[0]]
    for k, more in steps[0]:
        shapes[k] = tuple([it + number * by for it, by in zip(shapes[k], more, strict=True)])
    return tuple(shapes), tuple([it + number * by for it, by in zip(key[1], steps[1], strict=True)])


def rising(key: Key, steps: Steps, most: int) -> tuple[Key, Steps] | None:
    """The first key and the steps of sizes that rise, of which this is one: where they fall, they are turned round, and `most` of
    them end here. None where some rise and some fall."""
    every = [*(it for _, shape in steps[0] for it in shape), *steps[1]]
    if min(every) >= 0:
        return key, steps
    if max(every) > 0:
        return None
    back = tuple([(k, tuple([-it for it in shape])) for k, shape in steps[0]]), tuple([-it for it in steps[1]])
    falling = [(key[0][k][axis], -by) for k, shape in steps[0] for axis, by in enumerate(shape) if by]
    number = min([most - 1, *((extent - 1) // by for extent, by in falling)])
    return further(key, steps, max(number, 0)), back
