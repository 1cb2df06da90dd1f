"""Names of values with another order of axes in memory than in the model. They consist of the model's name and the order.

In: a name of the model, and its axes in the order of memory. Out: a name with both, and the reverse. Code that inspects memory,
such as `wgpu-ep verify`, uses it to find the value of the model and its order. Invariant: ONNX Runtime cannot pass such a name
to us, because its names end at a character 0.
"""

from __future__ import annotations

from collections.abc import Sequence

_BY_AXES = "\0 by axes "


def name_in_order(name: str, axes: Sequence[int]) -> str:
    """Returns the name of a value of the model with its axes in this order; "" for a value without a name."""
    return f"{name}{_BY_AXES}{', '.join(map(str, axes))}" if name else ""


def shown_name(name: str) -> str:
    """Returns a name to display, with the order of the axes."""
    return name.replace(_BY_AXES, _BY_AXES[1:])


def model_name(name: str) -> tuple[str, tuple[int, ...]]:
    """Returns the name in the model, and the order of the axes in memory; () if it is the model's."""
    own, found, axes = name.partition(_BY_AXES)
    return own, tuple(map(int, axes.split(", "))) if found else ()
