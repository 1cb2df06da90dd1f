"""Rows of values as aligned text, as a table of rich or of HTML. In: columns, rows. Out: lines; numbers are right-aligned."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any

# Control characters but tab and newline, by which a name in a model could steer a terminal; and halves of characters, which
# cannot be printed.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def printable(text: str) -> str:
    """The text for a terminal: control characters as Python writes them, the escape character as four, `\\x1b`."""
    return _UNPRINTABLE.sub(lambda it: ascii(it[0])[1:-1], text)


def cells(rows: Sequence[Sequence[object]]) -> list[list[str]]:
    """Every value as printable text; None is empty."""
    return [["" if value is None else printable(str(value)) for value in row] for row in rows]


def numeric(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[bool]:
    """Which columns hold numbers only."""
    return [bool(rows) and all(isinstance(row[i], (int, float)) for row in rows) for i in range(len(columns))]


def text_lines(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """The table as lines of plain text, the heading first."""
    texts, right = cells(rows), numeric(columns, rows)
    widths = [max(len(text) for text in (name, *(row[i] for row in texts))) for i, name in enumerate(columns)]
    return [
        "  ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in zip(line, widths, right, strict=True)).rstrip()
        for line in (list(columns), *texts)
    ]


def rich_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "", header: bool = True) -> Any:
    """The table as a `rich.table.Table`."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE, show_header=header, pad_edge=False)
    texts = cells(rows)
    for k, (name, right) in enumerate(zip(columns, numeric(columns, rows), strict=True)):
        # Where there is too little room, columns of sentences become narrower and those of names keep their words whole.
        whole = header and not any(" " in row[k] for row in texts)
        table.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=whole)
    for row in texts:
        table.add_row(*(Text(text) for text in row))
    return table


def html_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "", notes: Sequence[str] = ()
) -> str:
    """The table as HTML, for notebooks: no script and no style sheet, and every text is escaped."""
    right = numeric(columns, rows)

    def line(tag: str, values: Sequence[str]) -> str:
        parts = (
            f'<{tag} style="text-align: {"right" if r else "left"}">{escape(text)}</{tag}>'
            for text, r in zip(values, right, strict=True)
        )
        return f"<tr>{''.join(parts)}</tr>"

    body = "".join(line("td", row) for row in cells(rows))
    caption = f'<caption style="text-align: left">{escape(printable(title))}</caption>' if title else ""
    below = "".join(f"<div>{escape(printable(note))}</div>" for note in notes if note)
    return f"<table>{caption}<thead>{line('th', columns)}</thead><tbody>{body}</tbody></table>{below}"


def words(key: str) -> str:
    """A key of JSON as people read it: "nodes_on_cpu" is "nodes on the CPU"."""
    return key.replace("_on_cpu", " on the CPU").replace("_in_f64", " in f64").replace("_", " ")
