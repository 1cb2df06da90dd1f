"""The text detector, line classifier and recogniser of the package `rapidocr`, used where they lie in its wheel."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from .errors import MissingWeightsError

PARTS = {"ocr_det": "*det*.onnx", "ocr_cls": "*cls*.onnx", "ocr_rec": "*rec*.onnx"}


def model_path(name: str) -> Path:
    """The file of `ocr_det`, `ocr_cls` or `ocr_rec`."""
    spec = importlib.util.find_spec("rapidocr")
    if spec is None or not spec.submodule_search_locations:
        raise MissingWeightsError("pip install rapidocr")
    found = sorted((Path(spec.submodule_search_locations[0]) / "models").glob(PARTS[name]))
    if not found:
        raise MissingWeightsError(f"this rapidocr ships no {PARTS[name]}: pip install 'rapidocr>=3.10'")
    return found[0]


def inputs(batch: int, channels: int, height: int, width: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Lines of made-up letters of strokes, black (-1) on white (1): the detector finds them, noise it ignores."""
    pages = np.ones((batch, 1, height, width), np.float32)
    for page in pages[:, 0]:
        for top in range(6, height - 18, 24):
            left = 8
            while left < width - 12:
                for _ in range(3):
                    if rng.random() < 0.6:
                        column = left + rng.integers(0, 8)
                        page[top : top + 14, column : column + 2] = -1
                    if rng.random() < 0.7:
                        row = top + rng.integers(0, 12)
                        page[row : row + 2, left : left + 8] = -1
                left += 10 if rng.random() < 0.85 else 20
    return {"x": np.repeat(pages, channels, axis=1)}
