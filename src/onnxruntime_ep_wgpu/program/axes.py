"""Names of values whose axes have another order in memory than in the model: the model's name, and the order behind it.

In: a name of the model, and its axes in the order of memory. Out: a name that tells both, and both again. Who looks at memory, as
`wgpu-ep verify` does, knows by it which value of the model lies there, and how.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_BY_AXES = re.compile(r" by axes (\d+(?:, \d+)*)\Z")


def name_in_order(name: str, axes: Sequence[int]) -> str:
    """The name of a value of the model where its axes lie in this order; "" for one without a name."""
    return f"{name} by axes {', '.join(map(str, axes))}" if name else ""


def model_name(name: str) -> tuple[str, tuple[int, ...]]:
    """The name in the model, and the order of its axes in memory; () where that is the model's."""
    found = _BY_AXES.search(name)
    return (name[: found.start()], tuple(map(int, found[1].split(", ")))) if found else (name, ())
