"""A kernel that does not compile says which node it is for and shows the line of WGSL."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device.pipelines import Compiler

from . import models

X = np.ones((2, 8), np.float32)


def spoil(wgsl: str) -> str:
    """The text with a line in the middle of `main` that cannot be."""
    start = wgsl.index("{", wgsl.index("fn main")) + 1
    return f"{wgsl[:start]}\n let broken: f32 = 1u + missing;\n{wgsl[start:]}"


@pytest.fixture
def spoilt(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Spoils the kernels whose label has a text in it; labels name the nodes."""
    whole = Compiler.compile

    def choose(part: str) -> None:
        def compile_spoilt(self: Compiler, wgsl: str, bindings: Any, label: str, checked: bool) -> Any:
            return whole(self, spoil(wgsl) if part in label else wgsl, bindings, label, checked)

        monkeypatch.setattr(Compiler, "compile", compile_spoilt)

    return choose


@pytest.mark.parametrize("mode", ["basic", "full"])
def test_the_error_names_the_node_and_shows_the_line(spoilt: Callable[[str], None], mode: str) -> None:
    spoilt("matmul")
    session = webgpu_ep.session(models.chain(), deviceId=51, validationMode=mode)
    with pytest.raises(webgpu_ep.ShaderError) as caught:
        session.run(None, {"x": X})
    message = str(caught.value)
    assert re.search(r"kernel '.*matmul.*' does not compile, line \d+: `let broken: f32 = 1u \+ missing;`", message)
    assert "missing" in message.split("`")[-1], "wgpu-native's own words follow"


def test_other_sessions_and_later_runs_are_not_harmed(spoilt: Callable[[str], None]) -> None:
    spoilt("matmul")
    broken = webgpu_ep.session(models.chain(), deviceId=52)
    for _ in range(2):
        with pytest.raises(webgpu_ep.ShaderError):
            broken.run(None, {"x": X})
    np.testing.assert_array_equal(webgpu_ep.session(models.square(), deviceId=52).run(None, {"x": X})[0], X)
    spoilt("no node")
    np.testing.assert_allclose(broken.run(None, {"x": X})[0], models.chain_reference(X), rtol=1e-4, atol=1e-4)
