"""Fixed sizes for the free dimensions of a model's inputs, by name or by denotation.

In: a model and sizes. Out: the same as overrides in SessionOptions, and an error for what would have no effect or not the
one meant. ONNX Runtime itself ignores a name that no input has, takes 0 and less, and keeps the first of two values; it
does not show overrides to a provider, which only sees that the dimensions are numbers. So this is checked where the model
is at hand. A fixed dimension is a constant in kernels and plans.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import OptionError, cut


@dataclass(frozen=True)
class Free:
    """A free dimension: axis `axis` of `input`; `denotation` is "" when the model gives none."""

    input: str
    axis: int
    name: str
    denotation: str


def free_dimensions(model: str | os.PathLike[str] | bytes, argument: str = "free_dimensions") -> list[Free]:
    """The free dimensions of a model's inputs that have a name or a denotation. Raises OptionError for a file that is not ONNX."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]

    try:
        if isinstance(model, bytes):
            graph = onnx.load_from_string(model).graph
        else:
            graph = onnx.load(os.fspath(model), load_external_data=False).graph
    except DecodeError as error:
        raise OptionError(
            f"{argument}: the model is not an ONNX protobuf, its inputs cannot be read: {error}"
        ) from error
    return [
        Free(value.name, axis, dim.dim_param, dim.denotation)
        for value in graph.input
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if not dim.HasField("dim_value") and (dim.dim_param or dim.denotation)
    ]


def fix(
    model: str | os.PathLike[str] | bytes,
    sizes: Mapping[str, int],
    settings: Any,
    argument: str = "free_dimensions",
) -> dict[tuple[str, int], int]:
    """Adds overrides to SessionOptions, unless that is None. Gives the size of every (input, axis) that is fixed.
    `argument` is what the caller calls `sizes`.

    A key of `sizes` is the name of a free dimension or the denotation of some. Raises OptionError for a key that is
    neither, a size below 1, and two sizes for one dimension.
    """
    known = free_dimensions(model, argument)
    names, denotations = {it.name for it in known} - {""}, {it.denotation for it in known} - {""}
    fixed: dict[tuple[str, int], int] = {}
    for key, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise OptionError(f"{argument}: {cut(key)}: {cut(size)} is not a size, which is a whole number from 1 on")
        if key not in names | denotations:
            shown = ", ".join(sorted(names | denotations)) or "none"
            raise OptionError(f"{argument}: no input has a free dimension {cut(key)}; the model has {shown}")
        for it in known:
            if key in (it.name, it.denotation) and fixed.setdefault((it.input, it.axis), size) != size:
                raise OptionError(
                    f"{argument}: axis {it.axis} of input {it.input!r} would be {fixed[it.input, it.axis]} "
                    f"and {size} (name {it.name!r}, denotation {it.denotation!r})"
                )
        if settings is None:
            continue
        if key in names:
            settings.add_free_dimension_override_by_name(key, size)
        if key in denotations:
            settings.add_free_dimension_override_by_denotation(key, size)
    return fixed


def check_fixed(fixed: Mapping[tuple[str, int], int], session: Any) -> None:
    """Raises OptionError when a session's inputs do not have these sizes: its SessionOptions had overrides before."""
    shapes = {value.name: value.shape for value in session.get_inputs()}
    for (name, axis), size in fixed.items():
        if shapes[name][axis] != size:
            raise OptionError(
                f"free_dimensions: axis {axis} of input {name!r} is {shapes[name][axis]} and not {size}: "
                "sess_options overrides it as well"
            )
