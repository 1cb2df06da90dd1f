"""Random cases of the operators that generate text: a model, its inputs, and whether it ends early.

In: a seed. Out: the same case everywhere. `python -m tests.plugin.search_cases FIRST COUNT` compares cases with the CPU provider.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from . import search_models
from .search_models import VOCABULARY, info

PAD, EOS, START = 0, 1, 2
_TYPES = {np.dtype(np.int32): TensorProto.INT32, np.dtype(np.float32): TensorProto.FLOAT}
_GREEDY = [
    "input_ids",
    "max_length",
    "min_length",
    "repetition_penalty",
    "vocab_mask",
    "prefix_vocab_mask",
    "attention_mask",
]
_BEAMS = [
    *("input_ids", "max_length", "min_length", "num_beams", "num_return_sequences", "length_penalty"),
    *(
        "repetition_penalty",
        "vocab_mask",
        "prefix_vocab_mask",
        "attention_mask",
        "decoder_input_ids",
        "logits_processor",
    ),
]
INPUTS = {
    "BeamSearch": _BEAMS,
    "WhisperBeamSearch": [*_BEAMS, "", "", "temperature"],
    "GreedySearch": _GREEDY,
    "Sampling": [*_GREEDY, "presence_mask", "seed"],
}


@dataclass
class Case:
    """A node's attributes and inputs; an input that is None is left out. `bodies` are its decoder and encoder."""

    operator: str
    bodies: dict[str, onnx.GraphProto]
    values: dict[str, np.ndarray]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("sequences",)
    constant: bool = False  # whether all inputs but the first are constants of the model

    def model(self) -> onnx.ModelProto:
        names = [name if name in self.values else "" for name in INPUTS[self.operator]]
        while not names[-1]:
            names.pop()
        ids = {"eos_token_id": EOS, "pad_token_id": PAD, "decoder_start_token_id": START}
        if "encoder" not in self.bodies:
            del ids["decoder_start_token_id"]
        node = helper.make_node(
            self.operator, names, list(self.outputs), domain="com.microsoft", name="search",
            **{**ids, **self.attributes}, **self.bodies,
        )  # fmt: skip
        given, fixed = [], []
        for name, value in self.values.items():
            if self.constant and name != "input_ids":
                fixed.append(numpy_helper.from_array(value, name))
            else:
                given.append(info(name, _TYPES[value.dtype], [f"{name}_{k}" for k in range(value.ndim)]))
        made = [info(it, TensorProto.INT32 if it == "sequences" else TensorProto.FLOAT, None) for it in self.outputs]
        graph = helper.make_graph([node], "search", given, made, fixed)
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def feeds(self) -> dict[str, np.ndarray]:
        return {name: it for name, it in self.values.items() if name == "input_ids" or not self.constant}


def case(seed: int) -> Case:
    """The case of a seed."""
    chance = np.random.default_rng(seed)

    def pick(*these: Any) -> Any:
        return these[chance.integers(len(these))]

    operator = pick("BeamSearch", "BeamSearch", "BeamSearch", "WhisperBeamSearch", "GreedySearch", "Sampling")
    model = 2 if operator == "WhisperBeamSearch" else pick(0, 0, 1) if operator == "BeamSearch" else 0
    batch, length = int(chance.integers(1, 4)), int(chance.integers(1, 6))
    likely = pick(0.0, 0.0, 2.0, 5.0)  # how much the end of a sequence is
    attributes: dict[str, Any] = {"model_type": model, "no_repeat_ngram_size": pick(0, 0, 1, 2, 3)}
    whole = np.int32
    begins = length if model == 0 else 1
    values: dict[str, np.ndarray] = {}
    if model == 2:
        values["input_ids"] = chance.standard_normal((batch, search_models.HIDDEN, 5)).astype(np.float32)
        if pick(0, 1):
            begins = int(chance.integers(1, 4))
            values["decoder_input_ids"] = chance.integers(2, VOCABULARY, (batch, begins)).astype(whole)
    else:
        ids = chance.integers(2, VOCABULARY, (batch, length)).astype(whole)
        padded = np.arange(length) < chance.integers(0, length, (batch, 1))
        if pick(0, 1):
            ids[padded] = PAD
        values["input_ids"] = ids
        if pick(0, 1):
            values["attention_mask"] = pick(
                1 - padded, chance.integers(0, 2, ids.shape) | (np.arange(length) == length - 1)
            ).astype(whole)
    values["max_length"] = np.array(pick(begins + 2, begins + 3, begins + 7), whole)
    if "Beam" in operator or pick(0, 1):  # the CPU provider wants it of beams
        values["min_length"] = np.array(pick(0, begins + 1, int(values["max_length"].item()) - 1), whole)
    if pick(0, 1):
        values["repetition_penalty"] = np.array(pick(1, 1.4, 0.7), np.float32)
    if pick(0, 0, 1):
        values["vocab_mask"] = (chance.random(VOCABULARY) < 0.8).astype(whole)
        values["vocab_mask"][[EOS, 3, 4, 5]] = 1
    if pick(0, 0, 1):
        values["prefix_vocab_mask"] = (chance.random((batch, VOCABULARY)) < 0.6).astype(whole)
        values["prefix_vocab_mask"][:, 6:9] = 1
    outputs: tuple[str, ...] = ("sequences",)
    if "Beam" in operator:
        beams = int(chance.integers(1, 5))
        values["num_beams"] = np.array(beams, whole)
        values["num_return_sequences"] = np.array(int(chance.integers(1, beams + 1)), whole)
        values["length_penalty"] = np.array(pick(0, 0.5, 1, 2, -1), np.float32)
        attributes["early_stopping"] = pick(0, 1)
        outputs = pick(("sequences", "sequences_scores"), ("sequences", "sequences_scores", "scores"))
    if operator == "WhisperBeamSearch" and pick(0, 1):
        values["temperature"] = np.array(pick(1, 0.5, 2), np.float32)
    if operator == "Sampling":
        values["seed"] = np.array(int(chance.integers(0, 1000)), whole)
        attributes |= {"temperature": pick(1.0, 0.7), "top_p": pick(0.3, 0.9, 0.99), "custom": pick(0, 1)}
        attributes["min_tokens_to_keep"] = pick(0, 1, 3)
    bodies = bodies_of(model, likely, bool(pick(0, 1)), pick("f32", "f32", "f16 weights"))
    constant = bool(pick(0, 1))
    return Case(operator, bodies, values, attributes, outputs, constant)


def bodies_of(model: int, likely: float, masked: bool, kind: str) -> dict[str, onnx.GraphProto]:
    """Decoder and encoder of a model of this type."""
    if model == 0:
        bodies = {"decoder": search_models.gpt(masked=masked)}
    else:
        bodies = {it: getattr(search_models, it)(model == 2) for it in ("encoder", "decoder")}
    for body in bodies.values():
        change(body, likely, kind)
    return bodies


def change(body: onnx.GraphProto, likely: float, kind: str) -> None:
    """Makes the end of a sequence more likely, and weights of another type."""
    (last,) = [it for it in body.node if "logits" in it.output]
    last.output[0] = "logits_before"
    bias = np.zeros(VOCABULARY, np.float32)
    bias[EOS] = likely
    body.initializer.append(numpy_helper.from_array(bias, "bias"))
    body.node.append(helper.make_node("Add", ["logits_before", "bias"], ["logits"], name="bias"))
    if kind == "f16 weights":
        casts = []
        for it in body.initializer:
            if it.data_type == TensorProto.FLOAT and len(it.dims) == 2:
                name = it.name
                it.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(it).astype(np.float16), f"{name}_half"))
                casts.append(helper.make_node("Cast", [it.name], [name], to=TensorProto.FLOAT, name=f"{name}_cast"))
        nodes = [*casts, *body.node]
        del body.node[:]
        body.node.extend(nodes)


def steps_made(it: Case, sequences: np.ndarray) -> int:
    """How many steps of the output `scores` mean something: the CPU provider leaves the rest as its memory was."""
    begins = it.values["decoder_input_ids"].shape[1] if "decoder_input_ids" in it.values else 1
    if "encoder" not in it.bodies:
        begins = it.values["input_ids"].shape[1]
    return max(1, int((sequences != PAD).any(axis=(0, 1)).nonzero()[0].max()) + 1 - begins)


def on_cpu(it: Case) -> list[np.ndarray]:
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    return ort.InferenceSession(it.model().SerializeToString(), settings, providers=["CPUExecutionProvider"]).run(
        None, it.feeds()
    )


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one.astype(np.float64) - other).sum())


def _tied(steps: np.ndarray) -> bool:
    """Whether two of the best that a step (beams, vocabulary) chooses among are as good, but for rounding."""
    for scores in steps.astype(np.float64):
        best = np.sort(scores, axis=None)[::-1][: 2 * len(scores)]
        if (best[:-1] - best[1:] <= 1e-4 * np.maximum(1, np.abs(best[1:]))).any():
            return True
    return False


def _in_the_order_of(right: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Scores (steps, prompts, beams, vocabulary) with the beams of a prompt, which may be equally good, in the other's order."""
    ordered = found.copy()
    for place in np.ndindex(right.shape[:2]):
        if not _tied(right[: place[0], place[1]]):
            continue
        left = list(range(len(right[place])))
        for beam, wanted in enumerate(right[place]):
            near = min(left, key=lambda it, place=place, wanted=wanted: _apart(wanted, found[place][it]))
            left.remove(near)
            ordered[place][beam] = found[place][near]
    return ordered


def difference(it: Case, want: list[np.ndarray], got: list[np.ndarray]) -> str:
    """What differs, or "". Of sequences that are equally good either is right."""
    if len(want) > 1 and want[0].shape == got[0].shape and np.allclose(want[1], got[1], rtol=1e-4, atol=1e-4):
        equal = np.array_equal(want[0], got[0])
        want, got = [got[0], *want[1 : None if equal else 2]], got[: None if equal else 2]
    for name, right, found in zip(it.outputs, want, got, strict=False):
        if right.shape != found.shape or right.dtype != found.dtype:
            return f"{name}: {found.dtype} {found.shape} instead of {right.dtype} {right.shape}"
        if name == "scores":
            count = steps_made(it, want[0])
            right, found = right[:count], _in_the_order_of(right[:count], found[:count])
        if name == "sequences" and right.ndim == 2:  # what is behind the end of all is as its memory was
            count = int((found != PAD).any(axis=0).nonzero()[0].max()) + 2
            right, found = right[:, :count], found[:, :count]
        if name == "sequences" and not np.array_equal(right, found):
            return f"{name}: {found.tolist()} instead of {right.tolist()}"
        if not np.allclose(right, found, rtol=1e-4, atol=1e-4):
            return f"{name}: {np.abs(right - found).max()}"
    return ""


def main(first: int, count: int) -> None:
    import onnxruntime_ep_wgpu as webgpu_ep

    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    wrong = 0
    for seed in range(first, first + count):
        it = case(seed)
        try:
            want = on_cpu(it)
        except Exception as error:
            print(seed, "CPU:", str(error)[:200])
            continue
        session = webgpu_ep.session(it.model().SerializeToString(), sess_options=settings)
        elsewhere = [(node.name, node.reason) for node in webgpu_ep.report(session).nodes if not node.on_webgpu]
        for _ in range(2):
            if found := difference(it, want, session.run(None, it.feeds())) or str(elsewhere or ""):
                wrong += 1
                print(
                    seed,
                    it.operator,
                    it.attributes,
                    {k: v.tolist() for k, v in it.values.items() if v.size < 50},
                    found,
                )
                break
    print(f"{count} cases, {wrong} wrong")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
