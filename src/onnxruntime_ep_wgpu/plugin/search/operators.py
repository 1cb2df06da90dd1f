"""The operators of com.microsoft that generate text with decoders as their bodies, and the contents of their nodes.

In: a node. Out: a `Search`, which is all that other modules read of it. Invariant: other modules use inputs and outputs by
their names in the schema, so that only this module contains their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import UnsupportedError
from ...records import dataclass

if TYPE_CHECKING:
    from ..assign.shown import ShownNode

GPT, T5, WHISPER = 0, 1, 2
_MICROSOFT = "com.microsoft"
_GREEDY = "input_ids max_length min_length repetition_penalty vocab_mask prefix_vocab_mask attention_mask"
_BEAMS = (
    "input_ids max_length min_length num_beams num_return_sequences length_penalty repetition_penalty vocab_mask"
    " prefix_vocab_mask attention_mask decoder_input_ids logits_processor"
)
_INPUTS = {
    "BeamSearch": _BEAMS,
    "WhisperBeamSearch": f"{_BEAMS} cross_qk_layer_head extra_decoding_ids temperature",
    "GreedySearch": _GREEDY,
    "Sampling": f"{_GREEDY} presence_mask seed",
}
_OUTPUTS = {
    "BeamSearch": "sequences sequences_scores scores",
    "WhisperBeamSearch": "sequences sequences_scores scores cross_qk non_speech_probs",
    "GreedySearch": "sequences",
    "Sampling": "sequences filtered_logits",
}
_MADE = ("sequences", "sequences_scores", "scores")
_NOT_TAKEN = ("cross_qk_layer_head", "extra_decoding_ids")
_MODELS = {
    "BeamSearch": (GPT, T5, WHISPER),
    "WhisperBeamSearch": (WHISPER,),
    "GreedySearch": (GPT,),
    "Sampling": (GPT,),
}


@dataclass(frozen=True)
class Search:
    """The contents of a node.

    `inputs` and `outputs` map names in the schema to names of values, without omitted ones. The schema documents the
    attributes. Ids are -1 if a node has none.
    """

    operator: str
    model: int  # GPT, T5 or WHISPER
    inputs: dict[str, str]
    outputs: dict[str, str]
    eos_token_id: int
    pad_token_id: int
    decoder_start_token_id: int
    vocab_size: int
    no_repeat_ngram_size: int
    early_stopping: bool
    temperature: float
    top_p: float
    filter_value: float
    min_tokens_to_keep: int
    custom: bool
    presence_penalty: float
    translate_token_id: int
    transcribe_token_id: int
    start_of_lm_token_id: int
    no_timestamps_token_id: int
    beginning_timestamp_token_id: int

    @property
    def has_beams(self) -> bool:
        """Whether it keeps several continuations of a prompt."""
        return self.operator in ("BeamSearch", "WhisperBeamSearch")

    @property
    def samples(self) -> bool:
        return self.operator == "Sampling"


def is_search(node: ShownNode) -> bool:
    """Returns whether a node has one of these operators."""
    return node.domain == _MICROSOFT and node.op_type in _INPUTS


def search_of(node: ShownNode) -> Search:
    """Returns the contents of a node. Raises UnsupportedError for unsupported ones."""
    kind = node.op_type
    given = {
        name: value.name
        for name, value in zip(_INPUTS[kind].split(), node.inputs, strict=False)
        if value is not None and value.name
    }
    made = {name: value.name for name, value in zip(_OUTPUTS[kind].split(), node.outputs, strict=False) if value.name}
    if others := [name for name in made if name not in _MADE]:
        raise UnsupportedError(f"its output {others[0]} is not supported")
    if others := [name for name in _NOT_TAKEN if name in given]:
        raise UnsupportedError(f"its input {others[0]} is not supported")
    attributes = {it.name: it.value for it in node.attributes}

    def integer(name: str, default: int) -> int:
        return int(attributes.get(name, default))

    def token(name: str) -> int:
        """Returns an id as the CPU provider stores it: the lower 32 bits."""
        return (integer(name, -1) + 2**31) % 2**32 - 2**31

    def real(name: str, default: float) -> float:
        return float(attributes.get(name, default))

    model = integer("model_type", WHISPER if kind == "WhisperBeamSearch" else GPT)
    if model not in _MODELS[kind]:
        raise UnsupportedError(f"{kind} with model_type {model}")
    return Search(
        kind,
        model,
        given,
        made,
        eos_token_id=token("eos_token_id"),
        pad_token_id=token("pad_token_id"),
        decoder_start_token_id=token("decoder_start_token_id"),
        vocab_size=integer("vocab_size", -1),
        no_repeat_ngram_size=integer("no_repeat_ngram_size", 0),
        early_stopping=integer("early_stopping", 0) == 1,
        temperature=real("temperature", 1.0),
        top_p=real("top_p", 0.0),
        filter_value=real("filter_value", -1e20),
        min_tokens_to_keep=integer("min_tokens_to_keep", 0),
        custom=integer("custom", 0) == 1,
        presence_penalty=real("presence_penalty", 0.0),
        translate_token_id=token("translate_token_id"),
        transcribe_token_id=token("transcribe_token_id"),
        start_of_lm_token_id=token("start_of_lm_token_id"),
        no_timestamps_token_id=token("no_timestamps_token_id"),
        beginning_timestamp_token_id=token("beginning_timestamp_token_id"),
    )
