"""Which cases of a parametrised test run: `make test` has a sample, `make test-rest` all pairs, `--every-case` the whole product.

What is special about a case stands in its id: a value of each parametrisation, whose parts are set apart by hyphens. The sample has
each of these properties at least once, and then pairs of them, those of the most pairs first, up to a number of cases
(J. Bach and P. J. Schroeder, Pairwise Testing: A Best Practice That Isn't, 2004, say what that finds and what it does not).
The rest of the cases that all pairs need is marked `exhaustive`. What only adds a third property to known pairs is left out.

Invariant: both choices depend on the ids alone, so that each process of a test run has the same ones.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations

import pytest

FEW = 4
"""A test of so many cases keeps them all."""
FEWEST = 1
"""Cases of a test that is marked `costly`: its kernels take long to compile. Tests beside it have others."""
ENOUGH = 6
"""Cases of a test, unless its single properties need more."""
MANY = 24
"""A test of so many cases keeps them all in `make test-rest`; another one as many, unless its pairs need more."""
SMALL = 8
"""A parametrisation of so few values is not taken apart: each value is a property."""


def mark_the_rest(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Marks as `exhaustive` what is not in the sample of its test; gives the cases that only the whole product has.

    Tests marked `every_case` are left alone, and of those marked `costly` a few cases are left, whatever their properties.
    """
    beyond: set[pytest.Item] = set()
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec") and not any(map(item.get_closest_marker, ("every_case", "exhaustive"))):
            tests[item.nodeid.partition("[")[0]].append(item)
    for name, cases in tests.items():
        ids = [tuple(case.callspec._idlist) for case in cases]  # type: ignore[attr-defined]
        costly = cases[0].get_closest_marker("costly")
        chosen = set(sample(ids, [*costly.args, FEWEST][0] if costly else None, name))
        for k, case in enumerate(cases):
            if k not in chosen:
                case.add_marker("exhaustive")
        kept = chosen.union(all_pairs(ids, name))
        beyond.update(case for k, case in enumerate(cases) if k not in kept)
    return beyond


def sample(cases: Sequence[tuple[str, ...]], most: int | None = None, name: str = "") -> list[int]:
    """Positions of the cases of the sample, at most `most`; a case is the ids of its values, one of each parametrisation. Of cases
    that are worth as much another one is chosen for another name."""
    if len(cases) <= (most or FEW):
        return list(range(len(cases)))
    held = [_properties(case) for case in _parted(cases)]
    singles = set().union(*(ones for ones, _ in held))
    pairs = set().union(*(twos for _, twos in held))
    rank = [hashlib.sha256("-".join([name, *case]).encode()).digest() for case in cases]
    left, chosen = set(range(len(cases))), []
    while (singles or len(chosen) < (ENOUGH if pairs else FEW)) and len(chosen) != most:
        # Until each property is there, only cases that add one: rare ones need a case each.
        best = max(left, key=lambda k: (bool(held[k][0] & singles), len(held[k][1] & pairs), rank[k]))
        singles -= held[best][0]
        pairs -= held[best][1]
        left.remove(best)
        chosen.append(best)
    return sorted(chosen)


def all_pairs(cases: Sequence[tuple[str, ...]], name: str = "") -> list[int]:
    """Positions of cases that have every pair of properties between them, and at least `MANY`.

    One pass takes what adds a pair, and another one leaves out what later ones made superfluous.
    """
    if len(cases) <= MANY:
        return list(range(len(cases)))
    small = [len({case[axis] for case in cases}) <= SMALL for axis in range(len(cases[0]))]
    rank = sorted(range(len(cases)), key=lambda k: hashlib.sha256("-".join([name, *cases[k]]).encode()).digest())
    held: Counter[tuple[Hashable, Hashable]] = Counter()
    pairs: dict[int, list[tuple[Hashable, Hashable]]] = {}
    for k in rank:
        parts = dict.fromkeys(
            (axis, part)
            for axis, value in enumerate(cases[k])
            for part in ([value] if small[axis] else ["a number"] if value.isdecimal() else value.split("-"))
        )
        its = [*combinations(parts, 2)]
        if not all(it in held for it in its):
            pairs[k] = its
            held.update(its)
    for k in [*pairs]:
        if all(held[it] > 1 for it in pairs[k]):
            held.subtract(pairs.pop(k))
    others = [k for k in rank if k not in pairs]
    return sorted([*pairs, *others[: max(0, MANY - len(pairs))]])


def _properties(parts: list[Hashable]) -> tuple[set[Hashable], set[tuple[Hashable, Hashable]]]:
    return set(parts), set(combinations(parts, 2))


def _parted(cases: Sequence[tuple[str, ...]]) -> list[list[Hashable]]:
    """The properties of each case: values of small parametrisations, and parts of the ids that values of large ones share.

    An id that shares none is a property itself, as the name of an operator is, unless it is a number: one seed is like another.
    """
    axes = []
    for axis in range(len(cases[0])):
        values = {case[axis] for case in cases}
        shared = Counter(part for value in values for part in set(value.split("-")))
        axes.append((len(values) <= SMALL, {part for part, count in shared.items() if count > 1}))
    found = []
    for case in cases:
        parts: list[Hashable] = []
        for axis, (value, (small, shared)) in enumerate(zip(case, axes, strict=True)):
            common = [] if small else [part for part in value.split("-") if part in shared]
            parts += [(axis, part) for part in common or ["a number" if not small and value.isdecimal() else value]]
        found.append(parts)
    return found
