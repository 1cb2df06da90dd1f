"""Batches of waiting requests: complete by size or by time, oldest first, each request once."""

from __future__ import annotations

from collections.abc import Hashable

from hypothesis import given
from hypothesis import strategies as st

from onnxruntime_ep_wgpu.scale.requests import Request
from onnxruntime_ep_wgpu.scale.waiting import Groups


def request(kind: Hashable = "a", rows: int = 1, since: float = 0.0) -> Request:
    return Request({}, kind, rows, since)


def filled(groups: Groups, *requests: Request) -> list[Request]:
    for it in requests:
        groups.add(it)
    return list(requests)


def test_a_batch_is_complete_when_it_has_enough_rows() -> None:
    groups = Groups(max_batch=4, max_wait=10)
    ones = filled(groups, request(rows=2), request(rows=1))
    assert groups.take(now=9) == [] and groups.next_due() == 10
    ones += filled(groups, request(rows=1))
    assert groups.next_due() == 0
    assert groups.take(now=0) == ones
    assert groups.size == 0 and groups.next_due() is None


def test_a_batch_is_complete_when_its_oldest_request_has_waited_long_enough() -> None:
    groups = Groups(max_batch=4, max_wait=10)
    ones = filled(groups, request(since=3), request(since=12))
    assert groups.take(now=12.5) == []
    assert groups.take(now=13) == ones


def test_what_does_not_fit_waits_for_the_next_batch() -> None:
    groups = Groups(max_batch=4, max_wait=0)
    ones = filled(groups, request(rows=3), request(rows=3), request(rows=1), request(rows=9), request(rows=1))
    assert [groups.take(now=0) for _ in range(5)] == [ones[:1], ones[1:3], ones[3:4], ones[4:], []]


def test_kinds_are_not_mixed_and_the_oldest_goes_first() -> None:
    groups = Groups(max_batch=4, max_wait=10)
    ones = filled(groups, request("a", since=0), request("b", rows=4, since=1), request("a", since=2))
    assert groups.take(now=2) == [ones[1]], "b is complete"
    assert groups.take(now=10) == [ones[0], ones[2]]


def test_requests_of_no_kind_run_alone_and_at_once() -> None:
    groups = Groups(max_batch=4, max_wait=10)
    ones = filled(groups, request(None), request(None))
    assert groups.next_due() == 0
    assert [groups.take(now=0) for _ in range(3)] == [[ones[0]], [ones[1]], []]


def test_what_is_put_back_is_first_again() -> None:
    groups = Groups(max_batch=2, max_wait=0)
    ones = filled(groups, *(request(since=k) for k in range(4)))
    groups.put_back(groups.take(now=9))
    assert groups.size == 4
    assert [groups.take(now=9), groups.take(now=9)] == [ones[:2], ones[2:]]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(["a", "b", None]), st.integers(0, 5)),
        st.tuples(st.just("take"), st.booleans(), st.integers(0, 4)),
        st.tuples(st.just("remove"), st.integers(0, 40), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 6), st.integers(0, 5))
def test_whatever_happens_each_request_is_in_one_batch(steps: list, max_batch: int, max_wait: int) -> None:
    groups, now = Groups(max_batch, max_wait), 0.0
    here: list[Request] = []
    for what, one, two in steps:
        if what == "add":
            here += filled(groups, request(one, two, now))
        elif what == "remove" and here:
            gone = here.pop(one % len(here))
            assert groups.remove(gone) and not groups.remove(gone)
        elif what == "take":
            now += two
            batch = groups.take(now, at_once=one)
            complete = {
                kind
                for kind in {it.kind for it in here}
                if (of := [it for it in here if it.kind == kind])
                if one or kind is None or sum(it.rows for it in of) >= max_batch or now - of[0].since >= max_wait
            }
            assert bool(batch) == bool(complete)
            if batch:
                first = next(it for it in here if it.kind in complete)
                assert batch[0].since == first.since, "the oldest of those that are complete"
                assert batch == [it for it in here if it.kind == batch[0].kind][: len(batch)], "in the order of arrival"
                assert len(batch) == 1 or (batch[0].kind is not None and sum(it.rows for it in batch) <= max_batch)
            here = [it for it in here if it not in batch]
        assert groups.size == len(here)
    assert sorted(map(id, groups.clear())) == sorted(map(id, here))
    assert groups.size == 0 and not groups.take(now, at_once=True)
