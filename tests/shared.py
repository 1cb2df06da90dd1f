"""What several processes of one test run need, and one of them makes: pytest-xdist gives a module's tests to any of its workers.

In: a folder of the run, a key, a function that makes data. Out: the data, which are JSON. Invariant: within a run one process
makes what a key names; others wait for it, and make it themselves if that process ends before.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests import patience


def folder_of(factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of a run have."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def once(folder: Path, key: str, make: Callable[[], Any]) -> Any:
    """What `make` gave in this run, called by one process."""
    with closing(_opened(folder, key, patience.SECONDS)) as store:
        store.execute("begin exclusive")  # a lock that ends with its process
        store.execute("create table if not exists made (json text)")
        found = store.execute("select json from made").fetchone()
        if found is None:
            found = (json.dumps(make()),)
            store.execute("insert into made values (?)", found)
        store.execute("commit")
    return json.loads(found[0])


def made(folder: Path, key: str) -> Any:
    """What has been made, or None: not yet, or just now by another process."""
    if not _path(folder, key).exists():
        return None
    with closing(_opened(folder, key, 0)) as store:
        try:
            return json.loads(store.execute("select json from made").fetchone()[0])
        except sqlite3.OperationalError:
            return None


def _path(folder: Path, key: str) -> Path:
    return folder / f"{key}.sqlite"


def _opened(folder: Path, key: str, seconds: float) -> sqlite3.Connection:
    return sqlite3.connect(_path(folder, key), timeout=seconds, isolation_level=None)
