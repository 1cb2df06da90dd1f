"""Seconds that one run spends on the GPU, from timestamp queries: without encoding, copies to the host and waiting.

In: a model file and inputs. Out: seconds. Both methods put every dispatch into its own pass and add up the passes, so they
ignore overlap and the gaps between dispatches. Raises NoTimestampsError if the provider measures nothing.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from tests import provider

from .models import Feeds

REPEATS = 5
WARM_SECONDS = 0.5  # an idle GPU has a slow clock


class NoTimestampsError(RuntimeError):
    """There is no GPU time; the message is the reason."""


class _Recorder:
    """A compiled group that records the plan of each run."""

    def __init__(self, group: Any, ran: list[tuple[Any, Any]]) -> None:
        self._executable, self._ran = group.on_device(), ran
        self.device = self._executable.device

    def on_device(self) -> _Recorder:
        return self

    def prepare(self, inputs: Any) -> Any:
        run = self._executable.prepare(inputs)
        self._ran.append((run.executable, run.plan))
        return run


def ours(path: Path, feeds: Feeds, _runs: int = 0) -> float:
    """Measures the dispatches of all compiled groups. A group's inputs are the model's inputs, or zeros for other values."""
    from onnxruntime_ep_wgpu.plugin.tools import wrapping

    ran: list[tuple[Any, Any]] = []
    with wrapping(lambda group, _read_graph: _Recorder(group, ran)):
        session = provider.open_session(path, "ours")
    session.run(None, feeds)
    return sum(_group_seconds(executable, plan, feeds) for executable, plan in ran)


def _group_seconds(executable: Any, plan: Any, feeds: Feeds) -> float:
    from onnxruntime_ep_wgpu.device import Place

    program, device = executable.program, executable.device
    if "timestamp-query" not in device.target.features:
        raise NoTimestampsError(f"the adapter {device.adapter.name!r} has no timestamps")
    callers = {v: Place(device.buffer(max(16, plan.nbytes[v])), 0) for v in (*program.inputs, *program.outputs)}
    for value in program.inputs:
        array = feeds.get(program.values[value].name)
        if array is not None and array.nbytes == plan.nbytes[value] > 0:
            device.upload(callers[value][0], 0, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    dispatches = plan.bound(callers)
    begun = time.perf_counter()
    device.measure(dispatches)
    while time.perf_counter() - begun < WARM_SECONDS:
        device.measure(dispatches)
    return statistics.median(sum(device.measure(dispatches)) for _ in range(REPEATS))


def official(path: Path, feeds: Feeds, runs: int) -> float:
    """Measures with onnxruntime's profile: the time that `runs` further runs add to it, so that the first run does not
    count."""
    once, more = _profiled(path, feeds, 1), _profiled(path, feeds, 1 + runs)
    return (more - once) / runs


def _profiled(path: Path, feeds: Feeds, runs: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        settings = ort.SessionOptions()
        settings.enable_profiling = True
        settings.profile_file_prefix = str(Path(folder) / "profile")
        session = provider.open_session(path, "official", session_options=settings)
        for _ in range(runs):
            session.run(None, feeds)
        return profile_seconds(Path(session.end_profiling()).read_text())


def profile_seconds(profile: str) -> float:
    """Returns the sum of a profile's GPU events. They have the category Api and a duration in microseconds."""
    durations = [event["dur"] for event in json.loads(profile) if event.get("cat") == "Api" and "dur" in event]
    if not any(durations):
        raise NoTimestampsError("the profile of the official plugin has no GPU events: its device has no timestamps")
    return sum(durations) * 1e-6


MEASURES = {"ours": ours, "official": official}
