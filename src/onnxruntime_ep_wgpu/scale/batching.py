"""Joins requests to a batch along the first axis.

In: the inputs and outputs of a session. Out: a `BatchAxis`, which joins the inputs of requests and splits the outputs. The
first axis of every input and output must be the same symbolic dimension, as in ["batch", 128] and ["batch", "sequence"]. Other
models are refused with the tensor's name, because only the symbol shows that an axis counts rows.

Rows must be independent of each other. Shapes do not show that: a model that normalises over its first axis gives other values
in a batch.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from ..errors import BatchError, InputError
from .requests import Feeds, Outputs

WAY = "max_batch=1 runs each request alone"


class BatchAxis:
    """The dimension along which requests are joined. Raises BatchError that names a tensor with another first axis."""

    def __init__(self, session: Any, output_names: Sequence[str] | None = None) -> None:
        inputs = session.get_inputs()
        outputs = [it for it in session.get_outputs() if output_names is None or it.name in output_names]
        if not inputs:
            raise BatchError(f"the model has no inputs, so nothing can be batched; {WAY}")
        first, self.name = inputs[0].name, _first(inputs[0])
        for what, value in (*(("input", it) for it in inputs), *(("output", it) for it in outputs)):
            found = _first(value)
            if not found:
                raise BatchError(
                    f"{what} {value.name!r} of shape {value.shape} cannot be batched: its first axis is not a symbolic dimension;"
                    f" {WAY}"
                )
            if found != self.name:
                raise BatchError(
                    f"{what} {value.name!r} of shape {value.shape} cannot be batched: it begins with {found!r}, and input"
                    f" {first!r} with {self.name!r}; {WAY}"
                )
        self._inputs = tuple(it.name for it in inputs)
        self._outputs = tuple(it.name for it in outputs)

    def measure(self, feeds: Feeds) -> tuple[dict[str, np.ndarray], Hashable, int]:
        """Returns the inputs as arrays, the request's kind and its number of rows.

        Raises InputError for missing or unknown names, and for different numbers of rows."""
        if set(feeds) != set(self._inputs):
            missing = ", ".join(map(repr, sorted(set(self._inputs) - set(feeds))))
            unknown = ", ".join(map(repr, sorted(set(feeds) - set(self._inputs))))
            parts = [f"lacks {missing}"] * bool(missing) + [f"has {unknown}, which is not an input"] * bool(unknown)
            raise InputError(f"a request {' and '.join(parts)}; the inputs are {', '.join(map(repr, self._inputs))}")
        arrays = {name: np.asarray(feeds[name]) for name in self._inputs}
        for name, array in arrays.items():
            if not array.ndim:
                raise InputError(
                    f"input {name!r} is a scalar and has no axis {self.name!r}; pass an array of shape (rows, ...)"
                )
        rows = {name: len(array) for name, array in arrays.items()}
        if len(set(rows.values())) > 1:
            sizes = ", ".join(f"{name!r} has {count}" for name, count in rows.items())
            raise InputError(f"the inputs of a request differ in the size of {self.name!r}: {sizes}")
        kind = tuple((array.dtype, array.shape[1:]) for array in arrays.values())
        return arrays, kind, rows[self._inputs[0]]

    def join(self, several: Sequence[Feeds]) -> Feeds:
        """Joins the inputs of several requests of one kind."""
        if len(several) == 1:
            return several[0]
        return {name: np.concatenate([feeds[name] for feeds in several]) for name in self._inputs}

    def split(self, outputs: Outputs, rows: Sequence[int]) -> list[Outputs]:
        """Splits the outputs into those of each request, which have `rows` rows. Copies them, so none keeps the others' memory.

        Raises BatchError if an output lacks rows."""
        if len(rows) == 1:
            return [outputs]
        ends = np.cumsum(rows)
        for name, output in zip(self._outputs, outputs, strict=True):
            if len(output) != ends[-1]:
                raise BatchError(
                    f"output {name!r} has {len(output)} rows for {ends[-1]} of the inputs, although both begin with"
                    f" {self.name!r}; {WAY}"
                )
        return [[output[end - count : end].copy() for output in outputs] for end, count in zip(ends, rows, strict=True)]


def _first(value: Any) -> str:
    """Returns the name of the first dimension of an input or output; "" if it has none."""
    return value.shape[0] if value.shape and isinstance(value.shape[0], str) else ""
