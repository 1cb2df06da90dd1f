"""A plan that takes over what it has in common with another one is the plan that would have been made without: for any Program,
any order of sizes and any buffers of the caller, whatever was let go of in between."""

from __future__ import annotations

import struct
from typing import Any, cast
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxruntime_ep_wgpu.device import Place
from onnxruntime_ep_wgpu.device.sizes import padded
from onnxruntime_ep_wgpu.program.layout import Layout, Layouts
from onnxruntime_ep_wgpu.program.program import Program, Storage
from onnxruntime_ep_wgpu.runtime import plans as all_plans
from onnxruntime_ep_wgpu.runtime.pipelines import Pipelines
from onnxruntime_ep_wgpu.runtime.plan import Plan
from onnxruntime_ep_wgpu.runtime.plans import Plans
from onnxruntime_ep_wgpu.runtime.runs.key import Callers
from onnxruntime_ep_wgpu.runtime.settings import RunSettings
from tests.program import programs

from .fakes import Buffer, Device

CALLERS = (Storage.INPUT, Storage.OUTPUT)


def check(program: Program, plan: Plan, fresh: Layout, callers: dict[int, Place], weight: Buffer) -> None:
    """Every dispatch binds what the layout that was made by itself says, in memory that is the plan's."""
    pipelines: dict[tuple[int, int], Any] = {}
    rows = list(plan.bind(Callers(callers)))
    assert len(rows) == len(fresh.steps) == len(plan.dispatches)
    for step, planned, (pipeline, group, grid) in zip(fresh.steps, plan.dispatches, rows, strict=True):
        dispatch = program.dispatches[step.dispatch]
        assert planned.step == step and grid == step.grid
        assert pipelines.setdefault((dispatch.kernel, step.variant), pipeline) is pipeline
        *tensors, block = cast(Any, group).entries if step.uniforms else (*cast(Any, group).entries, None)
        for arg, byte_range, (buffer, offset, size) in zip(
            dispatch.args, step.ranges or (None,) * len(dispatch.args), tensors, strict=True
        ):
            value = program.values[arg]
            mine, start = callers[arg] if value.storage in CALLERS else (plan.buffers[arg], 0)
            first, nbytes = byte_range or (0, fresh.nbytes[arg])
            assert buffer is mine and offset == start + first and not buffer.given_back
            assert size == min(padded(nbytes), buffer.size - offset)
            if value.storage is Storage.TEMP:
                assert buffer in plan.temps and buffer.size >= fresh.slots[fresh.slot_of[arg]]
            if value.storage is Storage.HOST:
                assert buffer.data == np.array(fresh.elements[arg], value.dtype.numpy).tobytes()
            if value.storage is Storage.WEIGHT:
                assert buffer is weight
        if block is not None:
            buffer, offset, _ = block
            assert not buffer.given_back
            assert struct.unpack_from(f"<{len(step.uniforms)}I", buffer.data, offset) == step.uniforms
    lives = {v: plan.buffers[v] for v in fresh.slot_of}
    assert all((lives[a] is lives[b]) == (fresh.slot_of[a] == fresh.slot_of[b]) for a in lives for b in lives)


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_a_plan_is_what_it_would_be_without_the_one_before(data: st.DataObject) -> None:
    program = programs.drawn(data)
    device, weight = cast(Any, Device()), Buffer(32)
    generations = data.draw(st.integers(0, 3))
    chosen = RunSettings(temp_generations=generations, plan_checks=False)
    plans = Plans(program, device, chosen, cast(Any, [weight]), Pipelines(program, device, chosen))
    layouts, theirs = Layouts(program), [cast(Any, Buffer(1 << 12)) for _ in range(4)]
    for symbols in data.draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=10)):
        latest, key = plans.latest(), ((symbols,), ())
        with mock.patch.object(all_plans, "MAX_PLANS", 2):
            layout = layouts.layout(symbols, None if latest is None else latest.layout)
            planned = plans.known(key) or plans.made(key, layout)
        with planned as plan:
            for _ in range(data.draw(st.integers(0, 2))):
                callers = {
                    v: Place(data.draw(st.sampled_from(theirs)), 256 * data.draw(st.integers(0, 1))) for v in (0, 1, 2)
                }
                check(program, plan, Layouts(program).layout(symbols), callers, weight)
