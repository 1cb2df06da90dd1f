"""The sample of a test's cases has every property, and pairs of them."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from tests.sampling import ENOUGH, FEW, MANY, SMALL, all_pairs, sample

WAYS = ("own", "gpu")
TYPES = ("f32", "f16", "i64", "bool")
SIZES = ("empty", "odd", "large")


def test_few_cases_are_all_kept() -> None:
    assert sample([(str(k),) for k in range(FEW)]) == list(range(FEW))


def test_every_value_is_there_and_as_many_pairs_as_fit() -> None:
    cases = list(product(WAYS, TYPES, SIZES))
    chosen = [cases[k] for k in sample(cases)]
    assert len(chosen) == ENOUGH
    assert all({case[axis] for case in chosen} == {case[axis] for case in cases} for axis in range(3))
    pairs = {pair for case in chosen for pair in combinations(case, 2)}
    assert len(pairs) >= 3 * ENOUGH - 1  # each case adds three, but for one that repeats a pair


@pytest.mark.parametrize("count", [SMALL + 1, 40])
def test_an_operator_that_has_one_case_keeps_it(count: int) -> None:
    cases = list(product([f"Op{k}" for k in range(count)], WAYS))
    chosen = [cases[k] for k in sample(cases)]
    assert {op for op, _ in chosen} == {op for op, _ in cases} and len(chosen) == max(count, ENOUGH)
    assert {way for _, way in chosen} == set(WAYS)


def test_what_ids_have_in_common_is_a_property_and_numbers_are_none() -> None:
    cases = [(f"{k}-{op}-{size}",) for k, (op, size) in enumerate(product(("Add", "Mul", "Pow"), SIZES * 4))]
    chosen = [cases[k][0].split("-")[1:] for k in sample(cases)]
    assert len(chosen) <= ENOUGH
    assert len({tuple(parts) for parts in chosen}) == ENOUGH
    assert {op for op, _ in chosen} == {"Add", "Mul", "Pow"} and {size for _, size in chosen} == set(SIZES)
    assert len(sample([(str(seed),) for seed in range(500)])) == FEW


def test_of_what_is_costly_there_are_few() -> None:
    assert len(sample(list(product(WAYS, TYPES, SIZES)), FEW)) == FEW


def test_the_sample_does_not_depend_on_the_order() -> None:
    cases = list(product(WAYS, TYPES, SIZES))
    backwards = cases[::-1]
    assert {cases[k] for k in sample(cases)} == {backwards[k] for k in sample(backwards)}


def test_the_long_tests_have_every_pair_and_no_more_than_they_need() -> None:
    cases = list(product(WAYS, TYPES, SIZES, [str(k) for k in range(50)]))
    chosen = [cases[k] for k in all_pairs(cases)]
    assert MANY <= len(chosen) < len(cases) // 10
    of = [{pair for case in some for pair in combinations(case[:3], 2)} for some in (cases, chosen)]
    assert of[0] == of[1]
    names = list(product([f"Op{k}" for k in range(100)], WAYS))
    assert len(all_pairs(names)) == len(names)  # each operator is seen in each way
    assert len(all_pairs(cases[:MANY])) == MANY
