"""How tools print. In: rows of values. Out: a rich table on a terminal, aligned plain text elsewhere, or JSON.

Invariant: nothing but JSON goes to stdout with --json, and nothing but text without colours into a pipe.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


def show_json(data: Any) -> None:
    """Prints `data` as JSON; sets become sorted lists, anything else that JSON lacks becomes its text."""
    print(
        json.dumps(
            data, indent=2, default=lambda value: sorted(value) if isinstance(value, (set, frozenset)) else str(value)
        )
    )


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """Prints a table; numbers are right-aligned."""
    texts = [["" if value is None else str(value) for value in row] for row in rows]
    numeric = [bool(rows) and all(isinstance(row[i], (int, float)) for row in rows) for i in range(len(columns))]
    if sys.stdout.isatty():
        _show_rich(columns, texts, numeric, title)
        return
    if title:
        print(title)
    widths = [max(len(text) for text in (name, *(row[i] for row in texts))) for i, name in enumerate(columns)]
    for line in (columns, *texts):
        cells = (
            text.rjust(w) if right else text.ljust(w) for text, w, right in zip(line, widths, numeric, strict=True)
        )
        print("  ".join(cells).rstrip())


def show_pairs(pairs: Mapping[str, object], title: str = "") -> None:
    """Prints names and values, one pair per line."""
    if sys.stdout.isatty():
        _show_rich(("", ""), [[name, str(value)] for name, value in pairs.items()], [False, False], title, header=False)
        return
    if title:
        print(title)
    width = max((len(name) for name in pairs), default=0)
    for name, value in pairs.items():
        print(f"{name.ljust(width)}  {value}".rstrip())


def _show_rich(
    columns: Sequence[str], texts: Sequence[Sequence[str]], numeric: Sequence[bool], title: str, header: bool = True
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE, show_header=header, pad_edge=False)
    for name, right in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in texts:
        table.add_row(*(Text(text) for text in row))
    Console().print(table)


@contextlib.contextmanager
def progress(first: str, total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on stderr while the block runs, on a terminal only; call the result with the name of each next step."""
    if not sys.stderr.isatty():
        yield lambda _name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(first, total=total)
        yield lambda name: bar.update(task, advance=1, description=name)
