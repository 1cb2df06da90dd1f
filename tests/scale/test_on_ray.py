"""Which device an actor of Ray takes, and what is said where there is no Ray."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.scale import Predictor, application
from onnxruntime_ep_wgpu.scale.on_ray import assigned
from tests.plugin import models


def machine(*kinds: str) -> list[Any]:
    """Devices called by their place, of hardware or "software"."""
    return [SimpleNamespace(ep_metadata={"name": f"{k}", kind: "1"}) for k, kind in enumerate(kinds)]


EIGHT = machine(*["gpu"] * 8, "software")


@pytest.mark.parametrize("number", ["0", "3", "7"])
def test_the_gpu_of_a_number_is_the_adapter_of_that_place(number: str) -> None:
    assert assigned([number], EIGHT).ep_metadata["name"] == number


def test_eight_actors_have_eight_gpus() -> None:
    assert len({id(assigned([str(k)], EIGHT)) for k in range(8)}) == 8


def test_the_first_of_several_is_taken() -> None:
    assert assigned(["2", "5"], EIGHT).ep_metadata["name"] == "2"


def test_an_actor_without_gpus_takes_the_usual_device() -> None:
    assert assigned([], EIGHT) is None and assigned([], machine("software")) is None


def test_the_only_gpu_may_have_any_name() -> None:
    assert assigned(["GPU-5d5ba0d6"], machine("gpu", "software")).ep_metadata["name"] == "0"


@pytest.mark.parametrize(
    ("number", "found", "seen"),
    [("0", machine("software"), 0), ("8", EIGHT, 8), ("GPU-5d5ba0d6", EIGHT, 8), ("1", machine("gpu"), 1)],
)
def test_a_gpu_that_is_not_there_is_an_error(number: str, found: list[Any], seen: int) -> None:
    message = (
        rf"Ray assigned GPU '{number}', and this process sees {seen} adapters of hardware \(all adapters: 0.*Vulkan"
    )
    with pytest.raises(webgpu_ep.DeviceError, match=message):
        assigned([number], found)


@pytest.mark.parametrize("make", [Predictor, application])
def test_without_ray_it_is_said_how_to_install_it(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'ray\[data,serve\]'"):
        make(models.chain())
