"""A profile in Chrome's trace event format, for Perfetto (ui.perfetto.dev) and chrome://tracing.

Invariant: there is one named track per CPU thread, and one for the GPU.
"""

from __future__ import annotations

from typing import Any

from ..trace import GPU_THREAD
from .events import Timeline

PROCESS = 1
GPU_TRACK = 1


def trace(profile: Timeline) -> dict[str, Any]:
    """Returns the trace as data for `json.dump`."""
    # The GPU's track comes first. A thread keeps its own number, unless it collides with the GPU's.
    tracks = {GPU_THREAD: (GPU_TRACK, f"GPU {profile.facts.get('device', '')}".strip())}
    for event in profile.events:
        if event.thread not in tracks:
            number = (
                event.thread if event.thread != GPU_TRACK else max(GPU_TRACK, *(it.thread for it in profile.events)) + 1
            )
            tracks[event.thread] = (number, f"thread {event.thread}")
    named = [("process_name", 0, profile.facts.get("model", "session"))]
    named += [("thread_name", number, name) for number, name in tracks.values()]
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": what, "pid": PROCESS, "tid": number, "args": {"name": name}} for what, number, name in named
    ]
    events += [
        {
            "ph": "X",
            "name": event.name,
            "cat": event.kind,
            "ts": round(event.begin, 3),
            "dur": round(event.duration, 3),
            "pid": PROCESS,
            "tid": tracks[event.thread][0],
            "args": dict(event.args),
        }
        for event in profile.events
    ]
    return {"displayTimeUnit": "ms", "traceEvents": events, "otherData": dict(profile.facts)}
