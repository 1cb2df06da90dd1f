"""Every Target that a test asks for has a device here, on whatever kind of adapter."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from onnxruntime_ep_wgpu.program.target import WEB_BASELINE, Target, lack
from tests import targets
from tests.targets import WAYS, Way

NATIVE = frozenset({"shader-int64", "subgroup", "component-stores"})
LAVAPIPE = Target("lavapipe", "", NATIVE, 8, 1024, 32 << 10, software=True)
CARD = Target("card", "", NATIVE, 8, 1024, 48 << 10, 2 << 30, 4 << 30)


@pytest.fixture(params=[LAVAPIPE, CARD], ids=lambda it: it.name)
def full(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Target:
    """That of the only adapter."""
    adapter = SimpleNamespace(software=request.param.software, target=lambda: request.param)
    adapter.through = lambda *_: adapter
    monkeypatch.setattr(targets, "adapters", lambda: (adapter,))
    return request.param


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_way_runs_what_is_made_for_its_target(way: Way, full: Target) -> None:
    found = targets.suited(way.of(full))
    assert found.of(full) == way.of(full) and found.int64 == way.int64


@pytest.mark.parametrize("software", [True, False])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_kernels_of_both_kinds_of_adapter_run_here(way: Way, software: bool, full: Target) -> None:
    asked = dataclasses.replace(way.of(full), software=software)
    assert lack(asked, targets.suited(asked).of(full)) is None


def test_what_a_browser_runs_runs_here(full: Target) -> None:
    assert lack(WEB_BASELINE, targets.suited(WEB_BASELINE).of(full)) is None


def test_what_no_way_runs_is_named(full: Target) -> None:
    with pytest.raises(ValueError, match="max_invocations 4096, this adapter has 1024"):
        targets.suited(dataclasses.replace(full, max_invocations=4096))


def test_each_way_has_devices_of_its_own() -> None:
    numbers = [targets.context(way, 7).number for way in WAYS]
    assert len(set(numbers)) == len(WAYS)
