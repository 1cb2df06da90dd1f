"""Fixtures of the store's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxruntime_ep_wgpu.kept import folder
from onnxruntime_ep_wgpu.kept.folder import Folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A cache of the test's own."""
    monkeypatch.setenv(folder.VARIABLE, str(tmp_path / "cache"))
    path = folder.folder_path()
    assert path is not None
    return Folder(path)
