"""A claim in an entry: nodes that run here, in which groups, why others do not, and inferred types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import Fault, FreeSize
from ...kept.entry import EntryError, understood
from ..assign.decision import Claim
from ..assign.inferred import InferredTypes, PlainInfo
from ..assign.outcome import Alone, Elsewhere, Fused, OwnKernel
from ..assign.shown import STRING
from ..memory.descriptors import ONNX_BITS

KIND = "claim"
Single = Mapping[int, Alone | OwnKernel | Elsewhere]
"""Earlier outcomes of nodes that share no group with others, by position."""


def can_be_kept(claim: Claim, inferred: InferredTypes) -> bool:
    """Whether a claim can be stored. A claim with a fault, or with types that no tensor here has, cannot."""
    codes = {code for code, _ in (*inferred.values.values(), *inferred.results)}
    return not any(isinstance(it, Fault) for it in claim.reasons) and all(map(is_code, codes))


def content_of(claim: Claim, inferred: InferredTypes) -> dict[str, Any]:
    """Returns a claim as JSON."""
    groups = [group for group in claim.groups if isinstance(claim.outcomes[group[0]], Fused)]
    free = [place for place, reason in enumerate(claim.reasons) if isinstance(reason, FreeSize)]
    return {
        "groups": groups,
        "reasons": claim.reasons,
        "free": free,
        "values": [[name, *plain] for name, plain in inferred.values.items()],
        "results": inferred.results,
    }


def claim_of(content: Mapping[str, Any], assigned: Sequence[str], single: Single) -> tuple[Claim, InferredTypes]:
    """Returns the claim of a graph with nodes `assigned` to these providers. Raises EntryError if it does not fit the graph."""
    with understood():
        groups = tuple(tuple(group) for group in content["groups"])
        reasons, free = list(content["reasons"]), content["free"]
        places = sorted(place for group in groups for place in group)
        if any(type(place) is not int for place in (*places, *free)) or not all(groups):
            raise EntryError("the position of a node is invalid")
        if len(reasons) != len(assigned) or any(type(it) is not str and it is not None for it in reasons):
            raise EntryError("the reasons do not match the nodes")
        alone = {place: it for place, it in single.items() if not isinstance(it, Elsewhere) and reasons[place] is None}
        if sorted((*places, *alone)) != [place for place, reason in enumerate(reasons) if reason is None]:
            raise EntryError("the groups do not match the reasons")
        if any(assigned[place] for place in (*places, *alone)) or any(list(group) != sorted(group) for group in groups):
            raise EntryError("a group has nodes of another provider, or is not in order")
        for place in free:
            reasons[place] = FreeSize(reasons[place])
        values = {_text(name): _plain(*plain) for name, *plain in content["values"]}
        inferred = InferredTypes(values, [_plain(*plain) for plain in content["results"]])
    fused = {place: Fused(number) for number, group in enumerate(groups) for place in group}
    here = {**fused, **alone}
    return Claim(tuple(here.get(place) or Elsewhere(reason or "") for place, reason in enumerate(reasons))), inferred


def is_code(code: Any) -> bool:
    """Returns whether this is the ONNX code of an element type, or None for a value that is not a tensor."""
    return code is None or (type(code) is int and (code in ONNX_BITS or code == STRING))


def _plain(code: Any, shape: Any) -> PlainInfo:
    if not is_code(code) or (shape is not None and type(shape) is not list):
        raise EntryError("the type or shape of a value is invalid")
    for it in shape or ():
        if it is not None and type(it) is not str and (type(it) is not int or it < 0):
            raise EntryError("an extent is neither a number nor a name")
    return code, None if shape is None else tuple(shape)


def _text(it: Any) -> str:
    if type(it) is not str:
        raise EntryError("expected a name")
    return it
