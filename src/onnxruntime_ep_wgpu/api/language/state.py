"""A decoder's KV caches and the runs on them: ids in, logits of the last id out. Keys and values stay on the device.

Caches in place have room for the longest sequence, and the mask of a step has their length. If nothing else depends on it
(`mask_length`), it is shorter as long as the sequences fit into that, and kernels are chosen for its length. If the model decides
by its length, it has that of the sequences. Other caches have their rows at the end, after padding up to a round number if the
model allows it. Until it is full, steps have the same shapes; they read one set of caches and write another one, alternately.

Invariant: caches and the number of their valid rows change together, by one assignment after a step has run. So an interrupt
leaves a usable state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx

from ...errors import InputError, LimitError
from ...records import dataclass
from .decoder import IDS, LOGITS, MASK, POSITIONS, Decoder
from .kept_rows import KEPT
from .memory import DEVICE, BoundRun

Array = np.ndarray[Any, np.dtype[Any]]
Caches = dict[str, Any]

_FEW, _ROUND = 64, 256  # rows
_SHORT = 256  # length of the mask of short sequences; attention of so many keys may need no second dispatch


def round_rows(used: int) -> int:
    """Returns the rows of caches for so many valid rows. Limits both needless copies and changes of step shapes."""
    few = next((it for it in (_FEW, 2 * _FEW) if used <= it), 0)
    return few or -(-used // _ROUND) * _ROUND


class _Kept(NamedTuple):
    """Caches of `rows` rows. `used` (batch) is the number of valid rows of each sequence, and `most` its maximum."""

    caches: Caches
    rows: int
    used: Array
    most: int


class State:
    """The KV caches of `batch` sequences. `used` counts the valid rows of each, and `ids` are their token ids."""

    def __init__(self, decoder: Decoder, batch: int) -> None:
        self.decoder, self.batch = decoder, batch
        self._ids: list[list[int]] = [[] for _ in range(batch)]  # includes ids of a run that did not finish
        rows = decoder.rows if decoder.in_place else 0
        caches = (decoder.spare_caches.take(batch) if decoder.in_place else None) or self._new(rows)
        self._kept = _Kept(caches, rows, np.zeros(batch, np.int64), 0)
        self._columns: Any = None
        self._length = 0  # of the columns
        self._steps: BoundSteps | None = None

    @property
    def used(self) -> Array:
        """The number of valid rows of each sequence, (batch)."""
        return self._kept.used

    @used.setter
    def used(self, used: Array) -> None:
        self._kept = self._kept._replace(used=used, most=int(used.max()))

    @property
    def _rows(self) -> int:
        return self._kept.rows

    @property
    def _caches(self) -> Caches:
        return self._kept.caches

    def _new(self, rows: int) -> Caches:
        """Allocates uninitialised caches of so many rows."""
        found = {}
        for name in self.decoder.caches:
            kind = self.decoder.inputs[name]
            _, heads, _, size = (it.dim_value for it in kind.shape.dim)
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            found[name] = self.decoder.memory.empty([self.batch, heads, rows, size], dtype)
        return found

    @property
    def columns(self) -> Any:
        """The column numbers from which the next step's mask is made, on the device.

        The mask is 1 where these are below the number of rows used then. The object is the same as long as the shapes are."""
        number = self._mask_length if self.decoder.in_place else self._rows + 1
        if number != self._length:
            order = np.arange(number) if self.decoder.in_place else np.arange(number)[::-1]
            self._columns, self._length = self.decoder.memory.put(order), number
        return self._columns

    @property
    def _mask_length(self) -> int:
        """The length of the next step's mask for caches in place."""
        used = self._kept.most
        if self.decoder.exact_masks:
            return min(used + 1, self._rows)
        return min(_SHORT, self._rows) if self.decoder.short_masks and used < _SHORT else self._rows

    @property
    def ids(self) -> list[list[int]]:
        """The ids of the caches' valid rows."""
        return [ids[:used] for ids, used in zip(self._ids, self.used, strict=True)]

    def _record_ids(self, new: Sequence[Sequence[int]]) -> None:
        """Records the ids of the next run."""
        for ids, used, more in zip(self._ids, self.used, new, strict=True):
            del ids[used:]
            ids.extend(more)

    def end(self) -> None:
        """Leaves caches in place to the next text. The state must not be used again."""
        kept, self._steps = self._kept, None
        self._kept = _Kept({}, 0, np.zeros(self.batch, np.int64), 0)
        if self.decoder.in_place:
            self.decoder.spare_caches.give(self.batch, kept.caches)

    def rewind(self, used: int) -> None:
        """Drops all rows after the first `used`; only for caches in place."""
        self.used = np.minimum(self.used, used)

    # ---- prompts

    def prompt(self, ids: Sequence[Sequence[int]], chunk: int) -> Any:
        """Runs prompts after the cached rows. Returns the logits of each last id, (batch, 1, vocabulary), on the device.

        Prompts of equal length run in chunks. Prompts of different lengths must be the first of their caches. They are padded
        at the end for caches in place, and at the beginning for others. Raises InputError and LimitError.
        """
        longest = self._check(ids)
        self._record_ids(ids)
        lengths = np.array([len(it) for it in ids])
        if (lengths == longest).all():
            return self._chunks(np.array(ids, np.int64), chunk)
        tokens = np.zeros((self.batch, longest), np.int64)
        for row, it in zip(tokens, ids, strict=True):
            place = slice(0, len(it)) if self.decoder.in_place else slice(longest - len(it), None)
            row[place] = it
        if not self.decoder.in_place:
            return self.run_ids(tokens, lengths, self._room(longest))
        # The last ids are in different rows, so they run again together, into the rows that they already have.
        self.run_ids(tokens[:, :-1], np.minimum(lengths, longest - 1))
        self.used = lengths - 1
        return self.run_ids(tokens[np.arange(self.batch), lengths - 1][:, None], np.ones(self.batch, np.int64))

    def _chunks(self, tokens: Array, chunk: int) -> Any:
        while True:
            # The limit includes padding, because models have tables for as many keys as the longest sequence has.
            most = chunk if self.decoder.in_place else min(chunk, self.decoder.rows - self._rows)
            part, tokens = tokens[:, :most], tokens[:, most:]
            steps = part.shape[1]
            after = self._kept.most + steps
            logits = self.run_ids(part, np.full(self.batch, steps), after if tokens.size else self._room(after))
            if not tokens.size:
                return logits

    def _check(self, ids: Sequence[Sequence[int]]) -> int:
        """Checks the prompts, and returns the length of the longest one."""
        if not ids or not all(ids):
            raise InputError("a prompt is empty: pass at least one id, or text that has one")
        for row, it in enumerate(ids):
            if min(it) < 0 or max(it) >= self.decoder.vocabulary:
                wrong = next(n for n in it if not 0 <= n < self.decoder.vocabulary)
                raise InputError(
                    f"prompt {row} has the id {wrong}; the model has those from 0 to {self.decoder.vocabulary - 1}: does the"
                    " tokenizer belong to it?"
                )
        longest = max(map(len, ids))
        if self._kept.most + longest > self.decoder.rows:
            used = f"with {self._kept.most} in the caches, " if self.used.any() else ""
            raise LimitError(
                f"{used}{longest} ids of the prompt are more than the {self.decoder.rows} that the caches have room for:"
                f" {self._remedy()}"
            )
        if len({len(it) for it in ids}) > 1 and self.used.any():
            raise InputError("prompts of different lengths must be the first of their sequences")
        return longest

    def _remedy(self) -> str:
        rows, most = self.decoder.rows, self.decoder.context
        larger = f"pass a max_length of up to {most}, or a shorter prompt"
        return larger if rows < most else "pass a shorter prompt, the model was made for no more"

    def _room(self, used: int) -> int:
        """Returns the rows of caches for so many valid rows. The next step adds a key, within the longest sequence."""
        return max(used, min(round_rows(used), self.decoder.rows - 1))

    def run_ids(self, tokens: Array, lengths: Array, rows: int = 0) -> Any:
        """Returns the logits of the last of `tokens` (batch, steps), of which `lengths` (batch) are valid.

        `rows` is the caches' length afterwards, if it can be chosen."""
        steps, put = tokens.shape[1], self.decoder.memory.put
        after = self.used + lengths
        if self.decoder.in_place:
            mask = np.arange(after.max() if self.decoder.exact_masks else self._rows)[None] < after[:, None]
            positions = self.used[:, None] + np.arange(steps)
        else:
            keys = self._rows + steps
            mask = np.arange(keys)[None] >= keys - after[:, None]
            positions = np.maximum(np.arange(-steps, 0)[None] + after[:, None], 0)
        return self.run(put(tokens), put(mask.astype(np.int64)), put(positions), after, rows)

    def run(self, ids: Any, mask: Any, positions: Any, after: Array, rows: int = 0) -> Any:
        """Runs any number of ids of each sequence, and returns the logits of the last one.

        Makes new caches of `rows` rows, `after` of which are valid, unless they are in place."""
        decoder = self.decoder
        if not decoder.keeps_rows:
            rows = self._rows + (0 if decoder.in_place else ids.shape()[1])
        bound = self._bound(ids, mask, positions, rows, self._caches)
        bound.binding.bind_output(LOGITS, DEVICE, decoder.memory.number)
        for name, present in decoder.caches.items():
            if decoder.in_place:
                bound.write(present, self._caches[name])
            else:
                bound.binding.bind_output(present, DEVICE, decoder.memory.number)
        bound.run()
        logits, *presents = bound.binding.get_outputs()
        caches = self._caches if decoder.in_place else dict(zip(self._caches, presents, strict=True))
        self._kept = _Kept(caches, rows, after, int(after.max()))
        return logits

    # ---- steps

    def step(self, tokens: Sequence[int], ids: Any, positions: Any, mask: Any) -> Any:
        """Returns the logits of one more id of each sequence.

        `tokens` are the ids, and `ids` is their (batch, 1) tensor on the device, like `positions`. `mask` is made from
        `columns`. The bindings of the previous step are reused if the objects and the length of the caches are the same.
        """
        used = self._kept.most
        if used >= self.decoder.rows:
            raise LimitError(f"the caches have room for {self.decoder.rows} ids: {self._remedy()}")
        logits = self.run_next(ids, positions, mask)
        if logits is not None:
            self.accept(tokens)
            return logits
        self._record_ids([[it] for it in tokens])
        self._steps = None
        return self.run(ids, mask, positions, self.used + 1, self._room(used + 1))

    def next_step(self, ids: Any, positions: Any, mask: Any) -> BoundSteps | None:
        """Returns the next bound step that reads these tensors; None if the caches have no room."""
        decoder, kept, steps, given = self.decoder, self._kept, self._steps, (ids, positions, mask)
        room = kept.rows if decoder.in_place or decoder.keeps_rows else 0
        if decoder.in_place and self._length < room:
            room = self._length - 1  # the mask of the step after it has one key more
        if kept.most >= room:
            return None
        # These objects compare by identity.
        if steps is None or steps.given != given or steps.caches[steps.turn] is not kept.caches:
            steps = self._steps = self._bind_steps(given)
        return steps

    def run_next(self, ids: Any, positions: Any, mask: Any) -> Any:
        """Runs a step before its ids are known, and returns its logits as `step` does; None if the caches have no room.

        Its rows become valid only when `accept` is called."""
        steps = self.next_step(ids, positions, mask)
        if steps is None:
            return None
        steps.bound.run()
        return steps.logits

    def accept(self, tokens: Sequence[int]) -> None:
        """Accepts the step that `run_next` ran, with these ids."""
        kept, steps = self._kept, self._steps
        assert steps is not None
        self._record_ids([(it,) for it in tokens])
        turn = (steps.turn + 1) % len(steps.every)
        self._kept = _Kept(steps.caches[turn], kept.rows, kept.used + 1, kept.most + 1)
        # If an interrupt skips this, the turn does not match the caches, and the steps are bound again.
        steps.turn = turn

    def _bind_steps(self, given: tuple[Any, Any, Any]) -> BoundSteps:
        decoder, (ids, positions, mask) = self.decoder, given
        dtype = onnx.helper.tensor_dtype_to_np_dtype(decoder.kind)
        logits = decoder.memory.empty([self.batch, 1, decoder.vocabulary], dtype)
        caches = [self._caches] if decoder.in_place else [self._caches, self._new(self._rows)]
        every = []
        for reads, writes in zip(caches, reversed(caches), strict=True):
            bound = self._bound(ids, mask, positions, self._rows, reads)
            bound.write(LOGITS, logits)
            for name, present in decoder.caches.items():
                bound.write(present, writes[name])
            every.append(bound)
        return BoundSteps(given, caches, every, logits)

    def _bound(self, ids: Any, mask: Any, positions: Any, rows: int, caches: Caches) -> BoundRun:
        """Returns a run with these inputs bound."""
        decoder = self.decoder
        inputs = {IDS: ids, MASK: mask}
        if decoder.has_positions:
            inputs[POSITIONS] = positions
        if decoder.takes_rows:
            inputs[KEPT] = decoder.memory.empty([rows], np.uint8)
        return BoundRun(decoder.session, inputs | caches, decoder.binds_again)


@dataclass
class BoundSteps:
    """Bound steps with the same shapes. `given` are the inputs besides caches: (ids, positions, mask).

    Step `turn` reads caches[turn] and writes the caches of the next turn. With caches in place, these are the same."""

    given: tuple[Any, Any, Any]
    caches: list[Caches]
    every: list[BoundRun]
    logits: Any
    turn: int = 0

    @property
    def bound(self) -> BoundRun:
        """The next step."""
        return self.every[self.turn]
