"""Runs RapidOCR on given sessions and records every run.

RapidOCR selects from a few providers by name, but also accepts an `InferenceSession` in the `session` entry of its
configuration. That entry is set here after construction, because its parts open lazily. No file of rapidocr is changed.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from PIL import Image

import onnxruntime_ep_wgpu

PARTS = ("Det", "Cls", "Rec")  # line detection, classification of upside-down lines, recognition
Feeds = dict[str, np.ndarray]


@dataclass
class Recorded:
    """A session with the inputs, outputs and seconds of every run that RapidOCR made."""

    part: str
    path: Path
    session: ort.InferenceSession
    creation: float
    runs: list[tuple[Feeds, list[np.ndarray], float]] = field(default_factory=list)


@dataclass(frozen=True)
class Reading:
    """The recognised text: one box (4 corners, in pixels), text and score (0 to 1) per line, from top to bottom."""

    boxes: list[list[list[float]]]
    texts: list[str]
    scores: list[float]
    seconds: float


def model_file(part: str) -> Path:
    """Returns the model for `Det`, `Cls` or `Rec` in the wheel of rapidocr. Exits if rapidocr is not installed."""
    spec = importlib.util.find_spec("rapidocr")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the demo needs rapidocr: pip install rapidocr")
    folder = Path(spec.submodule_search_locations[0]) / "models"
    return sorted(folder.glob(f"*{part.lower()}*.onnx"))[0]


def record(part: str, ran: Callable[[Recorded], None]) -> Recorded:
    """Opens the part's session on WebGPU. `ran` is called after each of its runs."""
    path = model_file(part)
    start = time.perf_counter()
    session = onnxruntime_ep_wgpu.session(path)
    recorded = Recorded(part, path, session, time.perf_counter() - start)
    run = session.run  # RapidOCR requires an InferenceSession, so the method is wrapped instead of the session

    def timed_run(names: list[str] | None, feeds: Feeds, options: Any = None) -> list[np.ndarray]:
        begin = time.perf_counter()
        results: list[np.ndarray] = run(names, feeds, options)
        recorded.runs.append((feeds, results, time.perf_counter() - begin))
        ran(recorded)
        return results

    session.run = timed_run
    return recorded


def read(image: Image.Image, sessions: dict[str, ort.InferenceSession]) -> Reading:
    """Runs RapidOCR. A part without a given session opens its own on the CPU."""
    from rapidocr import RapidOCR

    engine = RapidOCR(params={"Global.log_level": "error"})
    for part, session in sessions.items():
        section = engine.cfg[part]
        section._set_flag("allow_objects", True)  # allows a session as a value in omegaconf
        section.session = session
    pixels = np.ascontiguousarray(np.asarray(image)[:, :, ::-1])  # RapidOCR takes BGR
    start = time.perf_counter()
    result: Any = engine(pixels)
    seconds = time.perf_counter() - start
    for session in sessions.values():
        vars(session).pop("run", None)  # later runs are not recorded
    if result.txts is None:
        return Reading([], [], [], seconds)
    boxes = [[[float(x), float(y)] for x, y in box] for box in result.boxes]
    return Reading(boxes, list(result.txts), [float(s) for s in result.scores], seconds)
