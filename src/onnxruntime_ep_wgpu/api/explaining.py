"""Visualises a model's kernels and the tensors between them. In: a model. Out: a report of its nodes, and a drawing as HTML."""

from __future__ import annotations

import html
import os
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..drawings.page import page
from ..records import dataclass
from ..writing import write_file
from .reports import COLUMNS, Report, node_rows, report

if TYPE_CHECKING:
    from ..plugin.node import RunnableGroup
    from ..program.program import Program

HEIGHT = 640  # of the drawing in a notebook, in pixels


@dataclass(frozen=True)
class Explanation:
    """The result of `explain`. A notebook shows the drawing, `str` the report.

    `report` is the result of `report(session)`. `programs` are the compiled groups."""

    model: str
    report: Report
    programs: tuple[Program, ...] = field(repr=False)

    def facts(self) -> dict[str, Any]:
        """Returns the summary above the drawing, with the keys of the command's JSON."""
        placed = self.report
        return {
            "model": self.model,
            "device": placed.device,
            "nodes": len(placed.nodes),
            "nodes_on_cpu": len(placed.on_cpu),
            "partitions": placed.partitions,
            "kernels": placed.kernels,
        }

    def page(self) -> str:
        """Returns a self-contained HTML page with the drawing and a table of the nodes."""
        facts = self.facts()
        if self.report.values:
            facts["values"] = ". ".join(map(str, self.report.values))
        return page(Path(self.model).name, facts, self.programs, COLUMNS, node_rows(self.report.nodes))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes `page()` to a file. Raises WriteError."""
        write_file(Path(path), self.page())

    def __str__(self) -> str:
        return str(self.report)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Returns an iframe for notebooks, which isolates the page's script and style."""
        text = html.escape(self.page())
        return f'<iframe srcdoc="{text}" sandbox="allow-scripts" style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'


def explained(open_session: Callable[[], Any], model: str) -> Explanation:
    """Returns the Explanation of the session that `open_session` creates. Raises its errors."""
    from ..plugin.tools import wrapping

    programs: list[Program] = []

    def keep(group: Any, _read_graph: Callable[[], Any]) -> RunnableGroup:
        programs.append(group.on_device().executable.program)
        kept: RunnableGroup = group
        return kept

    with wrapping(keep):
        session = open_session()
    return Explanation(model, report(session), tuple(programs))


def explain(model: str | os.PathLike[str] | bytes, **arguments: Any) -> Explanation:
    """Compiles a model and returns a drawing of the result. Nothing is run.

    As the last line of a notebook's cell, `explain("model.onnx")` draws kernels and tensors with their sizes, and lists nodes.
    A click on a kernel shows its WGSL.

    The other arguments are those of `session`, but a model with all nodes on the CPU is no error. Raises what `session` raises.
    """
    from .arguments import model_name
    from .session import session

    arguments.setdefault("allow_cpu_only", True)
    return explained(lambda: session(model, **arguments), model_name(model))
