"""A session on one device, which runs several requests at once and is made anew when the device was lost.

In: the inputs of requests. Out: of each its outputs or its error. Invariants: a request that fails fails alone: where a batch
does, each of its requests is run alone; the loss of a device fails a request only when it happens twice in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import DeviceLostError
from .batching import BatchAxis
from .requests import Feeds, Outputs


class Runner:
    """`opens` makes the session; `batches` says that requests are joined. Raises what `opens` does, and BatchError for a model
    whose requests cannot be joined."""

    def __init__(
        self, opens: Callable[[], Any], output_names: Sequence[str] | None = None, batches: bool = False
    ) -> None:
        self._opens, self._names = opens, None if output_names is None else list(output_names)
        self.session: Any = opens()
        self.axis = BatchAxis(self.session, self._names) if batches else None
        self.reopened = 0

    def run(self, several: Sequence[Feeds], rows: Sequence[int]) -> list[Outputs | Exception]:
        """The outputs of requests that may be one run, whose numbers of rows are given. Raises what making the session anew
        raises."""
        if self.session is None:
            self.reopen()
        outcome = self.attempt(several, rows)
        if isinstance(outcome, DeviceLostError):
            del outcome  # its traceback holds the session
            self.reopen()
            outcome = self.attempt(several, rows)
        if not isinstance(outcome, Exception):
            return list(outcome)
        if len(several) == 1:
            return [outcome]
        del outcome
        return [self.run([feeds], [count])[0] for feeds, count in zip(several, rows, strict=True)]

    def attempt(self, several: Sequence[Feeds], rows: Sequence[int]) -> list[Outputs] | Exception:
        """One run: the outputs of all, or the error of all."""
        try:
            if self.axis is None:
                return [self.session.run(self._names, several[0])]
            return self.axis.split(self.session.run(self._names, self.axis.join(several)), rows)
        except Exception as error:
            return error

    def reopen(self) -> None:
        """Makes the session anew; the old one gives its memory back before."""
        self.session = None
        self.session = self._opens()
        self.reopened += 1

    def close(self) -> None:
        self.session = None
