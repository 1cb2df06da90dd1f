"""The web runtime, built, and models exported for it; every test here is skipped, and says why, where there is no npm."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import models, node


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    problem = node.missing()
    for item in items:
        if problem and Path(__file__).parent in item.path.parents and item.path.name != "test_export.py":
            item.add_marker(pytest.mark.skip(reason=problem))


@pytest.fixture(scope="session")
def built() -> None:
    """web/dist, built of the present source."""
    with node.alone():
        done = node.node("build.mjs")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("web")
    models.write(folder)
    return folder
