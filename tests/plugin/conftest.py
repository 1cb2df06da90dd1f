"""Fixtures of the plugin's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.plugin.memory.space import space as memory_space

from .fakes import fake

__all__ = ["devices", "fake", "open_session"]


@pytest.fixture(scope="session")
def devices() -> list[Any]:
    """The provider's devices, registered the documented way, once per process."""
    webgpu_ep.devices()
    return [device for device in ort.get_ep_devices() if device.ep_name == webgpu_ep.get_ep_name()]


@pytest.fixture
def open_session(devices: list[Any]) -> Callable[..., ort.InferenceSession]:
    """Makes a session through ONNX Runtime's own interface; keyword arguments are session options.

    `alias` uses the other provider name, for which ONNX Runtime keeps its memory pattern.
    """

    def make(
        model: bytes, options: dict[str, str] | None = None, alias: bool = False, **settings: Any
    ) -> ort.InferenceSession:
        session_options = ort.SessionOptions()
        session_options.log_severity_level = 3
        for name, value in settings.items():
            setattr(session_options, name, value)
        name = webgpu_ep.get_ep_names()[1 if alias else 0]
        chosen = [device for device in ort.get_ep_devices() if device.ep_name == name][:1]
        session_options.add_provider_for_devices(chosen, options or {})
        return ort.InferenceSession(model, session_options)

    return make


@pytest.fixture(autouse=True)
def empty_pool() -> None:
    """Memory that other tests' sessions have left is not what a test gets: of it only C code knows what was put there first."""
    space = memory_space()
    for context in {it.owner.context for it in space._allocations.copy().values() if it.owner is not None}:
        space.end_pooling(context=context)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """The sizes, or values, for which groups are compiled once more."""
    found: list[dict[str, int]] = []

    def again(*given: Any) -> Any:
        found.append(dict(given[-1]))
        return compile_graph(*given)

    monkeypatch.setattr("onnxruntime_ep_wgpu.plugin.specialise.compile_graph", again)
    return found
