"""A dispatch of a plan: what its step needs of the device."""

from __future__ import annotations

from dataclasses import dataclass

from ..device import BindGroup, BufferBinding, Pipeline
from ..program.layout import Step
from .uniforms import UniformBuffers


@dataclass(eq=False)
class PlannedDispatch:
    """A step of the layout with what it needs of the device. `entries` has None where a caller's buffer goes, which are those
    of `theirs`; without any, `group` is made once. `uniforms` has its block, None for one without. Plans share those that are
    the same in both."""

    step: Step
    label: str
    pipeline: Pipeline
    args: tuple[int, ...]
    entries: list[BufferBinding | None]
    group: BindGroup | None
    uniforms: UniformBuffers | None
    theirs: tuple[int, ...]
