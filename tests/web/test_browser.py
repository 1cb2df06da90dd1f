"""The tests of the web runtime in a browser, web/test/browser, in Chromium on SwiftShader."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import node


@pytest.mark.parametrize("name", sorted(path.name for path in (node.WEB / "test" / "browser").glob("*.test.mjs")))
def test_file(name: str, built: None, with_folders: Path) -> None:
    done = node.node(
        "--test", f"test/browser/{name}", WGPU_WEB_FIXTURES=str(with_folders), CHROMIUM=node.chromium() or ""
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
