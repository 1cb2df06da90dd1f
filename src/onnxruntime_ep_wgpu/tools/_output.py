"""Output of all tools. In: rows of values. Out: a rich table on a terminal, aligned plain text elsewhere, or JSON.

Invariant: with --json, stdout has only JSON. A pipe receives only text without colours.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..progress_line import is_wanted
from ..tabular import cells, printable, rich_table, text_lines, words
from ..writing import errors_about

if TYPE_CHECKING:
    from ..api.session import Progress


def show_json(data: Any) -> None:
    """Prints `data` as JSON. Sets become sorted lists; other types that JSON lacks become text."""
    show_lines(
        json.dumps(
            data, indent=2, default=lambda value: sorted(value) if isinstance(value, (set, frozenset)) else str(value)
        )
    )


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """Prints a table with right-aligned numbers."""
    if sys.stdout.isatty():
        _print_rich(rich_table(columns, rows, title), lambda: records(columns, rows, title))
        return
    show_lines(*([title] if title else []), *text_lines(columns, rows))


def show_pairs(pairs: Mapping[str, object], title: str = "") -> None:
    """Prints one name and value per line. JSON keys become plain words."""
    pairs = {words(name): printable(str(value)) for name, value in pairs.items()}
    if sys.stdout.isatty():
        rows = [[name, value] for name, value in pairs.items()]
        _print_rich(rich_table(("", ""), rows, title, header=False))
        return
    width = max((len(name) for name in pairs), default=0)
    lines = [f"{name.ljust(width)}  {value}".rstrip() for name, value in pairs.items()]
    show_lines(*([title] if title else []), *lines)


def records(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> str:
    """Returns the rows as blocks of "column value" lines, for narrow terminals."""
    blocks = ["\n".join(text_lines(line, [])[0] for line in _named(columns, row)) for row in cells(rows)]
    return "\n\n".join([*([title.lstrip("\n")] if title else []), *blocks])


def show_note(text: str) -> None:
    """Prints a note to stderr."""
    print(printable(text), file=sys.stderr)


def _named(columns: Sequence[str], row: Sequence[str]) -> Iterator[list[str]]:
    width = max(map(len, columns))
    return ([name.ljust(width), text] for name, text in zip(columns, row, strict=True) if text)


def show_lines(*lines: str) -> None:
    """Prints lines of text."""
    with errors_about("standard output"):
        for line in lines:
            print(printable(line))


def _print_rich(table: Any, narrow: Callable[[], str] | None = None) -> None:
    """Prints a table. `narrow` returns the text for terminals where the table would break words."""
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
    """Receives the name of each next step of a command. This base class shows nothing."""

    making: Callable[[Progress], None] | None = None
    """Receives the progress of the session's creation, which is the current step."""

    def __call__(self, name: str) -> None:
        pass


class ShownSteps(Steps):
    """Shows two progress bars: one for the command's steps, and one for the session that is being created."""

    def __init__(self, bar: Any, first: str, total: int) -> None:
        self._bar = bar
        self._all = bar.add_task(first, total=total)
        self._part: Any = None
        self.making = self._made

    def __call__(self, name: str) -> None:
        self._end_part()
        self._bar.update(self._all, advance=1, description=name)

    def _made(self, progress: Progress) -> None:
        """Shows one part of the session's creation. A part without numbers is an indeterminate bar."""
        if self._part is None:
            self._part = self._bar.add_task(progress.part, total=None)
        done, total = (progress.done, progress.total) if progress.total else (0, None)
        # rich has no other way to make a bar indeterminate again.
        self._bar.tasks[self._bar.task_ids.index(self._part)].total = total
        self._bar.update(self._part, description=f"  {progress.part}", completed=done)

    def _end_part(self) -> None:
        if self._part is not None:
            self._bar.remove_task(self._part)
            self._part = None


@contextlib.contextmanager
def progress(first: str, total: int) -> Iterator[Steps]:
    """Yields the steps, with a progress bar on stderr if that is a terminal and WGPU_EP_PROGRESS is not 0."""
    if not is_wanted():
        yield Steps()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        yield ShownSteps(bar, first, total)
