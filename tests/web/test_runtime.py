"""The tests of the web runtime itself, web/test, in Node on Dawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import node


@pytest.mark.parametrize("name", sorted(path.name for path in (node.WEB / "test").glob("*.test.mjs")))
def test_file(name: str, built: None, exported: Path) -> None:
    done = node.node("--test", f"test/{name}", WGPU_WEB_FIXTURES=str(exported))
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


@pytest.mark.exhaustive
def test_every_version_of_onnxruntime_common(built: None, exported: Path) -> None:
    done = node.node("--test", "test/common.test.mjs", WGPU_WEB_FIXTURES=str(exported), WGPU_WEB_EVERY_VERSION="1")
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
