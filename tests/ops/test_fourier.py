"""DFT and STFT against numpy in float64 (the CPU provider is wrong for them), MelWeightMatrix against the CPU provider."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests import support

from .compare import check, check_model, model, random

F = np.float32
# Without elements to spare, powers of two, a mixture, primes above the largest step.
LENGTHS = [1, 2, 3, 10, 16, 17, 30, 97, 256, 360, 1000, 1024]


def transformed(x: np.ndarray, axis: int, length: int | None, inverse: bool, onesided: bool) -> np.ndarray:
    numbers = x.astype(np.float64)
    values = numbers[..., 0] + (1j * numbers[..., 1] if x.shape[-1] == 2 else 0)
    half = inverse and onesided
    count = length or (2 * (x.shape[axis] - 1) if half else x.shape[axis])
    if half:
        return np.fft.irfft(values, count, axis=axis)[..., None].astype(x.dtype)
    found = (np.fft.ifft if inverse else np.fft.fft)(values, count, axis=axis)
    found = np.take(found, range(count // 2 + 1), axis=axis) if onesided else found
    return np.stack([found.real, found.imag], -1).astype(x.dtype)


def check_dft(
    x: np.ndarray, axis: int = -2, length: int | None = None, inverse: bool = False, onesided: bool = False
) -> None:
    place = axis % x.ndim
    want = [transformed(x, place, length, inverse, onesided)]
    given = [x, None if length is None else np.array(length), np.array(axis)]
    how: dict[str, Any] = {"opset": 20, "constants": [1, 2], "inverse": int(inverse), "onesided": int(onesided)}
    most = float(np.abs(want[0]).max(initial=1))
    check_model(model("DFT", given, **how), given, want=want, rtol=0, atol=2e-6 * most)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("way", ["forwards", "inverse", "half", "from-half"])
def test_lengths_and_ways(length: int, way: str) -> None:
    inverse, onesided = way in ("inverse", "from-half"), "half" in way
    inputs = length // 2 + 1 if way == "from-half" else length
    x = random(2, inputs, 1 if way == "half" else 2)
    check_dft(x, length=length if way == "from-half" else None, inverse=inverse, onesided=onesided)


@pytest.mark.parametrize("axis", [0, 1, 2, -2, -4])
@pytest.mark.parametrize("parts", [1, 2])
def test_axes(axis: int, parts: int) -> None:
    check_dft(random(3, 4, 5, parts), axis=axis)


@pytest.mark.parametrize("length", [1, 4, 13, 64])
@pytest.mark.parametrize("way", ["forwards", "from-half"])
def test_signals_are_cut_or_filled_with_zeros(length: int, way: str) -> None:
    half = way == "from-half"
    check_dft(random(2, 9, 2), length=length, inverse=half, onesided=half)


def test_halves_are_summed_in_f32() -> None:
    check_dft(random(3, 128, 2).astype(np.float16))


def test_no_signal_and_values_that_are_no_numbers() -> None:
    check_dft(random(0, 6, 2))
    x = random(3, 12, 2)
    x[0, 2, 0], x[1, 3, 1] = np.nan, np.inf
    (found,) = support.run_model(model("DFT", [x], opset=20), x)
    assert not np.isfinite(found[:2]).any()
    np.testing.assert_allclose(found[2:], transformed(x[2:], 1, None, False, False), atol=2e-5)


@pytest.mark.parametrize(("parts", "onesided"), [(1, 1), (1, 0), (2, 0)])
@pytest.mark.parametrize("step", [1, 3, 8])
@pytest.mark.parametrize("window", [False, True])
def test_frames(parts: int, onesided: int, step: int, window: bool) -> None:
    x, weights = random(2, 45, parts), np.hanning(16).astype(F) if window else None
    starts = range(0, 45 - 16 + 1, step)
    frames = np.stack([x[:, k : k + 16] for k in starts], 1) * (1 if weights is None else weights[:, None])
    want = transformed(frames.astype(F), 2, None, False, bool(onesided))
    given = [x, np.array(step), weights, np.array(16)]
    built = model("STFT", given, opset=17, constants=[1, 3], onesided=onesided)
    check_model(built, given, want=[want], rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("bands", "length", "rate", "low", "high"), [(8, 16, 8192, 0.0, 4096.0), (40, 400, 16000, 20.0, 7600.0)]
)
def test_bands_of_the_mel_scale(bands: int, length: int, rate: int, low: float, high: float) -> None:
    given = [np.array(bands), np.array(length), np.array(rate), np.array(low, F), np.array(high, F)]
    check("MelWeightMatrix", *given, constants=range(5), opset=17, outputs=[F])


def test_a_window_is_as_long_as_a_frame() -> None:
    """ONNX compares what a model says of both; a run tells the rest."""
    signal, step, window = random(1, 32, 1), np.array(4), np.hanning(8).astype(F)
    built = model("STFT", [signal, step, window, np.array(8)], opset=17, symbolic=True, constants=[1])
    built.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 1
    session = webgpu_ep.session(built.SerializeToString())
    assert session.run(None, {"x0": signal, "x2": window, "x3": np.array(8)})[0].shape == (1, 7, 5, 2)
    with pytest.raises(webgpu_ep.InputError, match="a window of 8 elements for frames of 16"):
        session.run(None, {"x0": signal, "x2": window, "x3": np.array(16)})


def test_what_is_no_transform_is_refused() -> None:
    for x, how in (
        (random(2, 4, 3), {}),
        (random(2, 4, 2), {"onesided": 1}),
        (random(2, 4, 1), {"onesided": 1, "inverse": 1}),
    ):
        with pytest.raises(UnsupportedError):
            check_model(model("DFT", [x], opset=20, **how), [x], want=[])


@pytest.mark.parametrize("length", [it for it in LENGTHS if it % 2 == 0])
def test_half_of_the_frequency_is_real_for_real_numbers(length: int) -> None:
    """A sum of elements as they are, and of none that was rounded on the way."""
    x = random(3, length, 1)
    (found,) = support.run_model(model("DFT", [x], opset=20), x)
    np.testing.assert_array_equal(found[:, [0, length // 2], 1], 0)
