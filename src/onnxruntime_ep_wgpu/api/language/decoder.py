"""A decoder model: what its inputs and outputs are, and a session of it.

Three kinds of models are distinguished by their nodes. Those whose caches are made by GroupQueryAttention update them in place, in
buffers with room for the longest sequence. The others return caches that are one step longer. Where these take positions,
and leave out of every attention what their mask says, caches may begin with rows that mean nothing, and so have one length for
many steps: `mask_reach` looks for it in the nodes, and `mask_trial` tries it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import onnx

from ...errors import ModelError
from ...options.types import ProviderOptions
from ..reports import state_of
from .kept_rows import keep_rows
from .last_row import names_read, of_last_row
from .mask_reach import reaches_scores
from .memory import memory_of
from .model_file import read, session_of

_CACHE = re.compile(r"(\d+)\.(?:self\.|decoder\.)?(key|value)$")
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
IDS, MASK, POSITIONS, LOGITS = "input_ids", "attention_mask", "position_ids", "logits"


class Decoder:
    """One model. `rows` is the length of the longest sequence, prompt and answer together, of at most `context`; `head_size` the
    elements of a key or value, for models that give it a name."""

    def __init__(
        self, path: Path, rows: int, context: int, options: ProviderOptions, head_size: int | None = None
    ) -> None:
        structure = read(path)
        self.rows, self.context = rows, context
        self.inputs = {it.name: it.type.tensor_type for it in structure.graph.input}
        outputs = [it.name for it in structure.graph.output]
        found = {key: name for name in outputs if (key := _cache_key(name)) is not None}
        self.caches = {name: found.get(key, "") for name in self.inputs if (key := _cache_key(name)) is not None}
        missing = [name for name in (IDS, MASK) if name not in self.inputs] + ([] if LOGITS in outputs else [LOGITS])
        missing += [name for name, present in self.caches.items() if not present]
        unknown = set(self.inputs) - {IDS, MASK, POSITIONS, *self.caches}
        if missing or unknown or not self.caches:
            problem = f"lacks {', '.join(missing)}" if missing else f"has inputs {', '.join(sorted(unknown))} besides"
            raise ModelError(
                f"{path} is no decoder with caches: it {problem if self.caches else 'has no past_key_values'}"
            )
        if head_size is not None:
            _give_size(structure.graph, self.caches, head_size)
        for name in self.caches:
            extents = [it.dim_value or it.dim_param or "?" for it in self.inputs[name].shape.dim]
            if len(extents) != 4 or not all(isinstance(it, int) for it in extents[1::2]):
                raise ModelError(
                    f"{path}: {name} has the shape ({', '.join(map(str, extents))}); a cache is (batch, heads, rows, size), and"
                    " heads and size are numbers: export the model with these, or give the size in its configuration (head_size"
                    " in genai_config.json, head_dim in config.json)"
                )
        makers = {name: node.op_type for node in structure.graph.node for name in node.output}
        self.in_place = all(makers.get(it) == "GroupQueryAttention" for it in self.caches.values())
        logits = next(it for it in structure.graph.output if it.name == LOGITS).type.tensor_type
        self.kind: int = logits.elem_type
        if len(logits.shape.dim) != 3:
            raise ModelError(
                f"{path}: {LOGITS} has rank {len(logits.shape.dim)}; a decoder's are (batch, sequence, vocabulary)"
            )
        self.vocabulary: int = logits.shape.dim[2].dim_value
        if not self.vocabulary:
            raise ModelError(f"{path} does not say how many logits there are")
        by_position = any(POSITIONS in names_read(it) for it in structure.graph.node)
        keys = [name for name in self.caches if name.endswith("key")]
        self.takes_rows = not self.in_place and by_position and reaches_scores(structure, MASK, keys)
        self.keeps_rows = self.takes_rows  # as far as its nodes show
        if self.takes_rows:
            keep_rows(structure, self.caches)
        of_last_row(structure, LOGITS)
        self.session = session_of(structure, path, options)
        self.memory = memory_of(options)
        self.library = state_of(self.session).library.name  # the WebGPU library

    @property
    def has_positions(self) -> bool:
        return POSITIONS in self.inputs


def _give_size(graph: onnx.GraphProto, caches: Mapping[str, str], size: int) -> None:
    """Says how many elements a key or value has where the shapes of caches have a name for it, as those of onnxruntime-genai's
    builder do. Bytes of quantised caches may hold two each, so these are as they are."""
    names = {*caches, *caches.values()}
    for value in (*graph.input, *graph.output):
        kind = value.type.tensor_type
        dims = kind.shape.dim
        if value.name in names and kind.elem_type in _FLOATS and len(dims) == 4 and not dims[3].dim_value:
            dims[3].Clear()
            dims[3].dim_value = size


def _cache_key(name: str) -> tuple[int, str] | None:
    """Which cache an input or output is: the number of its layer, and key or value."""
    found = _CACHE.search(name)
    return (int(found[1]), found[2]) if found and name.startswith(("past", "present")) else None
