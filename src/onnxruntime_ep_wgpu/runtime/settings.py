"""The user's choices about runs. In: provider options. Out: `RunSettings`.

Unlike with `device/settings.py`, sessions with different ones share a device.
"""

from __future__ import annotations

from ..fields import set_by
from ..records import dataclass


@dataclass(frozen=True)
class RunSettings:
    """How an Executable runs."""

    # Kernels check every index.
    bounds_checks: bool = set_by(
        "validationMode", "enableRobustness", default=False, value=lambda mode, robust: mode == "full" or robust
    )
    # Checks of sizes and aliasing; see `checks`.
    plan_checks: bool = set_by("validationMode", default=True, value=lambda mode: mode in ("basic", "full"))
    # Checks the result of every dispatch; see `stepwise`.
    stepwise: bool = set_by("validationMode", default=False, value=lambda mode: mode == "full")
    # Most dispatches per submission.
    per_submission: int = set_by("maxNumPendingDispatches", default=4096)
    # Runs after which an unused buffer for intermediate values is returned to the cache.
    temp_generations: int = set_by("sessionBufferPoolGenerations", default=1)
    # Every run is a capture for the attached graphics debugger.
    debugger_capture: bool = set_by("enablePIXCapture", default=False)
