"""The Targets that tests run with, on whatever adapter is here: its own, that of a GPU, of a software adapter, or of a browser
without a GPU; 64-bit integers native or as pairs.

The templates that GPUs run differ from those of a software adapter, which run anywhere. A `Way` other than the adapter's own
is a context of its own (the option deviceId), whose device is opened with a changed Target; all kinds live in one process side
by side. Invariant: a Program runs on a device that has its Target, or at least all that the Program relies on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from onnxruntime_ep_wgpu.compiler.tune import SWIFTSHADER, use
from onnxruntime_ep_wgpu.compiler.tune.convolutions import ChannelsLast
from onnxruntime_ep_wgpu.compiler.tune.flash_matrices import FlashMatrices
from onnxruntime_ep_wgpu.compiler.tune.matrices import ByteTile, MatrixTile
from onnxruntime_ep_wgpu.device import Adapter, Context, Device, adapters, context_of, open_device
from onnxruntime_ep_wgpu.device.contexts import claim
from onnxruntime_ep_wgpu.device.webgpu import libraries
from onnxruntime_ep_wgpu.program.target import INTEGER_DOTS, SUBGROUP_MATRIX, MatrixUnit, Target, lack

TARGETS = ("own", "gpu", "channels", "matrices", "web-matrices", "software", "browser")
INT64 = ("native", "pair")
APART = 10_000_000
"""Contexts of one way have numbers below this, beyond all that tests give their own; those of the next one follow."""


@dataclass(frozen=True)
class Way:
    """`target`: the adapter's `own`, what a `gpu` offers, the same with the `channels` of all convolutions last in memory, or with
    `matrices` of subgroups, which are multiplied in plain WGSL where the adapter has no units for them, or with `web-matrices`,
    the same as the kernels of a browser have them,
    `software`, which long loops are split for, or `browser`, which has kernels for SwiftShader as well, and no subgroups; `int64`:
    `native`, or `pair` as on adapters that lack them. With `channels`, as in a browser, components of vectors are not stored
    alone."""

    target: str = "own"
    int64: str = "native"

    def __post_init__(self) -> None:
        if self.target not in TARGETS or self.int64 not in INT64:
            raise ValueError(f"{self}: a target is one of {TARGETS}, int64 is one of {INT64}")

    def __str__(self) -> str:
        return f"{self.target}-{self.int64}"

    @property
    def is_gpu(self) -> bool:
        """Whether it runs the kernels of GPUs."""
        return self.target in ("gpu", "channels", "matrices", "web-matrices")

    def of(self, full: Target) -> Target:
        """What is left of, or claimed beyond, the Target of an adapter."""
        left_out = {"shader-int64"} if self.int64 == "pair" else set()
        left_out |= {"browser": {"subgroup", "subgroups", "component-stores"}, "channels": {"component-stores"}}.get(
            self.target, set()
        )
        left_out |= {SUBGROUP_MATRIX} if self.target in ("gpu", "channels") else set()
        features = full.features - left_out | ({INTEGER_DOTS} if self.is_gpu else set())
        if not self.is_gpu:
            software = full.software or self.target in ("software", "browser")
            tuning = SWIFTSHADER if self.target == "browser" else full.tuning
            return dataclasses.replace(full, features=features, software=software, tuning=tuning)
        return dataclasses.replace(
            full,
            library="" if self.target == "web-matrices" else full.library,
            features=features,
            max_storage_buffers=min(full.max_storage_buffers, 8),
            max_invocations=min(full.max_invocations, 1024),
            max_workgroup_storage=min(full.max_workgroup_storage, 32 << 10),
            software=False,
            discrete=True,
            matrices=full.matrices or UNITS if self.target in ("matrices", "web-matrices") else (),
            tuning=(*CHOICES.get(self.target, ()), *full.tuning),
        )


UNITS = (
    *(MatrixUnit(*it, "f16", "f32", 32) for it in ((16, 16, 16), (8, 8, 8), (8, 16, 16))),
    *(MatrixUnit(*it, "i8", "i32", 32) for it in ((16, 16, 32), (8, 16, 32))),
)
"""As GPUs of different makers have."""
_MATRICES = (  # larger tiles take software adapters long to compile
    use(MatrixTile(16, 16, 16, 1, 1)),
    use(ByteTile(16, 16, 32, 1, 1)),
    use(FlashMatrices(16, 16, 1, 256)),
)
CHOICES = {"channels": (use(ChannelsLast(2)),), "matrices": _MATRICES, "web-matrices": _MATRICES}
OWN = Way()
EVERY_PAIR = (OWN, Way("own", "pair"), Way("gpu", "native"), Way("gpu", "pair"))
WAYS = tuple(Way(target, int64) for target in TARGETS for int64 in INT64)
EVERY_KERNEL = pytest.mark.parametrize(
    "way", (OWN, Way("gpu", "pair"), Way("browser", "pair")), ids=lambda way: way.target, indirect=True
)
"""For tests of operators that have kernels of their own in browsers without a GPU."""
EVERY_ORDER = pytest.mark.parametrize(
    "way",
    (OWN, Way("gpu", "pair"), Way("channels"), Way("browser", "pair")),
    ids=lambda way: way.target,
    indirect=True,
)
"""For tests of operators that read or make images, whose channels may be last in memory."""
_chosen = OWN


def chosen() -> Way:
    """What tests that ask for none run with now."""
    return _chosen


@contextmanager
def using(way: Way) -> Iterator[None]:
    """Tests inside run with `way`."""
    global _chosen
    before, _chosen = _chosen, way
    try:
        yield
    finally:
        _chosen = before


def each(*ways: Way) -> Any:
    """A fixture with which every test of a module runs in each of these ways: `way = targets.each(targets.OWN)`."""

    @pytest.fixture(autouse=True, params=ways if len(ways) > 1 else None, ids=lambda way: way.target)
    def way(request: pytest.FixtureRequest) -> Iterator[Way]:
        here: Way = getattr(request, "param", ways[0])
        with using(here):
            yield here

    return way


def pretended(way: Way) -> bool:
    """Whether this is a GPU's Target on an adapter that is none: loops must stay short there."""
    return way.is_gpu and adapters()[0].software


class StandIn(Context):
    """A context on an adapter that is taken for another one."""

    def __init__(self, adapter: Adapter, number: int, way: Way) -> None:
        super().__init__(adapter, number, libraries.default_name())
        self.way = way

    @property
    def target(self) -> Target:
        return self.way.of(super().target)


@cache
def context(way: Way, number: int) -> Context:
    """The context of the first adapter with this number among those of `way`."""
    assert number < APART, number
    adapter = adapters()[0]
    if way == OWN:
        return context_of(adapter, number)
    return claim(StandIn(adapter, WAYS.index(way) * APART + number, way))


@cache
def device(way: Way) -> Device:
    """The shared device of `way`, open until the process ends."""
    here = context(way, 0)
    return open_device(here.adapter, here.number)


def suited(target: Target) -> Way:
    """The way whose device runs Programs made for `target`: one that has this Target, else one that lacks nothing of it.

    Raises ValueError when the adapter lacks something in every way.
    """
    full = adapters()[0].through("", libraries.default_name()).target()
    offered = {way: has for way in WAYS if (has := way.of(full)).int64 == target.int64}
    exact = [way for way, has in offered.items() if has == target]
    enough = [way for way, has in offered.items() if lack(target, has) is None]
    if not exact + enough:
        raise ValueError(f"no way runs what is made for {target}: it {lack(target, offered[Way('own', target.int64)])}")
    return (exact + enough)[0]
