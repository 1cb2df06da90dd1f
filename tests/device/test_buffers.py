"""Bytes reach the GPU and come back unchanged, whatever their number and place; limits are named."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
from typing import Any

import numpy as np
import pytest

from onnxruntime_ep_wgpu.device import Device, encoding, mapped, queue, readback
from onnxruntime_ep_wgpu.errors import DeviceError, LimitError

from .conftest import get, put


@pytest.mark.parametrize("nbytes", [1, 2, 3, 4, 5, 15, 16, 17, 1021, 4096, (1 << 20) + 3])
@pytest.mark.parametrize("offset", [0, 1, 3, 4, 6, 16])
def test_any_number_of_bytes_at_any_offset_survives_the_round_trip(device: Device, nbytes: int, offset: int) -> None:
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    buffer = device.buffer(nbytes + offset)
    device.upload(buffer, offset, data.data)
    result = np.zeros_like(data)
    device.download(buffer, offset, result.data)
    assert np.array_equal(result, data)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "int64", "float64", "<i4"])
def test_arrays_of_any_element_type_and_rank_are_accepted(device: Device, dtype: str) -> None:
    data = np.arange(30).reshape(2, 3, 5).astype(dtype)
    assert np.array_equal(get(device, put(device, data), data), data)
    scalar = np.array(1, dtype)
    assert get(device, put(device, scalar), scalar) == scalar


@pytest.mark.costly
@pytest.mark.parametrize("nbytes", [1 << 20, (5 << 20) + 3, (33 << 20) + 5])
def test_memory_for_large_results_is_provided_before_anything_waits_for_the_gpu(
    device: Device, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    wait, provide = mapped.Mapping.wait, mapped.provide_bytes

    def waiting(self: mapped.Mapping, *args: Any) -> None:
        events.append("wait")
        wait(self, *args)

    def providing(destination: int, count: int) -> None:
        before = ctypes.string_at(destination, count)
        provide(destination, count)
        assert ctypes.string_at(destination, count) == before
        events.append(f"{count} bytes")

    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    buffer = put(device, data)
    monkeypatch.setattr(mapped.Mapping, "wait", waiting)
    monkeypatch.setattr(readback, "provide_bytes", providing)
    result = np.full(nbytes + 2, 7, np.uint8)
    device.download(buffer, 0, result[1:-1].data)
    assert np.array_equal(result[1:-1], data) and result[0] == result[-1] == 7
    assert events == [f"{nbytes} bytes", *["wait"] * -(-nbytes // readback.PIECE_BYTES)]


def test_a_new_buffer_is_zero_and_a_multiple_of_sixteen_bytes(device: Device) -> None:
    buffer = device.buffer(37)
    assert buffer.size == 48
    assert not get(device, buffer, np.ones(48, np.uint8)).any()


def test_an_upload_keeps_the_bytes_before_it_and_the_words_after_it(device: Device) -> None:
    buffer = put(device, np.full(32, 255, np.uint8))
    device.upload(buffer, 5, b"abcdef")  # bytes 5 to 10; byte 11 is the padding of the last word
    expected = [255] * 5 + list(b"abcdef") + [0] + [255] * 20
    assert get(device, buffer, np.zeros(32, np.uint8)).tolist() == expected


def test_an_upload_inside_one_word_keeps_the_rest_of_the_word(device: Device) -> None:
    buffer = put(device, np.full(16, 255, np.uint8))
    device.upload(buffer, 5, b"a")
    assert get(device, buffer, np.zeros(16, np.uint8)).tolist() == [255] * 5 + [97] + [255] * 10


@pytest.mark.parametrize("nbytes", [63, 64, 65, 128, 1000, 4097])
@pytest.mark.parametrize("offset", [0, 5])
def test_what_is_written_in_parts_is_what_was_given(
    device: Device, nbytes: int, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, submits = queue.Queue.submit, []
    monkeypatch.setattr(queue, "FLUSH_BYTES", 64)
    monkeypatch.setattr(queue.Queue, "submit", lambda self, *given: (submits.append(given), submit(self, *given))[1])
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    buffer = device.buffer(nbytes + offset)
    device.upload(buffer, offset, data.data)
    assert len(submits) >= nbytes // 64 - 1, "staging memory for one part"
    result = np.zeros_like(data)
    device.download(buffer, offset, result.data)
    assert np.array_equal(result, data)


def test_empty_transfers_do_nothing(device: Device) -> None:
    buffer = device.buffer(0)
    device.upload(buffer, 0, b"")
    device.download(buffer, 0, memoryview(bytearray()))
    assert buffer.size == 16


def test_copies_stay_on_the_device(device: Device) -> None:
    source = put(device, np.arange(16, dtype=np.float32))
    target = device.buffer(64)
    device.copy(source, 8, target, 16, 12)
    assert get(device, target, np.zeros(16, np.float32)).tolist() == [0] * 4 + [2, 3, 4] + [0] * 9


def test_transfers_outside_a_buffer_are_refused(device: Device) -> None:
    buffer = device.buffer(16, "small")
    with pytest.raises(DeviceError, match="upload of 20 bytes at offset 0 leaves Buffer"):
        device.upload(buffer, 0, bytes(20))
    with pytest.raises(DeviceError, match="download of 8 bytes at offset 12 leaves Buffer"):
        device.download(buffer, 12, memoryview(bytearray(8)))
    with pytest.raises(DeviceError, match=r"overrunning|does not fit"):
        device.copy(buffer, 0, device.buffer(16), 8, 16)
    assert not get(device, buffer, np.ones(16, np.uint8)).any()


def test_a_buffer_above_the_limit_names_the_tensor_its_bytes_and_the_limit(device: Device) -> None:
    nbytes = device.target.max_buffer_bytes + 1
    with pytest.raises(LimitError) as caught:
        device.buffer(nbytes, "weight 'encoder.w'")
    for part in ("weight 'encoder.w'", str(nbytes), str(device.target.max_buffer_bytes), "max-buffer-size"):
        assert part in str(caught.value)


def test_uniforms_may_be_larger_than_a_binding_but_not_than_a_buffer(device: Device) -> None:
    assert device.memory.uniform(bytes(65540)).size >= 65540
    small = Device(device.adapter, dataclasses.replace(device.target, max_buffer_bytes=65536))
    with pytest.raises(LimitError, match="uniforms needs 65540 bytes in one buffer"):
        small.memory.uniform(bytes(65540))


def test_dropped_buffers_give_their_memory_back(device: Device) -> None:
    gc.collect()
    before = device.counters["buffers"], device.counters["buffer_bytes"]
    kept = [device.buffer(1000) for _ in range(10)]
    assert device.counters["buffers"] == before[0] + 10
    assert device.counters["buffer_bytes"] == before[1] + 10 * 1008
    del kept
    assert (device.counters["buffers"], device.counters["buffer_bytes"]) == before


def test_buffers_are_equal_only_to_themselves(device: Device) -> None:
    one, other = device.buffer(16), device.buffer(16)
    assert len({one, other, one}) == 2


@pytest.mark.parametrize("count", [0, 1, (1 << 20) - 1, (3 << 20) + 7, 9 << 20])
def test_threads_copy_every_byte_and_no_other(count: int) -> None:
    source = np.random.default_rng(count).integers(0, 256, count + 64, np.uint8)
    for threads in (0, 1, 3, 8, 100):
        target = np.zeros_like(source)
        encoding.native.lib.copy_bytes(target.ctypes.data + 32, source.ctypes.data + 32, count, threads)
        assert np.array_equal(target[32 : 32 + count], source[32 : 32 + count])
        assert not target[:32].any() and not target[32 + count :].any()


def test_python_and_c_code_count_together_what_waits_for_a_submit(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer, submits = device.buffer(128), []
    device.queue.submit()
    monkeypatch.setattr(queue, "FLUSH_BYTES", 96)
    submit = queue.Queue.submit
    monkeypatch.setattr(queue.Queue, "submit", lambda self, *given: (submits.append(given), submit(self, *given))[1])
    native = encoding.native
    assert native.lib.upload(
        queue.address(device.queue.shared), queue.address(buffer.handle), 0, native.ffi.new("char[64]"), 64
    )
    device.upload(buffer, 64, bytes(28))
    assert not submits
    device.upload(buffer, 64, bytes(4))
    assert len(submits) == 1
