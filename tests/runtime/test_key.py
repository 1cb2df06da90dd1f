"""Places of tensors that are remembered are bound as those of a run, and keep no buffer but while they are bound."""

from __future__ import annotations

import gc
from typing import cast

from onnxruntime_ep_wgpu.device import Buffer, Place
from onnxruntime_ep_wgpu.runtime.runs.key import Callers, Places

from . import fakes


def buffers(count: int) -> list[Buffer]:
    return [cast(Buffer, fakes.Buffer(64)) for _ in range(count)]


def test_what_is_remembered_is_what_a_run_there_binds() -> None:
    x, y = buffers(2)
    callers = Callers({3: Place(x, 16), 8: Place(y, 0), 5: Place(x, 32)})
    places = Places([*callers.values()])
    held = places.held()
    assert held == [x, y, x]
    found = places.bound((3, 8, 5), held)
    assert found.at == callers.at == ((x.number, 16), (y.number, 0), (x.number, 32))
    assert [*found.buffers] == callers.buffers
    assert {value: found[value] for value in found} == callers


def test_a_buffer_that_has_gone_is_not_kept() -> None:
    x, y = buffers(2)
    places = Places([Place(x, 16), None, Place(y, 0)])
    held = places.held()
    assert held is not None
    assert places.within(held) == [Place(x, 16), None, Place(y, 0)]
    del y, held
    gc.collect()
    assert places.held() is None


def test_a_buffer_stays_while_it_is_bound_whoever_lets_go_of_it_meanwhile() -> None:
    x, y = buffers(2)
    places = Places([Place(x, 16), Place(y, 0)])
    held, number = places.held(), y.number
    assert held is not None
    found = places.bound((3, 8), held)
    del y, held
    gc.collect()
    assert found[3] == Place(x, 16)
    assert found[8].buffer.number == number
    del found
    gc.collect()
    assert places.held() is None
