"""What the store answers is what a fresh compilation gives: for models, and for twins of them that differ in one thing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .changes import base, base_with_bodies, changed
from .showing import Asked, answer

TWINS = 8  # of a model
PAIRS = 2000


def fresh(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What compiling gives: with the lowering that a group was decided by, and without, where the claim came from the store. Inputs
    may be in another order then."""
    monkeypatch.setenv("WGPU_EP_CACHE", "off")
    return [answer(asked, apart).plain for apart in (False, True)]


def check(seed: int, twins: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> float:
    """Each model is answered twice with the store, in a folder in which all the others are. Gives the part of them that came from
    it the second time: all but those with a node that no provider can run, or with a Program that is too large."""
    asked, compiled = (base_with_bodies(seed // 4) if seed % 4 == 3 else base(seed)), 0
    family = [("itself", asked), *(changed(asked, 1000 * seed + number) for number in range(twins))]
    for what, it in [*family, *family[:3]]:
        want = fresh(it, monkeypatch)
        monkeypatch.setenv("WGPU_EP_CACHE", str(folder))
        for number in range(2):
            got = answer(it)
            assert got.plain in want, (seed, what, number)
            assert not got.told
        compiled += bool(got.compiled)
    return 1 - compiled / (len(family) + len(family[:3]))


@pytest.mark.every_case
@pytest.mark.parametrize("seed", range(8))
def test_a_twin_is_never_taken_for_a_model(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(seed, 2, tmp_path, monkeypatch) > 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(10))
def test_two_thousand_pairs(part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    each = PAIRS // TWINS // 10
    seeds = range(100 + part * each, 100 + (part + 1) * each)
    found = [check(seed, TWINS, tmp_path, monkeypatch) for seed in seeds]
    assert sum(found) / each > 0.75
