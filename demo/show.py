"""Prints the recognised text with scores, and a table of the three sessions."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .measure import Row
from .reader import Reading


def reading(console: Console, read: Reading) -> None:
    console.print(f"Read in {read.seconds:.1f} s", highlight=False)
    table = Table("score", "text", box=box.SIMPLE)
    for text, score in zip(read.texts, read.scores, strict=True):
        table.add_row(f"{score:.3f}", Text(text))
    console.print(table)


def sessions(console: Console, rows: Sequence[Row], adapter: str, software: bool = False) -> None:
    """Prints times in seconds, and the largest difference from the CPU provider. `software`: the adapter is not a GPU."""
    console.print(f"Sessions on {adapter}; seconds; difference: the largest to the CPU provider", highlight=False)
    table = Table(box=box.SIMPLE)
    table.add_column("session", no_wrap=True)
    for name in ("WebGPU nodes", "CPU nodes", "create", "first", "steady", "CPU steady", "difference"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row.part,
            str(row.nodes_webgpu),
            str(sum(row.nodes_cpu.values())),
            *(f"{seconds:.3f}" for seconds in (row.creation, row.first_run, row.steady_run, row.cpu_steady_run)),
            f"{row.difference:.1e}",
        )
    console.print(table)
    if software:
        console.print(
            f"{adapter} is software rendering, which calculates on the CPU and is far slower than the CPU provider: on a GPU"
            " these sessions are faster.",
            highlight=False,
        )
    for row in rows:
        if row.nodes_cpu:
            operators = ", ".join(f"{count} {op}" for op, count in sorted(row.nodes_cpu.items()))
            console.print(
                f"{row.part}, on the CPU: {operators}", *row.reasons, sep="\n  ", highlight=False, markup=False
            )
