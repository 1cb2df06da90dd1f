"""Sizes for the free dimensions of inputs that are made up: what the user says, else what name and place suggest.

In: the inputs' shapes with numbers, names or None; sizes by name (--dim), shapes by input (--shape, --input). Out: a shape
per input, and what was chosen, for a line on stderr. Invariants: one name has one size in all inputs; what the user gave
is not chosen, and nothing is chosen in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ..errors import InputError
from ..records import dataclass

BATCH, CHANNELS, SEQUENCE, IMAGE, VOLUME = 1, 3, 128, 224, 32
# What exporters call dimensions; the first that fits counts.
_MEANINGS = (
    (re.compile(r"past|cache|seq|len|tok|time|frame|text|word|context|ctx"), SEQUENCE),
    (re.compile(r"height|width|pixel|resolution|^[hw]$"), IMAGE),
    (re.compile(r"channel"), CHANNELS),
    (re.compile(r"batch|beam|^[bn]$|^bs$"), BATCH),
)
# What exporters call the states of recurrent layers, (layers, batch, features).
_STATE = re.compile(r"state|hidden|cell|^[hc](_?\d|n|_n|_in)?$")
_FEW = 4  # a fixed axis of at most so many is the channels of an image rather than heads or features

Shape = Sequence["int | str | None"]


@dataclass(frozen=True)
class Sizes:
    """`shapes` by input; of what was chosen, `named` by the dimension's name and `placed` by input and axis."""

    shapes: Mapping[str, tuple[int, ...]]
    named: Mapping[str, int]
    placed: Mapping[tuple[str, int], int]

    def sentence(self) -> str:
        """What was chosen and how to change it; "" when nothing was."""
        parts = [f"{name}={size}" for name, size in self.named.items()]
        parts += [f"axis {axis} of {name}={size}" for (name, axis), size in self.placed.items()]
        if not parts:
            return ""
        ways = ["--dim NAME=SIZE"] * bool(self.named) + ["--shape INPUT=1,3,224,224"]
        return f"missing sizes: {', '.join(parts)} ({' or '.join(ways)} sets them)"


def sizes(inputs: Mapping[str, Shape], dims: Mapping[str, int], given: Mapping[str, Sequence[int]]) -> Sizes:
    """A shape for every input. Raises InputError for a name in `dims` that no input has, and for sizes that disagree."""
    names = {dim: (shape, axis) for shape in inputs.values() for axis, dim in enumerate(shape) if isinstance(dim, str)}
    for name in dims:
        if name not in names:
            raise InputError(
                f"--dim {name}: no input has a free dimension of this name; there are {', '.join(names) or 'none'}"
            )
    known = dict(dims)
    for name, whole in given.items():
        _learn(name, inputs[name], whole, known)
    chosen: dict[str, int] = {}
    made_up = {dim for name, shape in inputs.items() if name not in given for dim in shape}
    missing = [name for name in names if name in made_up and name not in known]
    for name in sorted(missing, key=_is_sum):
        shape, axis = names[name]
        chosen[name] = _by_sum(name, {**known, **chosen}) or _by_name(name) or _by_place(shape, axis)
    known |= chosen
    placed: dict[tuple[str, int], int] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in inputs.items():
        if name in given:
            shapes[name] = tuple(given[name])
            continue
        full = []
        for axis, dim in enumerate(shape):
            if isinstance(dim, str):
                full.append(known[dim])
            elif dim is None or dim < 0:
                full.append(placed.setdefault((name, axis), _by_place(shape, axis, name)))
            else:
                full.append(dim)
        shapes[name] = tuple(full)
    return Sizes(shapes, chosen, placed)


def _learn(name: str, shape: Shape, given: Sequence[int], known: dict[str, int]) -> None:
    """Takes the sizes of named dimensions from the shape of an input. Raises InputError when it is not one of these."""
    shown = f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"
    if len(shape) != len(given):
        raise InputError(f"input {name!r} has the shape {shown}, {list(given)} has another rank")
    for dim, size in zip(shape, given, strict=True):
        if isinstance(dim, str) and known.setdefault(dim, size) != size:
            raise InputError(f"input {name!r} has the shape {shown}: {dim} would be {size} and {known[dim]}")
        if isinstance(dim, int) and dim >= 0 and dim != size:
            raise InputError(f"input {name!r} has the shape {shown}, not {list(given)}")


def _is_sum(name: str) -> bool:
    return "+" in name or "total" in name.lower()


def _by_sum(name: str, known: Mapping[str, int]) -> int | None:
    """The size of "past_sequence_length + 1", or of a total of past and present; None for other names."""
    terms = [term.strip() for term in name.split("+")]
    if len(terms) > 1 and all(term.isdecimal() or term in known for term in terms):
        return sum(int(term) if term.isdecimal() else known[term] for term in terms)
    if "total" in name.lower():
        past = _largest(size for dim, size in known.items() if "past" in dim and "+" not in dim)
        present = _largest(size for dim, size in known.items() if "seq" in dim and "past" not in dim)
        return past + present or None
    return None


def _largest(found: Iterable[int]) -> int:
    return max(found, default=0)


def _by_name(name: str) -> int | None:
    return next((size for pattern, size in _MEANINGS if pattern.search(name.lower())), None)


def _by_place(shape: Shape, axis: int, name: str = "") -> int:
    """The size that an axis without a telling name has in the usual layouts: images, sequences, batches, states; `name` is
    that of the input."""
    rank = len(shape)
    few = [isinstance(dim, int) and 0 < dim <= _FEW for dim in shape]
    if rank == 3 and isinstance(shape[-1], int) and shape[-1] > _FEW:  # the last are features
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
