"""Kernels for ONNX Runtime's Memcpy nodes.

They replace ONNX Runtime's own kernels, with which a fused node receives host pointers.
"""

from __future__ import annotations

from typing import Any

from ..._ort import ffi, lib
from ..abi import Ort
from ..callbacks import CallbackTable, callback
from ..memory.copies import copy
from ..memory.descriptors import shape_of, tensor_bytes
from .registry import KernelMaker, define, tensor_types

ANY_VERSION = (1, 2**31 - 1)


class MemcpyKernel(CallbackTable, struct="OrtKernelImpl"):
    """Runs MemcpyFromHost and MemcpyToHost. The pointers determine the direction."""

    @callback("Compute", repeatable=True, device=True)
    def compute(self, context: Any) -> None:
        ort, tensor, out = self.ort, ffi.new("Given *"), ffi.new("void **")
        ort.check_status(lib.read_inputs(ort.api, context, 1, tensor))
        nbytes = tensor_bytes(tensor.type, shape_of(tensor))
        ort.check_status(lib.make_outputs(ort.api, context, 1, [0], tensor.dims, [tensor.rank], out))
        copy(tensor.data, out[0], nbytes)

    @callback("Release")
    def released(self) -> None:
        self.release()


class MemcpyKernels:
    """The registry of the two Memcpy kernels, for one provider name and one session. `close()` releases it.

    `made` counts the kernels that the session has requested.
    """

    def __init__(self, ort: Ort, provider: str) -> None:
        self.ort = ort
        self.made = 0
        self.registry = ort.get_out(ort.ep.CreateKernelRegistry, "OrtKernelRegistry *")
        self._maker = KernelMaker(ort, self._create)
        types = {"T": tensor_types(ort)}
        define(self._maker, self.registry, provider, "MemcpyFromHost", ANY_VERSION, types, host_inputs=(0,))
        define(self._maker, self.registry, provider, "MemcpyToHost", ANY_VERSION, types, host_outputs=(0,))

    def _create(self, ort: Ort, _info: Any, out: Any) -> None:
        self.made += 1
        MemcpyKernel(ort).pass_to_ort(out)

    def close(self) -> None:
        # An interrupt may be raised after the call, and `close` called again. So the pointer is cleared first.
        registry, self.registry = self.registry, ffi.NULL
        if registry:
            self.ort.ep.ReleaseKernelRegistry(registry)
