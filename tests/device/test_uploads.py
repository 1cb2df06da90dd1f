"""Uploads of much at once, as of weights: every byte arrives, in the order of the calls, and nothing of it stays on the host."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxruntime_ep_wgpu.device import Buffer, Device, adapters, memory, open_device, uploads
from onnxruntime_ep_wgpu.errors import DeviceError, DeviceLostError
from tests.plugin.loss import lose

from .conftest import get


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> int:
    """Pieces of 64 bytes, for tensors from 24 bytes on."""
    monkeypatch.setattr(uploads, "PIECE_BYTES", 64)
    monkeypatch.setattr(memory, "LEAST_BYTES", 24)
    return 64


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(sizes=st.lists(st.one_of(st.integers(0, 300), st.sampled_from([23, 24, 63, 64, 65, 128, 192])), max_size=8))
def test_any_number_of_tensors_of_any_size_arrives(device: Device, small_pieces: int, sizes: list[int]) -> None:
    random = np.random.default_rng(len(sizes))
    tensors = [random.integers(1, 256, size, np.uint8) for size in sizes]
    buffers = [device.buffer(size) for size in sizes]
    before = device.counters["uploads"]
    with device.uploading() as upload:
        for buffer, tensor in zip(buffers, tensors, strict=True):
            upload(buffer, tensor.data)
    for buffer, tensor in zip(buffers, tensors, strict=True):
        found = get(device, buffer, np.ones(buffer.size, np.uint8))
        assert np.array_equal(found[: len(tensor)], tensor)
        assert not found[len(tensor) : -(-len(tensor) // 4) * 4].any(), "what an earlier tensor left in the piece"
    assert device.counters["uploads"] - before == sum(size > 0 for size in sizes)


def test_what_is_given_may_change_as_soon_as_the_call_returns(device: Device, small_pieces: int) -> None:
    tensor, buffers = np.zeros(200, np.uint8), [device.buffer(200) for _ in range(5)]
    with device.uploading() as upload:
        for number, buffer in enumerate(buffers):
            tensor[...] = number + 1
            upload(buffer, tensor.data)
        tensor[...] = 99
    for number, buffer in enumerate(buffers):
        assert get(device, buffer, np.zeros(200, np.uint8)).tolist() == [number + 1] * 200


def test_uploads_stand_in_the_order_of_all_calls(device: Device, small_pieces: int) -> None:
    buffer = device.buffer(128)
    with device.uploading() as upload:
        device.upload(buffer, 0, bytes([1]) * 128)
        upload(buffer, bytes([2]) * 100)
        device.upload(buffer, 96, bytes([3]) * 8)
        upload(buffer, bytes([4]) * 30)
    expected = [4] * 30 + [0] * 2 + [2] * 64 + [3] * 8 + [1] * 24
    assert get(device, buffer, np.zeros(128, np.uint8)).tolist() == expected


def test_pieces_go_when_the_uploads_end(device: Device, small_pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[weakref.ref[Buffer]] = []

    class Noted(uploads._Piece):
        def __init__(self, staging: Buffer) -> None:
            super().__init__(staging)
            pieces.append(weakref.ref(staging))

    monkeypatch.setattr(uploads, "_Piece", Noted)
    with device.uploading() as upload:
        upload(device.buffer(16), bytes(16))
        assert not pieces, "little is written as always"
        for _ in range(6):
            upload(device.buffer(256), bytes(256))
    assert len(pieces) == 2, "whatever is uploaded"
    gc.collect()
    assert all(piece() is None for piece in pieces)


def test_an_upload_beyond_the_buffer_is_refused(device: Device, small_pieces: int) -> None:
    buffer = device.buffer(64, "small")
    with (
        device.uploading() as upload,
        pytest.raises(DeviceError, match="upload of 80 bytes at offset 0 leaves Buffer"),
    ):
        upload(buffer, bytes(80))
    assert not get(device, buffer, np.ones(64, np.uint8)).any()


def test_a_device_that_is_lost_meanwhile_is_an_error(small_pieces: int) -> None:
    device = open_device(adapters()[0], 5100)
    buffer = device.buffer(640)
    with pytest.raises(DeviceLostError), device.uploading() as upload:
        for turn in range(4):
            upload(buffer, bytes(640))
            if turn == 1:
                lose(device)


def test_weights_of_some_megabytes_go_through_pieces_as_they_are(device: Device) -> None:
    tensor = np.random.default_rng(0).integers(0, 256, 3 * uploads.PIECE_BYTES + 12345, np.uint8)
    buffer = device.buffer(tensor.nbytes)
    with device.uploading() as upload:
        upload(buffer, tensor.data)
    assert np.array_equal(get(device, buffer, np.zeros_like(tensor)), tensor)
