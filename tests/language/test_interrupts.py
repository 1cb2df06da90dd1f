"""An interrupt at any line of a run leaves caches, and what is known of them, together: as before the run, or as after it."""

from __future__ import annotations

import sys
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from onnxruntime_ep_wgpu.api.language import state as module
from onnxruntime_ep_wgpu.api.language.state import State

CACHE = "past_key_values.0.key"


class Memory:
    """Arrays as if they were on a device."""

    number = 0

    def put(self, array: Any) -> Any:
        return SimpleNamespace(array=np.asarray(array), shape=lambda: list(np.shape(array)))

    def empty(self, shape: list[int], dtype: Any) -> Any:
        return self.put(np.zeros(shape, dtype))


class Binding:
    """Gives back the cache with as many rows more as there are ids."""

    def __init__(self) -> None:
        self.inputs: dict[str, Any] = {}

    def bind_ortvalue_input(self, name: str, value: Any) -> None:
        self.inputs[name] = value

    def bind_output(self, *given: Any) -> None: ...

    def get_outputs(self) -> list[Any]:
        steps, cache = self.inputs["input_ids"].array.shape[1], self.inputs[CACHE].array
        return ["logits", Memory().put(np.concatenate([cache, np.zeros((1, 2, steps, 4))], 2))]


def growing() -> Any:
    extents = [SimpleNamespace(dim_value=it) for it in (0, 2, 0, 4)]
    kind = SimpleNamespace(shape=SimpleNamespace(dim=extents), elem_type=1)
    session = SimpleNamespace(io_binding=Binding, run_with_iobinding=lambda binding, options: None)
    return SimpleNamespace(
        in_place=False, keeps_rows=False, takes_rows=False, has_positions=False, rows=100, context=100, vocabulary=50, kind=1,
        caches={CACHE: "present.0.key"}, inputs={CACHE: kind}, memory=Memory(), session=session, binds_again=False,
    )  # fmt: skip


def interrupted(state: State, lines: int) -> bool:
    """Runs a prompt up to so many lines of the module. Whether it was interrupted there."""
    left = lines

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != module.__file__:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        state.prompt([[4, 5]], 512)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_caches_and_the_number_of_their_rows_change_together() -> None:
    seen = set()
    for lines in range(500):
        state = State(growing(), 1)
        state.prompt([[1, 2, 3]], 512)
        ended = not interrupted(state, lines)
        (ids,), rows = state.ids, state._caches[CACHE].array.shape[2]
        assert len(ids) == rows == state._rows == state.used[0]
        assert ids in ([1, 2, 3], [1, 2, 3, 4, 5])
        seen.add((len(ids), ended))
        if ended:
            break
    else:
        pytest.fail("no run came to its end")
    assert (3, False) in seen and (5, True) in seen
