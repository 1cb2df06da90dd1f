"""RapidOCR with sessions that we made, each run of which is recorded.

RapidOCR knows a few providers by name, and takes a ready-made `InferenceSession` from the `session` entry of its
configuration; that entry is set here on the constructed engine, whose parts open lazily. Nothing of the package is
changed.
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

PARTS = ("Det", "Cls", "Rec")  # finds the lines, says which are upside down, reads them
Feeds = dict[str, np.ndarray]


@dataclass
class Recorded:
    """A session and what went through it while RapidOCR used it: inputs, outputs and seconds of every run."""

    part: str
    path: Path
    session: ort.InferenceSession
    creation: float
    runs: list[tuple[Feeds, list[np.ndarray], float]] = field(default_factory=list)


@dataclass(frozen=True)
class Reading:
    """What RapidOCR read: one box (4 corners, pixels), text and score (0 to 1) per line, from top to bottom."""

    boxes: list[list[list[float]]]
    texts: list[str]
    scores: list[float]
    seconds: float


def model_file(part: str) -> Path:
    """The model that the wheel of rapidocr brings for `Det`, `Cls` or `Rec`."""
    spec = importlib.util.find_spec("rapidocr")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the demo needs rapidocr: pip install rapidocr")
    folder = Path(spec.submodule_search_locations[0]) / "models"
    return sorted(folder.glob(f"*{part.lower()}*.onnx"))[0]


def record(part: str, ran: Callable[[Recorded], None]) -> Recorded:
    """Opens the part's session on WebGPU; `ran` is called after each of its runs."""
    path = model_file(part)
    start = time.perf_counter()
    session = onnxruntime_ep_wgpu.session(path)
    recorded = Recorded(part, path, session, time.perf_counter() - start)
    run = session.run  # RapidOCR insists on an InferenceSession, so its method is wrapped, not the session

    def timed_run(names: list[str] | None, feeds: Feeds, options: Any = None) -> list[np.ndarray]:
        begin = time.perf_counter()
        results: list[np.ndarray] = run(names, feeds, options)
        recorded.runs.append((feeds, results, time.perf_counter() - begin))
        ran(recorded)
        return results

    session.run = timed_run
    return recorded


def read(image: Image.Image, sessions: dict[str, ort.InferenceSession]) -> Reading:
    """Runs RapidOCR; a part without a session opens its own on the CPU."""
    from rapidocr import RapidOCR

    engine = RapidOCR(params={"Global.log_level": "error"})
    for part, session in sessions.items():
        section = engine.cfg[part]
        section._set_flag("allow_objects", True)  # omegaconf: let a node hold a session
        section.session = session
    pixels = np.ascontiguousarray(np.asarray(image)[:, :, ::-1])  # RapidOCR takes BGR
    start = time.perf_counter()
    result: Any = engine(pixels)
    seconds = time.perf_counter() - start
    for session in sessions.values():
        vars(session).pop("run", None)  # what follows is not recorded
    if result.txts is None:
        return Reading([], [], [], seconds)
    boxes = [[[float(x), float(y)] for x, y in box] for box in result.boxes]
    return Reading(boxes, list(result.txts), [float(s) for s in result.scores], seconds)
