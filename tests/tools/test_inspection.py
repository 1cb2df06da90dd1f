"""`explain`, `profile` and `verify` in Python: what the commands tell, as objects that notebooks show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.errors import OptionError
from tests.plugin import models

X = np.random.default_rng(3).standard_normal((5, 8), np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file whose name and node have markup."""
    model = onnx.load_from_string(models.chain())
    model.graph.node[0].name = "<script>alert(1)</script>"
    found = tmp_path / "<b>.onnx"
    found.write_bytes(model.SerializeToString())
    return found


def test_an_explanation_is_a_drawing_of_every_kernel(path: Path, tmp_path: Path) -> None:
    found = webgpu_ep.explain(path)
    assert str(found) == repr(found) == str(found.report)
    assert found.report.kernels == sum(len(it.dispatches) for it in found.programs) > 0
    shown = found._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and shown.count("<") == 2, "nothing of a page is outside its frame"
    found.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == found.page()
    assert "<script>alert" not in found.page()


def test_a_model_that_runs_elsewhere_is_explained_too() -> None:
    found = webgpu_ep.explain(models.chain(), forceCpuNodeNames="mul\nmatmul\nrelu\nadd")
    assert found.model == "model" and len(found.report.on_cpu) == 4
    assert not found.programs and "No node runs on WebGPU." in found.page()


def test_a_profile_has_the_runs_that_were_asked_for(path: Path, tmp_path: Path) -> None:
    settings = ort.SessionOptions()
    found = webgpu_ep.profile(path, {"x": X}, runs=2, sess_options=settings)
    assert len(found.runs) == 3 and not settings.enable_profiling
    assert str(found).startswith("<b>.onnx on ") and "per run, without the first" in str(found)
    assert found._repr_html_().startswith("<table><caption") and "&lt;b&gt;.onnx on " in found._repr_html_()
    found.save(tmp_path / "page.html")
    assert "<b>.onnx" not in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("runs", [-1, 1.5, "3"])
def test_another_number_of_runs_is_refused(runs: Any) -> None:
    with pytest.raises(OptionError, match=r"runs is .*, it must be an integer of at least 0"):
        webgpu_ep.profile(models.chain(), {"x": X}, runs=runs)


def test_what_differs_is_counted_by_the_tolerance(path: Path) -> None:
    found = webgpu_ep.verify(path, {"x": X})
    assert found.kernels and not found.differing and "none differs" in str(found)
    assert found._repr_html_().count("<table>") == 2
    strict = webgpu_ep.verify(path, {"x": X}, tolerance=0)
    assert strict.tolerance == 0 and [it.error for it in strict.kernels] == [it.error for it in found.kernels]
    assert all(it.error > 0 for it in strict.differing)


@pytest.mark.parametrize("tolerance", [-1.0, float("nan"), float("inf"), "1"])
def test_another_tolerance_is_refused(tolerance: Any) -> None:
    with pytest.raises(OptionError, match=r"tolerance is .*, it must be a number of at least 0"):
        webgpu_ep.verify(models.chain(), {"x": X}, tolerance=tolerance)
