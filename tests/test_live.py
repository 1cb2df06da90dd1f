"""Collections of what is alive: they may change while somebody goes through them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from onnxruntime_ep_wgpu.live import LiveMap, LiveSet, WeakAttributes


class Thing:
    """Can be weakly referred to."""


@contextmanager
def at_each_collection(change: Callable[[], None]) -> Iterator[None]:
    """Collects garbage at every second allocation, and changes something at every fifth of these, as finalisers do."""
    busy = False
    collections = 0

    def during(phase: str, info: dict[str, int]) -> None:
        nonlocal busy, collections
        collections += 1
        if not busy and collections % 5 == 0:
            busy = True
            change()
            busy = False

    before = gc.get_threshold()
    unused = [(number, number) for number in range(5000)]  # the tuples that the interpreter keeps for the next ones
    gc.callbacks.append(during)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(during)
        del unused


@pytest.mark.parametrize("use", ["add", "iterate", "discard"])
def test_a_set_that_changes_while_it_is_used(use: str) -> None:
    things: LiveSet[Thing] = LiveSet()
    kept = [Thing() for _ in range(300)]
    late: list[Thing] = []

    def change() -> None:
        late.append(Thing())
        things.add(late[-1])

    with at_each_collection(change):
        for thing in kept:
            things.add(thing)
            if use == "iterate":
                assert thing in list(things)
            elif use == "discard":
                things.discard(thing)
    assert late, "nothing changed"
    assert set(things) == set(late) | (set() if use == "discard" else set(kept))


def test_what_is_known_while_it_changes() -> None:
    known: WeakAttributes[Thing, int] = WeakAttributes()
    kept = [Thing() for _ in range(300)]
    late: list[Thing] = []

    def change() -> None:
        late.append(Thing())
        known.set(late[-1], -1)

    with at_each_collection(change):
        for number, thing in enumerate(kept):
            known.set(thing, number)
    assert late, "nothing changed"
    assert [known.get(it) for it in kept] == list(range(300))
    assert {known.get(it) for it in late} == {-1}


def test_the_dead_are_forgotten() -> None:
    things: LiveMap[int, Thing] = LiveMap()
    for key in range(10_000):
        things.set(key, Thing())
    assert len(things._refs) < 200
    assert things.get(9_999) is None
