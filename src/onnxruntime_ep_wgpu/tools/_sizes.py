"""Sizes for the free dimensions of made-up inputs: from the user, else guessed from name and position.

In: the inputs' shapes with numbers, names or None; sizes by name (--dim), shapes by input (--shape, --input). Out: a shape per
input, and the chosen sizes, for a note on stderr. Invariants: one name has one size in all inputs. The user's sizes never
change, and every chosen size is reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..errors import InputError
from ..records import dataclass
from ._decoders import LENGTH, Free, Shape, agreeing, free_in

BATCH, CHANNELS, SEQUENCE, IMAGE, VOLUME = 1, 3, LENGTH, 224, 32
# Exporters' names of dimensions. The first match counts.
_MEANINGS = (
    (re.compile(r"past|cache|seq|len|tok|time|frame|text|word|context|ctx"), SEQUENCE),
    (re.compile(r"height|width|pixel|resolution|^[hw]$"), IMAGE),
    (re.compile(r"channel"), CHANNELS),
    (re.compile(r"batch|beam|^[bn]$|^bs$"), BATCH),
)
# Exporters' names of states of recurrent layers, (layers, batch, features).
_STATE = re.compile(r"state|hidden|cell|^[hc](_?\d|n|_n|_in)?$")
_FEW = 4  # a fixed axis up to this size is taken for image channels, and a larger one for heads or features


@dataclass(frozen=True)
class Sizes:
    """Shapes by input. The chosen sizes are in `named`, by dimension name, and `placed`, by input and axis."""

    shapes: Mapping[str, tuple[int, ...]]
    named: Mapping[str, int]
    placed: Mapping[tuple[str, int], int]

    def sentence(self) -> str:
        """Returns the chosen sizes and the options to change them; "" if there are none."""
        parts = [f"{name}={size}" for name, size in self.named.items()]
        parts += [f"axis {axis} of {name}={size}" for (name, axis), size in self.placed.items()]
        if not parts:
            return ""
        ways = ["--dim NAME=SIZE"] * bool(self.named) + ["--shape INPUT=1,3,224,224"]
        return f"missing sizes: {', '.join(parts)} ({' or '.join(ways)} sets them)"


def sizes(inputs: Mapping[str, Shape], dims: Mapping[str, int], given: Mapping[str, Sequence[int]]) -> Sizes:
    """Returns a shape for every input. Raises InputError for an unknown name in `dims`, and for inconsistent sizes."""
    names = {dim: (shape, axis) for shape in inputs.values() for axis, dim in enumerate(shape) if isinstance(dim, str)}
    for name in dims:
        if name not in names:
            raise InputError(
                f"--dim {name}: no input has a free dimension of this name; there are {', '.join(names) or 'none'}"
            )
    known = dict(dims)
    for name, whole in given.items():
        _take_sizes(name, inputs[name], whole, known)
    made_up = {name: shape for name, shape in inputs.items() if name not in given}
    fixed = {(name, axis): size for name, whole in given.items() for axis, size in enumerate(whole)}
    agreed = agreeing(inputs, dict[Free, int](known) | fixed)
    chosen: dict[str, int] = {}
    placed: dict[tuple[str, int], int] = {}
    shapes: dict[str, tuple[int, ...]] = {name: tuple(whole) for name, whole in given.items()}
    for name, shape in made_up.items():
        full = []
        for axis in range(len(shape)):
            free = free_in(name, shape, axis)
            if isinstance(free, int):
                full.append(free)
            elif isinstance(free, tuple):
                full.append(placed.setdefault(free, agreed[free] if free in agreed else _by_place(shape, axis, name)))
            elif free in known:
                full.append(known[free])
            else:
                first, at = names[free]
                size = agreed[free] if free in agreed else _by_name(free) or _by_place(first, at)
                full.append(chosen.setdefault(free, size))
        shapes[name] = tuple(full)
    return Sizes({name: shapes[name] for name in inputs}, chosen, placed)


def _take_sizes(name: str, shape: Shape, given: Sequence[int], known: dict[str, int]) -> None:
    """Records the sizes of named dimensions from an input's shape. Raises InputError if the shape does not match."""
    shown = f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"
    if len(shape) != len(given):
        raise InputError(f"input {name!r} has the shape {shown}, {list(given)} has another rank")
    for dim, size in zip(shape, given, strict=True):
        if isinstance(dim, str) and known.setdefault(dim, size) != size:
            raise InputError(f"input {name!r} has the shape {shown}: {dim} would be {size} and {known[dim]}")
        if isinstance(dim, int) and dim >= 0 and dim != size:
            raise InputError(f"input {name!r} has the shape {shown}, not {list(given)}")


def _by_name(name: str) -> int | None:
    return next((size for pattern, size in _MEANINGS if pattern.search(name.lower())), None)


def _by_place(shape: Shape, axis: int, name: str = "") -> int:
    """Guesses the size of an axis from the usual layouts: images, sequences, batches, states. `name` is the input's name."""
    rank = len(shape)
    few = [isinstance(dim, int) and 0 < dim <= _FEW for dim in shape]
    if rank == 3 and isinstance(shape[-1], int) and shape[-1] > _FEW:  # the last axis is features
        state = _STATE.search(name.lower()) or (isinstance(shape[0], int) and 1 < shape[0] <= _FEW)
        return BATCH if axis == 0 or state else SEQUENCE
    if rank == 3 and few[0]:  # an image without a batch
        return IMAGE
    if axis == 0:
        return BATCH
    if rank < 4:
        return SEQUENCE
    if few[-1] and not few[1]:  # channels last
        return IMAGE if rank == 4 else VOLUME
    if axis == 1:
        return CHANNELS
    if isinstance(shape[1], int) and not few[1] and isinstance(shape[-1], int):  # heads and features of attention
        return SEQUENCE
    return IMAGE if rank == 4 else VOLUME
