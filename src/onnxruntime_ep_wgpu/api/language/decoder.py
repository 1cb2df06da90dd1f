"""A decoder model: its inputs and outputs, and its session.

The nodes of a model determine one of three kinds:

- KV caches from GroupQueryAttention are updated in place, in buffers with room for the longest sequence.
- Other models return caches that are one step longer.
- Some of these take positions and mask every attention. Their caches may begin with padding rows, and so keep one length for
  many steps. `mask_reach` detects this from the nodes, and `mask_trial` tests it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from ...errors import ModelError, cut
from ...options.types import ProviderOptions
from ..reports import state_of
from .kept_rows import keep_rows
from .last_row import names_read, of_last_row
from .mask_length import decides_by_length, only_gives_lengths
from .mask_reach import reaches_scores
from .memory import memory_of
from .model_file import read, session_of, understood
from .spare_caches import SpareCaches

_CACHE = re.compile(r"([0-9]+)\.(?:self\.|decoder\.)?(key|value)$")
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
_NUMBERS = {*onnx.helper.get_all_tensor_dtypes()} - {
    onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING, onnx.TensorProto.BOOL, onnx.TensorProto.COMPLEX64,
    onnx.TensorProto.COMPLEX128,
}  # fmt: skip
_MOST_IDS = 2**31
_MOST_ELEMENTS = 2**40  # of the cache of one sequence; the number of bytes of a batch must fit in 64 bits
IDS, MASK, POSITIONS, LOGITS = "input_ids", "attention_mask", "position_ids", "logits"


class Decoder:
    """A decoder model with its session.

    `rows` is the length of the longest sequence, prompt and answer together, at most `context`. `head_size` is the number of
    elements of a key or value, for models that give it a symbolic name."""

    def __init__(
        self, path: Path, rows: int, context: int, options: ProviderOptions, head_size: int | None = None
    ) -> None:
        self.rows, self.context = rows, context
        structure = read(path)
        with understood(path):
            self._prepare(path, structure, head_size)
        self.session = session_of(structure, path, options)
        state = state_of(self.session)
        self.binds_again = any(not it.on_webgpu for it in state.assignment.placements())
        self.memory = memory_of(self.session)
        self.spare_caches = SpareCaches(self.memory)
        self.library = state.library.name  # the WebGPU library

    def _prepare(self, path: Path, structure: onnx.ModelProto, head_size: int | None) -> None:
        """Reads what the model is, and changes it for text generation. Raises ModelError."""
        self.inputs = {it.name: it.type.tensor_type for it in structure.graph.input}
        outputs = [it.name for it in structure.graph.output]
        found = {key: name for name in outputs if (key := _cache_key(name)) is not None}
        self.caches = {name: found.get(key, "") for name in self.inputs if (key := _cache_key(name)) is not None}
        missing = [name for name in (IDS, MASK) if name not in self.inputs] + ([] if LOGITS in outputs else [LOGITS])
        missing += [name for name, present in self.caches.items() if not present]
        unknown = set(self.inputs) - {IDS, MASK, POSITIONS, *self.caches}
        if missing or unknown or not self.caches:
            problem = f"lacks {_named(missing)}" if missing else f"has the unknown inputs {_named(sorted(unknown))}"
            raise ModelError(
                f"{path} is not a decoder with caches: it {problem if self.caches else 'has no past_key_values'}"
            )
        if head_size is not None:
            _set_head_size(structure.graph, self.caches, head_size)
        self._check_caches(path, {it.name: it.type.tensor_type for it in structure.graph.output})
        makers = {name: node.op_type for node in structure.graph.node for name in node.output}
        self.in_place = all(makers.get(it) == "GroupQueryAttention" for it in self.caches.values())
        self.short_masks = self.in_place and only_gives_lengths(structure, MASK)
        self.exact_masks = self.in_place and not self.short_masks and decides_by_length(structure, MASK)
        logits = next(it for it in structure.graph.output if it.name == LOGITS).type.tensor_type
        self.kind: int = logits.elem_type
        if len(logits.shape.dim) != 3:
            raise ModelError(
                f"{path}: {LOGITS} has rank {len(logits.shape.dim)}; a decoder's are (batch, sequence, vocabulary)"
            )
        self.vocabulary: int = logits.shape.dim[2].dim_value
        if not 0 < self.vocabulary < _MOST_IDS:
            raise ModelError(
                f"{path} declares {self.vocabulary or 'no number of'} logits for each id: export the model with their number"
            )
        by_position = any(POSITIONS in names_read(it) for it in structure.graph.node)
        keys = [name for name in self.caches if name.endswith("key")]
        self.takes_rows = not self.in_place and by_position and reaches_scores(structure, MASK, keys)
        self.keeps_rows = self.takes_rows  # as far as the nodes show; `mask_trial` decides
        if self.takes_rows:
            keep_rows(structure, self.caches)
        of_last_row(structure, LOGITS)

    def _check_caches(self, path: Path, outputs: Mapping[str, Any]) -> None:
        """Raises ModelError for a cache that cannot be allocated. `outputs` maps names to types."""
        for name, present in self.caches.items():
            kind = self.inputs[name]
            extents, after = (
                [it.dim_value or it.dim_param or "?" for it in of.shape.dim] for of in (kind, outputs[present])
            )
            if len(extents) != 4 or not all(isinstance(it, int) and it > 0 for it in extents[1::2]):
                raise ModelError(
                    f"{path}: {cut(name)} has the shape {_shown(extents)}; a cache is (batch, heads, rows, size), and"
                    " heads and size are numbers: export the model with these, or give the size in its configuration (head_size"
                    " in genai_config.json, head_dim in config.json)"
                )
            if outputs[present].HasField("shape") and len(after) != 4:
                raise ModelError(
                    f"{path}: {cut(present)} has the shape {_shown(after)}; the cache is (batch, heads, rows, size):"
                    " export the model again"
                )
            if kind.elem_type not in _NUMBERS:
                raise ModelError(
                    f"{path}: {cut(name)} has the element type {kind.elem_type}; a cache has numbers: export the model again"
                )
            _, heads, _, size = (it.dim_value for it in kind.shape.dim)
            elements = heads * size * self.rows
            if elements > _MOST_ELEMENTS:
                raise ModelError(
                    f"{path}: {cut(name)} has {heads} heads of size {size}, which are {elements} elements for max_length="
                    f"{self.rows}: correct the sizes in the model or its configuration, or pass a smaller max_length"
                )

    @property
    def has_positions(self) -> bool:
        return POSITIONS in self.inputs


def _set_head_size(graph: onnx.GraphProto, caches: Mapping[str, str], size: int) -> None:
    """Sets the elements of a key or value where the caches' shapes have a name for it, as from onnxruntime-genai's builder.

    Quantised caches are not changed, as a byte may contain two elements."""
    names = {*caches, *caches.values()}
    for value in (*graph.input, *graph.output):
        kind = value.type.tensor_type
        dims = kind.shape.dim
        if value.name in names and kind.elem_type in _FLOATS and len(dims) == 4 and not dims[3].dim_value:
            dims[3].Clear()
            dims[3].dim_value = size


def _named(names: Sequence[str]) -> str:
    return ", ".join(map(cut, names))


def _shown(extents: Sequence[object]) -> str:
    return f"({', '.join(map(str, extents))})"


def _cache_key(name: str) -> tuple[str, str] | None:
    """Returns the cache of an input or output: the layer's number, and "key" or "value"; None for other names."""
    found = _CACHE.search(name)
    return (found[1], found[2]) if found and name.startswith(("past", "present")) else None
