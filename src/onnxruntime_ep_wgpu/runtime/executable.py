"""Runs a Program: its weights on a device, a plan for the shapes of the inputs, bound callers' buffers, submitted work.

In: a Program, tensors on the device. Out: submitted work, or an error before anything runs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from .. import rehearsal
from ..device import Buffer, Copy, Device, Place, Recording, Submission, Turn, Work
from ..program.axes import model_name
from ..program.dtypes import DType
from ..program.program import Program
from ..program.target import check_target
from ..program.weights import weight_array, weight_bytes, weight_names, weight_sizes
from ..trace import Scope, listeners, span
from . import inspect
from .binder import Binder
from .describe import Descriptions
from .inputs import DeviceTensor
from .pipelines import Pipelines
from .plan import Plan, Repeater
from .planning import Planning
from .plans import GraphPlans, InSeries, PlannedRun, Plans
from .runs.key import Key
from .runs.repeat import CapturedRun, PlacedRun
from .settings import RunSettings
from .stepwise import Stepwise


class Run:
    """A run with known sizes, before its submission. Allocate the `outputs`, then call `submit`.

    Its plan keeps its buffers until the `with` ends or this object dies.
    """

    def __init__(self, executable: Executable, inputs: Sequence[DeviceTensor]) -> None:
        self.executable = executable
        self._planned = executable.planned_in_series(inputs) or executable.planned(inputs)
        self.inputs = [tensor.place for tensor in inputs]
        self._work: Work | None = None

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        self._planned.__exit__(*error)

    @property
    def plan(self) -> Plan:
        """The plan for these sizes alone."""
        if self._planned.in_series is not None:
            self._planned = self.executable.planning.single(self._planned.key)
        return self._planned.plan

    @property
    def series(self) -> InSeries | None:
        """The position of the run in a series; None if its plan is for these sizes alone."""
        return self._planned.in_series

    @property
    def is_new(self) -> bool:
        """Whether this is the first submitted run of its plan."""
        return self._planned.plan.submits == 1

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the inputs, then of the outputs."""
        return [*self._planned.key[0], *self._planned.output_shapes]

    @property
    def outputs(self) -> list[tuple[DType, tuple[int, ...]]]:
        """Type and shape of each output, in the order of the program."""
        program = self.executable.program
        return [
            (program.values[v].dtype, shape)
            for v, shape in zip(program.outputs, self._planned.output_shapes, strict=True)
        ]

    def places(self, outputs: Sequence[Place | None]) -> list[Place | None]:
        """The places of all tensors, inputs before outputs; None for empty ones."""
        return [*self.inputs, *outputs]

    def submit(self, outputs: Sequence[Place | None]) -> Submission | None:
        """Queues the work. It stores the outputs at these places, None for empty ones.

        Returns the submission if such a run does nothing else. It may be queued again while the plan and the places are the same.
        """
        places = self.places(outputs)
        if self._planned.in_series is not None:
            self._work = self.executable.submit_in_series(self._planned, places)
            if self._work is not None:
                return Submission(self._work.recording)
        return self.executable.submit(self.plan, places)

    def submission(self, outputs: Sequence[Place | None]) -> Submission | None:
        """Returns the submission without queueing it; the caller queues it during the `with`. None if such runs do more."""
        return self.executable.submission(self.plan, self.places(outputs))

    def work(self, submission: Submission) -> Work:
        """Returns the Work that queues a submission of `submit`."""
        return self._work or self.executable.work(submission)

    def repeat(self, submission: Submission, repeater: Repeater) -> Work:
        """Returns the Work for a repeater, which ends with the plan."""
        self._planned.plan.repeaters.add(repeater)
        return self.work(submission)


class Executable:
    """A Program on a device, with its weights uploaded. Thread safe."""

    def __init__(
        self,
        program: Program,
        device: Device,
        settings: RunSettings | None = None,
        shared: Mapping[str, Buffer] | None = None,
        of_graph: GraphPlans | None = None,
        pipelines: Pipelines | None = None,
        uploaded: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """`shared`: weights by name that the device has. `of_graph`: the plans of other sizes, which share memory with this
        one's plans; see `compiled_for`. `pipelines`: those of the program; some may be in compilation. `uploaded` is called
        after each weight with the number of uploaded bytes and the total.
        """
        check_target(program.target, device.target, f"the program {program.name!r}")
        shared = shared or {}
        self._weight_names = weight_names(program)
        self._weights = self._uploaded(program, device, shared, uploaded)
        # The arrays may be large, or views of memory that the caller frees. From here on only the device has them.
        program = replace(program, weights=())
        self.program, self.device, self.settings = program, device, settings or RunSettings()
        self.copied_inputs = 0  # in all runs; see `Binder`
        self._pipelines = pipelines or Pipelines(program, device, self.settings)
        self._plans = Plans(program, device, self.settings, self._weights, self._pipelines, of_graph)
        self.planning = Planning(program, device, self._plans)
        self._stepwise = Stepwise(program, device, self._weights) if self.settings.stepwise else None
        self._descriptions = Descriptions(program)
        self._binder = Binder(program, device)

    def _uploaded(
        self,
        program: Program,
        device: Device,
        shared: Mapping[str, Buffer],
        uploaded: Callable[[int, int], None],
    ) -> list[Buffer | None]:
        found: list[Buffer | None] = []
        sizes = weight_sizes(program)
        done, total = 0, sum(sizes)
        with device.uploading() as upload:
            for weight, name, nbytes in zip(program.weights, self._weight_names, sizes, strict=True):
                found.append(shared.get(name) or self._upload(device, upload, weight, name))
                uploaded(done := done + nbytes, total)
        return found

    @staticmethod
    def _upload(device: Device, upload: Callable[[Buffer, Any], None], weight: Any, name: str) -> Buffer:
        array = np.ascontiguousarray(weight_array(weight))
        buffer = device.buffer(max(array.nbytes, 16), f"the weight {name!r}")
        if array.nbytes:
            upload(buffer, weight_bytes(array))
        return buffer

    # ---- plans

    @property
    def plans(self) -> OrderedDict[Key, Plan]:
        """The kept plans, the most recent last."""
        return self._plans.kept

    def plan(self, inputs: Sequence[DeviceTensor]) -> Plan:
        """Returns the plan for these inputs. Makes it if it is new. Raises InputError or LimitError before anything runs."""
        return self.planned(inputs).plan

    def planned(self, inputs: Sequence[DeviceTensor]) -> PlannedRun:
        """Returns the plan for these inputs.

        It keeps its buffers during a `with`, in which a run is submitted. Raises like `plan`.
        """
        return self.planning.single(self.key(inputs), [tensor.dtype for tensor in inputs])

    def planned_in_series(self, inputs: Sequence[DeviceTensor]) -> PlannedRun | None:
        """Returns the plan of a series that contains these inputs; None if there is none, or if each run does more than submit
        it."""
        return self.planning.in_series(inputs) if self._may_repeat else None

    def key(self, inputs: Sequence[DeviceTensor]) -> Key:
        """The key that is equal for inputs with the same plan."""
        return self.planning.key(inputs)

    # ---- the same graph for certain sizes

    def weights_of(self, names: Collection[str]) -> dict[str, Buffer]:
        """Returns the buffers of the model's own weights with these names, in any order of axes.

        They are for an executable of another graph with the same weights.
        """
        every = zip(self._weight_names, self._weights, strict=True)
        return {name: buffer for name, buffer in every if buffer is not None and model_name(name)[0] in names}

    def compiled_for(self, program: Program, constants: Collection[str]) -> Executable:
        """Returns an Executable of `program`, the same graph compiled for certain sizes.

        It shares the memory of intermediate values, and the weights named `constants`: the model's own weights, in any order of
        axes.
        """
        pipelines = Pipelines(program, self.device, self.settings, self._pipelines.in_runs)
        shared, of_graph = self.weights_of(constants), self._plans.of_graph
        return Executable(program, self.device, self.settings, shared, of_graph, pipelines)

    def leave(self) -> None:
        """Call this when no run will follow.

        Releases plans when no run uses them, and the memory that no other executable shares.
        """
        self._plans.leave()

    # ---- runs

    @property
    def valued_inputs(self) -> frozenset[int]:
        """The inputs with values that set shapes. Pass their `value`."""
        return self.planning.inputs.valued

    def prepare(self, inputs: Sequence[DeviceTensor]) -> Run:
        """Returns a run with these inputs. Raises InputError, LimitError."""
        return Run(self, inputs)

    def run(self, inputs: Sequence[DeviceTensor], outputs: Sequence[Place | None]) -> None:
        """Runs once, for callers with memory for the outputs.

        The work is submitted, but not finished, when this returns. The queue orders it before later copies and runs.
        """
        with self.prepare(inputs) as run:
            run.submit(outputs)

    def work(self, submission: Submission) -> Work:
        """Returns the Work that submits the same again without Python."""
        return self.device.work(submission, self.settings.per_submission, self.turn)

    def submit_in_series(self, planned: PlannedRun, places: Sequence[Place | None]) -> Work | None:
        """Submits a run of a series, with tensors at these places, and returns its Work.

        Returns None, and nothing has run, if tensors would have to be copied or the submission was refused.
        """
        plan = planned.plan
        callers, before, after = self._binder.callers(plan, places)
        if before or after:
            return None
        work = self.work(Submission(plan.bind(callers), numbers=plan.rows))
        plan.submits += 1
        return work if work.run(planned.number) else None

    def submit(self, plan: Plan, places: Sequence[Place | None]) -> Submission | None:
        """Runs a plan once on these places: inputs, then outputs, None for empty ones.

        Returns the submission if there was nothing else to do.
        """
        return self._submit(plan, self._bound(plan, places))

    def submission(self, plan: Plan, places: Sequence[Place | None]) -> Submission | None:
        """Returns the submission of `submit` without queueing it; None if runs do more than that."""
        if not self._only_submits:
            return None
        _, recording, before, after = self._bound(plan, places)
        return None if recording is None else Submission(recording, before, after)

    @property
    def turn(self) -> Turn:
        """The lock against interleaved submissions of the graph's plans."""
        return self._plans.of_graph.turn

    @property
    def has_states(self) -> bool:
        """Whether a run leaves a state to the next one, as random numbers do."""
        return bool(self._plans.states)

    def _bound(self, plan: Plan, places: Sequence[Place | None]) -> PlacedRun:
        """Binds a run of a plan to these places."""
        callers, before, after = self._binder.callers(plan, places)
        self.copied_inputs += len(before)
        # Stepwise runs make bind groups dispatch by dispatch.
        return PlacedRun(callers, plan.bind(callers) if self._stepwise is None else None, before, after)

    def capture(self, plan: Plan, places: Sequence[Place | None], kept: tuple[bool, ...]) -> CapturedRun:
        """Captures a run of a plan, to be replayed. Runs nothing.

        `kept` says for each place whether the caller keeps the tensor there. The plan lives as long as the capture.
        """
        all_kept = all(is_kept or place is None for is_kept, place in zip(kept, places, strict=True))
        made = CapturedRun(plan, places, kept, self._bound(plan, places) if all_kept else None)
        plan.captures.add(made)
        return made

    def replay(self, captured: CapturedRun, places: Sequence[Place | None]) -> Submission | None:
        """Replays a captured run. `places` are those of the tensors now; there is no `difference`. Returns like `submit`."""
        return self._submit(captured.plan, captured.bound or self._bound(captured.plan, places))

    def _submit(self, plan: Plan, run: PlacedRun) -> Submission | None:
        """Queues a run: copies, dispatches and copies. Returns the submission if such a run does nothing else."""
        callers, recording, before, after = run
        scopes = listeners()
        if rehearsal.is_on():
            before, after = self._restoring(before, after)
        plan.submits += not rehearsal.is_on()
        with self.device.debugger_capture() if self.settings.debugger_capture else nullcontext():
            if recording is None:
                assert self._stepwise is not None
                with span("submit", self.program.name, dispatches=len(plan.dispatches)):
                    self._stepwise.run(plan, callers, before, after)
                return None
            if scopes:
                self._submit_recorded(scopes, plan, recording, before, after)
                return None
            self.device.submit(recording, before, after, self.settings.per_submission, self.turn)
            return Submission(recording, before, after) if self._may_repeat else None

    @property
    def _only_submits(self) -> bool:
        """Whether a run now only submits work: dispatches are not checked, there are no listeners, and states are not
        restored."""
        plain = self._stepwise is None and not self.settings.debugger_capture
        return plain and not listeners() and not rehearsal.is_on()

    @property
    def _may_repeat(self) -> bool:
        """Whether the submission of a run may be repeated without it.

        Also requires that no cache waits for the end of the run.
        """
        return self._only_submits and not self.device.caches.lazy

    def _restoring(self, before: Sequence[Copy], after: Sequence[Copy]) -> tuple[list[Copy], list[Copy]]:
        """Adds the copies around a rehearsal that save and restore the states of the program."""
        saved, restored = [], []
        for state in self._plans.states:
            kept = self.device.caches.storage.take(state.size, "a state during a rehearsal")
            saved.append((state, 0, kept, 0, state.size))
            restored.append((kept, 0, state, 0, state.size))
        return [*saved, *before], [*after, *restored]

    def _submit_recorded(
        self,
        scopes: Sequence[Scope],
        plan: Plan,
        recording: Recording,
        before: Sequence[Copy],
        after: Sequence[Copy],
    ) -> None:
        """Submits a run with listeners. Its dispatches are timed if the adapter has timestamps."""
        with span("submit", self.program.name, dispatches=len(plan.dispatches)):
            work = recording, before, after, self.settings.per_submission, self.turn
            if not self.device.has_timestamps:
                self.device.submit(*work)
                return
            timed = self.device.submit_timed(*work)
        described = self._descriptions.of(plan)
        for scope in scopes:
            scope.dispatched(timed, described)

    def trace(
        self, inputs: Sequence[DeviceTensor], replace: Callable[[int, Any], Any] = lambda _value, _array: None
    ) -> Iterator[tuple[int, dict[int, Any]]]:
        """Runs dispatch by dispatch, for inspection. Yields (number of the dispatch, what it wrote by value number), in order.

        `replace(value, array)` may return another array of the same type and shape, which later dispatches read instead.
        """
        with self.planned(inputs) as plan:
            yield from inspect.trace(plan, inputs, replace)
