"""Kernels for ONNX Runtime's Memcpy nodes.

They are ours because with ONNX Runtime's own a fused node is handed host pointers.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

from ..._ort import ffi, lib
from ..abi import Ort, OrtError
from ..callbacks import CallbackTable, callback, export, failed
from .copies import copy
from .descriptors import BITS, shape_of, tensor_bytes

# Where a kernel's input or output lies when it is not on the device (ONNX Runtime's OrtMemType).
HOST_INPUT, HOST_OUTPUT = -2, -1
ANY_VERSION = (1, 2**31 - 1)


class MemcpyKernel(CallbackTable, struct="OrtKernelImpl"):
    """MemcpyFromHost and MemcpyToHost alike: the pointers say which."""

    @callback("Compute", repeatable=True, device=True)
    def compute(self, context: Any) -> None:
        ort, tensor, out = self.ort, ffi.new("WgpuTensor *"), ffi.new("void **")
        ort.check_status(lib.wgpu_inputs(ort.api, context, 1, tensor))
        nbytes = tensor_bytes(tensor.type, shape_of(tensor))
        ort.check_status(lib.wgpu_outputs(ort.api, context, 1, [0], tensor.dims, [tensor.rank], out))
        copy(tensor.data, out[0], nbytes)

    @callback("Release")
    def released(self) -> None:
        self.release()


class MemcpyKernels:
    """The registry of the two Memcpy kernels under the name of one provider, for one session. `close()` gives it back.

    `made` counts the kernels that the session has asked for.
    """

    def __init__(self, ort: Ort, provider: str) -> None:
        self.ort = ort
        self.made = 0
        self.registry = ort.get_out(ort.ep.CreateKernelRegistry, "OrtKernelRegistry *")
        # ONNX Runtime hands this to CreateKernel.
        self._handle = ffi.new_handle(self)
        self._state = ffi.new("WgpuKernels *", {"handle": self._handle, "api": ort.api})
        types = []
        for code in BITS:
            with contextlib.suppress(OrtError):  # the newest element types are unknown to an older ONNX Runtime
                types.append(ort.get(ort.ep.GetTensorDataType, code, "const OrtDataType *"))
        array = ffi.new("const OrtDataType *[]", types)
        for operator, place, where in (
            ("MemcpyFromHost", ort.ep.KernelDefBuilder_SetInputMemType, HOST_INPUT),
            ("MemcpyToHost", ort.ep.KernelDefBuilder_SetOutputMemType, HOST_OUTPUT),
        ):
            builder = ort.get_out(ort.ep.CreateKernelDefBuilder, "OrtKernelDefBuilder *")
            try:
                ort.check_status(ort.ep.KernelDefBuilder_SetOperatorType(builder, ort.string(operator)))
                ort.check_status(ort.ep.KernelDefBuilder_SetDomain(builder, ort.string("")))
                ort.check_status(ort.ep.KernelDefBuilder_SetSinceVersion(builder, *ANY_VERSION))
                ort.check_status(ort.ep.KernelDefBuilder_SetExecutionProvider(builder, ort.string(provider)))
                ort.check_status(ort.ep.KernelDefBuilder_AddTypeConstraint(builder, ort.string("T"), array, len(types)))
                ort.check_status(place(builder, 0, where))
                definition = ort.get(ort.ep.KernelDefBuilder_Build, builder, "OrtKernelDef *")
            finally:
                ort.ep.ReleaseKernelDefBuilder(builder)
            create = ffi.addressof(lib, "c_CreateKernel")
            ort.check_status(ort.ep.KernelRegistry_AddKernel(self.registry, definition, create, self._state))
            ort.ep.ReleaseKernelDef(definition)

    def close(self) -> None:
        # An interrupt can be raised behind the call, and closing begun again: the pointer goes first.
        registry, self.registry = self.registry, ffi.NULL
        if registry:
            self.ort.ep.ReleaseKernelRegistry(registry)


def _kernels(state: Any) -> MemcpyKernels:
    made: MemcpyKernels = ffi.from_handle(ffi.cast("WgpuKernels *", state).handle)
    return made


def _create_kernel(state: Any, _info: Any, out: Any) -> None:
    kernels = _kernels(state)
    kernels.made += 1
    MemcpyKernel(kernels.ort).hand_out(out)


export(
    "CreateKernel",
    lambda state: partial(_create_kernel, state),
    lambda error, state, _: failed(_kernels(state).ort, error),
)
