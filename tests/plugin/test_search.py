"""Operators that generate text run here whole: their bodies are compiled, and sequences and scores are the CPU provider's."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.plugin.callbacks import held
from onnxruntime_ep_wgpu.plugin.search import decoders
from onnxruntime_ep_wgpu.plugin.search.node import SearchNode

from . import search_cases, search_models
from .loss import device_of, lose
from .search_cases import Case, case, difference, on_cpu
from .search_models import info

MODELS = search_models.models()
HOST = "the kernel of the {} around it reads the outputs of its bodies in host memory"
LEVELS = {name: getattr(ort.GraphOptimizationLevel, f"ORT_{name}") for name in ("DISABLE_ALL", "ENABLE_ALL")}


def session_of(model: onnx.ModelProto, level: str = "ENABLE_ALL", **options: Any) -> Any:
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    settings.graph_optimization_level = LEVELS[level]
    return webgpu_ep.session(model.SerializeToString(), sess_options=settings, **options)


def reference(model: onnx.ModelProto) -> ort.InferenceSession:
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])


def elsewhere(session: Any) -> list[tuple[str, str, str | None]]:
    return [(it.within, it.name, it.reason) for it in webgpu_ep.report(session).nodes if not it.on_webgpu]


def check(it: Case, session: Any) -> None:
    want = on_cpu(it)
    for _ in range(2):
        assert difference(it, want, session.run(None, it.feeds())) == ""


def beams(**changes: Any) -> Case:
    """A plain beam search of two prompts; changes are inputs."""
    values = {
        "input_ids": np.array([[3, 4, 5], [6, 7, 2]], np.int32),
        "max_length": np.array(9, np.int32),
        "min_length": np.array(1, np.int32),
        "num_beams": np.array(3, np.int32),
        "num_return_sequences": np.array(2, np.int32),
        "length_penalty": np.array(1, np.float32),
        **{name: np.array(value, np.float32 if "penalty" in name else np.int32) for name, value in changes.items()},
    }
    return Case(
        "BeamSearch",
        search_cases.bodies_of(0, 1.0, True, "f32"),
        values,
        {"model_type": 0},
        ("sequences", "sequences_scores"),
    )


@pytest.mark.costly(3)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", [name for name in MODELS if name != "BeamSearch-nested"])
def test_a_model_around_a_search_runs_here_whole(name: str, level: str) -> None:
    model = MODELS[name]
    feeds, session = search_models.feeds(model), session_of(model, level)
    assert elsewhere(session) == []
    found = webgpu_ep.report(session)
    assert any(it.kernels for it in found.nodes if it.within == "search")
    assert "those of its bodies" in str(found)
    (want,) = reference(model).run(None, feeds)
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, feeds)[0], want)


@pytest.mark.every_case
@pytest.mark.parametrize(
    "seed",
    [*range(10), *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(10, 400))],
)
def test_options_of_all_kinds_do_what_they_do_on_the_cpu(seed: int) -> None:
    it = case(seed)
    session = session_of(it.model(), "ENABLE_ALL" if seed % 3 else "DISABLE_ALL")
    assert elsewhere(session) == []
    check(it, session)


def test_halves_calculate_what_floats_do() -> None:
    """The CPU provider has no kernel for decoders that are halves."""
    it = beams()
    want = on_cpu(it)
    graph = it.bodies["decoder"]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for weight in graph.initializer:
        if weight.data_type == TensorProto.FLOAT:
            half = numpy_helper.to_array(weight).astype(np.float16)
            weight.CopyFrom(numpy_helper.from_array(half, weight.name))
    for node in graph.node:
        if node.op_type == "Cast":
            del node.attribute[:]
            node.attribute.append(helper.make_attribute("to", TensorProto.FLOAT16))
    session = session_of(it.model())
    assert elsewhere(session) == []
    sequences, scores = session.run(None, it.feeds())
    np.testing.assert_array_equal(sequences, want[0])
    np.testing.assert_allclose(scores, want[1], rtol=0.02, atol=0.1)


def test_the_first_step_may_have_a_decoder_of_its_own() -> None:
    it = beams()
    other = search_cases.bodies_of(0, 1.0, True, "f32")["decoder"]
    names = {"tokens": 0, "wv": 1}
    for weight in other.initializer:
        if weight.name in names:
            weight.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(weight), weight.name))
    plain = on_cpu(it)
    it.bodies["init_decoder"] = other
    check(it, session_of(it.model()))
    assert not np.array_equal(plain[1], on_cpu(it)[1])


def test_weights_of_the_graph_around_are_on_the_device_once() -> None:
    it = beams()
    it.bodies["init_decoder"] = onnx.GraphProto.FromString(it.bodies["decoder"].SerializeToString())
    model = it.model()
    bodies = [attribute.g for attribute in model.graph.node[0].attribute if "decoder" in attribute.name]
    moved = [weight for weight in bodies[0].initializer if weight.name in ("wq", "wk", "scale", "split")]
    model.graph.initializer.extend(moved)
    for decoder in bodies:
        kept = [weight for weight in decoder.initializer if weight not in moved]
        del decoder.initializer[:]
        decoder.initializer.extend(kept)
    before = {id(node) for node in held.values()}
    session = session_of(model, deviceId=39)
    assert elsewhere(session) == []
    (node,) = (node for node in held.values() if isinstance(node, SearchNode) and id(node) not in before)

    def weights(name: str) -> list[int]:
        executables = [step.group.on_device().executable for step in node._steps.values()]
        return [id(buffer) for each in executables for buffer in each.weights_of([name]).values()]

    for _ in range(2):
        assert difference(it, on_cpu(it), session.run(None, it.feeds())) == ""
        assert len(weights("wq")) == len(weights("wv")) == 2
        assert len(set(weights("wq"))) == 1
        assert len(set(weights("wv"))) == 2
        lose(device_of(39))
        with pytest.raises(webgpu_ep.DeviceLostError):
            session.run(None, it.feeds())


def attending(shares: bool) -> onnx.GraphProto:
    """A decoder with ONNX Runtime's own attention, whose past and present share a buffer or not."""
    graph = search_models.gpt()
    past, present = graph.input[3], graph.output[1]
    read = ["x", "all_weights", "no_bias", "attention_mask", "past_0"]
    if shares:
        for value in (past, present):
            value.type.tensor_type.shape.dim[3].dim_param = "longest"
        graph.input.append(helper.make_tensor_value_info("past_sequence_length", TensorProto.INT32, [1]))
        read += ["", "past_sequence_length"]
    node = helper.make_node(
        "Attention", read, ["attended", "present_0"], domain="com.microsoft", num_heads=search_models.HEADS,
        unidirectional=1, past_present_share_buffer=int(shares),
    )  # fmt: skip
    nodes = [it for it in graph.node if it.output[0] in ("token", "place", "x")]
    nodes += [node, *(it for it in graph.node if it.output[0] in ("y", "logits"))]
    weights = {it.name: numpy_helper.to_array(it) for it in graph.initializer}
    joined = np.concatenate([weights[name] for name in ("wq", "wk", "wv")], axis=1)
    made = helper.make_graph(nodes, "attending", list(graph.input), list(graph.output))
    for name in ("tokens", "places", "to_vocabulary"):
        made.initializer.append(numpy_helper.from_array(weights[name], name))
    made.initializer.append(numpy_helper.from_array(joined, "all_weights"))
    made.initializer.append(numpy_helper.from_array(np.zeros(joined.shape[1], np.float32), "no_bias"))
    return made


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("operator", ["BeamSearch", "GreedySearch"])
def test_caches_with_room_for_all_tokens_give_what_others_give(operator: str, width: int) -> None:
    """The CPU provider has no such decoders."""
    it = beams(num_beams=width, num_return_sequences=1)
    it.bodies = {"decoder": attending(shares=False)}
    if operator == "GreedySearch":
        it = Case(operator, it.bodies, {name: it.values[name] for name in ("input_ids", "max_length")})
    want = on_cpu(it)
    check(it, session_of(it.model()))
    it.bodies["decoder"] = attending(shares=True)
    session = session_of(it.model())
    assert elsewhere(session) == []
    for _ in range(2):
        assert difference(it, want, session.run(None, it.feeds())) == ""


@pytest.mark.parametrize("whisper", [False, True], ids=["T5", "Whisper"])
def test_caches_that_are_told_in_which_beam_tokens_were_made_are_not_reordered(whisper: bool) -> None:
    values = {name: value for name, value in beams().values.items() if name != "input_ids"}
    chance = np.random.default_rng(4)
    values["input_ids"] = (
        chance.standard_normal((2, search_models.HIDDEN, 5)).astype(np.float32)
        if whisper
        else chance.integers(2, search_models.VOCABULARY, (2, 4)).astype(np.int32)
    )
    values = dict(reversed(values.items()))
    operator, model = ("WhisperBeamSearch", 2) if whisper else ("BeamSearch", 1)
    bodies = search_cases.bodies_of(model, 0.5, False, "f32")
    it = Case(operator, bodies, values, {"model_type": model}, ("sequences", "sequences_scores"))
    want = on_cpu(it)
    decoder = bodies["decoder"]
    for value in (*decoder.input, *decoder.output):
        if "self" in value.name:
            value.type.tensor_type.shape.dim[2].dim_param = "longest"
    for name, shape in (("past_sequence_length", [1]), ("beam_width", [1]), ("cache_indirection", ["a", "b", "c"])):
        decoder.input.append(helper.make_tensor_value_info(name, TensorProto.INT32, shape))
    node = helper.make_node(
        "DecoderMaskedMultiHeadAttention",
        [
            *("q_rows", "k_rows", "v_rows", "", "", "past_key_self_0", "past_value_self_0"),
            *("past_sequence_length", "beam_width", "cache_indirection"),
        ],
        ["seen", "present_key_self_0", "present_value_self_0"],
        domain="com.microsoft",
        num_heads=search_models.HEADS,
        past_present_share_buffer=1,
    )
    nodes = []
    for each in decoder.node:
        made = each.output[0]
        if made == "seen":
            nodes.append(node)
        elif not made.startswith(("seen_", "k_split", "v_split", "present_")) and made not in ("k", "v"):
            nodes.append(each)
    del decoder.node[:]
    decoder.node.extend(nodes)
    session = session_of(it.model())
    assert elsewhere(session) == []
    for _ in range(2):
        assert difference(it, want, session.run(None, it.feeds())) == ""


@pytest.mark.parametrize("whole", [False, True], ids=["last id", "all ids"])
def test_an_encoder_may_leave_the_first_step_to_the_decoder(whole: bool) -> None:
    values = {"input_ids": np.random.default_rng(6).integers(2, search_models.VOCABULARY, (2, 4)).astype(np.int32)}
    values |= {name: value for name, value in beams().values.items() if name != "input_ids"}
    bodies = search_cases.bodies_of(1, 1.0, False, "f32")
    encoder, decoder = bodies["encoder"], bodies["decoder"]
    kept = [it for it in encoder.output if "cross" in it.name]
    del encoder.input[2], encoder.output[:]
    encoder.output.extend(kept)
    needed = {it.name for it in kept}
    nodes = []
    for node in reversed(encoder.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            nodes.insert(0, node)
    del encoder.node[:]
    encoder.node.extend(nodes)
    (hidden,) = (it for it in decoder.input if it.name == "encoder_hidden_states")
    decoder.input.remove(hidden)
    it = Case("BeamSearch", bodies, values, {"model_type": 1}, ("sequences", "sequences_scores"))
    if whole:  # of which this decoder reads the last one alone
        decoder.input[0].type.tensor_type.shape.dim[1].dim_param = "length"
        decoder.initializer.append(numpy_helper.from_array(np.array([-1]), "last"))
        decoder.node.insert(0, helper.make_node("Gather", ["input_ids", "last"], ["last_id"], axis=1))
        (first,) = (node for node in decoder.node if node.output[0] == "x")
        first.input[1] = "last_id"
    session = session_of(it.model())
    assert elsewhere(session) == []
    check(it, session)


def test_timestamps_of_whisper_are_in_order() -> None:
    """Ids from 6 on are times."""
    values = {
        "input_ids": np.random.default_rng(3).standard_normal((2, search_models.HIDDEN, 5)).astype(np.float32),
        "max_length": np.array(9, np.int32),
        "min_length": np.array(1, np.int32),
        "num_beams": np.array(2, np.int32),
        "num_return_sequences": np.array(2, np.int32),
        "length_penalty": np.array(1, np.float32),
        "logits_processor": np.array(1, np.int32),
    }
    ids = {"translate_token_id": 3, "transcribe_token_id": 4, "start_of_lm_token_id": 5, "no_timestamps_token_id": 5}
    ids["beginning_timestamp_token_id"] = 6
    bodies = search_cases.bodies_of(2, 0.0, False, "f32")
    it = Case("WhisperBeamSearch", bodies, values, {"model_type": 2, **ids}, ("sequences", "sequences_scores"))
    check(it, session_of(it.model()))


def test_a_penalty_of_tokens_that_are_present_is_taken_from_each() -> None:
    values = {
        "input_ids": np.array([[3, 4], [5, 6]], np.int32),
        "max_length": np.array(6, np.int32),
        "seed": np.array(1, np.int32),
        "presence_mask": np.ones((2, search_models.VOCABULARY), np.int32),
    }
    values["presence_mask"][0, 7], values["presence_mask"][1, 8] = 0, 0
    bodies = search_cases.bodies_of(0, 0.0, False, "f32")
    it = Case("Sampling", bodies, values, {"top_p": 0.9, "presence_penalty": 1e4})
    (sequences,) = session_of(it.model()).run(None, it.feeds())
    np.testing.assert_array_equal(sequences[:, 2:], [[7] * 4, [8] * 4])


def test_chance_has_the_distribution_of_the_logits() -> None:
    """Without a seed runs differ; the first tokens of 300 texts are as likely as their probabilities say."""
    bodies = search_cases.bodies_of(0, 0.0, False, "f32")
    for weight in bodies["decoder"].initializer:
        if weight.name == "to_vocabulary":  # logits of nothing but the bias
            weight.CopyFrom(numpy_helper.from_array(np.zeros_like(numpy_helper.to_array(weight)), weight.name))
        if weight.name == "bias":
            wanted = np.array([0, 0, 0.1, 0.4, 0.2, 0.3, 0, 0, 0, 0, 0])
            weight.CopyFrom(numpy_helper.from_array(np.log(wanted + 1e-30).astype(np.float32), weight.name))
    ids = np.full((300, 1), 3, np.int32)
    it = Case("Sampling", bodies, {"input_ids": ids, "max_length": np.array(3, np.int32)}, {"top_p": 0.999})
    session = session_of(it.model())
    first, second = (session.run(None, it.feeds())[0][:, 1:] for _ in range(2))
    assert not np.array_equal(first, second)
    shares = np.bincount(np.concatenate([first, second]).ravel(), minlength=11) / 1200
    np.testing.assert_allclose(shares, wanted, atol=0.08)


def test_a_search_runs_within_a_branch_and_makes_what_is_read() -> None:
    it = beams()
    model = it.model()
    whole = info("sequences", TensorProto.INT32, None)
    then = helper.make_graph(list(model.graph.node), "then", [], [whole])
    rest = [helper.make_node("Unsqueeze", ["input_ids", "axis"], ["plain"])]
    other = helper.make_graph(rest, "else", [], [info("plain", TensorProto.INT32, None)])
    node = helper.make_node("If", ["chosen"], ["y"], then_branch=then, else_branch=other, name="choose")
    inputs = [*model.graph.input, info("chosen", TensorProto.BOOL, [])]
    axis = numpy_helper.from_array(np.array([1]), "axis")
    graph = helper.make_graph([node], "choice", inputs, [info("y", TensorProto.INT32, None)], [axis])
    session = session_of(helper.make_model(graph, opset_imports=model.opset_import, ir_version=10))
    assert not elsewhere(session)
    for _ in range(2):
        (made,) = session.run(None, {**it.feeds(), "chosen": np.array(True)})
        np.testing.assert_array_equal(made, on_cpu(it)[0])
        assert session.run(None, {**it.feeds(), "chosen": np.array(False)})[0].shape == (2, 1, 3)


def test_tensors_on_the_device_are_read_and_made_there() -> None:
    it = beams()
    session, want = session_of(it.model()), on_cpu(it)
    binding = session.io_binding()
    for name, value in it.feeds().items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(value, "webgpu", 0))
    for name in it.outputs:
        binding.bind_output(name, "webgpu")
    for _ in range(2):
        session.run_with_iobinding(binding)
        made = binding.get_outputs()
        assert [each.device_name() for each in made] == ["webgpu"] * 2
        assert difference(it, want, [each.numpy() for each in made]) == ""


def test_later_generations_compile_nothing() -> None:
    it = beams()
    before = {id(node) for node in held.values()}
    session = session_of(it.model())
    (node,) = (node for node in held.values() if isinstance(node, SearchNode) and id(node) not in before)
    session.run(None, it.feeds())
    (executable,) = (step.group.on_device().executable for step in node._steps.values())
    pipelines = dict(executable._plans.pipelines.made)
    longer = {**it.feeds(), "max_length": np.array(16, np.int32), "input_ids": np.full((1, 7), 3, np.int32)}
    session.run(None, longer)
    assert executable._plans.pipelines.made == pipelines


# What is not claimed


def test_a_body_that_cannot_run_here_leaves_the_node_to_the_cpu() -> None:
    model = MODELS["BeamSearch-nested"]
    session = session_of(model)
    reasons = {(within, name): reason for within, name, reason in elsewhere(session)}
    assert reasons["", "search"] == (
        "its decoder must run here completely, but If (choose): control flow runs on the CPU"
    )
    assert {reason for (within, _), reason in reasons.items() if within == "search"} == {HOST.format("BeamSearch")}
    # An If copies what its bodies make, in these bodies too.
    assert all(it.on_webgpu for it in webgpu_ep.report(session).nodes if it.within == "choose")
    feeds = search_models.feeds(model)
    np.testing.assert_array_equal(session.run(None, feeds)[0], reference(model).run(None, feeds)[0])


@pytest.mark.parametrize("name", ["search", "bias", "search\nbias"])
def test_what_the_user_sends_to_the_cpu_takes_all_of_the_search_there(name: str) -> None:
    it = beams()
    session = session_of(it.model(), "DISABLE_ALL", forceCpuNodeNames=name, allow_cpu_only=True)
    reasons = {name: reason for within, name, reason in elsewhere(session) if not within}
    wanted = (
        "its decoder must run here completely, but bias is " if name == "bias" else ""
    )  # what is in it is met all the same
    assert reasons == {"search": f"{wanted}named in forceCpuNodeNames"}
    check(it, session)


def test_a_captured_run_would_repeat_its_tokens() -> None:
    with pytest.raises(Exception, match=r"graph capture"):
        session_of(beams().model(), enableGraphCapture=True)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda graph: graph.input.reverse(), "its inputs are past_0, attention_mask"),
        (lambda graph: graph.output.reverse(), "its outputs are present_0, logits"),
    ],
)
def test_a_decoder_of_another_form_stays_on_the_cpu(change: Callable[[Any], None], reason: str) -> None:
    """ONNX Runtime refuses these as well."""
    it = beams()
    change(it.bodies["decoder"])
    with pytest.raises(Exception, match=r"subgraph|past"):
        session_of(it.model())


# Errors


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_beams": 0}, "num_beams is 0; it must be from 1 to 128"),
        ({"num_beams": 129}, "num_beams is 129"),
        ({"num_return_sequences": 4}, "num_return_sequences is 4; .* num_beams, which is 3"),
        ({"max_length": 3}, "max_length is 3; .* larger than 3, the number of ids"),
        ({"max_length": 5000}, "max_length is 5000; .* at most 4096"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0.0"),
        ({"input_ids": [[3, 11]]}, "input_ids has the id 11; the 11 tokens have ids from 0 to 10"),
        ({"input_ids": [[3, -1]]}, "input_ids has the id -1"),
        ({"vocab_mask": [1, 1]}, r"vocab_mask has the shape \[2\]; it must be \[11\]"),
        ({"prefix_vocab_mask": [[1] * 11]}, r"prefix_vocab_mask has the shape \[1, 11\]; it must be \[2, 11\]"),
        ({"attention_mask": [[1, 1]]}, r"attention_mask has the shape \[1, 2\]; that of input_ids is \[2, 3\]"),
        ({"max_length": [9, 9]}, r"max_length has the shape \[2\]; it must have one element"),
    ],
    ids=lambda it: str(it)[:30] if isinstance(it, dict) else "",
)
def test_bad_input_is_an_error_and_the_session_goes_on(changes: dict[str, Any], message: str) -> None:
    it = beams(**changes)
    session = session_of(it.model())
    with pytest.raises(webgpu_ep.InputError, match=message):
        session.run(None, it.feeds())
    plain = beams()
    if {name: value.ndim for name, value in it.values.items()} == {n: v.ndim for n, v in plain.values.items()}:
        assert difference(plain, on_cpu(plain), session.run(None, plain.feeds())) == ""


def test_a_device_that_is_lost_in_the_middle_is_an_error_of_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    it = beams()
    session = session_of(it.model(), deviceId=37)
    check(it, session)
    step, steps = decoders.Gpt.next, []

    def losing(self: decoders.Gpt, *given: Any) -> Any:
        steps.append(1)
        if len(steps) == 3:
            lose(device_of(37))
        return step(self, *given)

    with monkeypatch.context() as patch, pytest.raises(webgpu_ep.DeviceLostError):
        patch.setattr(decoders.Gpt, "next", losing)
        session.run(None, it.feeds())
    check(it, session)


@pytest.mark.parametrize("whose", ["ours", "onnxruntime's"])
def test_an_interrupt_ends_a_generation(
    whose: str, monkeypatch: pytest.MonkeyPatch, open_session: Callable[..., ort.InferenceSession]
) -> None:
    it = beams()
    model = it.model().SerializeToString()
    session = session_of(it.model()) if whose == "ours" else open_session(model, {}, log_severity_level=4)
    step, steps = decoders.Gpt.next, []

    def interrupted(self: decoders.Gpt, *given: Any) -> Any:
        steps.append(1)
        if len(steps) == 2:
            signal.raise_signal(signal.SIGINT)
        return step(self, *given)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(decoders.Gpt, "next", interrupted)
        session.run(None, it.feeds())
    assert len(steps) == 2
    check(it, session)


def test_threads_generate_at_once() -> None:
    it = beams()
    session, want = session_of(it.model()), on_cpu(it)
    with ThreadPoolExecutor(4) as pool:
        made = [pool.submit(session.run, None, it.feeds()) for _ in range(8)]
        assert [difference(it, want, each.result()) for each in made] == [""] * 8


def test_a_generation_gives_its_memory_back() -> None:
    it = beams()
    session = session_of(it.model(), deviceId=38)
    for _ in range(3):
        session.run(None, it.feeds())
    caches = device_of(38).caches.storage
    before = caches.counters
    for _ in range(3):
        session.run(None, it.feeds())
    assert caches.counters.misses == before.misses
    assert caches.counters.held_bytes == before.held_bytes


def test_the_body_of_a_sequence_map_is_decided_when_it_is_that_of_a_loop() -> None:
    """ONNX Runtime replaces SequenceMap by a Loop after its body was shown, and cannot when groups are in it."""
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[N,4] x) => (float[N,4] y) {
        r = Tanh (x) k = Neg (r) s = SequenceConstruct (k, r)
        t = SequenceMap (s) <body = b (float[N,4] e) => (float[N,4] o) { o = Exp (e) }>
        y = ConcatFromSequence <axis = 0> (t) }"""
    model = onnx.parser.parse_model(text).SerializeToString()
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    reference = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    (got,) = webgpu_ep.session(model).run(None, {"x": x})
    np.testing.assert_allclose(got, reference.run(None, {"x": x})[0], rtol=1e-5)
