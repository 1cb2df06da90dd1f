"""A comparison times, checks and shows what it says."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from bench import document, gpu_time, models, ratios, show
from tests import patience
from tests.support import make_model

ROOT = Path(__file__).parents[2]
F = np.float32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two models; the first with its inputs beside it."""
    for name in ("with_inputs", "without"):
        nodes = [node("MatMul", ["x", "w"], ["h"], name="product"), node("Relu", ["h"], ["y"], name="relu")]
        weight = {"w": np.eye(6, dtype=F)}
        onnx.save(make_model(nodes, {"x": (F, ["n", 6])}, weight), tmp_path / f"{name}.onnx")
    np.savez(tmp_path / "with_inputs.npz", **{"in:x": np.full((4, 6), 2, F), "out:y": np.full((4, 6), 2, F)})
    return tmp_path


def row(model: str, provider: str, **measured: float | None) -> dict:
    return {"model": model, "provider": provider, **dict.fromkeys(ratios.MEASURES), **measured}


# ---- which models


def test_a_folder_is_its_models_with_the_inputs_beside_them(folder: Path) -> None:
    found = models.find([str(folder)], dims={"n": 3})
    assert [model.name for model in found] == ["with_inputs", "without"]
    assert found[0].feeds()["x"].tolist() == [[2] * 6] * 4
    assert found[1].feeds()["x"].shape == (3, 6)


def test_several_inputs_of_one_model_are_a_case_each(folder: Path) -> None:
    (folder / "chat").mkdir()
    (folder / "without.onnx").rename(folder / "chat" / "model.onnx")
    for step in ("prefill", "decode"):
        np.savez(folder / f"chat_{step}.npz", **{"in:x": np.zeros((1, 6), F)})
    found = models.find([str(folder)])
    assert [(m.name, Path(m.path).parent.name) for m in found[1:]] == [
        ("chat_decode", "chat"),
        ("chat_prefill", "chat"),
    ]


@pytest.mark.parametrize("wanted", ["no_such_model", "no_such_file.onnx", "tests"])
def test_what_is_no_model_is_named(wanted: str) -> None:
    with pytest.raises(FileNotFoundError, match=wanted):
        models.find([wanted])


# ---- arithmetic


def test_ratios_have_a_geometric_mean_and_a_least() -> None:
    rows = [row("a", "ours", with_copies=1.0), row("a", "official", with_copies=4.0), row("b", "ours", with_copies=2.0),
            row("b", "official", with_copies=1.0), row("c", "ours", with_copies=1.0),
            {"model": "c", "provider": "official", "error": "crashed"}]  # fmt: skip
    found = ratios.ratios(rows)
    assert found["models"] == {"a": {"with_copies": 4.0}, "b": {"with_copies": 0.5}}
    assert found["geometric_mean"] == {"with_copies": pytest.approx(math.sqrt(2))}
    assert found["least"] == {"with_copies": [0.5, "b"]}


def test_gpu_time_of_a_profile_is_that_of_its_gpu_events() -> None:
    events = [{"cat": "Node", "dur": 700}, {"cat": "Api", "dur": 30}, {"cat": "Api", "dur": 12}, {"cat": "Api"}]
    assert gpu_time.profile_seconds(json.dumps(events)) == pytest.approx(42e-6)


def test_a_profile_without_gpu_events_has_no_gpu_time() -> None:
    with pytest.raises(gpu_time.NoTimestampsError, match="timestamps"):
        gpu_time.profile_seconds(json.dumps([{"cat": "Node", "dur": 700}]))


# ---- from end to end


@pytest.mark.exhaustive
def test_both_providers_are_timed_checked_and_drawn(folder: Path) -> None:
    target, chart = folder / "report.json", folder / "chart.png"
    arguments = ["--models", str(folder), "--rounds", "2", "--runs", "3", "--json", str(target), "--chart", str(chart)]
    command = [sys.executable, "-m", "bench.compare", *arguments, "--dim", "n=3", "--providers", "ours", "cpu"]
    done = patience.run(command, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    report = json.loads(target.read_text())
    assert [(r["model"], r["provider"]) for r in report["rows"]] == [
        (model, provider) for model in ("with_inputs", "without") for provider in ("ours", "cpu")
    ]
    ours = report["rows"][0]
    assert ours["with_copies_runs"] == ours["without_copies_runs"] == 6
    assert ours["nodes"] == {"webgpu": 2, "cpu": 0} and ours["difference"] < 1e-6
    assert ours["shapes"] == {"x": [4, 6]} and ours["read_bytes"] == 96
    assert ours["device_bytes"] > 0
    assert ours["gpu"] or ours["gpu_missing"]
    assert all(ours[key] > 0 for key in ("registration", "creation", "first_run_cold", "first_run_warm", "with_copies"))
    assert chart.read_bytes().startswith(b"\x89PNG")
    assert "with_inputs" in done.stdout and "ours: " in done.stdout


def test_a_provider_that_fails_is_a_row_that_says_why(folder: Path) -> None:
    (folder / "without.onnx").write_bytes(b"nothing")
    command = [sys.executable, "-m", "bench.compare", "--models", str(folder / "without.onnx"), "--rounds", "1"]
    command += ["--providers", "ours", "cpu"]
    done = patience.run(command, cwd=ROOT)
    assert done.returncode == 1
    assert "without, ours: exit code 1: " in done.stdout


# ---- documents


def test_the_benchmarks_in_the_documents_are_those_that_were_measured() -> None:
    found = document.reports()
    assert document.DOCUMENT.read_text() == document.document(found), "run python -m bench.document"
    readme = document.README.read_text()
    assert readme == document.with_table(readme, document.readme(found)), "run python -m bench.document"


def test_the_documents_say_where_others_are_faster() -> None:
    def measured(model: str, provider: str, seconds: float) -> dict:
        spread = {f"{kind}_spread": [seconds, seconds] for kind in show.PANELS}
        shapes = {"a": [1, 2], "b": [1, 2], "c": []}
        more = {"device": f"{provider} (1)", "nodes": {"webgpu": 1, "cpu": 0}, "shapes": shapes, "difference": 0.0}
        memory = {"creation": 1.0, "peak_host_bytes": 1, "device_bytes": 1}
        return row(model, provider, with_copies=seconds, without_copies=seconds, **memory) | spread | more

    times = {
        "big": {"ours": 0.001, "official": 0.004, "cpu": 0.002},
        "small": {"ours": 0.001, "official": 0.001, "cpu": 0.0005},
    }
    rows = [measured(model, who, seconds) for model, of in times.items() for who, seconds in of.items()]
    report = {
        "host": {"date": "today"},
        "settings": {"rounds": 1, "runs": 1},
        "rows": rows,
        "ratios": ratios.ratios(rows),
    }
    text = " ".join(document.readme([report]).split())
    assert "| small | 2 of 1x2, scalar | 0 / 0 | 1 | 1 | 0.5 |" in text
    assert "2.00 times as fast as the official plugin" in text
    assert "1.00 times as fast as the CPU provider on geometric mean, slower on 1 of 2 (small)" in text
    assert "* small: a, b 1x2; c scalar" in document.document([report])
    for one in rows:
        one["device"] = one["device"].replace("ours", "llvmpipe")
        one["with_copies"] *= 4 if one["provider"] == "ours" else 1
    report["ratios"] = ratios.ratios(rows)
    software = " ".join(document.readme([report]).split())
    assert "the CPU provider is 2.0 to 8 times faster on all 2 models" in software and "is for tests" in software
    assert "| small |" not in software, "figures of software rendering are in docs/benchmarks.md"


def test_a_time_is_shown_with_three_digits() -> None:
    assert [show.ms(s) for s in (None, 0.0012345, 0.12345, 12.345)] == ["", "1.23", "123", "12345"]
