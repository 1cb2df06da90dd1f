"""`LanguageModel` generates text with an exported decoder; `Chat` is a conversation that reuses the KV cache of earlier turns.

model = webgpu_ep.LanguageModel("model-folder")
for piece in model.stream("Once upon a time", max_new_tokens=64): print(piece, end="", flush=True)
texts = model.generate(["One prompt", "another"], temperature=0.8, top_p=0.9, seed=7)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

from ...errors import DeviceLostError, InputError, NonFiniteError, cut
from ...options.types import ProviderOptions
from ..session import session
from .arguments import count_argument, ids_argument, sampling_argument, text_argument, texts_argument
from .decoder import Decoder
from .folder import LONGEST, open_folder
from .mask_trial import leaves_out_rows
from .picker import Picker
from .sampler import NAN, NOTHING, Sampling, model_of
from .state import State
from .text import Stream, Tokenizer

CHUNK = 1024  # prompt ids per run: an H200 takes 62 ms for 1,024 of them, and 81 ms in two runs
# Runs that keep the intermediate buffers of a prompt, because the next prompt needs them again. Steps of decoding that C code
# repeats do not count, so a text has two to four. Without such repeats, as with validationMode=full, each step is one.
BUFFER_POOL_GENERATIONS = 8
_PROBLEMS = {NAN: "have NaN", NOTHING: "are all -infinity"}


class LanguageModel:
    """A decoder in the folder layout of onnxruntime-genai or of optimum, on the device that the options select.

    `max_length` is the length of the longest sequence, prompt and answer together, in ids. The default is the model's own
    limit, at most 8,192. `picked` counts the ids of all texts so far, without those that end one. `options` are provider
    options. Raises ModelError for an incomplete or invalid folder, and InputError for an invalid `max_length`.
    """

    def __init__(
        self, folder: str | Path, *, max_length: int | None = None, **options: Unpack[ProviderOptions]
    ) -> None:
        self.folder = open_folder(folder)
        self._options = options
        rows = min(self.folder.context, LONGEST) if max_length is None else max_length
        if not isinstance(rows, int) or not 1 <= rows <= self.folder.context:
            raise InputError(
                f"max_length={cut(rows)}: it is from 1 to {self.folder.context}, the longest sequence that the model was made for"
                f" according to {self.folder.path}"
            )
        defaults: ProviderOptions = {"sessionBufferPoolGenerations": BUFFER_POOL_GENERATIONS}
        self.decoder = Decoder(self.folder.model, rows, self.folder.context, defaults | options, self.folder.head_size)
        self.decoder.keeps_rows = self.decoder.takes_rows and leaves_out_rows(self.decoder)
        self.picked = 0
        self._samplers: dict[Sampling, Any] = {}

    @cached_property
    def text(self) -> Tokenizer:
        """The tokenizer. Raises ModelError if the folder has none."""
        return Tokenizer(self.folder)

    def chat(self, system: str | None = None) -> Chat:
        """Starts a conversation, optionally with a system message."""
        return Chat(self, system)

    # ---- texts

    def generate(
        self,
        prompts: str | Sequence[str],
        *,
        max_new_tokens: int | None = None,
        stop: Sequence[str] = (),
        **sampling: Any,
    ) -> list[str]:
        """Returns the answers to prompts of any lengths; a single prompt gives a list of one.

        `max_new_tokens` is the limit for each answer. A text in `stop` ends an answer and is not part of it. `sampling` are the
        fields of `Sampling`. Raises as `tokens`.
        """
        given = [prompts] if isinstance(prompts, str) else prompts
        if not isinstance(given, Sequence) or not all(isinstance(it, str) for it in given):
            raise InputError(f"prompts={cut(prompts)}: pass a text or a list of texts; tokens() takes ids")
        stop = texts_argument("stop", stop)
        streams = [Stream(self.text, stop) for _ in given]
        texts = [""] * len(given)
        ids = [self.text.ids(prompt) for prompt in given]
        for row, token in self.tokens(
            ids, max_new_tokens=max_new_tokens, stopped=[it.is_stopped for it in streams], **sampling
        ):
            texts[row] += streams[row].add(token)
        return [text + stream.end() for text, stream in zip(texts, streams, strict=True)]

    def stream(
        self, prompt: str, *, max_new_tokens: int | None = None, stop: Sequence[str] = (), **sampling: Any
    ) -> Iterator[str]:
        """Yields the answer to a prompt in pieces of text. Arguments are as in `generate`."""
        ids = self.text.ids(text_argument("prompt", prompt))
        yield from self._pieces(self.tokens([ids], max_new_tokens=max_new_tokens, **sampling), stop)

    def _pieces(self, tokens: Iterator[tuple[int, int]], stop: Sequence[str]) -> Iterator[str]:
        out = Stream(self.text, texts_argument("stop", stop))
        for _, token in tokens:
            piece = out.add(token)
            if piece:
                yield piece
            if out.stopped:
                return
        if rest := out.end():
            yield rest

    # ---- ids

    def tokens(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int | None = None,
        state: State | None = None,
        stopped: Sequence[Any] = (),
        ends: Sequence[int] | None = None,
        **sampling: Any,
    ) -> Iterator[tuple[int, int]]:
        """Yields (prompt number, id) for each picked id, without those that end a text.

        `ends` are the ids that end a text, by default those of the folder. `state` are caches that the prompts continue; a
        penalty counts their ids too. `stopped` has one callback per prompt, which returns True when the caller needs no more of
        it. Raises InputError for an empty batch or prompt, LimitError for a prompt that is too long, and NonFiniteError for NaN
        logits.
        """
        prompts = ids_argument(prompts)
        max_new_tokens = count_argument("max_new_tokens", max_new_tokens, 0, "as many as there is room for")
        settings = sampling_argument(sampling)
        is_own = state is None
        state = state or State(self.decoder, len(prompts))
        if len(prompts) != state.batch:
            raise InputError(f"{len(prompts)} prompts for caches of {state.batch}: pass as many, or no state")
        try:
            yield from self._continued(prompts, state, max_new_tokens, stopped, ends, settings)
        finally:
            if is_own:
                state.end()

    def _continued(
        self,
        prompts: Sequence[Sequence[int]],
        state: State,
        max_new_tokens: int | None,
        stopped: Sequence[Any],
        ends: Sequence[int] | None,
        settings: Sampling,
    ) -> Iterator[tuple[int, int]]:
        """Yields like `tokens`, from checked arguments."""
        logits = state.prompt(prompts, CHUNK)
        most = self.decoder.rows - int(state.used.max()) + 1  # the last id does not enter the cache
        count = most if max_new_tokens is None else min(max_new_tokens, most)
        if not count:
            return
        done, ending = [False] * len(prompts), frozenset(self.folder.end if ends is None else ends)
        picker = Picker(self.sampler(settings), settings, state)
        picking = picker.pick(logits)
        for step in range(count):
            last = step == count - 1
            # The next step needs only tensors on the device. So it runs while the ids are downloaded, and is used if the text
            # continues. The first step is slow to submit, so the first id is downloaded before it.
            if step and not last:
                picker.start_next()
            picked = picking()
            for row, token in enumerate(picked):
                if done[row]:
                    continue
                if token < 0:
                    raise NonFiniteError(
                        f"the logits of prompt {row} {_PROBLEMS[token]} after {step} new ids: check the model and"
                        " its inputs"
                    )
                if token in ending:
                    done[row] = True
                    continue
                self.picked += 1
                yield row, token
                done[row] = bool(stopped) and stopped[row]()
            if last or False not in done:
                return
            picking = picker.continue_with(picked)

    def sampler(self, settings: Sampling) -> Any:
        """Returns the session that picks ids with these settings."""
        structure = Sampling(**{**vars(settings), "seed": None})
        if structure not in self._samplers:
            decoder = self.decoder
            built = model_of(structure, decoder.kind, decoder.vocabulary, decoder.has_positions)
            # The sampler must use the decoder's device. By default, a session may choose another WebGPU library.
            there: dict[str, Any] = {**self._options, "webgpuLibrary": decoder.library}
            self._samplers[structure] = session(built.SerializeToString(), **there)
        return self._samplers[structure]


class Chat:
    """A conversation with a model. The KV cache keeps the common prefix with earlier turns."""

    def __init__(self, model: LanguageModel, system: str | None = None) -> None:
        self.model = model
        self.messages: list[dict[str, str]] = []
        if system is not None:
            self.messages.append({"role": "system", "content": text_argument("system", system)})
        self._state = State(model.decoder, 1)
        self.reused = 0  # ids of the last prompt that were in the cache

    def say(
        self, text: str, *, max_new_tokens: int | None = None, stop: Sequence[str] = (), **sampling: Any
    ) -> Iterator[str]:
        """Yields the answer in pieces of text. An answer that is interrupted, by Ctrl-C too, stays in the conversation so far.

        Raises DeviceLostError when the device is lost; the next message is answered on a new one. Other errors are those of
        `LanguageModel.tokens`.
        """
        self.messages.append({"role": "user", "content": text_argument("message", text)})
        answer: list[str] = []
        try:
            ids = self.model.text.ids_of_chat(self.messages)
            for piece in self.model._pieces(self._tokens(ids, max_new_tokens=max_new_tokens, **sampling), stop):
                answer.append(piece)
                yield piece
        finally:
            if answer:
                self.messages.append({"role": "assistant", "content": "".join(answer)})
            else:
                self.messages.pop()  # there was no answer

    def _tokens(self, ids: Sequence[int], **kwargs: Any) -> Iterator[tuple[int, int]]:
        (cached,) = self._state.ids
        common = _common(cached, ids[:-1])
        if self.model.decoder.in_place:
            self._state.rewind(common)
        elif common < len(cached):  # these caches cannot drop their last rows
            self._state, common = State(self.model.decoder, 1), 0
        self.reused = common
        try:
            yield from self.model.tokens([ids[common:]], state=self._state, **kwargs)
        except DeviceLostError:
            # The caches' content is lost: the next turn runs all of its ids.
            self._state = State(self.model.decoder, 1)
            raise


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def generate(folder: str | Path, prompts: str | Sequence[str], **kwargs: Any) -> list[str]:
    """Returns the answers of the model in a folder to one prompt or several; see `LanguageModel.generate`.

    Create a `LanguageModel` to use a model more than once."""
    return LanguageModel(folder).generate(prompts, **kwargs)
