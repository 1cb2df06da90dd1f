"""A claim in an entry: which nodes of a graph run here, in which groups, and why the others do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import Fault, FreeSize
from ..assign.decision import Claim
from ..assign.outcome import Alone, Elsewhere, Fused, OwnKernel
from .entry import EntryError, understood

KIND = "claim"


def can_be_kept(claim: Claim) -> bool:
    """A claim that relies on types which ONNX Runtime does not know is decided anew, and so is one that met a fault, or has a node
    with bodies."""
    alone = any(isinstance(it, (Alone, OwnKernel)) for it in claim.outcomes)
    return not claim.found and not alone and not any(isinstance(reason, Fault) for reason in claim.reasons)


def content_of(claim: Claim) -> dict[str, Any]:
    """As JSON has it."""
    free = [place for place, reason in enumerate(claim.reasons) if isinstance(reason, FreeSize)]
    return {"groups": claim.groups, "reasons": claim.reasons, "free": free}


def claim_of(content: Mapping[str, Any], assigned: Sequence[str]) -> Claim:
    """The claim of a graph whose nodes are `assigned`. Raises EntryError where it cannot be one of that."""
    with understood():
        groups = tuple(tuple(group) for group in content["groups"])
        reasons, free = list(content["reasons"]), content["free"]
        places = sorted(place for group in groups for place in group)
        if any(type(place) is not int for place in (*places, *free)) or not all(groups):
            raise EntryError("a place is a number")
        if len(reasons) != len(assigned) or any(type(it) is not str and it is not None for it in reasons):
            raise EntryError("there is a reason for each node")
        if places != [place for place, reason in enumerate(reasons) if reason is None]:
            raise EntryError("a node is in one group, or has a reason")
        if any(assigned[place] for place in places) or any(list(group) != sorted(group) for group in groups):
            raise EntryError("a group has nodes of another provider, or in another order")
        for place in free:
            reasons[place] = FreeSize(reasons[place])
    fused = {place: Fused(number) for number, group in enumerate(groups) for place in group}
    return Claim(tuple(fused.get(place) or Elsewhere(reason or "") for place, reason in enumerate(reasons)))
