"""Fixes free dimensions of a model's inputs: by name, by denotation, or by input and axis.

In: a model and sizes. Out: overrides in SessionOptions, the model to open with them, and errors for sizes without effect or with
a wrong one. ONNX Runtime does not check overrides: it ignores unknown names, accepts 0 and negative sizes, and keeps the first of
two values. It does not show overrides to a provider, which only sees fixed dimensions. Therefore this module checks them against
the model. ONNX Runtime has no override for a dimension without a name: in this case the size is written into the model. A fixed
dimension is a constant in kernels and plans.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FreeSize, OptionError, cut
from ..records import dataclass
from .external_data import follow_links

if TYPE_CHECKING:
    import onnx

_PLACE = re.compile(r"(?P<input>.+)\.shape\[(?P<axis>[0-9]+)\]", re.DOTALL)
# The folder in which ONNX Runtime searches the external data of a model passed as bytes.
_FOLDER = "session.model_external_initializers_file_folder_path"


@dataclass(frozen=True)
class Free:
    """A free dimension: axis `axis` of `input`. `name` and `denotation` are "" if the model has none."""

    input: str
    axis: int
    name: str
    denotation: str

    @property
    def place(self) -> str:
        """The key by input and axis, as in `x.shape[0]`. Messages use it for a dimension without a name."""
        return f"{self.input}.shape[{self.axis}]"

    @property
    def key(self) -> str:
        """The shortest key of this dimension: its name, or its place."""
        return self.name or self.place


@dataclass(frozen=True)
class Fixed:
    """`model` is the model to open: bytes if a dimension has no name. `sizes` are the fixed sizes by input and axis."""

    model: str | bytes
    sizes: Mapping[tuple[str, int], int]


def free_in(model: onnx.ModelProto) -> list[Free]:
    """Returns the free dimensions of a model's inputs."""
    constants = {it.name for it in model.graph.initializer}
    return [
        Free(value.name, axis, dim.dim_param, dim.denotation)
        for value in model.graph.input
        if value.name not in constants
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if not dim.HasField("dim_value") or dim.dim_value < 0
    ]


def read_structure(model: str | bytes, argument: str) -> onnx.ModelProto:
    """Reads a model without its external data. Raises OptionError about `argument` if it is not ONNX."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]

    try:
        if isinstance(model, bytes):
            return onnx.load_from_string(model)
        return onnx.load(model, load_external_data=False)
    except DecodeError as error:
        raise OptionError(
            f"{argument}: the model is not an ONNX protobuf, its inputs cannot be read: {error}"
        ) from error


def fix(
    model: str | bytes,
    sizes: Mapping[str, int],
    settings: Any,
    argument: str = "free_dimensions",
    again: bool = False,
) -> Fixed:
    """Adds overrides to SessionOptions, except with `again`, when they are already there.

    `argument` is the caller's name of `sizes`, for messages. A key of `sizes` is the name of a free dimension, a denotation, or
    an input and axis as in `x.shape[0]`. Raises OptionError for any other key, a size below 1, and two sizes for one dimension.
    """
    if not sizes:
        return Fixed(model, {})
    structure = read_structure(model, argument)
    known = free_in(structure)
    fixed = sizes_of(known, sizes, argument)
    names, denotations = {it.name for it in known} - {""}, {it.denotation for it in known} - {""}
    for key, size in sizes.items():
        if key in names and not again:
            settings.add_free_dimension_override_by_name(key, size)
        if key in denotations and not again:
            settings.add_free_dimension_override_by_denotation(key, size)
    if sizes.keys() <= names | denotations:
        return Fixed(model, fixed)
    if not isinstance(model, bytes):
        folder = follow_links(structure, Path(model))
        settings.add_session_config_entry(_FOLDER, str(folder.absolute()))
    set_sizes(structure, fixed)
    return Fixed(structure.SerializeToString(), fixed)


def set_sizes(model: onnx.ModelProto, fixed: Mapping[tuple[str, int], int]) -> None:
    """Writes the fixed sizes into the model's inputs."""
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if (value.name, axis) in fixed:
                dim.dim_value = fixed[value.name, axis]


def sizes_of(known: Sequence[Free], sizes: Mapping[str, int], argument: str) -> dict[tuple[str, int], int]:
    """Returns the size of every fixed (input, axis). Raises OptionError as `fix` does."""
    fixed: dict[tuple[str, int], int] = {}
    for key, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise OptionError(f"{argument}: {cut(key)}: {cut(size)} is not a size, which is an integer of at least 1")
        meant = [it for it in known if key in (it.name, it.denotation)] or [it for it in known if key == it.place]
        if not meant:
            place = isinstance(key, str) and _PLACE.fullmatch(key)
            what = f"axis {place['axis']} of an input {cut(place['input'])}" if place else cut(key)
            raise OptionError(f"{argument}: no input has a free dimension {what}; the model has {_shown(known)}")
        for it in meant:
            if fixed.setdefault((it.input, it.axis), size) != size:
                raise OptionError(
                    f"{argument}: axis {it.axis} of input {it.input!r} would be {fixed[it.input, it.axis]} "
                    f"and {size} (name {it.name!r}, denotation {it.denotation!r})"
                )
    return fixed


def _shown(known: Iterable[Free]) -> str:
    return ", ".join(sorted({it.key for it in known} | {it.denotation for it in known} - {""})) or "none"


def keys_of(shapes: Iterable[tuple[str, Sequence[int | str | None]]]) -> list[str]:
    """Returns the keys of the free dimensions of inputs, given as (name, shape)."""
    free = (
        Free(name, axis, dim or "", "")
        for name, shape in shapes
        for axis, dim in enumerate(shape)
        if not isinstance(dim, int)
    )
    return list(dict.fromkeys(it.key for it in free))


def keys_in(session: Any) -> list[str]:
    """Returns the keys of the free dimensions of a session's inputs."""
    return keys_of((it.name, it.shape) for it in session.get_inputs())


def in_python(keys: Iterable[str], argument: str) -> str:
    """Returns the Python argument that fixes these dimensions, for messages."""
    return f"{argument}={{{', '.join(f'{key!r}: SIZE' for key in keys)}}} fixes sizes that are free"


def hindered(reasons: Iterable[str | None]) -> bool:
    """Returns whether free sizes are a reason against any node."""
    return any(isinstance(reason, FreeSize) for reason in reasons)


def check_fixed(fixed: Mapping[tuple[str, int], int], session: Any) -> None:
    """Raises OptionError if a session's inputs have other sizes, because the caller's SessionOptions had overrides too."""
    shapes = {value.name: value.shape for value in session.get_inputs()}
    for (name, axis), size in fixed.items():
        if shapes[name][axis] != size:
            raise OptionError(
                f"free_dimensions: axis {axis} of input {name!r} is {shapes[name][axis]} and not {size}: "
                "sess_options overrides it as well"
            )
