"""The programs in examples/ do what they say."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from examples import draw_output
from onnxruntime_ep_wgpu.device import Device


def test_the_output_of_a_model_is_drawn_without_bringing_it_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    downloads: list[Any] = []
    monkeypatch.setattr(Device, "download_all", lambda self, ranges: downloads.append(ranges))
    pixels = draw_output.calculated()
    assert not downloads
    line = np.linspace(-30, 30, draw_output.SIZE, dtype=np.float32)
    height = np.sin(np.sqrt(line[None, :] ** 2 + line[:, None] ** 2)) * 0.5 + 0.5
    want = np.stack([height, height**2, 1 - height, np.ones_like(height)], -1) * 255
    np.testing.assert_allclose(pixels, want, atol=1.01)


def test_the_picture_is_a_png_file() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (5, 7, 4), np.uint8)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(draw_output.png(pixels)))), pixels)
