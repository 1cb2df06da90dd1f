"""Formats rows of values as text, rich or HTML tables. In: columns, rows. Out: lines or a table; numbers are right-aligned."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any

# Control characters except tab and newline, because names in a model could control a terminal; those that change the direction
# of text, because they change the order of what follows; and lone surrogates, which cannot be encoded.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Returns the text with control characters escaped for a terminal: the escape character becomes `\\x1b`."""
    return _UNPRINTABLE.sub(lambda it: ascii(it[0])[1:-1], text)


def cells(rows: Sequence[Sequence[object]]) -> list[list[str]]:
    """Returns every value as printable text; None is empty."""
    return [["" if value is None else printable(str(value)) for value in row] for row in rows]


def numeric(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[bool]:
    """Returns for each column whether it has only numbers."""
    return [bool(rows) and all(isinstance(row[i], (int, float)) for row in rows) for i in range(len(columns))]


def text_lines(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Returns the table as lines of plain text, with the heading first."""
    texts, right = cells(rows), numeric(columns, rows)
    widths = [max(len(text) for text in (name, *(row[i] for row in texts))) for i, name in enumerate(columns)]
    return [
        "  ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in zip(line, widths, right, strict=True)).rstrip()
        for line in (list(columns), *texts)
    ]


def rich_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "", header: bool = True) -> Any:
    """Returns the table as a `rich.table.Table`."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    above = Text(printable(title), "table.title") if title else None
    table = Table(title=above, title_justify="left", box=box.SIMPLE, show_header=header, pad_edge=False)
    texts = cells(rows)
    for k, (name, right) in enumerate(zip(columns, numeric(columns, rows), strict=True)):
        # In a narrow terminal, columns of sentences wrap, and columns of names keep their words whole.
        whole = header and not any(" " in row[k] for row in texts)
        table.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=whole)
    for row in texts:
        table.add_row(*(Text(text) for text in row))
    return table


def html_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "", notes: Sequence[str] = ()
) -> str:
    """Returns the table as HTML for notebooks, with all text escaped, and without scripts and style sheets."""
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
    """Returns a JSON key in plain words: "nodes_on_cpu" becomes "nodes on the CPU"."""
    return key.replace("_on_cpu", " on the CPU").replace("_in_f64", " in f64").replace("_", " ")
