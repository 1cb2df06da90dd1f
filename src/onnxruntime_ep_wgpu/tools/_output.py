"""How tools print. In: rows of values. Out: a rich table on a terminal, aligned plain text elsewhere, or JSON.

Invariant: nothing but JSON goes to stdout with --json, and nothing but text without colours into a pipe.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..tabular import cells, printable, rich_table, text_lines, words
from ..writing import naming


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


@contextlib.contextmanager
def progress(first: str, total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on stderr while the block runs, on a terminal only; call the result with the name of each next step."""
    if not sys.stderr.isatty():
        yield lambda _name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(first, total=total)
        yield lambda name: bar.update(task, advance=1, description=name)
