"""What libraries say went wrong, by the thread whose call caused it.

In: messages of callbacks. Out: `errors`, which has those that were not looked at yet. Invariant: an error is reported on the
thread whose call caused it, and never by more than one call. Libraries report an error before the call that it is about ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar

from ... import _submit  # type: ignore[attr-defined,unused-ignore]
from .header import address


class Errors(threading.local):
    """Messages that a library reported to this thread and that were not looked at yet, each with the address of its device (0
    when that is not known).

    A call that fails for another reason leaves what was said before it behind, and the thread may go on with another device.
    `others` may take a message (type, text) that belongs to another owner, see `wgpu_py`.
    """

    others: ClassVar[Callable[[int, str], bool] | None] = None

    def __init__(self) -> None:
        self.messages: list[tuple[int, str]] = []

    def file(self, device: int, text: str) -> None:
        """A call of ours on this thread was refused; `device` is an address, or 0. C code finds out by the count."""
        _submit.lib.wgpu_complain()
        self.messages.append((device, text))

    def take(self, device: Any) -> str:
        """What the messages since the last call say about a device; empty when there was no error. Those about another one are
        dropped: their cause has raised something else."""
        if not self.messages:
            return ""
        number = address(device)
        text = "\n".join(text for about, text in self.messages if about in (number, 0))
        self.messages = []
        return text


errors = Errors()


def forget_errors() -> None:
    """Drops this thread's messages: they are about work that was given up, and not about what comes now."""
    if errors.messages:
        errors.messages = []
