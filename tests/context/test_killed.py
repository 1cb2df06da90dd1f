"""A process that ends while it compiles a model leaves none, or the whole one, and the model can be compiled afterwards."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from tests import patience

from .compiling import compile_model, compiled_beside, wide, wide_reference

ROOT = Path(__file__).resolve().parents[2]
X = np.random.default_rng(9).standard_normal((5, 8)).astype(np.float32)
ENDED = (
    1,
    3,
    4,
    5,
    6,
    99,
)  # before and while the context is written and renamed, before the compiled model is, and never


def check(compiled: Path) -> None:
    found = webgpu_ep.session(compiled).run(None, {"x": X})[0]
    np.testing.assert_allclose(found, wide_reference(X), rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform == "win32", reason="children are forked")
def test_wherever_the_process_ends(tmp_path: Path) -> None:
    done = patience.run([sys.executable, "-m", "tests.context.killed", str(tmp_path), *map(str, ENDED)], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    ended = json.loads(done.stdout)
    assert ended == [signal.SIGKILL] * (len(ENDED) - 1) + [0]
    for k, by in zip(ENDED, ended, strict=True):
        compiled = tmp_path / str(k) / "model_ctx.onnx"
        assert compiled.exists() == (by == 0)
        if by:
            (tmp_path / str(k) / "model.onnx").write_bytes(wide())  # which may be what was not written
            compile_model(tmp_path / str(k) / "model.onnx")
        check(compiled)


def test_a_compiled_model_that_was_cut_off_is_an_error_or_right(tmp_path: Path) -> None:
    """ONNX Runtime writes it where it lies, after all contexts."""
    compiled = compiled_beside(tmp_path, wide())
    data, refused = compiled.read_bytes(), 0
    for at in np.linspace(0, len(data) - 1, 40, dtype=int):
        compiled.write_bytes(data[:at])
        try:
            webgpu_ep.session(compiled)
        except Exception:  # of ONNX Runtime, which has a type for each kind of damage
            refused += 1
        else:
            check(compiled)
    assert refused > 30
