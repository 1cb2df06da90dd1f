"""Text to ids and back: the tokenizer, the chat template, text that arrives token by token, and where it stops.

Invariant: pieces that were given out are never taken back. So an unfinished character waits for its next byte, and what may
be the beginning of a stop string waits until it is known not to be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import ModelError
from .folder import ModelFolder

_UNFINISHED = "\ufffd"


class Tokenizer:
    """The tokenizer of a folder, with its chat template."""

    def __init__(self, folder: ModelFolder) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ModelError(f"text needs the package tokenizers (pip install tokenizers): {error}") from error
        if not folder.tokenizer.is_file():
            raise ModelError(f"{folder.tokenizer} is missing: export the model with its tokenizer, or pass ids")
        try:
            self._tokenizer = Tokenizer.from_file(str(folder.tokenizer))
        except Exception as error:  # the package raises nothing narrower
            raise ModelError(
                f"{folder.tokenizer} is no tokenizer that the package tokenizers can read: {error}"
            ) from error
        self._folder = folder

    def ids(self, text: str) -> list[int]:
        found: list[int] = self._tokenizer.encode(text, add_special_tokens=True).ids
        return found

    def ids_of_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The ids of a conversation, up to where the assistant answers. Raises ModelError without a template."""
        if self._folder.template is None:
            raise ModelError(
                f"{self._folder.path} has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json):"
                " use generate() with a prompt"
            )
        try:
            from jinja2 import TemplateError
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError as error:
            raise ModelError(f"chat templates need the package jinja2 (pip install jinja2): {error}") from error

        def refuse(message: str) -> None:
            raise ModelError(f"the chat template refuses the conversation: {message}")

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = refuse
        try:
            template = environment.from_string(self._folder.template)
            text = template.render(messages=list(messages), add_generation_prompt=True, **self._folder.tokens)
        except TemplateError as error:
            raise ModelError(f"the chat template of {self._folder.path} does not work: {error}") from error
        found: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return found

    def text(self, ids: Sequence[int]) -> str:
        found: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return found


class Stream:
    """The text of one sequence as it grows; `stopped` when a stop string came, which is not part of it."""

    def __init__(self, text: Tokenizer, stops: Sequence[str]) -> None:
        self._text, self._stops = text, [it for it in stops if it]
        self._ids: list[int] = []
        self._given = 0
        self.stopped = False

    def is_stopped(self) -> bool:
        return self.stopped

    def add(self, token: int) -> str:
        """The text that is certain now and was not before."""
        self._ids.append(token)
        return self._certain(self._text.text(self._ids), last=False)

    def end(self) -> str:
        """What is left when no more tokens come."""
        return self._certain(self._text.text(self._ids), last=True)

    def _certain(self, text: str, last: bool) -> str:
        if self.stopped:
            return ""
        found = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        until = len(text)
        if found:
            until, self.stopped = min(found), True
        elif not last:
            until = min(until, len(text.rstrip(_UNFINISHED)), *(self._held(text, stop) for stop in self._stops))
        piece, self._given = text[self._given : max(until, self._given)], max(until, self._given)
        return piece

    @staticmethod
    def _held(text: str, stop: str) -> int:
        """Where the beginning of a stop string at the end of the text begins."""
        longest = min(len(stop) - 1, len(text))
        return len(text) - next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
