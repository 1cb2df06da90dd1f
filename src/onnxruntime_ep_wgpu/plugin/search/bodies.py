"""The bodies of a search as graphs to compile: the role of each input and output.

In: the graphs that ONNX Runtime shows as a node's bodies. Out: a `SearchBody` each, or UnsupportedError with the difference.
The compiler is not needed for that. Only `cut_rows` uses it, to calculate what only the last row needs for that row alone.

Two operations are added to a graph. If the search did them around the graph, it would have to store their results:

* A step of a decoder reads the rows of its caches in the order of an input, `ROWS`. A beam that continues another one reads that
  one's row. All beams of a prompt read the one row that the first step made. A row is copied once, when the longer cache is
  stored.
* Of the logits, only those of the last token are returned, as float32. For beams they are logarithms of probabilities.

Invariant: the graph is changed, so nothing else may read it. Equal graphs stay equal.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...errors import UnsupportedError
from ...program.dtypes import DType
from ...records import dataclass
from ..assign.editing import constant, drop_unread_inputs, node_of, replace_reads
from ..assign.inferred import made_by
from ..assign.shown import Extent, ShownAttribute, ShownGraph, ShownValue
from .operators import GPT, T5, WHISPER, Search

if TYPE_CHECKING:
    import onnx_ir as ir

ROWS = "search/rows"
SCORES = "search/scores"
LAST_ROW = "search/last_row"
DECODER, FIRST, ENCODER = "decoder", "init_decoder", "encoder"
_AXES = {GPT: 1, T5: 0, WHISPER: 0}  # the axis of rows in caches
_FLOATS = (DType.FLOAT32.code, DType.FLOAT16.code)
_ROW_AXIS, _LAST = 1, -1  # the axis of tokens and the last token, in logits (rows, tokens, vocabulary)


@dataclass(frozen=True)
class SearchBody:
    """One body: the names of its inputs and outputs, by role.

    - `inputs` are all inputs that the graph declares, in order. `captured` are inputs from the surrounding graph.
    - `caches` are the inputs with the results of earlier steps, and `made` are the caches that the body makes.
    - `fixed` are caches of an encoder, which all steps read.
    - `vocabulary` is the number of scores, 0 if the body makes none.
    - `sizes` has the type, heads and head size of each cache; an extent that the graph does not state is 0.
    - `extra` are inputs of a decoder with caches that have room for all tokens and are changed in place. They are the number of
      tokens so far, the number of beams, and the beam in which each token was made.
    - `shown` has the names that nodes make in the graph before it is changed.
    """

    attribute: str
    inputs: tuple[str, ...]
    caches: tuple[str, ...]
    fixed: tuple[str, ...]
    made: tuple[str, ...]
    captured: tuple[str, ...]
    vocabulary: int
    sizes: tuple[tuple[DType, int, int], ...] = ()
    extra: tuple[str, ...] = ()
    shown: frozenset[str] = frozenset()
    takes_sequences: bool = False  # ids are those of the whole sequence, and not only the last one


def bodies_of(search: Search, graphs: Mapping[str, ShownGraph], outside: Collection[str]) -> dict[str, SearchBody]:
    """Returns the bodies of a node by attribute, and changes their graphs. Raises UnsupportedError.

    `outside` has the names of values that bodies take from the surrounding graph.
    """
    needed = [DECODER] if search.model == GPT else [ENCODER, DECODER]
    for name in needed:
        if name not in graphs:
            raise UnsupportedError(f"{search.operator} without the attribute {name}")
    wanted = [*needed, *([FIRST] if search.model == GPT and FIRST in graphs else [])]
    made = {}
    for name in wanted:
        graph = graphs[name]
        read = _encoder if name == ENCODER else _gpt if search.model == GPT else _decoder
        shown = made_by(graph)
        try:
            body = read(search, name, graph, [it for it in graph.inputs if it.name not in outside])
        except UnsupportedError as error:
            raise UnsupportedError(f"its {name}: {error}") from error
        made[name] = replace(body, shown=shown)
    if len({bool(it.extra) for name, it in made.items() if name != ENCODER}) > 1:
        raise UnsupportedError("its decoders differ in how they keep their caches")
    if search.model != GPT:
        _check_pair(made[ENCODER], made[DECODER])
    return made


def _gpt(search: Search, name: str, graph: ShownGraph, inputs: list[ShownValue]) -> SearchBody:
    outputs = list(graph.outputs)
    _expect("input", inputs, "input_ids", "position_ids", "attention_mask")
    _expect("output", outputs, "logits")
    presents = outputs[1:]
    pasts, extra = inputs[3 : 3 + len(presents)], inputs[3 + len(presents) :]
    _check_caches(pasts, presents, rank=5)
    body = _step(search, name, graph, inputs, pasts, [], presents, extra)
    _check_sizes(body)
    return body


def _decoder(search: Search, name: str, graph: ShownGraph, inputs: list[ShownValue]) -> SearchBody:
    first = ["input_ids"] if search.model == WHISPER else ["input_ids", "encoder_attention_mask"]
    _expect("input", inputs, *first)
    _expect("output", list(graph.outputs), "logits")
    at = len(first)
    if len(inputs) > at and inputs[at].name == "encoder_hidden_states":
        at += 1
    presents = list(graph.outputs[1:])
    count = len(presents)
    pasts, fixed, extra = inputs[at : at + count], inputs[at + count : at + 2 * count], inputs[at + 2 * count :]
    _check_caches(pasts, presents, rank=4)
    if len(fixed) != len(presents):
        raise UnsupportedError(f"it has {len(pasts)} caches of its own and {len(fixed)} of the encoder")
    extents = inputs[0].shape
    body = _step(search, name, graph, inputs, pasts, fixed, presents, extra)
    whole = extents is None or len(extents) != 2 or extents[1] != 1
    return replace(body, takes_sequences=whole)


def _encoder(search: Search, name: str, graph: ShownGraph, inputs: list[ShownValue]) -> SearchBody:
    ids = ["encoder_input_ids"] if search.model == WHISPER else ["encoder_input_ids", "encoder_attention_mask"]
    _expect("input", inputs, *ids)
    outputs = list(graph.outputs)
    declared = tuple(it.name for it in inputs)
    if len(inputs) == len(ids) and search.model == T5:  # the decoder makes the first step
        return _whole(name, graph, declared, made=outputs, vocabulary=0)
    _expect("input", inputs, *ids, "decoder_input_ids", only=True)
    _expect("output", outputs, "logits", "encoder_hidden_states")
    vocabulary = _score_last_row(graph, search)
    return _whole(name, graph, declared, made=outputs[1:], vocabulary=vocabulary)


def _whole(
    name: str, graph: ShownGraph, declared: tuple[str, ...], made: Sequence[ShownValue], vocabulary: int
) -> SearchBody:
    captured = _only_used(graph, declared)
    return SearchBody(name, declared, (), (), tuple(it.name for it in made), captured, vocabulary)


def _step(
    search: Search,
    name: str,
    graph: ShownGraph,
    inputs: Sequence[ShownValue],
    pasts: Sequence[ShownValue],
    fixed: Sequence[ShownValue],
    presents: Sequence[ShownValue],
    extra: Sequence[ShownValue],
) -> SearchBody:
    declared = tuple(it.name for it in inputs)
    if len(extra) not in (0, 1, 3) or any(it.code != DType.INT32.code for it in extra):
        raise UnsupportedError(f"its inputs {', '.join(str(it.name) for it in extra)} are not supported")
    vocabulary = _score_last_row(graph, search)
    if search.has_beams and len(extra) < 3:
        _choose_rows(graph, pasts, _AXES[search.model])
        declared += (ROWS,)
    captured = _only_used(graph, declared)
    caches, others, made = (tuple(it.name for it in them) for them in (pasts, fixed, presents))
    sizes = tuple(_size(*them) for them in zip(pasts, presents, strict=True))
    return SearchBody(name, declared, caches, others, made, captured, vocabulary, sizes, tuple(it.name for it in extra))


def _size(past: ShownValue, present: ShownValue) -> tuple[DType, int, int]:
    """Returns type, heads and head size of a cache. Its last axes are heads, tokens and elements."""
    assert past.code is not None and past.shape is not None and present.shape is not None
    extents = [
        next((it for it in both if isinstance(it, int)), 0) for both in zip(past.shape, present.shape, strict=True)
    ]
    return DType.of(past.code), extents[-3], extents[-1]


def _expect(what: str, values: Sequence[ShownValue], *names: str, only: bool = False) -> None:
    found = [value.name for value in values]
    if found[: len(names)] != list(names) or (only and len(found) > len(names)):
        raise UnsupportedError(f"its {what}s are {', '.join(map(str, found))} and do not begin with {', '.join(names)}")


def _check_caches(pasts: Sequence[ShownValue], presents: Sequence[ShownValue], rank: int) -> None:
    if not presents or len(pasts) < len(presents):
        raise UnsupportedError(f"it has {len(pasts)} inputs and {len(presents)} outputs for its caches")
    for value in (*pasts[: len(presents)], *presents):
        if value.code not in _FLOATS or value.shape is None or len(value.shape) != rank:
            raise UnsupportedError(f"{value.name} is {_described(value)}, not a cache of rank {rank}")


def _check_sizes(body: SearchBody) -> None:
    for name, (_, heads, size) in zip(body.caches, body.sizes, strict=True):
        if not heads or not size:
            raise UnsupportedError(f"heads and size of the cache {name} must be constant")


def _check_pair(encoder: SearchBody, decoder: SearchBody) -> None:
    """Raises UnsupportedError unless the encoder makes what a step of the decoder reads."""
    hidden = 1 if encoder.vocabulary else 0
    wanted = len(decoder.fixed) + (len(decoder.caches) if encoder.vocabulary else 0)
    if len(encoder.made) - hidden != wanted:
        raise UnsupportedError(
            f"its encoder returns {len(encoder.made) - hidden} caches, its decoder requires {wanted}"
        )
    if not encoder.vocabulary or decoder.extra:
        _check_sizes(decoder)
    if "encoder_hidden_states" in decoder.inputs and not hidden:
        raise UnsupportedError("its decoder reads encoder_hidden_states, which its encoder does not return")


def _score_last_row(graph: ShownGraph, search: Search) -> int:
    """Replaces the logits by the scores of the last token. Returns how many there are. Raises UnsupportedError."""
    logits = graph.outputs[0]
    width = logits.shape[-1] if logits.shape is not None and len(logits.shape) == 3 else None
    if logits.code not in _FLOATS or not isinstance(width, int) or width < 1:
        raise UnsupportedError(f"logits are {_described(logits)}; their last extent must be constant")
    if logits.maker is None:
        raise UnsupportedError("logits are not the output of a node")
    count = search.vocab_size if search.vocab_size > 0 else width
    if count > width:
        raise UnsupportedError(f"vocab_size is {count}, and the logits are of {width} tokens")
    last = constant(graph, "search/last", np.array([_LAST], np.int64))
    only = constant(graph, "search/only", np.array(0, np.int64))
    found = _append(graph, "Gather", [logits, last], {"axis": -2}, LAST_ROW, logits.code)
    found = _append(graph, "Gather", [found, only], {"axis": _ROW_AXIS}, "search/row", logits.code)
    if count < width:
        tokens = constant(graph, "search/tokens", np.arange(count, dtype=np.int64))
        found = _append(graph, "Gather", [found, tokens], {"axis": 1}, "search/of_vocabulary", logits.code)
    to = DType.FLOAT32.code
    found = _append(graph, "Cast", [found], {"to": to}, "search/as_float", to)
    if search.has_beams:
        found = _append(graph, "LogSoftmax", [found], {"axis": -1}, "search/logarithms", to)
    found.name = SCORES
    graph.outputs[0] = found
    return count


def cut_rows(graph: ir.Graph) -> None:
    """Changes a body in the compiler's form: what only the scores need is calculated for the last token alone."""
    from ...compiler.lower.last_row import sink_rows

    cut = next((it for it in graph if it.name == LAST_ROW), None)
    if cut is not None:  # an encoder may have no logits
        sink_rows(graph, cut)


def _choose_rows(graph: ShownGraph, pasts: Sequence[ShownValue], axis: int) -> None:
    """Makes every reader of a cache read its rows in the order of `ROWS`."""
    ids = graph.inputs[0].shape
    count = None if ids is None else ids[0]
    rows = ShownValue(ROWS, DType.INT32.code, (count,))
    graph.inputs.append(rows)
    for past in pasts:
        shape: list[Extent] = list(past.shape or ())
        chosen = [*shape]
        shape[axis], chosen[axis] = f"{ROWS}/before", count
        past.shape = tuple(shape)
        result = ShownValue(f"{past.name}/rows", past.code, tuple(chosen))
        replace_reads(graph, past, result)
        graph.nodes.insert(0, node_of(graph, "Gather", [past, rows], result, [ShownAttribute("axis", "int", axis)]))


def _append(
    graph: ShownGraph, op: str, inputs: Sequence[ShownValue], how: dict[str, int], name: str, code: int
) -> ShownValue:
    made = ShownValue(name, code)
    attributes = [ShownAttribute(key, "int", value) for key, value in how.items()]
    graph.nodes.append(node_of(graph, op, inputs, made, attributes))
    return made


def _only_used(graph: ShownGraph, declared: Sequence[str]) -> tuple[str, ...]:
    """Removes inputs that nothing reads. Returns the names of those that are not declared. Raises UnsupportedError."""
    for value in graph.outputs:
        if value.maker is None:
            raise UnsupportedError(f"{value.name} is not the output of a node")
    drop_unread_inputs(graph)
    return tuple(it.name for it in graph.inputs if it.name not in declared)


def _described(value: ShownValue) -> str:
    """Describes the type and shape of a value, for messages."""
    kind = next((it.label for it in DType if it.code == value.code), "of an unsupported type")
    return f"{kind} with {'an unknown shape' if value.shape is None else f'the shape {list(value.shape)}'}"
