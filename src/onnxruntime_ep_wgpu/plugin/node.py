"""One compiled group of nodes, as the node that ONNX Runtime put in its place.

In: a kernel context with the group's inputs. Out: its outputs, queued on the device.
Invariant: thread safe; a run that fails leaves nothing behind. A run that is the same as an earlier one, with the same tensors,
does not come here: it is repeated by C code (`memo.py`). Tensors that lie in host memory (ONNX Runtime may pass them at any time)
are uploaded before and downloaded after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from .. import rehearsal
from ..device import forget_errors
from ..runtime.executable import Executable, Run
from . import memo
from .abi import Ort
from .callbacks import CallbackTable, callback
from .known import FusedNode
from .tensors import Tensors

if TYPE_CHECKING:
    from ..device import Device
    from ..telling import Telling
    from .captures import CapturedNode
    from .group import GivenInputs

# Of so many runs of a body one goes through Python. More often would slow small bodies, less often make interrupts late.
_INTERRUPTIBLE = 64


class Runnable(Protocol):
    """What runs as a compiled group, with its weights on `device`: `group.GroupOnDevice`, or a tool around one."""

    @property
    def device(self) -> Device: ...

    @property
    def executable(self) -> Executable:
        """What runs most sizes. Which one runs certain inputs, a `Run` says."""

    def prepare(self, inputs: GivenInputs) -> Run:
        """A run with these inputs, which says what its outputs are before it is queued. Thread safe."""


class RunnableGroup(Protocol):
    """A compiled group, on a new device after a loss."""

    def on_device(self) -> Runnable:
        """The group on the device to use now, for one run."""


class ComputeInfo(CallbackTable, struct="OrtNodeComputeInfo", kind="Node"):
    """A compiled group, shared by all runs.

    `captured` when the session captures its runs.
    """

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
        self.first_run: Telling | None = None  # while there was none
        self._noted: Runnable | None = None  # what the memos are of

    def repeat_in_c(self, in_a_body: bool) -> None:
        """From here on runs that are the same as before are repeated without Python.

        In a body some go through Python all the same, because an endless Loop could not be interrupted otherwise.
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
        # Nothing is kept per state; ONNX Runtime wants a pointer that is not NULL.
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
        """A run. `state` and `context` are ONNX Runtime's."""
        if self.memos is not None:
            self.memos.check_begun(state)
            forget_errors()
        group = self.group.on_device()
        if self._noted is not None and group is not self._noted and self.memos is not None:
            self.memos.end_all()  # what was noted of another one, whose device was lost
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
                    self.memos.ran(run, submission, tensors, outputs, graph)
            tensors.deliver()
        finally:
            tensors.close()
