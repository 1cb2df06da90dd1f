"""A dispatch of a plan: the device objects of a step."""

from __future__ import annotations

from dataclasses import dataclass

from ..device import BindGroup, BufferBinding, Pipeline
from ..program.layout import Step
from .uniforms import UniformBuffers


@dataclass(eq=False)
class PlannedDispatch:
    """A step of the layout with its device objects. Plans share the dispatches that are equal in both.

    - `entries` has None for each argument in `theirs`, which are bound to callers' buffers. If there are none, `group` is made
      once.
    - `uniforms` has its block; None if it has none.
    """

    step: Step
    label: str
    pipeline: Pipeline
    args: tuple[int, ...]
    entries: list[BufferBinding | None]
    group: BindGroup | None
    uniforms: UniformBuffers | None
    theirs: tuple[int, ...]
