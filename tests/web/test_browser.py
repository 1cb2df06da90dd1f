"""The tests of the web runtime in a browser, web/test/browser, in Chromium on SwiftShader."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import node

EXHAUSTIVE = ("demo.test.mjs", "fallback.test.mjs", "origins.test.mjs", "plugin.test.mjs")


@pytest.mark.costly
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.name, marks=pytest.mark.exhaustive if path.name in EXHAUSTIVE else ())
        for path in sorted((node.WEB / "test" / "browser").glob("*.test.mjs"))
    ],
)
def test_file(name: str, built: None, with_folders: Path) -> None:
    node.check(f"browser/{name}", WGPU_WEB_FIXTURES=str(with_folders))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", node.with_more("test/browser"))
def test_everything_of(name: str, built: None, with_folders: Path) -> None:
    node.check(f"browser/{name}", everything=True, WGPU_WEB_FIXTURES=str(with_folders))
