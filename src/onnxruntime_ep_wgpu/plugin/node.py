"""The node that ONNX Runtime put in place of a compiled group of nodes.

In: a kernel context with the group's inputs. Out: its outputs, queued on the device. Invariants: thread safe; a run that fails
leaves nothing behind.

C code repeats a run that equals an earlier one, with the same tensors (`memo.py`). Such a run does not reach this code. Tensors
in host memory, which ONNX Runtime may pass at any time, are uploaded before the run and downloaded after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from .. import rehearsal
from ..device import forget_errors
from ..runtime.executable import Executable, Run
from . import memo
from .abi import Ort
from .callbacks import CallbackTable, callback
from .known_tensors import FusedNode
from .tensors import Tensors

if TYPE_CHECKING:
    from ..device import Device
    from ..progress_line import ProgressLine
    from .captures import CapturedNode
    from .group import GivenInputs

# One of so many runs of a body goes through Python. More would slow down small bodies, fewer would delay interrupts.
_INTERRUPTIBLE = 64


class Runnable(Protocol):
    """A compiled group with its weights on `device`: `group.GroupOnDevice`, or a tool around one."""

    @property
    def device(self) -> Device: ...

    @property
    def executable(self) -> Executable:
        """The executable for most sizes. A `Run` has the one for its inputs."""

    def prepare(self, inputs: GivenInputs) -> Run:
        """Returns a run with these inputs. The run has the types and shapes of its outputs before it is queued. Thread safe."""


class RunnableGroup(Protocol):
    """A compiled group, which is built on a new device after a loss."""

    def on_device(self) -> Runnable:
        """Returns the group on the device to use now, for one run."""


class ComputeInfo(CallbackTable, struct="OrtNodeComputeInfo", kind="Node"):
    """The node of a compiled group, shared by all runs. `captured` is set if the session captures its runs."""

    def __init__(
        self,
        ort: Ort,
        group: RunnableGroup,
        signature: FusedNode,
        *,
        captured: CapturedNode | None = None,
    ) -> None:
        super().__init__(ort)
        self.group, self._signature = group, signature
        self.captured = captured
        self.memos: memo.Memos | None = None
        self.first_run: ProgressLine | None = None  # reports a slow first run; None after that run
        self._noted: Runnable | None = None  # the group that the memos belong to

    def repeat_in_c(self, in_a_body: bool) -> None:
        """Lets C code repeat equal runs from now on, without Python.

        Some runs of a body still go through Python, because an endless Loop could not be interrupted otherwise.
        """
        self._table.every = _INTERRUPTIBLE if in_a_body else 0
        self.memos = memo.Memos(self._table, self._signature, self.captured is not None)
        if self.captured is not None:
            self.captured.memos = self.memos

    def release(self) -> None:
        if self.memos is not None:
            self.memos.close()
        super().release()

    @callback("CreateState")
    def create_state(self, _context: Any, out: Any) -> None:
        # No data is kept per state, but ONNX Runtime requires a pointer that is not NULL.
        out[0] = self.pointer

    @callback("ReleaseState")
    def release_state(self, _state: Any) -> None:
        pass

    @callback("Compute", repeatable=True, device=True, first="compute")
    def compute(self, state: Any, context: Any) -> None:
        first_run, self.first_run = self.first_run, None
        if first_run is None:
            self.run(state, context)
            return
        with first_run.working():
            self.run(state, context)

    def run(self, state: Any, context: Any) -> None:
        """Runs the group. `state` and `context` are ONNX Runtime's."""
        if self.memos is not None:
            self.memos.check_begun(state)
            forget_errors()
        group = self.group.on_device()
        if self._noted is not None and group is not self._noted and self.memos is not None:
            self.memos.end_all()  # the memos belong to another object, and its device was lost
            self._noted = None
        tensors = Tensors(self.ort, self._signature, group.device, context)
        try:
            with group.prepare(tensors.inputs) as run:
                outputs = tensors.outputs(run.outputs)
                graph = 0
                if self.captured is None:
                    submission = run.submit(outputs)
                else:
                    submission, graph = self.captured.run(group, run, outputs, tensors.addresses)
                if self.memos is not None and submission is not None and not rehearsal.is_on():
                    self._noted = group
                    self.memos.record_run(run, submission, tensors, outputs, graph)
            tensors.copy_outputs()
        finally:
            tensors.close()
