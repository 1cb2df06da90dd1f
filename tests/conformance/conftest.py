"""Runs the selected cases in batches: the first test of a batch pays for the batch, the others look up their row, in other
processes of the run too."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tests import shared

from . import batches
from .worker import Row, Setup

SELECTED = pytest.StashKey[dict[Setup, list[str]]]()


def pytest_collection_finish(session: pytest.Session) -> None:
    selected: dict[Setup, list[str]] = defaultdict(list)
    for item in session.items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if "case" in params and "setup" in params:
            selected[params["setup"]].append(params["case"])
    session.config.stash[SELECTED] = selected


class Outcomes:
    """Rows of the selected cases, by setup and name."""

    def __init__(self, selected: dict[Setup, list[str]], folder: Path) -> None:
        self._selected = selected
        self._folder = folder
        self._rows: dict[tuple[Setup, str], Row] = {}

    def row(self, setup: Setup, name: str) -> Row:
        if (setup, name) not in self._rows:
            names = self._selected[setup]
            start = names.index(name) // batches.SIZE * batches.SIZE
            batch = names[start : start + batches.SIZE]
            key = f"conformance-{list(self._selected).index(setup)}-{start}"
            for done, row in shared.once(self._folder, key, lambda: batches.run(batch, setup)).items():
                self._rows[setup, done] = row
        return self._rows[setup, name]


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return Outcomes(request.config.stash[SELECTED], shared.folder_of(tmp_path_factory))
