"""Names of values whose axes have another order in memory than in the model: the model's name, and the order behind it.

In: a name of the model, and its axes in the order of memory. Out: a name that has both, and both again. Code that looks at memory,
as `wgpu-ep verify`, finds by it which value of the model lies there, and how. Invariant: such a name is none that ONNX Runtime
can give us, whose names end at a character 0.
"""

from __future__ import annotations

from collections.abc import Sequence

_BY_AXES = "\0 by axes "


def name_in_order(name: str, axes: Sequence[int]) -> str:
    """The name of a value of the model where its axes lie in this order; "" for one without a name."""
    return f"{name}{_BY_AXES}{', '.join(map(str, axes))}" if name else ""


def model_name(name: str) -> tuple[str, tuple[int, ...]]:
    """The name in the model, and the order of its axes in memory; () where that is the model's."""
    own, found, axes = name.partition(_BY_AXES)
    return own, tuple(map(int, axes.split(", "))) if found else ()
