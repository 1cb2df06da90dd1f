"""Tokenization, chat templates, incremental decoding of text, and stop strings.

Invariant: a piece of text that was returned is final. Therefore an incomplete character waits for its next byte, and a possible
beginning of a stop string waits until it is certain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ...errors import InputError, ModelError, cut
from .folder import ModelFolder

T = TypeVar("T")
_UNFINISHED = "\ufffd"


class Tokenizer:
    """The tokenizer of a folder, with its chat template. Raises ModelError if it cannot be read or fails for a text."""

    def __init__(self, folder: ModelFolder) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ModelError(f"text needs the package tokenizers (pip install tokenizers): {error}") from error
        self._folder, self._path = folder, folder.tokenizer
        wrong = "is not a tokenizer that the package tokenizers can read"
        self._tokenizer: Any = self._call(wrong, lambda: Tokenizer.from_file(str(self._path)))
        # Settings for training: a file may request padding to a length that no memory holds, or silent truncation.
        self._call(wrong, self._tokenizer.no_padding)
        self._call(wrong, self._tokenizer.no_truncation)

    def _call(self, problem: str, function: Callable[[], T]) -> T:
        """Returns the result of `function`. The package raises plain Exception and, if its Rust code panics, a BaseException."""
        try:
            return function()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            raise ModelError(f"{self._path} {problem}: {error}") from error

    def ids(self, text: str, special: bool = True) -> list[int]:
        """Returns the ids of a text. With `special`, the tokenizer adds the ids that begin a text."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"the text has half of a character, {text[error.start]!r}, at {error.start}") from error
        problem = f"has no ids for the text {cut(text)}"
        found: list[int] = self._call(problem, lambda: self._tokenizer.encode(text, add_special_tokens=special).ids)
        return found

    def ids_of_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Returns the ids of a conversation, up to the start of the assistant's answer. Raises ModelError without a
        template."""
        if self._folder.template is None:
            raise ModelError(
                f"{self._folder.path} has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json):"
                " use generate() with a prompt"
            )
        try:
            from .template import render
        except ImportError as error:
            raise ModelError(f"chat templates need the package jinja2 (pip install jinja2): {error}") from error
        text = render(self._folder.template, messages, self._folder.tokens)
        return self.ids(text, special=False)

    def text(self, ids: Sequence[int]) -> str:
        found: str = self._call(
            "has no text for the ids", lambda: self._tokenizer.decode(list(ids), skip_special_tokens=True)
        )
        return found


class Stream:
    """The growing text of one sequence. `stopped` is set at a stop string, which is not part of the text."""

    def __init__(self, text: Tokenizer, stops: Sequence[str]) -> None:
        self._text, self._stops = text, [it for it in stops if it]
        self._ids: list[int] = []
        self._given = 0
        self.stopped = False

    def is_stopped(self) -> bool:
        return self.stopped

    def add(self, token: int) -> str:
        """Adds a token, and returns the text that became certain."""
        self._ids.append(token)
        return self._certain(self._text.text(self._ids), last=False)

    def end(self) -> str:
        """Returns the rest of the text after the last token."""
        return self._certain(self._text.text(self._ids), last=True)

    def _certain(self, text: str, last: bool) -> str:
        if self.stopped:
            return ""
        found = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        until = len(text)
        if found:
            until, self.stopped = min(found), True
        elif not last:
            until = min(until, len(text.rstrip(_UNFINISHED)), *(self._partial_stop(text, stop) for stop in self._stops))
        piece, self._given = text[self._given : max(until, self._given)], max(until, self._given)
        return piece

    @staticmethod
    def _partial_stop(text: str, stop: str) -> int:
        """Returns the index where a possible stop string begins at the end of the text."""
        longest = min(len(stop) - 1, len(text))
        return len(text) - next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
