"""`LanguageModel`, `Chat` and `wgpu-ep chat`: the ids are the CPU provider's, whatever the prompts are cut into or share."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.language import generate, state
from onnxruntime_ep_wgpu.api.language.picker import Picker
from onnxruntime_ep_wgpu.api.language.state import State
from onnxruntime_ep_wgpu.cli import main
from onnxruntime_ep_wgpu.device import Context
from onnxruntime_ep_wgpu.errors import InputError, LimitError, ModelError, NonFiniteError
from onnxruntime_ep_wgpu.plugin.chained import ChainedRuns
from onnxruntime_ep_wgpu.runtime.binder import Binder

from .models import Decoder, graph_of, growing_graph_of, write, write_growing

PROMPTS = [[5, 77, 130, 9, 200], [8, 61], [100, 101, 102, 103, 104, 105, 106, 107, 90]]
KINDS: dict[str, tuple[Callable[[Decoder, Path], Path], Decoder]] = {
    "genai": (write, Decoder()),
    "genai int4": (write, Decoder("int4-fp32")),
    "optimum": (write_growing, Decoder(groups=4)),
    "optimum without positions": (write_growing, Decoder(groups=4, positions=False)),
}


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    make, decoder = KINDS[request.param]
    return make(decoder, tmp_path_factory.mktemp("models") / request.param.replace(" ", "-"))


@pytest.fixture(scope="module")
def model(folder: Path) -> webgpu_ep.LanguageModel:
    return webgpu_ep.LanguageModel(folder)


def reference(folder: Path, prompt: list[int], count: int) -> list[int]:
    """Greedy ids of the CPU provider, which is given all ids again for each, up to the end of the text."""
    session = ort.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    shapes = {it.name: [1, it.shape[1], 0, it.shape[3]] for it in session.get_inputs() if it.name.startswith("past")}
    ids = list(prompt)
    for _ in range(count):
        feeds = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        feeds |= {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
        if any(it.name == "position_ids" for it in session.get_inputs()):
            feeds["position_ids"] = np.arange(len(ids))[None]
        ids.append(int(session.run(["logits"], feeds)[0][0, -1].argmax()))
        if ids[-1] == 2:
            return ids[len(prompt) : -1]
    return ids[len(prompt) :]


def greedy(model: webgpu_ep.LanguageModel, prompt: list[int], count: int = 12, **how: object) -> list[int]:
    return [token for _, token in model.tokens([prompt], max_new_tokens=count, **how)]


@pytest.mark.costly
@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
def test_greedy_ids_are_those_of_the_cpu_provider(
    model: webgpu_ep.LanguageModel, folder: Path, prompt: list[int]
) -> None:
    assert greedy(model, prompt) == reference(folder, prompt, 12)


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["genai int4", "optimum"])
def test_caches_whose_size_has_a_name(kind: str, tmp_path: Path) -> None:
    """As onnxruntime-genai's builder writes them: the configuration knows how long a key is."""
    make, decoder = KINDS[kind]
    folder = make(decoder, tmp_path / "model")
    expected = reference(folder, PROMPTS[0], 6)
    path, configuration = folder / "model.onnx", folder / ("genai_config.json" if "genai" in kind else "config.json")
    changed = onnx.load(path)
    for value in (*changed.graph.input, *changed.graph.output):
        if value.name.startswith(("past", "present")):
            value.type.tensor_type.shape.dim[3].Clear()
            value.type.tensor_type.shape.dim[3].dim_param = "kv_cache_dim"
    onnx.save(changed, path)
    described = json.loads(configuration.read_text())
    if "genai" not in kind:
        described |= {"hidden_size": decoder.hidden, "num_attention_heads": decoder.heads}
        configuration.write_text(json.dumps(described))
    assert greedy(webgpu_ep.LanguageModel(folder), PROMPTS[0], 6) == expected
    for wrong in (None, "long", 0):
        sizes = described["model"]["decoder"] if "genai" in kind else described
        sizes["head_size" if "genai" in kind else "head_dim"] = wrong
        if wrong is None:
            sizes.pop("hidden_size")
        configuration.write_text(json.dumps(described))
        message = (
            "kv_cache_dim.*head_size" if wrong is None else r"head_(size|dim) is .*; expected an integer of at least 1"
        )
        with pytest.raises(ModelError, match=message):
            webgpu_ep.LanguageModel(folder)


@pytest.mark.costly
@pytest.mark.parametrize("chunk", [1, 2, 4])
def test_prompts_in_chunks(model: webgpu_ep.LanguageModel, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = greedy(model, PROMPTS[2])
    monkeypatch.setattr(generate, "CHUNK", chunk)
    assert greedy(model, PROMPTS[2]) == whole


@pytest.mark.costly
def test_prompts_of_one_length_together_in_chunks(
    model: webgpu_ep.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [PROMPTS[2], PROMPTS[2][::-1], [*PROMPTS[0], *PROMPTS[0][:4]]]
    wanted = [greedy(model, prompt, 6) for prompt in prompts]
    monkeypatch.setattr(generate, "CHUNK", 4)
    found: list[list[int]] = [[] for _ in prompts]
    for row, token in model.tokens(prompts, max_new_tokens=6):
        found[row].append(token)
    assert found == wanted


@pytest.mark.costly
def test_prompts_of_different_lengths_together(model: webgpu_ep.LanguageModel) -> None:
    found: list[list[int]] = [[] for _ in PROMPTS]
    for row, token in model.tokens(PROMPTS, max_new_tokens=10):
        found[row].append(token)
    assert found == [greedy(model, prompt, 10) for prompt in PROMPTS]


@pytest.mark.costly
def test_a_mask_is_as_long_as_what_it_is_about(model: webgpu_ep.LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of growing caches of prompts of different lengths: models may add it to scores of the keys."""
    bound, seen = State._bound, []

    def checked(self: State, ids: Any, mask: Any, positions: Any, rows: int, caches: dict[str, Any]) -> Any:
        if not self.decoder.in_place:
            seen.append((mask.shape()[1], next(iter(caches.values())).shape()[2] + ids.shape()[1]))
        return bound(self, ids, mask, positions, rows, caches)

    monkeypatch.setattr(State, "_bound", checked)
    list(model.tokens(PROMPTS, max_new_tokens=5))
    list(model.tokens([[5] * 120], ends=()))
    assert all(mask == keys for mask, keys in seen), seen
    assert all(mask <= model.decoder.rows for mask, _ in seen), "models have tables for as many keys and no more"
    assert bool(seen) != model.decoder.in_place


def test_tensors_are_on_the_device_of_the_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model with a device of its own opens no other one, which drivers take long for."""
    opened = []

    def note(self: Context) -> Any:
        opened.append(self.key)
        return opens(self)

    opens = Context._open
    monkeypatch.setattr(Context, "_open", note)
    model = webgpu_ep.LanguageModel(folder, deviceId=83)
    for prompt in PROMPTS:
        list(model.tokens([prompt], max_new_tokens=4, ends=()))
        list(model.tokens([prompt], max_new_tokens=4, ends=(), temperature=1.0, seed=1))
    assert [number for _, number, *_ in opened] == [83]


@pytest.mark.parametrize("short", [1, 6, 10, 13])
def test_a_text_grows_beyond_the_mask_of_short_ones(
    model: webgpu_ep.LanguageModel, short: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, in and behind a prompt; for some prompts of a batch sooner than for others."""
    texts = [[PROMPTS[0]], [PROMPTS[2]], PROMPTS]
    want = [list(model.tokens(it, max_new_tokens=12, ends=())) for it in texts]
    monkeypatch.setattr(state, "_SHORT", short)
    assert [list(model.tokens(it, max_new_tokens=12, ends=())) for it in texts] == want
    drawn = [list(model.tokens(it, max_new_tokens=12, ends=(), temperature=1.0, seed=3)) for it in texts]
    monkeypatch.setattr(state, "_SHORT", 10_000)
    assert [list(model.tokens(it, max_new_tokens=12, ends=(), temperature=1.0, seed=3)) for it in texts] == drawn


@pytest.mark.costly
@pytest.mark.parametrize("length", [16, 17, 40])
def test_caches_that_end_at_any_row(
    folder: Path, model: webgpu_ep.LanguageModel, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that mean nothing are before all others, and never more than there is room for."""
    ids = np.random.default_rng(1).integers(3, 300, length).tolist()
    firsts = (length - 14, 9, length - 1)
    seconds = [(first, second) for first in firsts for second in (first + 1, min(first + 5, length))]
    wanted = [greedy(model, ids[:first], length - first + 1, ends=()) for first in firsts]
    wanted += [greedy(model, ids[:second], min(2, length - second + 1), ends=()) for _, second in seconds]
    monkeypatch.setattr(state, "round_rows", lambda used: -(-used // 8) * 8)
    tight = webgpu_ep.LanguageModel(folder, max_length=length)
    got = [greedy(tight, ids[:first], 1000, ends=()) for first in firsts]
    for first, second in seconds:
        caches = State(tight.decoder, 1)
        assert greedy(tight, ids[:first], 0, state=caches) == []
        got.append(greedy(tight, ids[first:second], 2, state=caches, ends=()))
    assert got == wanted


@pytest.mark.costly
@pytest.mark.parametrize(
    "how",
    [{}, {"temperature": 0.9, "top_k": 5, "seed": 3}, {"repetition_penalty": 1.7}],
    ids=["greedy", "drawn", "penalty"],
)
@pytest.mark.parametrize("count", [0, 1, 2, 30, 200])
def test_a_step_that_runs_before_its_id_is_read_changes_no_text(
    model: webgpu_ep.LanguageModel, count: int, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [[5, 6, 7], [40, 41, 42]]

    def found() -> tuple[list[tuple[int, int]], list[list[int]], list[int]]:
        caches = State(model.decoder, 2)
        ids = list(model.tokens(prompts, max_new_tokens=count, state=caches, ends=(), **how))
        return ids, caches.ids, caches.used.tolist()

    ahead = found()
    monkeypatch.setattr(Picker, "start_next", lambda *_: None)
    monkeypatch.setattr(State, "run_next", lambda *_: None)
    if model.decoder.in_place:  # which has no other way to step
        monkeypatch.setattr(State, "step", _step_without_ahead)
    assert ahead == found()


def _step_without_ahead(self: State, tokens: list[int], ids: Any, positions: Any, mask: Any) -> Any:
    self._record_ids([[it] for it in tokens])
    return self.run(ids, mask, positions, self.used + 1)


@pytest.mark.parametrize("left", range(1, 7))
def test_a_text_that_is_left_after_any_id_goes_on_as_if_it_had_not_been(
    model: webgpu_ep.LanguageModel, left: int
) -> None:
    whole = greedy(model, PROMPTS[1], 12, ends=())
    caches = State(model.decoder, 1)
    text = model.tokens([PROMPTS[1]], max_new_tokens=12, state=caches, ends=())
    begun = [next(text)[1] for _ in range(left)]
    text.close()
    assert caches.ids == [[*PROMPTS[1], *begun[:-1]]]
    assert begun + greedy(model, begun[-1:], 12 - left, state=caches, ends=()) == whole


@pytest.mark.costly
def test_the_next_step_runs_while_an_id_is_on_its_way(
    model: webgpu_ep.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    ahead, wait = Picker.start_next, ChainedRuns.wait
    monkeypatch.setattr(Picker, "start_next", lambda self: (order.append("ahead"), ahead(self))[1])
    monkeypatch.setattr(ChainedRuns, "wait", lambda self: (order.append("read"), wait(self))[1])
    list(model.tokens([PROMPTS[0]], max_new_tokens=12, ends=()))
    assert order == ["read", *["ahead", "read"] * 10, "read"], "the first id waits for none, the last has none"


@pytest.mark.costly
@pytest.mark.parametrize("how", [{}, {"repetition_penalty": 1.7}, {"temperature": 1.0, "top_p": 0.9}], ids=str)
def test_steps_copy_nothing_before_they_run(
    model: webgpu_ep.LanguageModel, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tensor is read and written in one place, but for caches, which are updated there."""
    separate, copied = Binder._separate, list[Any]()

    def noted(*given: Any) -> Any:
        copies = separate(*given)
        copied.extend(copies)
        return copies

    monkeypatch.setattr(Binder, "_separate", noted)
    assert len(list(model.tokens([PROMPTS[0]], max_new_tokens=20, ends=(), **how))) == 20
    assert not copied


@pytest.mark.costly
def test_steps_bind_nothing_while_caches_have_room(
    model: webgpu_ep.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound, count = State._bound, []

    def counted(*given: Any) -> Any:
        count.append(given)
        return bound(*given)

    monkeypatch.setattr(State, "_bound", counted)
    list(model.tokens([PROMPTS[0]], max_new_tokens=50, ends=()))
    # The prompt, and a step's inputs and outputs, which change places where they are not one.
    assert len(count) == (2 if model.decoder.in_place else 3 if model.decoder.keeps_rows else 50)


@pytest.mark.costly
def test_the_likeliest_alone_is_greedy(model: webgpu_ep.LanguageModel) -> None:
    assert greedy(model, PROMPTS[0], temperature=1.0, top_k=1) == greedy(model, PROMPTS[0])
    assert greedy(model, PROMPTS[0], temperature=1.0, min_p=1.0) == greedy(model, PROMPTS[0])
    assert greedy(model, PROMPTS[0], temperature=1.0, top_p=1e-6) == greedy(model, PROMPTS[0])


@pytest.mark.costly
def test_equal_seeds_give_equal_texts(model: webgpu_ep.LanguageModel) -> None:
    how = {"temperature": 5.0, "top_p": 0.95, "top_k": 100, "min_p": 0.001, "repetition_penalty": 1.2}
    first = greedy(model, PROMPTS[0], 20, seed=3, **how)
    assert first == greedy(model, PROMPTS[0], 20, seed=3, **how)
    assert first != greedy(model, PROMPTS[0], 20, seed=4, **how)


@pytest.mark.costly
def test_a_text_ends_where_it_is_told_to(model: webgpu_ep.LanguageModel) -> None:
    (whole,) = model.generate("hello", max_new_tokens=30)
    assert len(whole) > 6
    assert "".join(model.stream("hello", max_new_tokens=30)) == whole
    stop = whole[3:5]
    before = whole[: whole.index(stop)]
    assert model.generate("hello", max_new_tokens=30, stop=[stop]) == [before]
    assert "".join(model.stream("hello", max_new_tokens=30, stop=[stop, "never"])) == before


@pytest.mark.costly
@pytest.mark.parametrize(
    "how", [{}, {"repetition_penalty": 1.7}, {"temperature": 3.0, "seed": 5, "repetition_penalty": 1.3}], ids=str
)
def test_a_chat_goes_on_from_what_turns_have_in_common(model: webgpu_ep.LanguageModel, how: dict[str, Any]) -> None:
    chat = model.chat("Be brief.")
    first = "".join(chat.say("hi", max_new_tokens=6, **how))
    second = "".join(chat.say("more", max_new_tokens=6, **how))
    assert chat.reused > 10 or not model.decoder.in_place
    again = model.chat("Be brief.")
    again.messages = chat.messages[:-2]
    assert again.messages[-1] == {"role": "assistant", "content": first}
    assert "".join(again.say("more", max_new_tokens=6, **how)) == second and again.reused == 0


@pytest.mark.costly
@pytest.mark.parametrize("first", [1, 4])
def test_a_penalty_counts_what_is_in_caches(model: webgpu_ep.LanguageModel, first: int) -> None:
    how: dict[str, Any] = {"repetition_penalty": 1.7, "ends": ()}
    whole = greedy(model, PROMPTS[2], 16, **how)
    caches = State(model.decoder, 1)
    assert greedy(model, PROMPTS[2][:first], 0, state=caches, **how) == []
    assert caches.ids == [PROMPTS[2][:first]]
    begun = greedy(model, PROMPTS[2][first:], 8, state=caches, **how)
    assert caches.ids == [PROMPTS[2] + begun[:-1]], "the last one is put into no cache"
    assert begun + greedy(model, begun[-1:], 8, state=caches, **how) == whole


def test_ids_of_caches_are_those_that_have_rows(
    model: webgpu_ep.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches = State(model.decoder, 1)
    monkeypatch.setattr(generate, "CHUNK", 2)
    run = State.run

    def interrupted(self: State, *given: Any) -> Any:
        if self.used[0] >= 4:
            raise KeyboardInterrupt
        return run(self, *given)

    monkeypatch.setattr(State, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        greedy(model, PROMPTS[2], 1, state=caches)
    assert caches.ids == [PROMPTS[2][:4]]
    monkeypatch.setattr(State, "run", run)
    assert greedy(model, PROMPTS[2][4:], 6, state=caches) == greedy(model, PROMPTS[2], 6)


@pytest.mark.costly
def test_an_answer_that_is_left_early_leaves_all_usable(model: webgpu_ep.LanguageModel) -> None:
    chat = model.chat()
    answer = chat.say("hi", max_new_tokens=20)
    said = next(answer) + next(answer)
    answer.close()
    assert chat.messages[-1]["content"] == said
    fresh = model.chat()
    fresh.messages = list(chat.messages)
    assert "".join(chat.say("go on", max_new_tokens=6)) == "".join(fresh.say("go on", max_new_tokens=6))


def test_wrong_input_is_named(model: webgpu_ep.LanguageModel) -> None:
    for prompts, kind, text in (
        ([], InputError, "no prompts"), (None, InputError, "no prompts"), ([[]], InputError, "empty"),
        ([[5], []], InputError, "empty"),
        ([[5] * 129], LimitError, "129 ids of the prompt are more than the 128 .*: pass a shorter prompt"),
        ([[5], [7, 320]], InputError, "prompt 1 has the id 320; the model has those from 0 to 319"),
        ([[5, -1]], InputError, "prompt 0 has the id -1"), ([5, 6], InputError, "prompt 0 is 5: pass a list of ids"),
        (["abc"], InputError, "prompt 0 is 'abc': .*generate\\(\\) takes texts"), (7, InputError, "prompt 0 is 7"),
        ([[5], [1.5]], InputError, "prompt 1 has 1.5 for an id"), ([[True]], InputError, "prompt 0 has True for an id"),
    ):  # fmt: skip
        with pytest.raises(kind, match=text):
            list(model.tokens(prompts))  # type: ignore[arg-type]
    settings: list[tuple[dict[str, Any], str]] = [
        ({"top_p": 1.5}, r"top_p is 1.5; expected a value from 1e-09 to 1"), ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": "hot"}, "temperature is 'hot'; expected a number from 0"),
        ({"top_k": 2.5}, "top_k is 2.5; expected an integer"),
        ({"seed": -1}, "seed is -1; expected an integer of at least 0"), ({"seed": "x"}, "seed is 'x'"),
        ({"max_new_tokens": -1}, r"max_new_tokens=-1: it is 0 or more"), ({"max_new_tokens": 2.5}, r"max_new_tokens=2.5: it is"),
        ({"temprature": 3}, r"temprature=3 is not an argument of this method \(did you mean temperature\?\): it takes"),
    ]  # fmt: skip
    for setting, text in settings:
        with pytest.raises(InputError, match=text):
            list(model.tokens([[5]], **setting))
    with pytest.raises(InputError, match="2 prompts for caches of 1"):
        list(model.tokens([[5], [6]], state=State(model.decoder, 1)))
    assert greedy(model, [5], 0) == []
    assert greedy(model, np.array([5, 6]), 2) == greedy(model, [5, 6], 2)  # type: ignore[arg-type]
    assert len(greedy(model, [5] * 120, 1000)) == 9, "as many as there is room for, and the last one needs none"


@pytest.mark.costly
def test_a_longer_length_is_the_way_out_where_the_model_has_one(folder: Path) -> None:
    with pytest.raises(LimitError, match=r"5 ids of the prompt are more than the 4 .*: pass a max_length of up to 128"):
        list(webgpu_ep.LanguageModel(folder, max_length=4).tokens([[5] * 5]))


def test_what_is_no_text_is_named(model: webgpu_ep.LanguageModel) -> None:
    for prompt in (None, 5, [5, 6], b"text"):
        with pytest.raises(InputError, match=r"pass a text or a list of texts"):
            model.generate(prompt)  # type: ignore[arg-type]
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: list(model.stream(None)), "prompt=None: pass a text"),  # type: ignore[arg-type]
        (lambda: list(model.stream("")), "the prompt is empty"),
        (lambda: model.generate("a", stop="x"), "stop='x': pass a list of texts"),
        (lambda: list(model.stream("a", stop=[5])), r"stop=\[5\]: pass a list of texts"),  # type: ignore[list-item]
        (lambda: list(model.chat().say(None)), "message=None: pass a text"),  # type: ignore[arg-type]
        (lambda: list(model.chat().say("")), "the message is empty"),
        (lambda: model.chat(5), "system=5: pass a text"),  # type: ignore[arg-type]
        (lambda: webgpu_ep.generate(None, "a"), "folder=None: pass the path of a folder"),  # type: ignore[arg-type]
    ]
    for call, text in wrong:
        with pytest.raises(InputError, match=text):
            call()


def test_a_configuration_that_says_something_else_is_named(tmp_path: Path) -> None:
    path = write(Decoder(layers=1), tmp_path / "model")
    config = json.loads((path / "genai_config.json").read_text())
    for wrong, text in (
        ([], r"genai_config\.json: the content is \[\]"), ({"model": 5}, "model is 5; expected an object"),
        ({"model": {"decoder": "x"}}, "decoder is 'x'"),
        ({"model": config["model"] | {"context_length": "many"}}, r"model\.context_length is 'many'; expected an integer"),
        ({"model": config["model"] | {"eos_token_id": ["x"]}}, r"eos_token_id is \['x'\]; expected an id or a list of ids"),
    ):  # fmt: skip
        (path / "genai_config.json").write_text(json.dumps(wrong))
        with pytest.raises(ModelError, match=text):
            webgpu_ep.LanguageModel(path)
    (path / "genai_config.json").write_text(json.dumps(config))
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": 5}))
    with pytest.raises(ModelError, match=r"tokenizer_config\.json: chat_template is 5; expected a text"):
        webgpu_ep.LanguageModel(path)


@pytest.mark.parametrize("left", [None, 100])
def test_weights_that_are_missing_are_named(left: int | None, tmp_path: Path) -> None:
    path = write(Decoder(layers=1), tmp_path / "model") / "model.onnx"
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.data", size_threshold=1024)
    data = path.with_name("weights.data")
    content = data.read_bytes()
    data.unlink()
    if left is not None:
        data.write_bytes(content[:left])
    problem = (
        r"which is missing \('embeddings' is the first\)"
        if left is None
        else "has 100 bytes, and the weight 'embeddings'"
    )
    with pytest.raises(ModelError, match=rf"{path.parent}/weights\.data,? {problem}"):
        webgpu_ep.LanguageModel(path.parent)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("offset", "-4", "is invalid"),
        ("offset", "abc", "is invalid"),
        ("length", "-1", "is invalid"),
        ("length", "1024", "has 1024 bytes in .*, but its type and shape need"),
    ],
)
@pytest.mark.parametrize("make", [write, write_growing])
def test_a_place_of_weights_that_is_damaged_is_named(
    make: Callable[[Decoder, Path], Path], key: str, value: str, problem: str, tmp_path: Path
) -> None:
    path = make(Decoder(layers=1, groups=4), tmp_path / "model") / "model.onnx"
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.data", size_threshold=1024)
    damaged = onnx.load(path, load_external_data=False)
    tensor = next(it for it in damaged.graph.initializer if it.name == "embeddings")
    next(it for it in tensor.external_data if it.key == key).value = value
    onnx.save(damaged, path)
    with pytest.raises(ModelError, match=f"the weight 'embeddings' {problem}.*: copy all files"):
        webgpu_ep.LanguageModel(path.parent)


def test_caches_of_unknown_size_are_named(tmp_path: Path) -> None:
    path = write(Decoder(layers=1), tmp_path / "model") / "model.onnx"
    for spoil, shape in (
        (lambda dims: dims[1].Clear(), r"batch_size, \?, past_sequence_length, 16"),
        (lambda dims: dims.pop(), "batch_size, 2, past_sequence_length"),
    ):
        model = graph_of(Decoder(layers=1))
        spoil(next(it for it in model.graph.input if "key" in it.name).type.tensor_type.shape.dim)
        onnx.save(model, path)
        with pytest.raises(ModelError, match=rf"past_key_values\.0\.key' has the shape \({shape}\); a cache is"):
            webgpu_ep.LanguageModel(path.parent)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "genai_config.json"])
def test_a_file_that_is_missing_is_named(name: str, tmp_path: Path) -> None:
    path = write(Decoder(layers=1), tmp_path / "model")
    (path / name).unlink()
    with pytest.raises(ModelError, match=name.replace(".", r"\.")):
        webgpu_ep.generate(path, "hello", max_new_tokens=1)


def test_a_folder_without_a_template_has_no_chats(tmp_path: Path) -> None:
    path = write(Decoder(layers=1), tmp_path / "model")
    (path / "tokenizer_config.json").unlink()
    chat = webgpu_ep.LanguageModel(path).chat()
    with pytest.raises(ModelError, match="no chat template"):
        next(chat.say("hi"))
    assert chat.messages == []


def test_the_command_says_that_there_is_no_template_before_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(Decoder(layers=1), tmp_path / "model")
    (path / "tokenizer_config.json").unlink()
    monkeypatch.setattr("builtins.input", None)
    assert main(["chat", str(path)]) == 2
    said = capsys.readouterr()
    assert "no chat template" in said.err and "--prompt TEXT" in said.err and said.out == ""


@pytest.mark.costly
def test_no_prompt_is_printed_into_a_pipe(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(["chat", str(folder)]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.costly
@pytest.mark.parametrize("terminal", [False, True])
def test_a_message_that_is_too_long_ends_no_conversation(
    terminal: bool, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a person; who pipes messages gets an exit code."""
    messages = iter(["x" * 200, "hi"])

    def typed(_prompt: str) -> str:
        message = next(messages, None)
        if message is None:
            raise EOFError
        return message

    monkeypatch.setattr("builtins.input", typed)
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: terminal)
    assert main(["chat", str(folder), "--max-new-tokens", "3"]) == (0 if terminal else 2)
    said = capsys.readouterr()
    assert "are more than the 128 that the caches have room for" in said.err
    assert ("tokens/s" in said.err) == terminal


@pytest.mark.parametrize("length", [0, -3, 129])
def test_a_length_that_the_model_was_not_made_for_is_refused(folder: Path, length: int) -> None:
    with pytest.raises(InputError, match=rf"max_length={length}: it is from 1 to 128"):
        webgpu_ep.LanguageModel(folder, max_length=length)


def test_a_tokenizer_or_a_template_that_is_damaged_is_named(tmp_path: Path) -> None:
    path = write(Decoder(layers=1), tmp_path / "model")
    for template in ("{% for %}", "{{ nothing.at_all.here }}"):
        (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
        chat = webgpu_ep.LanguageModel(path).chat()
        with pytest.raises(ModelError, match=r"the chat template of .* does not work"):
            next(chat.say("hi"))
        assert chat.messages == []
    (path / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match=r"tokenizer\.json is not a tokenizer"):
        webgpu_ep.generate(path, "hello", max_new_tokens=1)


def test_a_mask_that_is_shorter_than_its_ids_is_refused_as_by_the_cpu_provider(tmp_path: Path) -> None:
    path = write(Decoder(layers=1), tmp_path / "model") / "model.onnx"
    cache = np.zeros((1, 2, 16, 16), np.float32)
    feeds = {"past_key_values.0.key": cache, "past_key_values.0.value": cache}
    feeds |= {"input_ids": np.full((1, 5), 7), "attention_mask": np.ones((1, 3), np.int64)}
    for session in (ort.InferenceSession(path, providers=["CPUExecutionProvider"]), webgpu_ep.session(path)):
        with pytest.raises(Exception, match=r"total.sequence.length"):
            session.run(None, feeds)


def test_logits_that_are_not_a_number_are_an_error(tmp_path: Path) -> None:
    path = write_growing(Decoder(layers=1, groups=4), tmp_path / "model")
    spoilt = growing_graph_of(Decoder(layers=1, groups=4))
    weight = next(it for it in spoilt.graph.initializer if it.name == "head")
    array = onnx.numpy_helper.to_array(weight).copy()
    array[:, 7] = np.nan
    weight.CopyFrom(onnx.numpy_helper.from_array(array, "head"))
    onnx.save(spoilt, path / "model.onnx")
    with pytest.raises(NonFiniteError, match="prompt 0 have NaN after 0 new ids"):
        list(webgpu_ep.LanguageModel(path).tokens([[5, 6]]))


@pytest.mark.costly
def test_the_command_answers(folder: Path, model: webgpu_ep.LanguageModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", str(folder), "--prompt", "hi", "--max-new-tokens", "6", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "".join(model.chat().say("hi", max_new_tokens=6))
    assert main(["chat", str(folder), "--prompt", "hi", "--max-new-tokens", "6"]) == 0
    assert "tokens/s" in capsys.readouterr().err


def test_the_command_counts_tokens_and_not_pieces_of_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three ids are a character, which comes as one piece."""
    path = write_growing(Decoder(layers=1, groups=4), tmp_path / "model")
    (path / "tokenizer_config.json").unlink()
    model = webgpu_ep.LanguageModel(path)
    ids = greedy(model, model.text.ids("hi"), 12)
    assert model.picked == len(ids)
    pieces = list(model.stream("hi", max_new_tokens=12))
    assert len(pieces) < len(ids) == model.picked / 2
    assert main(["chat", str(path), "--prompt", "hi", "--max-new-tokens", "12", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["text"] == "".join(pieces) and found["tokens"] == len(ids) and found["tokens_per_s"] > 0


def test_the_command_names_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", str(tmp_path)]) == 2
    assert "genai_config.json" in capsys.readouterr().err
