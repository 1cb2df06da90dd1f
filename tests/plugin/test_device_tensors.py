"""Device tensors: made, written, copied and read."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from onnxruntime_ep_wgpu._ort import ffi
from onnxruntime_ep_wgpu.device import adapters
from onnxruntime_ep_wgpu.device.queue import Queue
from onnxruntime_ep_wgpu.plugin.callbacks import held
from onnxruntime_ep_wgpu.plugin.known_tensors import FusedNode, KnownTensors
from onnxruntime_ep_wgpu.plugin.memory import space as memory
from onnxruntime_ep_wgpu.plugin.memory import transfer
from onnxruntime_ep_wgpu.plugin.memory.copies import Batch

from .loss import device_of
from .tensors import empty, on_device

RNG = np.random.default_rng(2)
X = RNG.standard_normal((5, 8), np.float32)
BFLOAT16 = 16  # of ONNX's types
U16 = ctypes.POINTER(ctypes.c_uint16)


@pytest.mark.parametrize("name", ["webgpu", "gpu"])
def test_a_tensor_goes_to_the_device_and_back(devices: list[Any], name: str) -> None:
    value = on_device(X, name)

    assert memory.space().owns(value.data_ptr())
    np.testing.assert_array_equal(value.numpy(), X)


@pytest.mark.parametrize(
    "array",
    [
        np.array(3.5, np.float32),
        np.arange(7, dtype=np.int8),
        np.array([True, False, True]),
        np.arange(5, dtype=np.int64) - 2**40,
        np.arange(3, dtype=np.float16),
        np.arange(9, dtype=np.uint16).reshape(3, 3),
        np.zeros((0, 4), np.float32),
        RNG.standard_normal((300, 301)),
        np.array([2**64 - 1], np.uint64),
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
def test_every_type_and_size_survives_the_round_trip(devices: list[Any], array: np.ndarray) -> None:
    got = on_device(array).numpy()
    assert (got.dtype, got.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(got, array)


def test_bfloat16_goes_to_the_device_and_back(devices: list[Any]) -> None:
    """numpy has no such type: the bits travel as they are."""
    bits = RNG.integers(0, 2**15, (5, 3), np.uint16)
    host = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, BFLOAT16)
    there = ort.OrtValue.ortvalue_from_shape_and_type([5, 3], BFLOAT16, "webgpu", 0)
    back = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.zeros_like(bits), BFLOAT16)
    ort.copy_tensors([host], [there], None)
    ort.copy_tensors([there], [back], None)
    assert there.data_type() == "tensor(bfloat16)"
    np.testing.assert_array_equal(np.ctypeslib.as_array(ctypes.cast(back.data_ptr(), U16), bits.shape), bits)


@pytest.mark.skipif(not hasattr(ort.OrtValue, "__dlpack__"), reason="this onnxruntime exports no DLPack tensors")
def test_a_device_tensor_is_not_exported_through_dlpack(devices: list[Any]) -> None:
    """A DLPack tensor needs an address that its reader can use."""
    with pytest.raises(RuntimeError, match="DLPack"):
        on_device(X).__dlpack__()
    with pytest.raises(RuntimeError, match="DLPack"):
        on_device(X).__dlpack_device__()


def test_only_our_memory_and_the_hosts_is_said_to_be_copyable(devices: list[Any]) -> None:
    transfers = [it for it in held.values() if isinstance(it, transfer.DataTransfer)]
    api, info = transfers[0].ort, ffi.new("OrtMemoryInfo **")

    def device(kind: int, vendor: int, number: int, memory_type: int = 0) -> Any:
        api.check_status(api.api.CreateMemoryInfo_V2(api.string("m"), kind, vendor, number, memory_type, 0, 0, info))
        made.append(info[0])
        return api.ep.MemoryInfo_GetMemoryDevice(info[0])

    made: list[Any] = []
    host, ours = device(0, 0, 0), device(1, 0, 0)
    others = [device(1, 0x10DE, 0), device(1, 0, len(adapters())), device(1, 0, 0, 5), device(2, 0, 0)]
    can = transfers[0].pointer.CanCopy
    assert all(can(transfers[0].pointer, *pair) for pair in ((host, ours), (ours, host), (ours, ours)))
    assert not can(transfers[0].pointer, host, host)
    for other in others:
        assert not any(can(transfers[0].pointer, *pair) for pair in ((other, ours), (ours, other), (host, other)))
    for it in made:
        api.api.ReleaseMemoryInfo(it)


def test_update_in_place_is_seen(devices: list[Any]) -> None:
    value = on_device(X)
    value.update_inplace(X * 2)
    np.testing.assert_array_equal(value.numpy(), X * 2)


def test_copy_tensors_copies_every_way(devices: list[Any]) -> None:
    host, first, second = ort.OrtValue.ortvalue_from_numpy(X), empty([5, 8]), empty([5, 8])
    back = ort.OrtValue.ortvalue_from_shape_and_type([5, 8], np.float32)
    ort.copy_tensors([host], [first], None)
    ort.copy_tensors([first], [second], None)
    ort.copy_tensors([second], [back], None)
    np.testing.assert_array_equal(back.numpy(), X)
    np.testing.assert_array_equal(second.numpy(), X)


def submits(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> int:
    """How often work is submitted, downloads included."""
    found = []
    submit = Queue.submit

    def noted(self: Queue, *arguments: Any) -> int:
        found.append(arguments)
        return submit(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Queue, "submit", noted)
        action()
    return len(found)


def test_many_tensors_are_copied_in_one_submission(devices: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [RNG.standard_normal((40, 41), np.float32) for _ in range(20)]
    hosts = [ort.OrtValue.ortvalue_from_numpy(array) for array in arrays]
    here, there = ([empty([40, 41]) for _ in arrays] for _ in range(2))
    backs = [ort.OrtValue.ortvalue_from_shape_and_type([40, 41], np.float32) for _ in arrays]
    assert submits(monkeypatch, lambda: ort.copy_tensors(hosts, here, None)) == 0
    assert submits(monkeypatch, lambda: ort.copy_tensors(here, there, None)) == 1
    assert submits(monkeypatch, lambda: ort.copy_tensors(there, backs, None)) == 1
    for array, back in zip(arrays, backs, strict=True):
        np.testing.assert_array_equal(back.numpy(), array)


def test_copies_that_depend_on_each_other_happen_in_order(devices: list[Any]) -> None:
    big = [RNG.standard_normal((40, 41), np.float32) for _ in range(3)]
    for first, second, third in (big, [array[:1, :4].copy() for array in big]):
        host = ort.OrtValue.ortvalue_from_numpy(third.copy())
        a, b, c = (on_device(array) for array in (first, second, third))
        back = ort.OrtValue.ortvalue_from_shape_and_type(list(third.shape), np.float32)
        with Batch() as batch:
            for source, target in ((b, c), (a, b), (host, a), (c, back), (back, b)):
                places = [ffi.cast("void *", value.data_ptr()) for value in (source, target)]
                batch.copy(*places, third.nbytes)
        np.testing.assert_array_equal(c.numpy(), second)
        np.testing.assert_array_equal(a.numpy(), third)
        np.testing.assert_array_equal(b.numpy(), second)


def test_large_tensors_are_read_in_pieces(devices: list[Any]) -> None:
    arrays = [RNG.integers(0, 255, n, np.uint8) for n in (3, (16 << 20) - 1, 5, (33 << 20) + 2)]
    values = [on_device(array) for array in arrays]
    backs = [ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), np.uint8) for array in arrays]
    ort.copy_tensors(values, backs, None)
    for array, back in zip(arrays, backs, strict=True):
        np.testing.assert_array_equal(back.numpy(), array)


def test_a_host_copy_is_not_used_after_a_copy_on_the_device(devices: list[Any]) -> None:
    small = np.arange(4, dtype=np.int64)
    first, second = on_device(small), on_device(small * 10)
    ort.copy_tensors([second], [first], None)
    np.testing.assert_array_equal(first.numpy(), small * 10)


def test_shapes_of_an_interrupted_run_are_not_those_of_the_next_one() -> None:
    class Interrupted(tuple[int, ...]):
        def __len__(self) -> int:
            raise KeyboardInterrupt

    signature = FusedNode(inputs=[0], outputs=[0], input_names=["x"], output_names=["y"])
    known = KnownTensors(signature, device_of(0))
    known.set_shapes(((3, 8),))
    with pytest.raises(KeyboardInterrupt):
        known.set_shapes((Interrupted((4, 8)),))
    known.set_shapes(((3, 8),))
    assert list(known.dims) == [3, 8]
