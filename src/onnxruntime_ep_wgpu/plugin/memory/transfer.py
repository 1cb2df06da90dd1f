"""ONNX Runtime's data transfer: pairs of tensors in, copies out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..._ort import lib
from ...device import adapters
from ...device.native import queues
from ...errors import DeviceError
from ..abi import address
from ..callbacks import CallbackTable, callback, export
from .copies import Batch
from .descriptors import tensor_of

GPU, CPU, DEFAULT_MEMORY = 1, 0, 0


def _run_deferred(number: Any) -> Callable[[], object]:
    queue = queues.get(address(number))
    return bool if queue is None else queue.run_deferred


export("RunDeferred", _run_deferred)  # C code that reads tensors calls it before it waits


class DataTransfer(CallbackTable, struct="OrtDataTransferImpl"):
    """Copies for `copy_tensors`, `OrtValue.numpy()` and inputs without a Memcpy node. csrc/memory.c does those that it can."""

    @callback("Release")
    def released(self) -> None:
        self.release()

    @callback("CanCopy", first="can_copy")
    def can_copy(self, source: Any, destination: Any) -> bool:
        lib.adapters = len(adapters())  # from here on C code answers CanCopy
        kinds = {self._kind(source), self._kind(destination)}
        return kinds in ({"ours"}, {"ours", "host"})

    def _kind(self, device: Any) -> str:
        """Returns "host", "ours" or "other" for a kind of memory. Other providers' memory has a vendor ID other than 0."""
        ep = self.ort.ep
        kind = ep.MemoryDevice_GetDeviceType(device)
        if kind == CPU:
            return "host"
        ours = (
            kind == GPU
            and ep.MemoryDevice_GetVendorId(device) == 0
            and ep.MemoryDevice_GetMemoryType(device) == DEFAULT_MEMORY
            and ep.MemoryDevice_GetDeviceId(device) < len(adapters())
        )
        return "ours" if ours else "other"

    @callback("CopyTensors", repeatable=True, device=True, first="copy_tensors")
    def copy_tensors(self, sources: Any, destinations: Any, _streams: Any, count: int) -> None:
        with Batch() as batch:
            for i in range(count):
                data, nbytes = tensor_of(self.ort, sources[i])
                into, capacity = tensor_of(self.ort, destinations[i])
                if nbytes > capacity:
                    raise DeviceError(f"a tensor of {nbytes} bytes does not fit into one of {capacity} bytes")
                batch.copy(data, into, nbytes)
