"""Compiles for input sizes in advance: `warmup()`.

In: a session, and sizes of free dimensions or shapes of inputs. Out: the plans, pipelines and Programs that a run of these
sizes needs. Invariant: the rehearsal runs leave no other trace: no capture, no prediction of the next run, and no replay by C
code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

from ..errors import OptionError, cut
from ..plugin.captures import NO_CAPTURE, RUN_KEY
from ..program.dtypes import DType
from ..records import dataclass
from ..rehearsal import rehearsing
from ..runtime.making import PipelineCount
from .arguments import session_argument
from .reports import state_of

Sizes = Mapping[str, Any]
"""Sizes by dimension name or axis, as in `x.shape[0]`; shapes or arrays by input name."""

_TYPES = {"float": "float32", "double": "float64"}  # numpy's names


def warmup(session: Any, shapes: Sizes | Sequence[Sizes]) -> PipelineCount:
    """Compiles all that runs of these sizes need, so that their first run is fast: `warmup(session, [{"n": 1}, {"n": 8}])`.

    `shapes` is a dict, or a list of dicts, one for each set of sizes. A key is one of:

    - the name of a free dimension, or an axis as "x.shape[0]", with a size;
    - the name of an input, with its shape (a tuple) or an array.

    Every free dimension needs a size, except those of inputs with a shape or an array, and sums of others, "past + 1". An input
    needs an array if its values determine sizes or kernels (`report(session).values`).

    The model runs once for each set, with ones for missing arrays, and results are dropped. States are not changed: no run is
    captured under a `gpu_graph_id`, and only the compiled objects remain. The largest set runs first, so that all sets share
    memory for intermediate values. A plan is rebuilt, in milliseconds, if later runs cannot use its memory.

    Returns the number of new pipelines and the seconds of their compilation, summed over threads. Raises OptionError for
    unknown or missing sizes, LookupError like `report`, and what a run of these sizes raises."""
    state = state_of(session_argument(session))
    valued = {name for it in state.assignment.values() for name in (*it.sizes, *it.kernels)}
    inputs = [_Input(it.name, it.type, tuple(it.shape), it.name in valued) for it in session.get_inputs()]
    sets = [shapes] if isinstance(shapes, Mapping) else list(shapes)
    every = [_feeds(inputs, it) for it in sets]
    options = ort.RunOptions()
    if state.captures is not None:
        options.add_run_config_entry(RUN_KEY, str(NO_CAPTURE))
    before = state.making.pipelines.in_warmup
    with rehearsing():
        for feeds in sorted(every, key=_elements, reverse=True):
            session.run(None, feeds, options)
    after = state.making.pipelines.in_warmup
    return PipelineCount(after.pipelines - before.pipelines, after.seconds - before.seconds)


@dataclass(frozen=True)
class _Input:
    """An input of the model. `shape` has numbers, names and None. `valued`: its elements determine sizes or kernels."""

    name: str
    type: str
    shape: tuple[int | str | None, ...]
    valued: bool

    def key(self, axis: int) -> str:
        """Returns the key of an axis, `x.shape[0]`."""
        return f"{self.name}.shape[{axis}]"

    def check(self, shape: Sequence[int]) -> None:
        """Raises OptionError for an impossible shape."""
        if len(shape) != len(self.shape) or any(
            isinstance(want, int) and want >= 0 and want != size for want, size in zip(self.shape, shape, strict=True)
        ):
            wanted = ", ".join("?" if it is None else str(it) for it in self.shape)
            raise OptionError(f"warmup: input {self.name!r} has the shape [{wanted}], not {list(shape)}")


def _elements(feeds: Mapping[str, Any]) -> int:
    return sum(math.prod(array.shape) for array in feeds.values())


def _feeds(inputs: Sequence[_Input], given: Sizes) -> dict[str, Any]:
    """Returns inputs of these sizes. Raises OptionError."""
    if not isinstance(given, Mapping):
        raise OptionError(f"warmup: {cut(given)} is not a dict of sizes, as {{'batch': 8}} is")
    by_name = {it.name: it for it in inputs}
    axes = {it.key(axis) for it in inputs for axis, size in enumerate(it.shape) if not isinstance(size, int)}
    names = {size for it in inputs for size in it.shape if isinstance(size, str)}
    sizes: dict[str, int] = {}
    for key, value in given.items():
        if key in by_name and not (key in names and isinstance(value, int)):
            continue
        if key not in names | axes:
            known = ", ".join([*sorted(names), *sorted(axes), *by_name])
            raise OptionError(f"warmup: there is no dimension or input {cut(key)}; there are {known}")
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise OptionError(f"warmup: {key!r}: {cut(value)} is not a size, which is an integer of at least 0")
        sizes[key] = value
    wholes = {name: given[name] for name in by_name if name in given and name not in sizes}
    for name, whole in wholes.items():
        shape = _shape_of(name, whole)
        by_name[name].check(shape)
        for dim, size in zip(by_name[name].shape, shape, strict=True):
            if isinstance(dim, str):
                sizes.setdefault(dim, size)
    return {it.name: _array(it, wholes.get(it.name), sizes) for it in inputs}


def _shape_of(name: str, whole: Any) -> tuple[int, ...]:
    if isinstance(whole, tuple | list):
        if all(isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in whole):
            return tuple(whole)
    elif hasattr(whole, "shape") and hasattr(whole, "dtype"):
        return tuple(whole.shape)
    raise OptionError(
        f"warmup: input {name!r}: {cut(whole)} is neither a shape, which is a tuple of sizes, nor an array"
    )


def _array(it: _Input, whole: Any, sizes: Mapping[str, int]) -> Any:
    """Returns the given array of an input, or ones."""
    if hasattr(whole, "dtype"):
        return whole
    if it.valued:
        raise OptionError(
            f"warmup: the values of input {it.name!r} decide sizes or kernels; pass an array, as"
            f" {{{it.name!r}: np.array(...)}}"
        )
    shape = tuple(whole) if whole is not None else tuple(_size(it, axis, sizes) for axis in range(len(it.shape)))
    kind = it.type.removeprefix("tensor(").removesuffix(")")
    dtypes = {dtype.label: dtype.numpy for dtype in DType if dtype is not DType.STRING}
    if _TYPES.get(kind, kind) not in dtypes:
        raise OptionError(f"warmup: input {it.name!r} is a {it.type}, which cannot be made up; pass it as an array")
    return np.ones(shape, dtypes[_TYPES.get(kind, kind)])


def _size(it: _Input, axis: int, sizes: Mapping[str, int]) -> int:
    dim, key = it.shape[axis], it.key(axis)
    if isinstance(dim, int) and dim >= 0:
        return dim
    if key in sizes:
        return sizes[key]
    if isinstance(dim, str):
        if dim in sizes:
            return sizes[dim]
        terms = [term.strip() for term in dim.split("+")]
        if len(terms) > 1 and all(term.isdecimal() or term in sizes for term in terms):
            return sum(int(term) if term.isdecimal() else sizes[term] for term in terms)
    name = dim if isinstance(dim, str) else key
    raise OptionError(f"warmup: axis {axis} of input {it.name!r} is free: pass {{{name!r}: SIZE}} or the input's shape")
