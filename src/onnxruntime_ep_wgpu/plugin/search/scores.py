"""Changes the scores of the next tokens before one is chosen: penalties and masks.

In: scores (rows, vocabulary) and the sequences so far. Out: the scores, changed in place. Invariant: the changes are those of
the CPU provider, in its order and in float32. A forbidden token has the lowest finite score, not minus infinity.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .parameters import SearchParameters

Array = np.ndarray[Any, Any]
LOWEST = np.finfo(np.float32).min
_LAST_INITIAL_TIMESTAMP = 50


def apply_penalties(scores: Array, sequences: Array, parameters: SearchParameters, step: int) -> None:
    """Makes all changes. `sequences` is (rows, length); `step` counts from 1."""
    search, rows = parameters.search, len(scores)
    if parameters.repetition_penalty != 1.0:
        _penalise_repetitions(scores, sequences, np.float32(parameters.repetition_penalty))
    if search.no_repeat_ngram_size > 0:
        _forbid_ngrams(scores, sequences, search.no_repeat_ngram_size)
    if parameters.vocab_mask is not None:
        scores[:, parameters.vocab_mask == 0] = LOWEST
    if parameters.prefix_mask is not None and step == 1:
        scores[np.repeat(parameters.prefix_mask == 0, rows // parameters.batch, axis=0)] = LOWEST
    if parameters.min_length > sequences.shape[1] and 0 <= search.eos_token_id < scores.shape[1]:
        scores[:, search.eos_token_id] = LOWEST
    if parameters.temperature > 0 and parameters.temperature != 1.0:
        scores /= np.float32(parameters.temperature)
    if parameters.presence_mask is not None and search.presence_penalty:
        scores -= parameters.presence_mask.astype(np.float32) * np.float32(search.presence_penalty)
    if parameters.has_timestamps:
        for row, sequence in zip(scores, sequences, strict=True):
            _keep_timestamps_in_order(row, sequence, parameters)


def _penalise_repetitions(scores: Array, sequences: Array, penalty: np.float32) -> None:
    """Changes the scores of tokens in the sequence: multiplies negative ones by the penalty, divides the others by it."""
    there = np.take_along_axis(scores, sequences, axis=1)
    np.put_along_axis(scores, sequences, np.where(there < 0, there * penalty, there / penalty), axis=1)


def _forbid_ngrams(scores: Array, sequences: Array, size: int) -> None:
    """Forbids tokens that would complete `size` consecutive tokens that the sequence already has."""
    if size > sequences.shape[1]:
        return
    windows = np.lib.stride_tricks.sliding_window_view(sequences, size, axis=1)  # (rows, places, size)
    prefix = sequences[:, sequences.shape[1] - (size - 1) :]
    row, place = np.nonzero((windows[:, :, :-1] == prefix[:, None, :]).all(axis=2))
    scores[row, windows[row, place, -1]] = LOWEST


def _keep_timestamps_in_order(scores: Array, sequence: Array, parameters: SearchParameters) -> None:
    """Makes timestamps of Whisper come in pairs and never decrease. `scores` are those of one sequence."""
    search, count = parameters.search, len(scores)
    first = search.beginning_timestamp_token_id
    stamps = sequence >= first
    begins = int(np.argmax(stamps)) + 1 if stamps.any() else len(sequence)
    forbidden = [search.no_timestamps_token_id, search.start_of_lm_token_id]
    if len(sequence) > begins:
        forbidden += [search.decoder_start_token_id, search.translate_token_id, search.transcribe_token_id]
    scores[[it for it in forbidden if 0 <= it < count]] = LOWEST
    last = bool(stamps[-1])
    pair = len(sequence) <= begins or bool(stamps[-2])
    if last and pair:
        scores[first:] = LOWEST
    elif last:
        scores[: search.eos_token_id] = LOWEST
    if stamps.any():
        latest = int(sequence[stamps][-1])
        scores[first : latest if last and not pair else latest + 1] = LOWEST
    if len(sequence) == begins:
        scores[first + _LAST_INITIAL_TIMESTAMP + 1 :] = LOWEST
    times = scores[first:]
    highest = times.max()
    total = np.exp(times[times > LOWEST] - highest).sum(dtype=np.float32)
    if total > 0 and np.log(total) + highest > scores[:first].max():
        scores[:first] = LOWEST
