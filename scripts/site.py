"""Hooks for MkDocs: README.md becomes the first page, and links to files outside the site become plain text.

In: the documents of the repository, with links that work there. Out: pages with links that work in the site.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
_LINK = re.compile(r"\[([^\]\[]+)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds README.md as index.md."""
    text = _LINK.sub(_from_root, (ROOT / "README.md").read_text("utf-8"))
    files.append(File.generated(config, "index.md", content=text))
    return files


def _from_root(link: re.Match[str]) -> str:
    """Rewrites a link of README.md for docs/index.md."""
    target = link[2]
    if target.startswith(("http", "#")):
        return link[0]
    return f"[{link[1]}]({target.removeprefix('docs/')})" if target.startswith("docs/") else link[1]


def on_page_markdown(markdown: str, *, page: Any, **_given: Any) -> str:
    """Rewrites links out of docs/: to README.md as index.md, others as their text, since the site has no source files."""
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def linked(link: re.Match[str]) -> str:
        path, mark, heading = link[2].partition("#")
        if not path or path.startswith("http"):
            return link[0]
        found = (folder / path).resolve()
        if found == ROOT / "README.md":
            up = "../" * page.file.src_uri.count("/")
            return f"[{link[1]}]({up}index.md{mark}{heading})"
        inside = found.is_relative_to(ROOT / "docs") and (found.is_file() or found == ROOT / "docs" / "index.md")
        return link[0] if inside else link[1]

    return _LINK.sub(linked, markdown)
