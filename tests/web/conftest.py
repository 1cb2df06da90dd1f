"""The web runtime, built, and models exported for it; every test here is skipped, and says why, where there is no npm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from . import folders, models, node

WITHOUT_NODE = {"test_demo", "test_export", "test_flow_format", "test_halves", "test_precision"}
"""Files whose tests say for themselves what they need."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    without_node = node.missing()
    without_browser = without_node or node.no_browser()
    for item in items:
        if Path(__file__).parent not in item.path.parents or item.path.stem in WITHOUT_NODE:
            continue
        problem = without_browser if "browser" in item.path.name else without_node
        if problem:
            item.add_marker(pytest.mark.skip(reason=problem))


@pytest.fixture(scope="session")
def built() -> None:
    """web/dist, built of the present source, by the first process of a run: another one may have pages of it open by now."""
    run, noted = os.environ.get("PYTEST_XDIST_TESTRUNUID", ""), node.WEB / "build" / "built-by"
    with node.alone():
        if run and noted.is_file() and noted.read_text() == run:
            return
        done = node.node("build.mjs")
        assert done.returncode == 0, done.stdout + done.stderr
        noted.parent.mkdir(exist_ok=True)
        noted.write_text(run)


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("web")
    models.write(folder)
    return folder


@pytest.fixture(scope="session")
def with_folders(exported: Path) -> Path:
    """The same, and model folders of transformers.js."""
    folders.write(exported / "folders")
    return exported
