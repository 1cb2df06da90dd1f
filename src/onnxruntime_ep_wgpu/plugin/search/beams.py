"""Beam search: chooses which continuations of each prompt are kept, and which sequences are the result.

In: the scores of all next tokens, step by step. Out: tokens and the beams that they continue; at the end the best sequences.
Invariant: the choices are those of the CPU provider, in float32 and with the same order of equal scores. A beam is a row. The
beams of one prompt are consecutive rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .parameters import SearchParameters

Array = np.ndarray[Any, Any]
_NEVER_FIRST = np.float32(-1e9)  # total of the beams after the first, which are equal to it before the first token


class _Hypothesis(NamedTuple):
    score: np.float32
    tokens: Array


class _Hypotheses:
    """The best ended sequences of one prompt, best first; at most as many as there are beams."""

    def __init__(self, parameters: SearchParameters) -> None:
        self.done = False
        self._most, self._penalty = parameters.beams, np.float32(parameters.length_penalty)
        self.found: list[_Hypothesis] = []

    def add(self, tokens: Array, total: np.float32) -> None:
        """Adds a sequence with the sum of its scores, if there is room or it is better than the worst one."""
        score = self._score(total, len(tokens))
        if self.full:
            if not score > self.found[-1].score:
                return
            self.found.pop()
        place = len(self.found)
        while place > 0 and score > self.found[place - 1].score:
            place -= 1
        self.found.insert(place, _Hypothesis(score, tokens.copy()))

    @property
    def full(self) -> bool:
        return len(self.found) == self._most

    def can_improve(self, best: np.float32, length: int) -> bool:
        """Returns whether a sum of scores is better than the worst sequence here."""
        return bool(self.found[-1].score < self._score(best, length))

    def _score(self, total: np.float32, length: int) -> np.float32:
        return np.float32(total / np.power(np.float32(length), self._penalty))


class Beams:
    """The beams of one run."""

    def __init__(self, parameters: SearchParameters) -> None:
        self._parameters = parameters
        self._hypotheses = [_Hypotheses(parameters) for _ in range(parameters.batch)]
        self.totals = np.zeros((parameters.batch, parameters.beams), np.float32)
        self.totals[:, 1:] = _NEVER_FIRST

    @property
    def done(self) -> bool:
        """Whether no prompt has a beam that could become a result."""
        return all(it.done for it in self._hypotheses)

    def add(self, scores: Array) -> None:
        """Adds the totals of the beams to the scores of next tokens, (rows, vocabulary), in place."""
        with np.errstate(over="ignore"):
            scores += self.totals.reshape(-1, 1)

    def choose(self, scores: Array, sequences: Array) -> tuple[Array, Array]:
        """Returns the next token of each beam, and the row that it continues."""
        batch, beams, vocabulary = self._parameters.batch, self._parameters.beams, self._parameters.vocabulary
        flat = scores.reshape(batch, beams * vocabulary)
        best = np.stack([_largest(it, 2 * beams) for it in flat])
        totals = np.take_along_axis(flat, best, axis=1)
        tokens = np.full((batch, beams), self._parameters.search.pad_token_id, np.int32)
        rows = np.zeros((batch, beams), np.int32)
        for prompt, found in enumerate(self._hypotheses):
            if found.done:
                self.totals[prompt] = 0
                continue
            self._continue(prompt, best[prompt], totals[prompt], sequences, tokens[prompt], rows[prompt])
            # The CPU provider looks for the best total of a prompt at this offset.
            seen = totals.reshape(-1)[prompt * beams : prompt * beams + 2 * beams]
            if found.full and (
                self._parameters.search.early_stopping or not found.can_improve(seen.max(), sequences.shape[1])
            ):
                found.done = True
        return tokens.reshape(-1), rows.reshape(-1)

    def _continue(self, prompt: int, best: Array, totals: Array, sequences: Array, tokens: Array, rows: Array) -> None:
        """Ends sequences of a prompt, or gives its beams their next tokens, best first."""
        beams, vocabulary = self._parameters.beams, self._parameters.vocabulary
        kept = 0
        for rank, (place, total) in enumerate(zip(best.tolist(), totals, strict=True)):
            row, token = prompt * beams + place // vocabulary, place % vocabulary
            if token == self._parameters.search.eos_token_id:
                if rank < beams:
                    self._hypotheses[prompt].add(sequences[row], total)
                continue
            tokens[kept], rows[kept], self.totals[prompt, kept] = token, row, total
            kept += 1
            if kept == beams:
                return

    def results(self, sequences: Array) -> tuple[Array, Array]:
        """Returns the best sequences of each prompt, (batch, returned, max_length), and their scores.

        `sequences` are those of all beams.
        """
        parameters = self._parameters
        shape = (parameters.batch, parameters.returned)
        made = np.full((*shape, parameters.max_length), parameters.search.pad_token_id, np.int32)
        scores = np.zeros(shape, np.float32)
        for prompt, found in enumerate(self._hypotheses):
            for beam in range(0 if found.done else parameters.beams):
                found.add(sequences[prompt * parameters.beams + beam], self.totals[prompt, beam])
            for place, it in enumerate(found.found[: parameters.returned]):
                made[prompt, place, : len(it.tokens)], scores[prompt, place] = it.tokens, it.score
        return made, scores


def _largest(values: Array, count: int) -> Array:
    """Returns the indices of the largest values, largest first, and of equal values the first. NaN is smaller than all."""
    best = np.partition(values, -count)[-count:]
    if np.isnan(best).any():
        return _largest(np.where(np.isnan(values), -np.inf, values), count)
    least = best.min()
    above = np.flatnonzero(values > least)
    places = np.concatenate([above, np.flatnonzero(values == least)[: count - len(above)]])
    return places[np.argsort(-values[places], kind="stable")]
