"""Runs compiled bodies. In: tensors by name. Out: tensors on the device, and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...device import Place
from .bodies import SCORES

if TYPE_CHECKING:
    from ...runtime.inputs import DeviceTensor
    from ..group import CompiledGroup, GroupOnDevice
    from ..step_memory import StepMemory
    from .bodies import SearchBody

Array = np.ndarray[Any, Any]


class SearchStep:
    """A compiled body."""

    def __init__(self, body: SearchBody, group: CompiledGroup, inputs: Sequence[str]) -> None:
        """`inputs` has the names of the Program's inputs, in its order."""
        self.body, self.group, self.inputs = body, group, inputs

    def run(
        self,
        live: GroupOnDevice,
        memory: StepMemory,
        given: Mapping[str, DeviceTensor],
        turn: int = 0,
        there: Mapping[str, DeviceTensor] | None = None,
    ) -> tuple[dict[str, DeviceTensor], Array | None]:
        """Runs the body. Returns the caches that it makes, and scores (rows, vocabulary) or None if it makes none.

        Caches are written where those of an earlier run with this `turn` were, or to the tensors in `there`, by name.
        """
        tensors = [given[name] for name in self.inputs]
        names = [SCORES, *self.body.made] if self.body.vocabulary else self.body.made
        with live.prepare(lambda _valued: tensors) as run:
            made = [
                (there or {}).get(name)
                or memory.kept((self.body.attribute, name, turn), dtype, shape, f"a result of {self.body.attribute}")
                for name, (dtype, shape) in zip(names, run.outputs, strict=True)
            ]
            run.submit([None if it.buffer is None else Place(it.buffer, it.offset) for it in made])
        if not self.body.vocabulary:
            return dict(zip(self.body.made, made, strict=True)), None
        scores = np.empty(made[0].shape, np.float32)
        assert made[0].buffer is not None
        memory.device.download(made[0].buffer, 0, scores)
        return dict(zip(self.body.made, made[1:], strict=True)), scores
