"""A profile as a self-contained HTML file: no network, no library. In: a profile. Out: the text.

Invariants: all data except the title is JSON in the element `profile`, which the page's script draws. No text of a profile can
become an element or a script, whatever its names are.
"""

from __future__ import annotations

import html
import json
from dataclasses import asdict
from importlib.resources import files
from pathlib import PurePath
from typing import Any

from ..tabular import words
from ..trace import GPU_THREAD
from .document import document
from .events import Timeline
from .tables import BEYOND, by_dispatch, by_kernel, by_operator, summary


def data(profile: Timeline) -> dict[str, Any]:
    """Returns the page's data. Equal args of events are stored once."""
    places: dict[str, int] = {}
    known: list[Any] = []
    rows = []
    for event in profile.events:
        text = json.dumps(event.args, sort_keys=True, default=str)
        if text not in places:
            places[text] = len(known)
            known.append(event.args)
        begin, duration = round(event.begin, 3), round(event.duration, 3)
        rows.append([event.kind, event.name, begin, duration, event.thread, places[text]])
    tables = {"operators": by_operator, "kernels": by_kernel, "dispatches": by_dispatch}
    return {
        "facts": {words(name): value for name, value in profile.facts.items()},
        "beyond": BEYOND,
        "summary": summary(profile),
        "gpu": GPU_THREAD,
        "steady": profile.steady[0].begin if profile.steady else 0,
        "steady_runs": profile.steady_runs,
        "args": known,
        "events": rows,
        "tables": {name: [asdict(row) for row in table(profile)] for name, table in tables.items()},
    }


def page(profile: Timeline) -> str:
    """Returns the HTML text."""
    body, style, script = (
        (files(__package__) / f"page.{it}").read_text(encoding="utf-8") for it in ("html", "css", "js")
    )
    title = f"{PurePath(profile.facts.get('model', 'profile')).name} on {profile.facts.get('device', 'a GPU')}"
    shown = html.escape(title.encode(errors="replace").decode())  # file names may be invalid UTF-8
    return document(body, {"title": shown}, style=style, script=script, name="profile", data=data(profile))
