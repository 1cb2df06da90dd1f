"""Compiled groups as a self-contained HTML file: no network, no library. In: a report, the Programs. Out: the text.

Invariants: all names are escaped in the drawing, and are JSON in the script's data. A click shows the facts and the WGSL of a
box.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import pairwise

from ..profiles.document import document
from ..program.program import Program
from ..tabular import html_table, printable, words
from .boxes import Box, Drawing, drawn
from .layers import layers

WIDTH, HEIGHT, BESIDE, BELOW = 210, 40, 18, 40  # of a box, and the gaps between boxes, in pixels
THROUGH = 12  # the width for a line that passes between boxes
LETTERS = 32  # the most characters of a line in a box

_BODY = """<h1>{{title}}</h1>
<p>{{facts}}</p>
<main>
<div id="groups">
{{groups}}
</div>
<aside><p class="hint">Click on a kernel: its nodes, its tensors, its WGSL.</p><dl id="facts"></dl><pre id="text"></pre></aside>
</main>
<h2>Nodes</h2>
<div class="scroll">{{nodes}}</div>
"""


def page(
    title: str,
    facts: Mapping[str, object],
    programs: Sequence[Program],
    columns: Sequence[str],
    nodes: Sequence[Sequence[object]],
) -> str:
    """Returns the HTML text: a drawing of each Program, and a table of the nodes with these columns."""
    drawings = [drawn(program) for program in programs]
    data = [[{"facts": box.facts, "text": box.text} for box in it.boxes] for it in drawings]
    groups = "\n".join(_group(number, it) for number, it in enumerate(drawings))
    values = {
        "title": _escaped(title),
        "facts": _escaped("; ".join(f"{words(name)} {value}" for name, value in facts.items())),
        "groups": groups or "<p>No node runs on WebGPU.</p>",
        "nodes": html_table(columns, nodes, "", []),
    }
    return document(_BODY, values, style=_part("page.css"), script=_part("page.js"), name="boxes", data=data)


def _part(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _group(number: int, it: Drawing) -> str:
    kernels = sum(box.kind == "kernel" for box in it.boxes)
    head = f"<h2>Group {number}: {kernels} kernel{'' if kernels == 1 else 's'}</h2>"
    return f'{head}\n<div class="scroll">{_drawing(number, it)}</div>'


def _drawing(number: int, it: Drawing) -> str:
    found = layers(len(it.boxes), [(line.source, line.target) for line in it.lines])
    widths = [WIDTH] * len(it.boxes) + [THROUGH] * sum(len(way) - 2 for way in found.ways)
    wide = max((sum(widths[box] + BESIDE for box in row) for row in found.rows), default=0) + BESIDE
    high = len(found.rows) * (HEIGHT + BELOW) + BELOW
    places: dict[int, tuple[float, float]] = {}  # the middle of each box's upper edge
    for k, row in enumerate(found.rows):
        left = (wide - sum(widths[box] + BESIDE for box in row) + BESIDE) / 2
        for box in row:
            places[box] = left + widths[box] / 2, BELOW / 2 + k * (HEIGHT + BELOW)
            left += widths[box] + BESIDE
    parts = [_line([places[box] for box in way], line.label) for way, line in zip(found.ways, it.lines, strict=True)]
    labels = {line.source: line.label for line in reversed(it.lines) if it.boxes[line.source].kind == "kernel"}
    parts += [_text("carried", places[box][0] + 6, places[box][1], HEIGHT + 14, label) for box, label in labels.items()]
    parts += [_box(number, k, box, *places[k]) for k, box in enumerate(it.boxes)]
    size = f'width="{wide}" height="{high}" viewBox="0 0 {wide} {high}"'
    return f'<svg {size} role="img" aria-label="Group {number}">{"".join(parts)}</svg>'


def _line(way: Sequence[tuple[float, float]], label: str) -> str:
    path = ""
    for (x0, y0), (x1, y1) in pairwise(way):
        middle = (y0 + HEIGHT + y1) / 2
        path += f"{'L' if path else 'M'}{x0:g} {y0 + HEIGHT:g}C{x0:g} {middle:g} {x1:g} {middle:g} {x1:g} {y1:g}"
    return f'<path d="{path}"><title>{_escaped(label)}</title></path>'


def _text(kind: str, x: float, y: float, below: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y + below:g}">{_escaped(_short(text))}</text>'


def _box(group: int, number: int, box: Box, x: float, y: float) -> str:
    texts = [box.title, *([box.subtitle] if box.subtitle else [])]
    step = HEIGHT / (len(texts) + 1)
    spans = "".join(_text("name", x, y, step * (k + 1) + 4, text) for k, text in enumerate(texts))
    corner = 5 if box.kind == "kernel" else HEIGHT / 2
    shape = f'<rect x="{x - WIDTH / 2:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="{corner}"/>'
    focus = ' tabindex="0" role="button"' if box.kind == "kernel" else ""
    whole = _escaped(" ".join(texts))
    return f'<g class="{box.kind}" data-group="{group}" data-box="{number}"{focus}><title>{whole}</title>{shape}{spans}</g>'


def _escaped(text: str) -> str:
    return html.escape(printable(text))


def _short(text: str) -> str:
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "\u2026"
