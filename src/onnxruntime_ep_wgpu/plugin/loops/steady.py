"""Iterations of a Loop that are alike: two alternating ones are bound, and C code encodes many at once (`device/rounds.py`).

In: the iterations of a run, from one on after which no shape changes. Out: all remaining iterations, submitted.

A condition that the device makes is read back after a batch of iterations. The batch grows while it takes a short time
(`SHORT`). If an iteration within the batch ends the Loop, those after it were useless. The batch then runs again from the
states at its beginning, up to and including that iteration. Nothing outside of the Loop has read the discarded results. If a
run leaves state for the next run, as random numbers do, each batch is one iteration.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from ...device.rounds import Round, SteppedCopy, run_rounds, stepped
from ...device.stepping import LEAST, SteppedCopies
from ...program.dtypes import DType
from ...runtime.executable import Run
from ...runtime.inputs import DeviceTensor

if TYPE_CHECKING:
    from ...device import Buffer, Copy, Submission
    from .iterations import Iterations, Result
    from .joined import JoinedOutput

ENCODED = 256  # Iterations per call. An interrupt takes effect between calls.
UNFINISHED = 4096  # Dispatches that may be submitted before this code waits for the GPU.
MOST_BATCHED = 128  # Iterations after which a condition is read at the latest.
SHORT = 2e-3  # Seconds. After a batch that takes less time, the next one has twice as many iterations.
_WORD = 4  # Bytes: the unit of copies.


def remaining(iterations: Iterations, run: Run, results: Mapping[str, Result]) -> Steady | None:
    """Returns an object that runs all remaining iterations if they are alike and kernels run them, else None."""
    runs_here = isinstance(run, Run)  # else a tool calculates the results
    return Steady(iterations, run, results) if runs_here and _is_steady(iterations, run, results) else None


def _is_steady(iterations: Iterations, run: Run, results: Mapping[str, Result]) -> bool:
    """Returns whether later iterations are like this one, and at least one may follow it."""
    body, left = iterations.step.body, iterations.trips_left
    if iterations.step.sized or body.once or (left is not None and left < 2):
        return False
    changing = [(own, name) for own, name in zip(body.states, body.next, strict=True) if own != name]
    varying = {body.number, *(own for own, _ in changing)}
    if any(iterations.step.inputs[k] in varying for k in run.executable.valued_inputs):
        return False
    if not iterations.number and len({name for _, name in changing}) < len(changing):
        return False  # several states take the same result, and lie at different places before the first iteration
    states = dict(zip(body.states, iterations.states, strict=True))
    if any(results[name] != (states[own].dtype, states[own].shape) for own, name in changing):
        return False
    rows = (results.get(it) or (states[it].dtype, states[it].shape) for it in body.rows)
    return all(joined.copies_on_device(*row) for joined, row in zip(iterations.rows, rows, strict=True))


class Steady:
    """All remaining iterations of a run."""

    def __init__(self, iterations: Iterations, run: Run, results: Mapping[str, Result]) -> None:
        self._iterations, self._run, self._step, self._body = iterations, run, iterations.step, iterations.step.body
        memory = self._memory = iterations.memory
        # By the parity of the iteration that reads them: 0 is even, 1 is odd. This is the `turn` of an iteration.
        self._places = [{name: iterations.place(name, turn, *it) for name, it in results.items()} for turn in (0, 1)]
        self._number = memory.kept("number", DType.INT64, self._body.number_shape, "the number of an iteration", False)
        self._works: list[Submission] = []
        self._batch, self._unfinished = 1, 0

    def bind(self) -> bool:
        """Binds even and odd iterations. Returns whether they can be submitted together."""
        executable = self._run.executable
        longest = executable.settings.per_submission
        if longest and len(self._run.plan.dispatches) > longest:
            return False
        with ExitStack() as stack:
            for turn in (0, 1):
                given = [self._given(turn, k) for k in range(len(self._step.inputs))]
                one = stack.enter_context(executable.prepare(given))
                made = self._places[1 - turn]
                work = one.submission([made[name].place for name in self._step.outputs])
                if work is None or len(work.recording) == 0:
                    return False
                self._works.append(work)
        return True

    def _given(self, turn: int, place: int) -> DeviceTensor:
        """Returns an input of an iteration with this parity."""
        name = self._step.inputs[place]
        if name == self._body.number:
            return self._number
        captured = self._iterations.captured.get(name)
        tensor = captured if captured is not None else self._state(turn, self._body.states.index(name))
        valued = place in self._run.executable.valued_inputs and tensor.value is None
        return tensor._replace(value=self._iterations.read(tensor)) if valued else tensor

    def _state(self, turn: int, at: int) -> DeviceTensor:
        """Returns a state where an iteration with this parity reads it."""
        own, name = self._body.states[at], self._body.next[at]
        return self._iterations.states[at] if own == name else self._places[turn][name]

    def run(self) -> bool:
        """Submits the iterations. Returns whether another one follows according to the condition."""
        iterations, device = self._iterations, self._memory.device
        if not iterations.number:
            pairs = [(it, self._state(0, at)) for at, it in enumerate(iterations.states) if it.buffer is not None]
            copies = [_copy(it, to) for it, to in pairs if it is not to]
            if copies:
                device.submit((), copies)
        more = True
        while more and iterations.trips_left != 0:
            left = ENCODED if iterations.trips_left is None else iterations.trips_left
            more = self._run_unconditionally(min(left, ENCODED)) if not self._body.condition else self._run_batch(left)
            turn = iterations.number & 1
            iterations.states = [self._state(turn, at) for at in range(len(iterations.states))]
        return more

    def _run_unconditionally(self, count: int) -> bool:
        self._submit(count)
        self._iterations.number += count
        return True

    def _run_batch(self, left: int) -> bool:
        """Runs a batch of iterations, until the condition ends them. Returns whether another one follows."""
        iterations, device = self._iterations, self._memory.device
        count = 1 if self._run.executable.has_states else min(self._batch, left)
        # The batch is limited to the room for rows, so that useless iterations do not fail for lack of memory.
        for joined, row in self._joined():
            count = joined.rows_with_room(row.dtype, row.shape, iterations.number, count)
        begun = time.perf_counter()
        flags = self._memory.kept("conditions", DType.UINT32, (MOST_BATCHED,), "conditions", False)
        assert flags.buffer is not None
        begin = [self._state(iterations.number & 1, at) for at in range(len(iterations.states))] if count > 1 else []
        kept = {
            id(it.buffer): (it, self._memory.kept((at, "before"), it.dtype, it.shape, "a state before a batch", False))
            for at, it in enumerate(begin)
            if it.buffer is not None and self._body.states[at] != self._body.next[at]
        }
        if kept:
            device.submit((), [_copy(it, there) for it, there in kept.values()])
        self._submit(count, flags.buffer)
        found = np.zeros(count, np.uint32)
        device.download(flags.buffer, 0, found)
        self._unfinished = 0
        continues = (found.view(np.uint8)[::_WORD] != 0).tolist()
        done = continues.index(False) + 1 if False in continues else count
        if done < count:
            device.submit((), [_copy(there, it) for it, there in kept.values()])
            self._submit(done)
        iterations.number += done
        if time.perf_counter() - begun < SHORT:
            self._batch = min(2 * self._batch, MOST_BATCHED)
        return all(continues)

    def _joined(self) -> Iterator[tuple[JoinedOutput, DeviceTensor]]:
        """Yields each joined output with a tensor that has the type and shape of its rows."""
        states = dict(zip(self._body.states, self._iterations.states, strict=True))
        for joined, name in zip(self._iterations.rows, self._body.rows, strict=True):
            yield joined, self._places[0].get(name) or states[name]

    def _submit(self, count: int, flags: Buffer | None = None) -> None:
        """Queues `count` iterations. Their conditions are copied to `flags`."""
        iterations, executable = self._iterations, self._run.executable
        before = [*self._number_copies(count)]
        for joined, row in self._joined():
            joined.reserve(row.dtype, row.shape, iterations.number, iterations.number + count)
        two = []
        for turn, work in enumerate(self._works):
            copies = [*stepped(work.after)]
            if flags is not None:
                decided = self._places[1 - turn][self._body.condition]
                assert decided.buffer is not None
                copies.append(SteppedCopy(decided.buffer, decided.offset, 0, flags, 0, _WORD, _WORD))
            for joined, name in zip(iterations.rows, self._body.rows, strict=True):
                made = self._places[1 - turn].get(name)
                row = made or self._state(turn, self._body.states.index(name))
                copies += joined.stepped(row, iterations.number)
            two.append(Round(work.recording, [*before, *stepped(work.before)], copies))
        device = self._memory.device
        longest = executable.settings.per_submission
        stepping = self._stepping(count) if any(it.before or it.after for it in two) else None
        two = (stepping and stepping.rounds(two)) or two
        run_rounds(device.queue, executable.turn, two, iterations.number & 1, count, longest)
        if stepping:
            stepping.give()
        self._unfinished += count * max(1, len(self._works[0].recording))
        if self._unfinished > UNFINISHED:
            device.queue.wait()
            self._unfinished = 0

    def _stepping(self, count: int) -> SteppedCopies | None:
        """Returns what turns the copies of `count` iterations into dispatches; None if these are too few for that."""
        if count < LEAST:
            return None
        numbers = self._memory.kept("numbers", DType.UINT32, (2,), "the numbers of two iterations", False)
        assert numbers.buffer is not None
        return SteppedCopies(self._memory.device, numbers.buffer, count)

    def _number_copies(self, count: int) -> Iterator[SteppedCopy]:
        """Yields the copies that give iterations their numbers."""
        if self._body.number not in self._step.inputs:
            return
        every = self._memory.upload(
            np.arange(self._iterations.number, self._iterations.number + count), "the numbers of iterations"
        )
        buffer, nbytes = self._number.buffer, DType.INT64.nbytes(1)
        assert every.buffer is not None and buffer is not None
        yield SteppedCopy(every.buffer, 0, nbytes, buffer, 0, 0, nbytes)


def _copy(source: DeviceTensor, to: DeviceTensor) -> Copy:
    assert source.buffer is not None and to.buffer is not None
    return source.buffer, source.offset, to.buffer, to.offset, source.dtype.nbytes(math.prod(source.shape))
