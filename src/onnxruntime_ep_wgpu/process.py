"""A process that was forked from one which uses the GPU: nothing of the GPU works there, and calling it hangs.

In: `uses_gpu()`, when the first native object is made. Out: `check()` for every way in. Only the thread that forked exists in
the child; those of the driver and of wgpu-native are gone, and locks that they held stay locked. So the child takes no lock
and calls nothing native: `check()` raises instead, and finalisers leave to the end of the process what they would release. A
fork before the first use harms nobody.
"""

from __future__ import annotations

import os

from .errors import ForkError

_in_use = False
forked = False  # whether this process is such a child; read by those who may not raise


def uses_gpu() -> None:
    """From here on a child that is forked cannot use the GPU."""
    global _in_use
    _in_use = True


def check() -> None:
    """Raises ForkError in a process that was forked from one which uses the GPU."""
    if forked:
        raise ForkError(
            "this process was forked from one that uses the GPU, and cannot use it: start processes with"
            ' multiprocessing.get_context("spawn"), or fork before the provider is registered or used'
        )


def _after_fork() -> None:
    global forked
    forked = _in_use


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_after_fork)
