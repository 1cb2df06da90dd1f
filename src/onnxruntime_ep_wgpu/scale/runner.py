"""A session on one device that runs batches of requests, and is reopened when the device is lost.

In: the inputs of requests. Out: the outputs or the error of each. Invariants: a faulty request does not fail others, because
after a failed batch each request runs alone. The loss of a device fails a request only if it happens twice in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import DeviceLostError
from .batching import BatchAxis
from .requests import Feeds, Outputs


class Runner:
    """Owns a session. `opens` creates it; `batches` enables joined requests.

    Raises the errors of `opens`, and BatchError if the model does not support batches."""

    def __init__(
        self, opens: Callable[[], Any], output_names: Sequence[str] | None = None, batches: bool = False
    ) -> None:
        self._opens, self._names = opens, None if output_names is None else list(output_names)
        self.session: Any = opens()
        self.axis = BatchAxis(self.session, self._names) if batches else None
        self.reopened = 0

    def run(self, several: Sequence[Feeds], rows: Sequence[int]) -> list[Outputs | Exception]:
        """Returns the outputs or the error of each request of a batch with `rows` rows. Raises if reopening fails."""
        if self.session is None:
            self.reopen()
        outcome = self.attempt(several, rows)
        if isinstance(outcome, DeviceLostError):
            del outcome  # its traceback refers to the session
            self.reopen()
            outcome = self.attempt(several, rows)
        if not isinstance(outcome, Exception):
            return list(outcome)
        if len(several) == 1:
            return [outcome]
        del outcome
        return [self.run([feeds], [count])[0] for feeds, count in zip(several, rows, strict=True)]

    def attempt(self, several: Sequence[Feeds], rows: Sequence[int]) -> list[Outputs] | Exception:
        """Runs a batch once. Returns the outputs of all, or one error for all."""
        try:
            if self.axis is None:
                return [self.session.run(self._names, several[0])]
            return self.axis.split(self.session.run(self._names, self.axis.join(several)), rows)
        except Exception as error:
            return error

    def reopen(self) -> None:
        """Reopens the session; the old one is freed first."""
        self.session = None
        self.session = self._opens()
        self.reopened += 1

    def close(self) -> None:
        self.session = None
