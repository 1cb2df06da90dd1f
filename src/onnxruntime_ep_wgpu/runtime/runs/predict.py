"""The next run: with sizes that grow as they did, as of a sequence that is longer by one in every run, and with tensors where they
were.

In: the key of each run, and where its tensors lie. Out: the key and the places that would follow. Invariant: a prediction decides
nothing; a run with other sizes or tensors finds what it would have found without.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, count
from operator import add, ne, sub

from ...device import Place
from .key import REMEMBERED_RUNS, Key, Places

Steps = tuple[tuple[tuple[int, tuple[int, ...]], ...], tuple[int, ...]]
"""How much more sizes are: of the shapes that differ, by number, of all their axes; and of all elements that set shapes."""


class RunPredictor:
    """Predicts from how sizes and places changed from run to run. Thread safe: what threads do at once costs a prediction."""

    def __init__(self) -> None:
        # A key, and how much more its sizes are than those before; None where they are the same, or others.
        self._last: tuple[Key, Steps | None] | None = None
        self._places: list[Places] = []  # of the last runs, each of other sizes than the one before

    def next(self, key: Key, places: Sequence[Place | None]) -> tuple[Key, Places | None] | None:
        """A run has begun, with tensors at these places. Gives the next key, where sizes grew twice in a row by the same amount,
        and where tensors will lie then, if that is known; else None. Of a run like the one before nothing is noted."""
        before = self._last
        if before is not None and before[0] == key:
            self._last, self._places = (key, None), []
            return None
        return self.next_after_predicted(key, Places(places))

    def next_after_predicted(self, key: Key, here: Places) -> tuple[Key, Places | None] | None:
        """The same for a run that was predicted."""
        there = self._there(here)
        after = self._after(key)
        return None if after is None else (after, there)

    def _after(self, key: Key) -> Key | None:
        before = self._last
        steps = None if before is None else _steps(before[0], key)
        self._last = key, steps
        return _after(key, steps) if before is not None and steps is not None and steps == before[1] else None

    def _there(self, here: Places) -> Places | None:
        """Where tensors lay in the run after the last one with these places; None where they have not been there lately. Tensors
        take turns where new ones are allocated before the last ones are freed."""
        here = next((it for it in self._places if it.at == here.at), here)  # of an earlier one more is known
        lately = [*self._places, here]
        self._places = lately[-REMEMBERED_RUNS:]
        return next((lately[k + 1] for k in reversed(range(len(lately) - 1)) if lately[k] is here), None)


def _steps(before: Key, now: Key) -> Steps | None:
    """None where there are not as many of them, or all are the same."""
    (then, were), (shapes, elements) = before, now
    if len(then) != len(shapes) or len(were) != len(elements):
        return None
    moved = [*compress(count(), map(ne, then, shapes))]
    if any(len(then[k]) != len(shapes[k]) for k in moved):
        return None
    more = tuple(map(sub, elements, were))
    return (tuple([(k, tuple(map(sub, shapes[k], then[k]))) for k in moved]), more) if moved or any(more) else None


def _after(key: Key, steps: Steps) -> Key | None:
    shapes = [*key[0]]
    for k, more in steps[0]:
        shapes[k] = tuple(map(add, shapes[k], more))
        if min(shapes[k]) < 0:
            return None
    return tuple(shapes), tuple(map(add, key[1], steps[1]))
