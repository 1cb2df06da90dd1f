"""One HTML file that needs nothing else: no network, no library. In: a body, a style sheet, a script and its data. Out: the text.

Invariants: the data is JSON in an element that the script reads, and no text of it becomes an element or a script; the page's
policy allows this one script.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from typing import Any


def document(body: str, values: Mapping[str, str], *, style: str, script: str, name: str, data: Any) -> str:
    """The HTML text. `body` has a `{{key}}` for each of `values`, which are HTML; "title" is one of them. `name` is the id of the
    element that has the data."""
    script = f"\n{script}"
    shell = (files(__package__) / "document.html").read_text(encoding="utf-8").replace("{{body}}", body)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return filled(
        shell, {**values, "style": style, "script": script, "digest": digest, "id": name, "data": script_json(data)}
    )


def filled(template: str, values: Mapping[str, str]) -> str:
    """The template with each `{{name}}` replaced, all in one pass: what a value has in such braces stays text."""
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: values[mark[1]], template)


def script_json(value: Any) -> str:
    """JSON for an element `script`. Without "<", HTML sees neither the end of the element nor the start of a comment in it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, default=str).replace("<", "\\u003c")
