"""Places of tensors that are remembered are bound as those of a run, and keep no buffer."""

from __future__ import annotations

import gc
from typing import cast

import pytest

from onnxruntime_ep_wgpu.device import Buffer, Place
from onnxruntime_ep_wgpu.runtime.callers import Callers, Places, Remembered

from . import fakes


def buffers(count: int) -> list[Buffer]:
    return [cast(Buffer, fakes.Buffer(64)) for _ in range(count)]


def test_what_is_remembered_is_what_a_run_there_binds() -> None:
    x, y = buffers(2)
    callers = Callers({3: Place(x, 16), 8: Place(y, 0), 5: Place(x, 32)})
    found = Remembered({3: 0, 8: 1, 5: 2}, Places([*callers.values()]))
    assert found.at == callers.at == ((x.number, 16), (y.number, 0), (x.number, 32))
    assert [*found.buffers] == callers.buffers
    assert {value: found[value] for value in found} == callers
    assert found.are_there()


def test_a_buffer_that_has_gone_is_not_kept() -> None:
    x, y = buffers(2)
    places = Places([Place(x, 16), None, Place(y, 0)])
    assert places.still_there() == [Place(x, 16), None, Place(y, 0)]
    found = Remembered({3: 0, 8: 1}, Places([Place(x, 16), Place(y, 0)]))
    del y
    gc.collect()
    assert places.still_there() is None
    assert not found.are_there()
    assert found[3] == Place(x, 16)
    with pytest.raises(ReferenceError):
        found[8]
