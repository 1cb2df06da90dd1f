"""The tests of the web runtime itself, web/test, in Node on Dawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import node

EXHAUSTIVE = ("packaging.test.mjs",)


@pytest.mark.costly
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.name, marks=pytest.mark.exhaustive if path.name in EXHAUSTIVE else ())
        for path in sorted((node.WEB / "test").glob("*.test.mjs"))
    ],
)
def test_file(name: str, built: None, exported: Path) -> None:
    node.check(name, WGPU_WEB_FIXTURES=str(exported))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", node.with_more("test"))
def test_everything_of(name: str, built: None, exported: Path) -> None:
    node.check(name, everything=True, WGPU_WEB_FIXTURES=str(exported))
