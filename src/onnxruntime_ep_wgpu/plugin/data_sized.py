"""The node that ONNX Runtime put in place of a compiled group, for results with sizes that data decides.

In: a kernel context with the group's inputs. Out: its outputs. Kernels store such a result in memory for its largest size, and
store its shape too. The shapes of all results are read back at once. Then ONNX Runtime allocates memory for the results, and
they are copied there.

Invariants: thread safe; a run that fails leaves nothing behind. C code does not repeat a whole run, but it submits the work.
The work of the next run is recorded during the wait for this one.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device import Place, depend, forget_errors
from ..errors import InternalError
from .abi import Ort
from .known_tensors import FusedNode
from .node import ComputeInfo, RunnableGroup
from .tensors import Tensors

if TYPE_CHECKING:
    from ..device import Buffer, Device, Work
    from ..program.dtypes import DType
    from ..program.program import Program
    from ..runtime.executable import Run


class SizedNode(ComputeInfo, struct="OrtNodeComputeInfo", kind="Node"):
    """A group that is compiled to `program`. `signature` has its inputs, and all outputs except their shapes."""

    def __init__(self, ort: Ort, group: RunnableGroup, signature: FusedNode, program: Program) -> None:
        super().__init__(ort, group, signature)
        places = {value: place for place, value in enumerate(program.outputs)}
        self._shapes = {places[output]: places[shape] for output, shape in program.sized}
        self._others = [place for place in range(len(signature.outputs)) if place not in self._shapes]

        def only(inputs: list[int], outputs: list[int]) -> FusedNode:
            return FusedNode(
                inputs=inputs,
                outputs=[signature.outputs[place] for place in outputs],
                input_names=signature.input_names,
                output_names=signature.output_names,
                warn=signature.warn,
            )

        self._kept: _KeptWork | None = None
        self._before, self._after = only(signature.inputs, self._others), only([], [*self._shapes])

    def run(self, _state: Any, context: Any) -> None:
        forget_errors()
        group = self.group.on_device()
        before, after = (Tensors(self.ort, it, group.device, context) for it in (self._before, self._after))
        try:
            with group.prepare(before.inputs) as run:
                wanted = run.outputs
                places = dict(zip(self._others, before.outputs([wanted[k] for k in self._others]), strict=True))
                for k in range(len(wanted)):
                    if k not in places:
                        places[k] = _room(before, *wanted[k])
                self._submit(run, [places[k] for k in range(len(wanted))])
            shapes = self._read(group.device, wanted, places)
            made = zip(shapes, after.outputs([(wanted[k][0], it) for k, it in shapes.items()]), strict=True)
            copies = [
                (*most, *result, wanted[k][0].nbytes(math.prod(shapes[k])))
                for k, result in made
                if result is not None and (most := places[k]) is not None
            ]
            if copies:
                group.device.submit((), copies)
            before.copy_outputs()
            after.copy_outputs()
        finally:
            before.close()
            after.close()

    def _submit(self, run: Run, places: Sequence[Place | None]) -> None:
        submission = run.submission(places)
        if submission is None:
            run.submit(places)
            return
        kept, copies = self._kept, submission.before or submission.after
        work = None if kept is None or copies else kept.work
        if work is None or work.recording is not submission.recording:
            work = run.work(submission)
            if not copies:
                self._kept = _KeptWork(work, [it.buffer for it in run.places(places) if it is not None])
        if not work.run():
            run.submit(places)  # raises the error, if there is one

    def _read(
        self, device: Device, wanted: Sequence[tuple[DType, tuple[int, ...]]], places: Mapping[int, Place | None]
    ) -> dict[int, tuple[int, ...]]:
        """Returns the shapes of the results with sizes that data decides."""
        found = {k: np.zeros(wanted[shape][1], np.int64) for k, shape in self._shapes.items()}
        given = ((places[self._shapes[k]], it) for k, it in found.items())
        device.download_all([(*place, it.data.cast("B")) for place, it in given if place is not None])
        shapes = {k: tuple(it.tolist()) for k, it in found.items()}
        for k, shape in shapes.items():
            most = math.prod(wanted[k][1])
            if min(shape, default=0) < 0 or math.prod(shape) > most:
                name = self._signature.output_labels[self._signature.outputs[k]]
                raise InternalError(f"{name} has the shape {list(shape)}, but room for only {most} elements")
        return shapes


class _KeptWork:
    """The work of the last run, until one of the buffers that it binds dies."""

    __slots__ = ("__weakref__", "_buffers", "work")

    def __init__(self, work: Work, buffers: Sequence[Buffer]) -> None:
        self.work: Work | None = work
        self._buffers = [weakref.ref(it) for it in buffers]
        depend(self)

    def buffers_ended(self) -> None:
        if any(it() is None for it in self._buffers):
            self.work = None


def _room(tensors: Tensors, dtype: DType, shape: tuple[int, ...]) -> Place | None:
    """Returns memory for a result of this shape until the run ends; None if it has no elements."""
    nbytes = dtype.nbytes(math.prod(shape))
    return tensors.scratch(nbytes, "a result whose size data decides").place if nbytes else None
