"""Runs a model on the batches of a Ray dataset: `dataset.map_batches(Predictor, ...)`.

In: batches as dicts of arrays. Out: the same with the outputs of the model. Invariant: an actor ends when its device is lost,
so that Ray starts a new one, on any node, and gives it the batch again.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from ..errors import DeviceError, DeviceLostError, InputError
from ..options.types import ProviderOptions
from .on_ray import library, runner_of


class Predictor:
    """A model for `ray.data`, one session per actor:

        dataset.map_batches(Predictor, fn_constructor_kwargs={"model": "model.onnx"}, batch_size=64, num_gpus=1,
                            compute=ray.data.ActorPoolStrategy(size=8), max_restarts=3, max_task_retries=3)

    - `model`: a path that exists on every node, bytes, or `ray.put` of bytes, which each node fetches once.
    - `device`: as for `session(device=...)`; by default the GPU that Ray assigned.
    - `columns`: maps inputs to columns if their names differ: {"input": "image"}.
    - `output_names`: the outputs that become columns, by default all.
    - `keep`: the columns to keep, by default all that are not inputs.
    - The other arguments are those of `session()`.

    The first axis of every input and output must be the same symbolic dimension. Raises BatchError, and what `session()`
    raises.

    If the device is lost, Ray restarts the actor and repeats its batch, up to `max_restarts` and `max_task_retries` times.
    Without these arguments, `map_batches` repeats without limit.
    """

    def __init__(
        self,
        model: Any,
        *,
        device: Any = None,
        columns: Mapping[str, str] | None = None,
        output_names: Sequence[str] | None = None,
        keep: Sequence[str] | None = None,
        free_dimensions: Mapping[str, int] | None = None,
        allow_cpu_only: bool = False,
        **options: Unpack[ProviderOptions],
    ) -> None:
        more = {"free_dimensions": free_dimensions, "allow_cpu_only": allow_cpu_only, **options}
        self._runner = runner_of(model, device, output_names, True, more)
        names = [it.name for it in self._runner.session.get_inputs()]
        if unknown := set(columns or {}) - set(names):
            raise InputError(f"columns: there is no input {sorted(unknown)[0]!r}; the inputs are {', '.join(names)}")
        self._columns = {name: (columns or {}).get(name, name) for name in names}
        self._outputs = list(output_names or (it.name for it in self._runner.session.get_outputs()))
        self._keep = keep
        self._failure: DeviceError | None = None

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs the model on a batch. Raises InputError for a missing column, and what the run raises."""
        for name, column in self._columns.items():
            if column not in batch:
                raise InputError(
                    f"the batch has no column {column!r} for input {name!r}; it has {', '.join(map(repr, batch))}"
                )
        axis = self._runner.axis
        assert axis is not None
        feeds, _, rows = axis.measure({name: batch[column] for name, column in self._columns.items()})
        outcome = self._runner.attempt([feeds], [rows])
        if isinstance(outcome, DeviceLostError):
            self._failure = outcome
            _end_actor(outcome)
        if isinstance(outcome, Exception):
            raise outcome
        kept = set(batch) - set(self._columns.values()) if self._keep is None else self._keep
        return {column: batch[column] for column in batch if column in kept} | dict(
            zip(self._outputs, outcome[0], strict=True)
        )

    def check_health(self) -> None:
        """Raises the device's error if it was lost."""
        if self._failure is not None:
            raise self._failure


def _end_actor(error: DeviceLostError) -> None:
    """Ends an actor's process like a crash; after `ray.actor.exit_actor`, Ray would not restart it. Does nothing elsewhere."""
    ray = library()
    if not ray.is_initialized() or ray.get_runtime_context().get_actor_id() is None:
        return
    logging.getLogger(__name__).error("this actor ends, and Ray starts another one: %s", error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
