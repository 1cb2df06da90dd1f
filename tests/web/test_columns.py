"""The columns of a Program's tables have the same names in Python, which writes them, and in the web runtime, which reads them."""

from __future__ import annotations

import re

from onnxruntime_ep_wgpu.api import web_programs
from onnxruntime_ep_wgpu.program.file import COLUMNS

from . import node

TEXT = (node.WEB / "src" / "columns.ts").read_text()


def lists(text: str) -> dict[str, tuple[str, ...]]:
    """The lists of names in a text, by name."""
    return {name: tuple(re.findall(r"'(\w+)'", names)) for name, names in re.findall(r"(\w+): \[([^\]]+)\]", text)}


def test_columns_have_the_same_names() -> None:
    theirs = lists(TEXT.split("COLUMNS = {")[1].split("} as const")[0])
    assert set(COLUMNS) - set(theirs) == {"assertions", "declined"}  # for those who compile, or check every index
    assert theirs == {table: web_programs.columns_of(table) for table in theirs}


def test_the_same_columns_are_lists_of_expressions() -> None:
    found = re.search(r"EXPRESSIONS[^=]*= \[([^\]]+)\]", TEXT)
    assert found is not None
    assert tuple(re.findall(r"'(\w+)'", found[1])) == web_programs.EXPRESSIONS
    assert set(web_programs.EXPRESSIONS) <= {*COLUMNS["values"], *COLUMNS["dispatches"]}
