"""A profile as one HTML file that needs nothing else: no network, no library. In: a profile. Out: the text.

Invariants: everything about the profile but its title is in the JSON of the element `profile`, which the page's script draws;
no text of a profile becomes an element or a script, whatever its names are.
"""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from importlib.resources import files
from pathlib import PurePath
from typing import Any

from ..tabular import words
from ..trace import GPU_THREAD
from .events import Profile
from .tables import BEYOND, by_dispatch, by_kernel, by_operator, summary


def data(profile: Profile) -> dict[str, Any]:
    """What the page shows; equal args of events are written once."""
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


def page(profile: Profile) -> str:
    """The HTML text."""
    folder = files(__package__)
    parts = {name: (folder / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")}
    script = f"\n{parts['page.js']}"
    title = f"{PurePath(profile.facts.get('model', 'profile')).name} on {profile.facts.get('device', 'a GPU')}"
    values = {
        "title": html.escape(title.encode(errors="replace").decode()),  # names of files need not be UTF-8
        "style": parts["page.css"],
        "script": script,
        "digest": b64encode(sha256(script.encode()).digest()).decode(),
        "data": script_json(data(profile)),
    }
    return filled(parts["page.html"], values)


def filled(template: str, values: Mapping[str, str]) -> str:
    """The template with each `{{name}}` replaced, all in one pass: what a value has in such braces stays text."""
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: values[mark[1]], template)


def script_json(value: Any) -> str:
    """JSON for an element `script`. Without "<", HTML sees neither the end of the element nor the start of a comment in it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, default=str).replace("<", "\\u003c")
