"""The few lines that make a session on WebGPU, and what the package tells about it."""

from __future__ import annotations

from pathlib import Path

import onnxruntime as ort

from tests import provider as p


def open_session(path: Path) -> ort.InferenceSession:
    return p.open_session(path)


def reasons(session: ort.InferenceSession) -> list[str]:
    return p.reasons(session)


def adapter() -> str:
    return p.describe(p.DEFAULT) if p.DEFAULT != "cpu" else "CPU"
