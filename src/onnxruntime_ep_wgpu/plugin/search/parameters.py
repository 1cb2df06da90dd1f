"""The parameters of a run of a search: the operator's inputs, checked.

In: their values, by their names in the schema. Out: `SearchParameters`, or InputError with the name and value of the input.
Invariant: the checks accept what the CPU provider accepts, except ids that are not tokens, which that provider does not check.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import InputError
from ...records import dataclass
from .operators import GPT, WHISPER, Search

Array = np.ndarray[Any, Any]
LONGEST = 4096
MOST_BEAMS = 128


@dataclass(frozen=True)
class SearchParameters:
    """The parameters of one run.

    `prompt` is the beginning of the sequences, (batch, length). Masks are (vocabulary,) or (batch, vocabulary).
    """

    search: Search
    batch: int
    vocabulary: int
    prompt: Array
    attention_mask: Array | None
    max_length: int
    min_length: int
    beams: int
    returned: int  # sequences per prompt
    length_penalty: float
    repetition_penalty: float
    temperature: float
    vocab_mask: Array | None
    prefix_mask: Array | None
    presence_mask: Array | None
    has_timestamps: bool
    seed: int

    @property
    def length(self) -> int:
        """The number of ids in each prompt."""
        return int(self.prompt.shape[1])


def parameters_of(
    search: Search, values: Mapping[str, Array], shape: tuple[int, ...], vocabulary: int
) -> SearchParameters:
    """Checks the values of a run's inputs and returns them as parameters. Raises InputError.

    `shape` is the shape of input_ids, which are audio features for Whisper.
    """
    given = _Inputs(values, shape)
    rank = 3 if search.model == WHISPER else 2
    if len(shape) != rank:
        raise InputError(f"input_ids has the shape {list(shape)}; {search.operator} requires {rank} dimensions")
    batch = shape[0]
    if not all(shape):
        raise InputError(f"input_ids has the shape {list(shape)}: no extent may be 0")
    prompt = _prompt(search, given, batch, vocabulary)
    length = int(prompt.shape[1])
    most = given.integer("max_length", LONGEST)
    if not length < most <= LONGEST:
        raise InputError(
            f"max_length is {most}; it must be larger than {length}, the number of ids at the start of a sequence, and at most"
            f" {LONGEST}"
        )
    beams = given.integer("num_beams", 1)
    if not 1 <= beams <= MOST_BEAMS:
        raise InputError(f"num_beams is {beams}; it must be from 1 to {MOST_BEAMS}")
    if 2 * beams > beams * vocabulary:
        raise InputError(f"a vocabulary of {vocabulary} has too few tokens for {beams} beams")
    returned = given.integer("num_return_sequences", 1)
    if not 1 <= returned <= beams:
        raise InputError(f"num_return_sequences is {returned}; it must be from 1 to num_beams, which is {beams}")
    repetition = given.real("repetition_penalty", 1.0)
    if not repetition > 0:
        raise InputError(f"repetition_penalty is {repetition}; it must be larger than 0")
    seed = given.integer("seed", secrets.randbelow(2**31))
    if seed < 0:
        raise InputError(f"seed is {seed}; it must not be negative")
    mask = values.get("attention_mask") if search.model != WHISPER else None
    if mask is not None and mask.shape != shape:
        raise InputError(f"attention_mask has the shape {list(mask.shape)}; that of input_ids is {list(shape)}")
    return SearchParameters(
        search,
        batch=batch,
        vocabulary=vocabulary,
        prompt=prompt,
        attention_mask=mask,
        max_length=most,
        min_length=given.integer("min_length", 0),
        beams=beams,
        returned=returned,
        length_penalty=given.real("length_penalty", 1.0),
        repetition_penalty=repetition,
        temperature=given.real("temperature", search.temperature),
        vocab_mask=given.mask("vocab_mask", (vocabulary,)),
        prefix_mask=given.mask("prefix_vocab_mask", (batch, vocabulary)),
        presence_mask=given.mask("presence_mask", (batch, vocabulary)),
        has_timestamps=search.model == WHISPER and given.integer("logits_processor", 0) == 1,
        seed=seed,
    )


def _prompt(search: Search, given: _Inputs, batch: int, vocabulary: int) -> Array:
    if search.model == GPT:
        name, ids = "input_ids", given.values["input_ids"]
    elif search.model == WHISPER and "decoder_input_ids" in given.values:
        name, ids = "decoder_input_ids", given.values["decoder_input_ids"]
        if ids.ndim != 2 or len(ids) != batch or not ids.size:
            raise InputError(f"decoder_input_ids has the shape {list(ids.shape)}; it must be ({batch}, ids)")
    else:
        name, ids = "decoder_start_token_id", np.full((batch, 1), search.decoder_start_token_id, np.int32)
    wrong = ids[(ids < 0) | (ids >= vocabulary)]
    if wrong.size:
        raise InputError(f"{name} has the id {wrong[0]}; the {vocabulary} tokens have ids from 0 to {vocabulary - 1}")
    return ids.astype(np.int32)


class _Inputs:
    """Values of inputs by name, read as numbers and masks."""

    def __init__(self, values: Mapping[str, Array], shape: tuple[int, ...]) -> None:
        self.values, self._shape = values, shape

    def integer(self, name: str, default: int) -> int:
        return int(self._scalar(name, default))

    def real(self, name: str, default: float) -> float:
        return float(np.float32(self._scalar(name, default)))

    def _scalar(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        if value is None:
            return default
        if value.size != 1 or value.ndim > 1:
            raise InputError(f"{name} has the shape {list(value.shape)}; it must have one element")
        return value.reshape(-1)[0]

    def mask(self, name: str, shape: tuple[int, ...]) -> Array | None:
        value = self.values.get(name)
        if value is not None and value.shape != shape:
            raise InputError(f"{name} has the shape {list(value.shape)}; it must be {list(shape)}")
        return value
