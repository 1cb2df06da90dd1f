"""One request: its inputs, its future, and which others may be in a batch with it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

Feeds = Mapping[str, Any]
Outputs = list[Any]


@dataclass(eq=False)
class Request:
    """`feeds` are inputs by name, `rows` their size along the batch axis, `since` the time of its arrival in seconds. Requests of
    one `kind` may be one batch; one of the kind None runs alone. `started`: it was taken, and its future is running."""

    feeds: Feeds
    kind: Hashable | None = None
    rows: int = 1
    since: float = 0.0
    started: bool = False
    future: Future[Outputs] = field(default_factory=Future)

    def starts(self) -> bool:
        """False when it was cancelled before."""
        self.started = self.started or self.future.set_running_or_notify_cancel()
        return self.started
