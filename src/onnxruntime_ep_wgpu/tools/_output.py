"""How tools print. In: rows of values. Out: a rich table on a terminal, aligned plain text elsewhere, or JSON.

Invariant: nothing but JSON goes to stdout with --json, and nothing but text without colours into a pipe.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..tabular import cells, printable, rich_table, text_lines, words
from ..telling import is_wanted
from ..writing import naming

if TYPE_CHECKING:
    from ..api.session import Progress


def show_json(data: Any) -> None:
    """Prints `data` as JSON; sets become sorted lists, anything else that JSON lacks becomes its text."""
    _print(
        json.dumps(
            data, indent=2, default=lambda value: sorted(value) if isinstance(value, (set, frozenset)) else str(value)
        )
    )


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """Prints a table; numbers are right-aligned."""
    if sys.stdout.isatty():
        _print_rich(rich_table(columns, rows, title), lambda: records(columns, rows, title))
        return
    _print(*([title] if title else []), *text_lines(columns, rows))


def show_pairs(pairs: Mapping[str, object], title: str = "") -> None:
    """Prints names and values, one pair per line. Names are words: keys of JSON lose their underscores."""
    pairs = {words(name): printable(str(value)) for name, value in pairs.items()}
    if sys.stdout.isatty():
        rows = [[name, value] for name, value in pairs.items()]
        _print_rich(rich_table(("", ""), rows, title, header=False))
        return
    width = max((len(name) for name in pairs), default=0)
    lines = [f"{name.ljust(width)}  {value}".rstrip() for name, value in pairs.items()]
    _print(*([title] if title else []), *lines)


def records(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> str:
    """The rows one below the other, each value with the name of its column: for terminals that are too narrow."""
    blocks = ["\n".join(text_lines(line, [])[0] for line in _named(columns, row)) for row in cells(rows)]
    return "\n\n".join([*([title.lstrip("\n")] if title else []), *blocks])


def _named(columns: Sequence[str], row: Sequence[str]) -> Iterator[list[str]]:
    width = max(map(len, columns))
    return ([name.ljust(width), text] for name, text in zip(columns, row, strict=True) if text)


def _print(*lines: str) -> None:
    with naming("standard output"):
        for line in lines:
            print(line)


def _print_rich(table: Any, narrow: Callable[[], str] | None = None) -> None:
    """`narrow` gives text for a terminal in which the table would be broken inside words."""
    from rich.console import Console
    from rich.measure import Measurement

    console = Console()
    if (
        narrow is not None
        and Measurement.get(console, console.options.update(max_width=10_000), table).minimum > console.width
    ):
        console.print(narrow(), markup=False, highlight=False)
        return
    console.print(table)


class Steps:
    """Those of a command, for a progress bar; call it with the name of each next one. Here they are not shown."""

    making: Callable[[Progress], None] | None = None
    """What gets how far the making of a session is, which is the current step."""

    def __call__(self, name: str) -> None:
        pass


class ShownSteps(Steps):
    """Those that a bar shows: a line of all, and one of the session that is being made."""

    def __init__(self, bar: Any, first: str, total: int) -> None:
        self._bar = bar
        self._all = bar.add_task(first, total=total)
        self._part: Any = None
        self.making = self._made

    def __call__(self, name: str) -> None:
        self._end_part()
        self._bar.update(self._all, advance=1, description=name)

    def _made(self, progress: Progress) -> None:
        """A part without numbers is a bar that has no end."""
        if self._part is None:
            self._part = self._bar.add_task(progress.part, total=None)
        done, total = (progress.done, progress.total) if progress.total else (0, None)
        # The only way to a bar without an end, once there was one.
        self._bar.tasks[self._bar.task_ids.index(self._part)].total = total
        self._bar.update(self._part, description=f"  {progress.part}", completed=done)

    def _end_part(self) -> None:
        if self._part is not None:
            self._bar.remove_task(self._part)
            self._part = None


@contextlib.contextmanager
def progress(first: str, total: int) -> Iterator[Steps]:
    """A progress bar on stderr while the block runs, on a terminal only, and not with WGPU_EP_PROGRESS=0 in the environment."""
    if not is_wanted():
        yield Steps()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        yield ShownSteps(bar, first, total)
