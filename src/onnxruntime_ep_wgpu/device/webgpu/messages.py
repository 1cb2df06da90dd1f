"""The error messages of libraries, by the thread of the call that caused them.

In: messages of callbacks. Out: `errors` with the messages that were not read yet. Invariants: an error is raised on the thread
of the call that caused it, and by one call only. Libraries report an error before the call that caused it returns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar

from ... import _submit  # type: ignore[attr-defined,unused-ignore]
from .header import address


class Errors(threading.local):
    """The unread messages of this thread, each with the address of its device (0 if unknown).

    If a call fails for another reason, messages from before may stay unread, and the thread may continue with another device.
    `others(kind, text)` returns whether it takes a message that belongs to another owner; see `wgpu_py`.
    """

    others: ClassVar[Callable[[int, str], bool] | None] = None

    def __init__(self) -> None:
        self.messages: list[tuple[int, str]] = []

    def file(self, device: int, text: str) -> None:
        """Records the refusal of a call of ours on this thread. `device` is an address, or 0. C code detects it by the count."""
        _submit.lib.wgpu_count_error()
        self.messages.append((device, text))

    def take(self, device: Any) -> str:
        """Returns and removes the messages about a device; "" if there was no error.

        Messages about other devices are dropped, because their cause has raised another error.
        """
        if not self.messages:
            return ""
        number = address(device)
        text = "\n".join(text for about, text in self.messages if about in (number, 0))
        self.messages = []
        return text


errors = Errors()


def forget_errors() -> None:
    """Drops the messages of this thread. They are about abandoned work, and not about the next calls."""
    if errors.messages:
        errors.messages = []
