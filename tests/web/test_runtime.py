"""The tests of the web runtime itself, web/test, in Node on Dawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import node


@pytest.mark.parametrize("name", sorted(path.name for path in (node.WEB / "test").glob("*.test.mjs")))
def test_file(name: str, built: None, exported: Path) -> None:
    done = node.node("--test", f"test/{name}", WGPU_WEB_FIXTURES=str(exported))
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
