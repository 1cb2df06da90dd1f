"""The page of web/demo in Chromium, with the models that `make web-demo` makes: minutes on a software adapter."""

from __future__ import annotations

import subprocess
import sys

import pytest

from . import node

pytestmark = pytest.mark.exhaustive


@pytest.mark.skipif(bool(node.missing() or node.no_browser()), reason=str(node.missing() or node.no_browser()))
def test_the_page(built: None) -> None:
    subprocess.run([sys.executable, "demo/models.py"], cwd=node.WEB, check=True)
    done = node.node("--test", "test/demo/page.test.mjs", timeout=1800, CHROMIUM=node.chromium() or "")
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
