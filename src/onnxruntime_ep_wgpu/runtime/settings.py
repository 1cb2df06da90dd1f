"""What a user may choose about runs. In: provider options, by way of `plugin/settings.py`. Out: `RunSettings`.

Unlike `device/settings.py`, sessions with different ones share a device.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..device.settings import set_by


@dataclass(frozen=True)
class RunSettings:
    """How an Executable runs; every field has the default of the provider option that sets it."""

    bounds_checks: bool = False  # kernels test every index
    plan_checks: bool = True  # sizes and aliasing; see `checks`
    stepwise: bool = False  # dispatch by dispatch, each result looked at; see `stepwise`
    # Dispatches.
    per_submission: int = set_by("maxNumPendingDispatches", 4096)
    # Runs after which an unused buffer for intermediate values is given back.
    temp_generations: int = set_by("sessionBufferPoolGenerations", 1)
    # Every run is a capture for the attached graphics debugger.
    debugger_capture: bool = set_by("enablePIXCapture", False)
