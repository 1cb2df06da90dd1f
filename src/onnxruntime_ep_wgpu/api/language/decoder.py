"""A decoder model on its caches: ids in, logits of the last one out, keys and values stay on the device.

Two kinds of models are told apart by their nodes. Those whose caches are made by GroupQueryAttention update them in place, in
buffers with room for the longest sequence; the mask has that length from the beginning, so every step has the same shapes.
The others return caches that are one step longer.

Invariant: what lies in a cache is known as a number of rows, which is changed after a step has run. So an interrupt leaves
a state that can be used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ...errors import InputError, LimitError, ModelError
from ...options.types import ProviderOptions
from .last_row import of_last_row
from .memory import DEVICE, memory_of
from .model_file import read, session_of

_CACHE = re.compile(r"(\d+)\.(?:self\.|decoder\.)?(key|value)$")
_IDS, _MASK, _POSITIONS, _LOGITS = "input_ids", "attention_mask", "position_ids", "logits"


class Decoder:
    """One model. `rows` is the length of the longest sequence, prompt and answer together."""

    def __init__(self, path: Path, rows: int, options: ProviderOptions) -> None:
        structure = read(path)
        self.rows = rows
        self.inputs = {it.name: it.type.tensor_type for it in structure.graph.input}
        outputs = [it.name for it in structure.graph.output]
        found = {key: name for name in outputs if (key := _cache_key(name)) is not None}
        self.caches = {name: found.get(key, "") for name in self.inputs if (key := _cache_key(name)) is not None}
        missing = [name for name in (_IDS, _MASK) if name not in self.inputs] + (
            [] if _LOGITS in outputs else [_LOGITS]
        )
        missing += [name for name, present in self.caches.items() if not present]
        unknown = set(self.inputs) - {_IDS, _MASK, _POSITIONS, *self.caches}
        if missing or unknown or not self.caches:
            problem = f"lacks {', '.join(missing)}" if missing else f"has inputs {', '.join(sorted(unknown))} besides"
            raise ModelError(
                f"{path} is no decoder with caches: it {problem if self.caches else 'has no past_key_values'}"
            )
        makers = {name: node.op_type for node in structure.graph.node for name in node.output}
        self.in_place = all(makers.get(it) == "GroupQueryAttention" for it in self.caches.values())
        logits = next(it for it in structure.graph.output if it.name == _LOGITS).type.tensor_type
        self.kind: int = logits.elem_type
        if len(logits.shape.dim) != 3:
            raise ModelError(
                f"{path}: {_LOGITS} has rank {len(logits.shape.dim)}; a decoder's are (batch, sequence, vocabulary)"
            )
        self.vocabulary: int = logits.shape.dim[2].dim_value
        if not self.vocabulary:
            raise ModelError(f"{path} does not say how many logits there are")
        of_last_row(structure, _LOGITS)
        self.session = session_of(structure, path, options)
        self.memory = memory_of(options)

    @property
    def has_positions(self) -> bool:
        return _POSITIONS in self.inputs


class State:
    """The caches of `batch` sequences of a decoder. `used` counts the rows of each that mean something."""

    def __init__(self, decoder: Decoder, batch: int) -> None:
        self.decoder, self.batch = decoder, batch
        self.used = np.zeros(batch, np.int64)
        self._caches = {name: self._cache(name, decoder.rows if decoder.in_place else 0) for name in decoder.caches}
        self._padding = np.zeros(batch, np.int64)  # before each sequence, where caches grow
        self._step: tuple[Any, Any, Any] | None = None  # what a step reads, its binding, and the logits

    def _cache(self, name: str, rows: int) -> Any:
        kind = self.decoder.inputs[name]
        dims = [it.dim_value for it in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        return self.decoder.memory.empty([self.batch, dims[1], rows, dims[3]], dtype)

    def rewind(self, used: int) -> None:
        """Forgets what comes after so many rows; only for caches in place."""
        self.used = np.minimum(self.used, used)

    def prompt(self, ids: Sequence[Sequence[int]], chunk: int) -> Any:
        """Runs prompts behind what the caches have; logits of the last id of each, (batch, 1, vocabulary) on the device.

        A single sequence is run in chunks. Several of different lengths are padded, where caches have room behind, and where
        they grow before, and must be the first of their caches. Raises InputError and LimitError.
        """
        longest = self._check(ids)
        if self.batch == 1:
            tokens = np.array([ids[0]], np.int64)
            for start in range(0, longest, chunk):
                part = tokens[:, start : start + chunk]
                logits = self._run(part, np.array([part.shape[1]]))
            return logits
        lengths = np.array([len(it) for it in ids])
        tokens = np.zeros((self.batch, longest), np.int64)
        if not self.decoder.in_place:
            self._padding = longest - lengths
            for row, it in zip(tokens, ids, strict=True):
                row[longest - len(it) :] = it
            return self._run(tokens, lengths)
        for row, it in zip(tokens, ids, strict=True):
            row[: len(it)] = it
        if (lengths == longest).all():
            return self._run(tokens, lengths)
        # The last ids are not in one row, and so run once more, together, in the rows of the caches that they have already.
        self._run(tokens[:, :-1], np.minimum(lengths, longest - 1))
        self.used = lengths - 1
        return self._run(tokens[np.arange(self.batch), lengths - 1][:, None], np.ones(self.batch, np.int64))

    def _check(self, ids: Sequence[Sequence[int]]) -> int:
        """The length of the longest prompt, when they are what can be run."""
        if not ids or not all(ids):
            raise InputError("a prompt is empty: pass at least one id, or text that has one")
        for row, it in enumerate(ids):
            wrong = next((n for n in it if not 0 <= n < self.decoder.vocabulary), None)
            if wrong is not None:
                raise InputError(
                    f"prompt {row} has the id {wrong}; the model has those from 0 to {self.decoder.vocabulary - 1}: does the"
                    " tokenizer belong to it?"
                )
        longest = max(map(len, ids))
        if int(self.used.max()) + longest > self.decoder.rows:
            raise LimitError(
                f"{int(self.used.max())} ids in the caches and {longest} of the prompt are more than the"
                f" {self.decoder.rows} that the caches have room for: pass a larger max_length, or a shorter prompt"
            )
        if len({len(it) for it in ids}) > 1 and self.used.any():
            raise InputError("prompts of different lengths can only begin their sequences")
        return longest

    @property
    def _rows(self) -> int:
        """Of growing caches: as many for each sequence, with the padding before it."""
        return int((self.used + self._padding).max()) if self.used.any() else 0

    def _run(self, tokens: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> Any:
        steps = tokens.shape[1]
        after = self.used + lengths
        if self.decoder.in_place:
            mask = (np.arange(self.decoder.rows)[None] < after[:, None]).astype(np.int64)
            positions = self.used[:, None] + np.arange(steps)
        else:
            total = self._rows + steps
            mask = (np.arange(total)[None] >= self._padding[:, None]).astype(np.int64)
            positions = np.maximum(np.arange(total - steps, total)[None] - self._padding[:, None], 0)
        logits = self.run(
            self.decoder.memory.put(tokens), self.decoder.memory.put(mask), self.decoder.memory.put(positions)
        )
        self.used = after
        return logits

    def step(self, ids: Any, positions: Any, mask: Any) -> Any:
        """Logits of one more id of each sequence, (batch, 1) on the device, like `positions` and `mask`, which are the same
        objects in every step: then a step of caches in place binds nothing."""
        if int(self.used.max()) >= self.decoder.rows:
            raise LimitError(f"the caches have room for {self.decoder.rows} ids: pass a larger max_length")
        if not self.decoder.in_place:
            total = self._rows + 1
            mask = self.decoder.memory.put((np.arange(total)[None] >= self._padding[:, None]).astype(np.int64))
            logits = self.run(ids, mask, positions)
        else:
            place, known = (ids, mask, positions), self._step
            if known is None or any(a is not b for a, b in zip(place, known[0], strict=True)):
                shape = [self.batch, 1, self.decoder.vocabulary]
                dtype = onnx.helper.tensor_dtype_to_np_dtype(self.decoder.kind)
                result = self.decoder.memory.empty(shape, dtype)
                known = self._step = place, self._bound(ids, mask, positions, result), result
            _, binding, logits = known
            self.decoder.session.run_with_iobinding(binding)
        self.used = self.used + 1
        return logits

    def run(self, ids: Any, mask: Any, positions: Any) -> Any:
        """Logits of the last of any number of ids of each sequence."""
        binding = self._bound(ids, mask, positions, None)
        self.decoder.session.run_with_iobinding(binding)
        logits, *presents = binding.get_outputs()
        if not self.decoder.in_place:
            self._caches = dict(zip(self._caches, presents, strict=True))
        return logits

    def _bound(self, ids: Any, mask: Any, positions: Any, logits: Any) -> Any:
        decoder = self.decoder
        binding = decoder.session.io_binding()
        binding.bind_ortvalue_input(_IDS, ids)
        binding.bind_ortvalue_input(_MASK, mask)
        if decoder.has_positions:
            binding.bind_ortvalue_input(_POSITIONS, positions)
        if logits is None:
            binding.bind_output(_LOGITS, DEVICE, decoder.memory.number)
        else:
            binding.bind_ortvalue_output(_LOGITS, logits)
        for name, present in decoder.caches.items():
            binding.bind_ortvalue_input(name, self._caches[name])
            if decoder.in_place:
                binding.bind_ortvalue_output(present, self._caches[name])
            else:
                binding.bind_output(present, DEVICE, decoder.memory.number)
        return binding


def _cache_key(name: str) -> tuple[int, str] | None:
    """Which cache an input or output is: the number of its layer, and key or value."""
    found = _CACHE.search(name)
    return (int(found[1]), found[2]) if found and name.startswith(("past", "present")) else None
