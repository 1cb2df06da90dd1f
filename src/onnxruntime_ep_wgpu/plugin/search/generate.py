"""The loop of a search: runs the decoder, changes its scores and chooses tokens, until all sequences end or are long enough.

In: a decoder and the parameters of a run. Out: the operator's outputs by name. Invariant: the steps, and the conditions that
end them, are those of the CPU provider.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from . import scores as changes
from .beams import Beams
from .sampling import RandomNumbers, sample

if TYPE_CHECKING:
    from .decoders import CachedDecoder
    from .parameters import SearchParameters

Array = np.ndarray[Any, Any]


def generate(decoder: CachedDecoder, parameters: SearchParameters) -> dict[str, Array]:
    """Returns the outputs of the operator by their names in the schema."""
    with np.errstate(over="ignore", invalid="ignore"):  # for forbidden tokens
        return (_beams if parameters.search.has_beams else _greedy)(decoder, parameters)


def interrupted_outputs(parameters: SearchParameters) -> dict[str, Array]:
    """Returns the outputs of a search that was interrupted."""
    search, batch = parameters.search, parameters.batch
    leading = (batch, parameters.returned) if search.has_beams else (batch,)
    steps = parameters.max_length - parameters.length
    return {
        "sequences": np.full((*leading, parameters.max_length), search.pad_token_id, np.int32),
        "sequences_scores": np.zeros(leading, np.float32),
        "scores": np.zeros((steps, batch, parameters.beams, parameters.vocabulary), np.float32),
    }


def _beams(decoder: CachedDecoder, parameters: SearchParameters) -> dict[str, Array]:
    batch, beams, length = parameters.batch, parameters.beams, parameters.length
    found = Beams(parameters)
    sequences = np.repeat(parameters.prompt, beams, axis=0)
    kept: list[Array] = []
    scores = np.repeat(decoder.first(), beams, axis=0)
    for step in count(1):
        changes.apply_penalties(scores, sequences, parameters, step)
        found.add(scores)
        if "scores" in parameters.search.outputs:
            kept.append(scores.copy())
        tokens, rows = found.choose(scores, sequences)
        sequences = np.concatenate([sequences[rows], tokens[:, None]], axis=1)
        if found.done and not (step == 1 and decoder.continues):
            break
        if sequences.shape[1] >= parameters.max_length:
            break
        scores = decoder.next(tokens, rows, sequences)
    made, made_scores = found.results(sequences)
    results = {"sequences": made, "sequences_scores": made_scores}
    if kept:
        shape = (parameters.max_length - length, batch, beams, parameters.vocabulary)
        results["scores"] = np.zeros(shape, np.float32)  # for steps that were not needed
        results["scores"][: len(kept)] = np.reshape(kept, (len(kept), *shape[1:]))
    return results


def _greedy(decoder: CachedDecoder, parameters: SearchParameters) -> dict[str, Array]:
    search, chance = parameters.search, RandomNumbers(parameters.seed)
    sequences, ended = parameters.prompt, np.zeros(parameters.batch, bool)
    rows = np.arange(parameters.batch, dtype=np.int32)
    scores = decoder.first()
    for step in count(1):
        changes.apply_penalties(scores, sequences, parameters, step)
        tokens = sample(scores, parameters, chance) if search.samples else np.argmax(scores, axis=1).astype(np.int32)
        ended |= tokens == search.eos_token_id
        tokens[ended] = search.pad_token_id
        sequences = np.concatenate([sequences, tokens[:, None]], axis=1)
        if ended.all() or sequences.shape[1] >= parameters.max_length:
            break
        scores = decoder.next(tokens, rows, sequences)
    made = np.full((parameters.batch, parameters.max_length), search.pad_token_id, np.int32)
    made[:, : sequences.shape[1]] = sequences
    return {"sequences": made}
