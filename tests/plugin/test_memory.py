"""Device addresses behave like memory, however ONNX Runtime cuts an allocation into tensors."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxruntime_ep_wgpu._ort import ffi
from onnxruntime_ep_wgpu.device import Place, adapters, open_device
from onnxruntime_ep_wgpu.errors import DeviceError, LimitError
from onnxruntime_ep_wgpu.plugin.abi import NULL
from onnxruntime_ep_wgpu.plugin.memory import space as memory
from onnxruntime_ep_wgpu.plugin.memory.allocation import ROWS
from onnxruntime_ep_wgpu.plugin.memory.copies import Batch


@pytest.fixture(scope="module")
def device() -> Any:
    return open_device(adapters()[0])


@pytest.fixture(scope="module")
def space() -> memory.AddressSpace:
    return memory.AddressSpace(1 << 36)


def put(space: memory.AddressSpace, address: int, data: bytes) -> Place:
    place = space.write(address, len(data))
    place.device.upload(*place.place, data)
    return place.place


def get(space: memory.AddressSpace, address: int, nbytes: int) -> bytes:
    device, (buffer, offset) = space.read(address, nbytes)
    data = bytearray(nbytes)
    device.download(buffer, offset, memoryview(data))
    return bytes(data)


def test_an_address_and_an_offset_into_it_resolve(space: memory.AddressSpace, device: Any) -> None:
    start = space.allocate(1024, lambda: device)
    put(space, start, bytes(range(256)) * 4)
    assert get(space, start + 300, 8) == bytes(range(44, 52))
    space.free(start)


def test_addresses_are_aligned_and_neighbours_do_not_touch(space: memory.AddressSpace, device: Any) -> None:
    starts = [space.allocate(size, lambda: device) for size in (1, 256, 257, 1000)]
    assert all(start % memory.GRAIN == 0 for start in starts)
    assert len(set(starts)) == len(starts)
    with pytest.raises(DeviceError, match="not allocated"):
        space.read(starts[0] + 256, 4)
    for start in starts:
        space.free(start)


def test_tensors_in_one_allocation_lie_in_different_buffers(space: memory.AddressSpace, device: Any) -> None:
    """WebGPU forbids a dispatch to read and write one buffer, even at different offsets."""
    start = space.allocate(1024, lambda: device)
    first, second = put(space, start, b"a" * 256), put(space, start + 256, b"b" * 512)
    assert first.buffer is not second.buffer
    assert (first.offset, second.offset) == (0, 0)
    space.free(start)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("count", [3, 40, 200])
def test_rows_of_one_tensor_lie_in_few_buffers(
    space: memory.AddressSpace, device: Any, count: int, backwards: bool
) -> None:
    """Each in a buffer of its own takes time that grows with the square of their number."""
    start = space.allocate(16 * count, lambda: device)
    rows = [bytes([k % 251]) * 16 for k in range(count)]
    order = range(count - 1, -1, -1) if backwards else range(count)
    buffers = {id(put(space, start + 16 * k, rows[k]).buffer) for k in order}
    assert len(buffers) <= ROWS + 1
    assert get(space, start + 16, 16) == rows[1]
    assert get(space, start, 16 * count) == b"".join(rows)
    put(space, start + 16, b"z" * 16)
    assert get(space, start, 48) == rows[0] + b"z" * 16 + rows[2]
    space.free(start)


@pytest.mark.parametrize("sizes", [[], [4] * 300, [3, 5, 8], [0, 8, 0], [16, 4]])
def test_tensors_are_joined(device: Any, sizes: list[int]) -> None:
    own = memory.space()
    parts = [own.allocate(max(size, 1), lambda: device) for size in sizes]
    target = own.allocate(max(sum(sizes), 1), lambda: device)
    data = [bytes([k % 251]) * size for k, size in enumerate(sizes)]
    for at, part in zip(parts, data, strict=True):
        if part:
            put(own, at, part)
    pointers = [(ffi.cast("void *", at), size) for at, size in zip(parts, sizes, strict=True)]
    with Batch() as batch:
        batch.join(pointers, ffi.cast("void *", target))
    assert not sizes or get(own, target, sum(sizes)) == b"".join(data)
    for at in (*parts, target):
        own.free(at)


def test_freed_memory_is_used_again(space: memory.AddressSpace, device: Any) -> None:
    first = space.allocate(5000, lambda: device)
    buffer = put(space, first, b"x" * 5000).buffer
    space.free(first)
    second = space.allocate(4900, lambda: device)
    assert second == first
    assert put(space, second, b"y" * 4900).buffer is buffer
    space.free(second)


def test_a_freed_address_is_an_error(space: memory.AddressSpace, device: Any) -> None:
    start = space.allocate(64, lambda: device)
    space.free(start)
    with pytest.raises(DeviceError, match="was it freed"):
        space.read(start, 64)
    space.free(start)


def test_allocating_makes_no_buffer_and_too_much_is_reported_at_first_use(
    space: memory.AddressSpace, device: Any
) -> None:
    nbytes = device.target.max_buffer_bytes + 1024
    before = device.counters["buffers"]
    start = space.allocate(nbytes, lambda: device)
    assert start
    assert device.counters["buffers"] == before
    with pytest.raises(LimitError, match=str(nbytes)):
        space.write(start, nbytes)
    space.free(start)


def test_a_large_allocation_cut_into_tensors_that_fit_works(space: memory.AddressSpace, device: Any) -> None:
    start = space.allocate(device.target.max_buffer_bytes + 1024, lambda: device)
    far = start + device.target.max_buffer_bytes
    put(space, far, b"far away")
    assert get(space, far, 8) == b"far away"
    space.free(start)


def test_a_host_copy_lives_until_the_range_is_written_or_freed(space: memory.AddressSpace, device: Any) -> None:
    start = space.allocate(1024, lambda: device)
    put(space, start, b"12345678")
    space.set_mirror(start, b"12345678")
    put(space, start + 256, b"neighbour")
    assert space.mirror(start, 8) == b"12345678"
    assert space.mirror(start, 4) == b"1234"
    assert space.mirror(start, 16) is None
    space.write(start + 4, 4)
    assert space.mirror(start, 8) is None
    space.set_mirror(start, b"again...")
    space.free(start)
    assert space.allocate(1024, lambda: device) == start
    assert space.mirror(start, 8) is None
    space.free(start)


def test_what_is_lent_stays_where_it_is(space: memory.AddressSpace, device: Any) -> None:
    """Reading and writing more than what is lent is an error, for it would have to lie elsewhere; the rest is as ever."""
    address = space.allocate(1024, lambda: device)
    put(space, address, bytes(range(16)))
    put(space, address + 512, bytes(16))
    lent = space.lend(address, 16)
    for nbytes in (20, 64, 1024):
        with pytest.raises(DeviceError, match=f"{nbytes} bytes at offset 0 cannot be read: .* shared with wgpu"):
            space.read(address, nbytes)
        with pytest.raises(DeviceError, match=f"{nbytes} bytes at offset 0 cannot be written: .* shared with wgpu"):
            space.write(address, nbytes)
    with pytest.raises(DeviceError, match="at offset 8 cannot be read"):
        space.lend(address + 8, 16)
    for start, nbytes in ((0, 16), (4, 4), (3, 2)):
        assert space.read(address + start, nbytes).place == Place(lent.place.buffer, start)
    assert space.write(address + 4, 8).place == Place(lent.place.buffer, 4)
    assert space.lend(address, 16) == lent
    put(space, address + 256, b"other")
    assert get(space, address + 256, 5) == b"other"
    assert get(space, address + 500, 40)[12:28] == bytes(16)
    assert get(space, address, 16) == bytes(range(16))
    space.free(address)


def test_the_system_may_refuse_a_large_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    real = memory.lib

    class Stingy:
        def reserve(self, size: int) -> Any:
            return real.reserve(size) if size <= 1 << 32 else NULL

    monkeypatch.setattr(memory, "lib", Stingy())
    small = memory.AddressSpace(1 << 40)
    assert small.end - small.start == 1 << 32


def test_when_addresses_run_out_the_allocator_says_so_and_recovers(device: Any) -> None:
    small = memory.AddressSpace(1 << 30)
    first = small.allocate(1 << 29, lambda: device)
    assert first and not small.allocate(1 << 29, lambda: device)
    small.free(first)
    assert small.allocate(1 << 29, lambda: device) == first


ranges = st.tuples(st.integers(0, 2040), st.integers(1, 700)).map(lambda r: (r[0], min(r[1], 2048 - r[0])))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.booleans(), ranges), max_size=12), st.integers(0, 2**32))
def test_any_sequence_of_writes_and_reads_equals_plain_memory(
    space: memory.AddressSpace, device: Any, steps: list[tuple[bool, tuple[int, int]]], seed: int
) -> None:
    """Ranges overlap in any way and need not be whole words; what was never written is not compared."""
    data = random.Random(seed)
    plain, written = bytearray(2048), bytearray(2048)
    start = space.allocate(2048, lambda: device)
    for is_write, (offset, nbytes) in steps:
        if is_write:
            content = data.randbytes(nbytes)
            put(space, start + offset, content)
            plain[offset : offset + nbytes] = content
            written[offset : offset + nbytes] = b"\1" * nbytes
        else:
            got = get(space, start + offset, nbytes)
            for i in range(nbytes):
                assert not written[offset + i] or got[i] == plain[offset + i]
    space.free(start)


def test_many_threads_allocate_write_and_free(space: memory.AddressSpace, device: Any) -> None:
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            dice = random.Random(seed)
            for _ in range(30):
                content = dice.randbytes(dice.randrange(4, 3000, 4))
                start = space.allocate(len(content), lambda: device)
                put(space, start, content)
                assert get(space, start, len(content)) == content
                space.free(start)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
