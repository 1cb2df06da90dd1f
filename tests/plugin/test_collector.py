"""No garbage is looked for while a session is made, and the collector is afterwards as it was before."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.plugin import collector
from onnxruntime_ep_wgpu.plugin.session import SessionState
from onnxruntime_ep_wgpu.runtime.executable import Executable

from . import models
from .loss import device_of, lose


@pytest.fixture(params=[True, False], ids=["awake", "asleep"])
def awake(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether the collector runs when the test begins."""
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("fails", ["", "decide", "compile"])
def test_a_session_is_made_without_collecting(awake: bool, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    asked: dict[str, bool] = {}

    def noted(name: str) -> Any:
        original = getattr(SessionState, name)

        def method(*arguments: Any) -> Any:
            asked[name] = gc.isenabled()
            if name == fails:
                raise ValueError("refused")
            return original(*arguments)

        return method

    for name in ("decide", "compile"):
        monkeypatch.setattr(SessionState, name, noted(name))
    if fails:
        with pytest.raises(Exception, match="refused"):
            webgpu_ep.session(models.chain())
    else:
        webgpu_ep.session(models.chain())
    assert asked and not any(asked.values())
    assert gc.isenabled() == awake


@pytest.mark.costly
@pytest.mark.parametrize("lost", [False, True])
def test_a_session_that_ends_takes_its_device_memory_along(lost: bool) -> None:
    """At once: what waited for a collection would lie beside that of the session after it."""
    gc.disable()
    try:
        session = webgpu_ep.session(models.chain(), deviceId=90 + lost)
        x = np.ones((5, 8), np.float32)
        session.run(None, {"x": x})
        if lost:
            lose(device_of(90 + lost))
            with pytest.raises(webgpu_ep.DeviceLostError):
                session.run(None, {"x": x})
            session.run(None, {"x": x})
        held = [weakref.ref(it) for it in gc.get_objects() if isinstance(it, Executable)]
        assert held
        number = sum(it() is not None for it in held)
        del session
        assert sum(it() is not None for it in held) < number
    finally:
        gc.enable()


def test_who_began_wakes_it(awake: bool) -> None:
    """In whatever order several threads end."""
    first, second = collector.paused(), collector.paused()
    first.__enter__()
    second.__enter__()
    assert not gc.isenabled()
    first.__exit__(None, None, None)
    assert gc.isenabled() == awake
    second.__exit__(None, None, None)
    assert gc.isenabled() == awake
