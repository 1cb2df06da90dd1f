"""Generated documents are what their generators write."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_list_of_options_is_the_table_in_code():
    document = runpy.run_path(str(ROOT / "scripts" / "document_options.py"))["document"]
    assert (ROOT / "docs" / "options.md").read_text() == document(), "run scripts/document_options.py"


def test_every_document_that_the_readme_links_exists():
    readme = (ROOT / "README.md").read_text()
    for part in readme.split("](")[1:]:
        target = part.split(")")[0]
        assert target.startswith("http") or (ROOT / target).exists(), target
