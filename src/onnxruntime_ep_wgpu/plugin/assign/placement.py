"""Where a node of a session runs, as data for people and tools. Imports nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """One node. `partition` numbers the compiled groups of its graph; `reason` says why it is not in one.

    `within` is the control-flow node whose body the node is in, "" for the main graph. `kernels` are the
    dispatches that calculate it, number and kernel; none for a view or a result that is known per input shape. `declined`
    are the rules of the compiler that looked at it and did not apply, with the reasons.
    """

    name: str
    op_type: str
    domain: str
    within: str
    provider: str
    partition: int | None
    kernels: tuple[str, ...]
    reason: str | None
    declined: tuple[str, ...] = ()
