"""The steps of one generation: the inputs of a decoder in each step, from the choices of the search.

In: compiled bodies and the parameters of a run. Out: scores of next tokens, step by step. Caches stay on the device. A step
reads those of the previous step, and later steps reuse their memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...records import dataclass
from .bodies import DECODER, ENCODER, FIRST, ROWS
from .operators import T5

if TYPE_CHECKING:
    from ...runtime.inputs import DeviceTensor
    from ..group import GroupOnDevice
    from ..step_memory import StepMemory
    from .parameters import SearchParameters
    from .steps import SearchStep

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class LiveBodies:
    """The bodies of a node on one device, by attribute."""

    steps: Mapping[str, SearchStep]
    groups: Mapping[str, GroupOnDevice]


class CachedDecoder(Protocol):
    """One generation. `continues`: the search goes on after the first step, whatever its result is."""

    continues: bool

    def first(self) -> Array:
        """Returns the scores of the first tokens, (batch, vocabulary)."""

    def next(self, tokens: Array, rows: Array, sequences: Array) -> Array:
        """Returns the scores of the tokens after `tokens`.

        Each of them continues one of the `rows` of the previous step. `sequences` end with `tokens`.
        """


class _Caches:
    """Runs a decoder with the caches of its previous run, `held`, in the order of a step's inputs.

    Caches alternate between two places: a run reads them from one and writes them to the other. If they have room for all
    tokens, and no step reads rows in another order (`ROWS`), they stay in place.

    A decoder that receives the beam in which each token of a cache was made has rows for all beams from the beginning.
    """

    def __init__(
        self, live: LiveBodies, memory: StepMemory, parameters: SearchParameters, captured: Mapping[str, DeviceTensor]
    ) -> None:
        body = live.steps[DECODER].body
        self._live, self._memory, self._parameters, self._captured = live, memory, parameters, captured
        self.held: Sequence[DeviceTensor] = ()
        self.room = parameters.max_length if body.extra else 0
        self.rows_per_prompt = parameters.beams if len(body.extra) == 3 else 1  # rows per prompt in `held`
        shape = (parameters.batch, parameters.beams, parameters.max_length)
        self._made_in = np.zeros(shape, np.int32)
        self._made_in += np.arange(parameters.beams, dtype=np.int32)[:, None]
        self._turn = 0

    def spread(self) -> bool:
        """Returns whether a prompt has more rows in the next run than in the previous one."""
        return self.rows_per_prompt != self._parameters.beams

    def rows_to_read(self, rows: Array, length: int) -> Array:
        """Returns the rows of `held` that the beams continue.

        `rows` are the same rows, numbered as if each beam had one. With one beam, a prompt keeps its own row, also after it has
        ended. Caches have `length` tokens.
        """
        batch, beams = self._parameters.batch, self._parameters.beams
        if beams == 1:
            return np.arange(batch, dtype=np.int32)
        if self.rows_per_prompt != beams:
            self.rows_per_prompt = beams
            return rows // beams
        before = np.take_along_axis(self._made_in, (rows % beams).reshape(batch, beams, 1), axis=1)
        self._made_in[:, :, :length] = before[:, :, :length]
        return rows

    def empty(self, leading: tuple[int, ...]) -> None:
        """Makes caches without tokens. `leading` has the extents before that of rows."""
        rows = self._parameters.batch * self.rows_per_prompt
        self.held = [
            self._memory.tensor(dtype, (*leading, rows, heads, self.room, size), "a cache")
            for dtype, heads, size in self._live.steps[DECODER].body.sizes
        ]

    def run(
        self, which: str, values: Mapping[str, Array], length: int, more: Mapping[str, DeviceTensor] | None = None
    ) -> Array:
        """Runs the body `which` and returns its scores.

        `values` and `more` are inputs, and may have some that the body does not have. Caches have `length` tokens.
        """
        step, memory = self._live.steps[which], self._memory
        extra = (np.array([length], np.int32), np.array([self._parameters.beams], np.int32), self._made_in)
        values = {**values, **dict(zip(step.body.extra, extra, strict=False))}
        uploaded = {name: memory.upload(value, name) for name, value in values.items() if name in step.inputs}
        given = {**self._captured, **(more or {}), **uploaded, **dict(zip(step.body.caches, self.held, strict=True))}
        self._turn = 1 - self._turn
        stay = dict(zip(step.body.made, self.held, strict=True)) if self.room and ROWS not in step.inputs else {}
        made, scores = step.run(self._live.groups[which], memory, given, self._turn, stay)
        self.held = [made[name] for name in step.body.made]
        assert scores is not None
        return scores


class Gpt:
    """A decoder without an encoder, which receives the positions of tokens and a mask.

    A padding token in a prompt has position 0, and is masked if the caller passes no mask.
    """

    continues = False

    def __init__(
        self, live: LiveBodies, memory: StepMemory, parameters: SearchParameters, captured: Mapping[str, DeviceTensor]
    ) -> None:
        self._caches, self._parameters = _Caches(live, memory, parameters, captured), parameters
        self._first = FIRST if FIRST in live.steps else DECODER
        prompt = parameters.prompt
        there = prompt != parameters.search.pad_token_id
        mask = there if parameters.attention_mask is None else parameters.attention_mask
        self._mask = mask.astype(np.int32)
        self._prompt_positions = np.where(there, np.cumsum(there, axis=1) - 1, 0).astype(np.int32)
        self._positions = there.sum(axis=1, dtype=np.int32)[:, None]

    def first(self) -> Array:
        self._caches.empty(leading=(2,))
        values = {
            "input_ids": self._parameters.prompt,
            "position_ids": self._prompt_positions,
            "attention_mask": self._mask,
            ROWS: np.arange(self._parameters.batch, dtype=np.int32),
        }
        return self._caches.run(self._first, values, 0)

    def next(self, tokens: Array, rows: Array, sequences: Array) -> Array:
        if self._caches.spread():
            beams = self._parameters.beams
            self._mask, self._positions = (np.repeat(it, beams, axis=0) for it in (self._mask, self._positions))
        length = self._mask.shape[1]
        self._mask = np.pad(self._mask, ((0, 0), (0, 1)), constant_values=1)
        values = {
            "input_ids": tokens[:, None],
            "position_ids": self._positions,
            "attention_mask": self._mask,
            ROWS: self._caches.rows_to_read(rows, length),
        }
        found = self._caches.run(DECODER, values, length)
        self._positions = self._positions + 1
        return found


class EncoderDecoder:
    """A decoder that reads the results of an encoder.

    The encoder also makes the first step of the decoder, if it has an input for the beginning of the sequences.
    """

    def __init__(
        self,
        live: LiveBodies,
        memory: StepMemory,
        parameters: SearchParameters,
        source: DeviceTensor,
        captured: Mapping[str, DeviceTensor],
    ) -> None:
        self._live, self._memory, self._parameters, self._captured = live, memory, parameters, captured
        self._source, self._caches = source, _Caches(live, memory, parameters, captured)
        self._is_repeated = False  # whether the results of the encoder have a row for each beam
        self._more: dict[str, DeviceTensor] = {}
        self.continues = bool(live.steps[ENCODER].body.vocabulary)

    def first(self) -> Array:
        encoder, decoder = self._live.steps[ENCODER], self._live.steps[DECODER]
        given = {**self._captured, "encoder_input_ids": self._source}
        mask = self._attention_mask()
        if mask is not None:
            given["encoder_attention_mask"] = self._more["encoder_attention_mask"] = self._memory.upload(mask, "a mask")
        if self.continues:
            given["decoder_input_ids"] = self._memory.upload(self._parameters.prompt, "decoder_input_ids")
        made, scores = encoder.run(self._live.groups[ENCODER], self._memory, given)
        found = [made[name] for name in encoder.body.made]
        if scores is not None:
            self._more["encoder_hidden_states"] = found[0]
            caches, found = found[1 : 1 + len(decoder.body.caches)], found[1 + len(decoder.body.caches) :]
            if room := self._caches.room:
                caches = [self._memory.with_room(it, self._caches.rows_per_prompt, room, "a cache") for it in caches]
            self._caches.held = caches
        self._more |= zip(decoder.body.fixed, found, strict=True)
        if scores is not None:
            return scores
        self._caches.empty(leading=())
        rows_per_prompt = self._caches.rows_per_prompt
        if rows_per_prompt > 1:
            self._repeat_per_beam()
        prompt = np.repeat(self._parameters.prompt, rows_per_prompt, axis=0)
        values = {"input_ids": prompt, ROWS: np.arange(len(prompt), dtype=np.int32)}
        return self._caches.run(DECODER, values, 0, self._more)[::rows_per_prompt]

    def next(self, tokens: Array, rows: Array, sequences: Array) -> Array:
        self._repeat_per_beam()
        length = sequences.shape[1] - 1
        ids = sequences if self._live.steps[DECODER].body.takes_sequences else tokens[:, None]
        values = {"input_ids": ids, ROWS: self._caches.rows_to_read(rows, length)}
        return self._caches.run(DECODER, values, length, self._more)

    def _repeat_per_beam(self) -> None:
        """Repeats the rows of the encoder's results, once for each beam."""
        if not self._is_repeated:
            self._is_repeated = True
            for name, tensor in self._more.items():
                if name in self._live.steps[DECODER].inputs:
                    self._more[name] = self._memory.spread(tensor, self._parameters.beams, f"{name} of every beam")

    def _attention_mask(self) -> Array | None:
        """Returns the mask for T5, None for other models. It masks only the padding before the first other id, by default."""
        if self._parameters.search.model != T5:
            return None
        if self._parameters.attention_mask is not None:
            return self._parameters.attention_mask.astype(np.int32)
        ids = self._source.value
        assert ids is not None
        return np.maximum.accumulate(ids != self._parameters.search.pad_token_id, axis=1).astype(np.int32)
