"""The one scheme of sizes: little waste, and nothing is rounded twice on its way from a plan to a buffer."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from onnxruntime_ep_wgpu.device import adapters, open_device
from onnxruntime_ep_wgpu.device.sizes import padded, size_class
from onnxruntime_ep_wgpu.runtime.temps import Temps

_contexts = itertools.count(94_500)


@given(st.integers(0, 1 << 40))
def test_a_size_class_wastes_an_eighth_or_less_than_one_grain(nbytes: int) -> None:
    size = size_class(nbytes)
    assert size % 256 == 0 and size >= 256
    assert nbytes <= size <= max(nbytes * 9 / 8, nbytes + 255, 256)


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_size_classes_are_fixed_points_in_the_order_of_sizes(one: int, other: int) -> None:
    assert size_class(size_class(one)) == size_class(one)
    assert padded(size_class(one)) == size_class(one)
    assert (size_class(one) <= size_class(other)) or one > other


@given(st.integers(1, 30))
def test_there_are_eight_classes_per_power_of_two(exponent: int) -> None:
    low = 1 << (exponent + 10)
    classes = {size_class(low + 1 + low * k // 64) for k in range(64)}
    assert len(classes) == 8


def test_an_intermediate_buffer_has_its_size_class_when_the_cache_has_given_it() -> None:
    device = open_device(adapters()[0], next(_contexts))
    for nbytes in (600_000, 1 << 20, 5_000_001, 300):
        (buffer,) = Temps(device.caches.storage).take([nbytes], [""])
        assert buffer.size == size_class(nbytes)
