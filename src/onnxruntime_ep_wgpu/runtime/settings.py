"""What a user may choose about runs. In: provider options, by way of `plugin/settings.py`. Out: `RunSettings`.

Unlike `device/settings.py`, sessions with different ones share a device.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunSettings:
    """How an Executable runs; every field has the default of the provider option that sets it."""

    bounds_checks: bool = False  # kernels test every index
    plan_checks: bool = True  # limits, sizes and aliasing; see `checks`
    stepwise: bool = False  # dispatch by dispatch, each result looked at; see `stepwise`
    per_submission: int = 4096  # dispatches
    temp_generations: int = 1  # runs after which an unused buffer for intermediate values is given back
    debugger_capture: bool = False  # every run is a capture for the attached graphics debugger
