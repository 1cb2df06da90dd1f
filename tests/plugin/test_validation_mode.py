"""The four validation modes, as a user of ONNX Runtime meets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.errors import NonFiniteError
from onnxruntime_ep_wgpu.fields import settings_from
from onnxruntime_ep_wgpu.options import OPTIONS, parse
from onnxruntime_ep_wgpu.runtime.settings import RunSettings

from . import models

MODES = ("disabled", "wgpuOnly", "basic", "full")


@pytest.mark.parametrize(
    ("mode", "checks", "bounds", "stepwise"),
    [
        ("disabled", False, False, False),
        ("wgpuOnly", False, False, False),
        ("basic", True, False, False),
        ("full", True, True, True),
    ],
)
def test_a_mode_chooses_what_is_checked(mode: str, checks: bool, bounds: bool, stepwise: bool) -> None:
    settings = settings_from(RunSettings, parse({"validationMode": mode}).values)
    assert (settings.plan_checks, settings.bounds_checks, settings.stepwise) == (checks, bounds, stepwise)


def test_runs_without_settings_are_those_of_the_options_defaults() -> None:
    assert settings_from(RunSettings, parse({}).values) == RunSettings()
    assert OPTIONS["validationMode"].default == "basic"


@pytest.mark.costly
@pytest.mark.parametrize("mode", MODES)
def test_results_are_right_in_every_mode_and_for_several_shapes(mode: str, open_session: Callable[..., Any]) -> None:
    session = open_session(models.chain(), {"validationMode": mode})
    for rows in (2, 5, 2):
        x = np.random.default_rng(rows).standard_normal((rows, 8), np.float32)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], models.chain_reference(x), rtol=1e-5, atol=1e-5)


def _logarithm() -> bytes:
    nodes = [models.node("Log", ["x"], ["h"], "logarithm"), models.node("Softplus", ["h"], ["y"], "after")]
    return models.model(nodes, [("x", models.FLOAT, ["N", 8])], [("y", models.FLOAT, ["N", 8])])


def test_full_names_the_node_that_makes_nan(open_session: Callable[..., Any]) -> None:
    session = open_session(_logarithm(), {"validationMode": "full"})
    x = np.ones((3, 8), np.float32)
    assert np.isfinite(session.run(None, {"x": x})[0]).all()
    x[1, 2] = -1
    with pytest.raises(Exception, match=r"NonFiniteError: .*'logarithm'.* made nan .* the first at \[1, 2\]"):
        session.run(None, {"x": x})
    x[1, 2] = 1
    assert np.isfinite(session.run(None, {"x": x})[0]).all()


@pytest.mark.parametrize("mode", MODES[:3])
def test_the_other_modes_pass_nan_on(mode: str, open_session: Callable[..., Any]) -> None:
    session = open_session(_logarithm(), {"validationMode": mode})
    assert np.isnan(session.run(None, {"x": np.full((2, 8), -1, np.float32)})[0]).all()


def test_the_error_can_be_caught_by_name() -> None:
    assert webgpu_ep.NonFiniteError is NonFiniteError
    assert issubclass(NonFiniteError, webgpu_ep.WgpuEpError)
