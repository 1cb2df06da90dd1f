"""Builds a self-contained HTML file: no network, no library. In: a body, a style sheet, a script and its data. Out: the text.

Invariants: the data is JSON in an element that the script reads, and no text in it can become an element or a script. The
page's content security policy allows only this script.
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
    """Returns the HTML text. `body` has a `{{key}}` for each of `values`, which are HTML; "title" is one of them.

    `name` is the id of the element with the data."""
    script = f"\n{script}"
    shell = (files(__package__) / "document.html").read_text(encoding="utf-8").replace("{{body}}", body)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return filled(
        shell, {**values, "style": style, "script": script, "digest": digest, "id": name, "data": script_json(data)}
    )


def filled(template: str, values: Mapping[str, str]) -> str:
    """Replaces each `{{name}}` in one pass, so that such braces within a value stay text."""
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: values[mark[1]], template)


def script_json(value: Any) -> str:
    """Returns JSON for a `script` element. "<" is escaped, so HTML finds neither the end of the element nor a comment."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, default=str).replace("<", "\\u003c")
