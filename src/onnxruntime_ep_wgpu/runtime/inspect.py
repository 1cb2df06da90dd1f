"""Runs dispatch by dispatch, for code that inspects every value (`wgpu-ep verify`).

In: a plan and the inputs. Out: the results of each dispatch, as numpy. Invariant: results come in the order of the program, and
the caller may replace each before a later dispatch reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..device import Place
from ..program.dtypes import packed, unpacked
from ..program.layout import finished
from .inputs import DeviceTensor
from .plan import Plan


def trace(
    plan: Plan, inputs: Sequence[DeviceTensor], replace: Callable[[int, Any], Any] = lambda _value, _array: None
) -> Iterator[tuple[int, dict[int, Any]]]:
    """Yields (number of the dispatch, the values that it completed, by number), in order.

    `replace(value, array)` may return another array of the same type and shape, which later dispatches read instead. The
    plan must keep its buffers meanwhile (`Executable.planned`).
    """
    program, device = plan.program, plan.device
    empty = device.buffer(256, "empty tensor")
    callers = {v: t.place or Place(empty, 0) for v, t in zip(program.inputs, inputs, strict=True)}
    callers |= {v: Place(device.buffer(max(16, plan.nbytes[v])), 0) for v in program.outputs}
    device.submit((), [(*callers[source], *callers[it], plan.nbytes[it]) for it, source in plan.layout.aliases])
    done = finished(program, plan.layout.steps)
    for planned, bound, values in zip(plan.dispatches, plan.bound(callers), done, strict=True):
        device.submit([bound])
        if not values:
            continue
        written = {}
        for value in values:
            data = np.empty(plan.nbytes[value], np.uint8)
            buffer = plan.buffers.get(value) or callers[value][0]
            if data.size:
                device.download(buffer, 0, data.data)
            written[value] = unpacked(data, program.values[value].dtype, plan.shapes[value])
            instead = replace(value, written[value])
            if data.size and instead is not None:
                device.upload(buffer, 0, packed(np.asarray(instead)).data)
        yield planned.step.dispatch, written
