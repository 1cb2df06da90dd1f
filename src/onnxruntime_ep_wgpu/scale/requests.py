"""A request: its inputs, its future, and its batching key."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

Feeds = Mapping[str, Any]
Outputs = list[Any]


@dataclass(eq=False)
class Request:
    """A request. `feeds` are inputs by name, `rows` is their size along the batch axis, `since` is the arrival time in seconds.

    Requests of the same `kind` may share a batch; one with kind None runs alone. `started` is set when a thread takes it."""

    feeds: Feeds
    kind: Hashable | None = None
    rows: int = 1
    since: float = 0.0
    started: bool = False
    future: Future[Outputs] = field(default_factory=Future)

    def starts(self) -> bool:
        """Marks the request as running. Returns False if it was cancelled before."""
        self.started = self.started or self.future.set_running_or_notify_cancel()
        return self.started
