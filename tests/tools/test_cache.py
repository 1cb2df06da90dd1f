"""`wgpu-ep cache`: what is in the cache of compiled Programs, how large it is, and how it is emptied."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.cli import main
from onnxruntime_ep_wgpu.kept.folder import SUFFIX, VARIABLE
from tests.plugin import models


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path / "programs"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> object:
    assert main(["cache", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_entries_are_listed_counted_and_removed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys) == []
    webgpu_ep.session(models.chain())
    rows = said(capsys, "list")
    assert isinstance(rows, list)
    assert sorted((it["kind"], it["graph"]) for it in rows) == [("claim", "graph"), ("program", "graph")]
    assert all(it["adapter"] and it["bytes"] == (place / f"{it['name']}{SUFFIX}").stat().st_size for it in rows)
    size = said(capsys, "size")
    assert isinstance(size, dict)
    assert (size["entries"], size["bytes"]) == (2, sum(it["bytes"] for it in rows))
    (place / f"{'d' * 64}{SUFFIX}").write_bytes(b"x")
    assert main(["cache"]) == 0
    assert "damaged: its first bytes are not those of this format" in capsys.readouterr().out
    assert said(capsys, "clear") == {"folder": str(place), "removed": 3}
    assert said(capsys, "list") == []


def test_without_a_cache_it_says_how_to_have_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    assert main(["cache", "size"]) == 2
    assert "WGPU_EP_CACHE=off" in capsys.readouterr().err
