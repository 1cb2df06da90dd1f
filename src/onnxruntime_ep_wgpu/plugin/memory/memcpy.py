"""Kernels for ONNX Runtime's Memcpy nodes.

They are ours because with ONNX Runtime's own a fused node is handed host pointers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
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


class KernelMaker:
    """What makes the kernels of one definition: `create(ort, info, out)`. It lives as long as the registry."""

    def __init__(self, ort: Ort, create: Callable[[Ort, Any, Any], None]) -> None:
        self.ort, self.create = ort, create
        # ONNX Runtime hands this to CreateKernel.
        self._handle = ffi.new_handle(self)
        self.state = ffi.new("WgpuKernels *", {"handle": self._handle, "api": ort.api})


def tensor_types(ort: Ort, codes: Iterable[int] = tuple(BITS)) -> list[Any]:
    """ONNX Runtime's types of tensors with these elements."""
    types = []
    for code in codes:
        with contextlib.suppress(OrtError):  # the newest element types are unknown to an older ONNX Runtime
            types.append(ort.get(ort.ep.GetTensorDataType, code, "const OrtDataType *"))
    return types


def define(
    maker: KernelMaker,
    registry: Any,
    provider: str,
    operator: str,
    versions: tuple[int, int],
    types: Mapping[str, Sequence[Any]],
    host_inputs: Iterable[int] = (),
    host_outputs: Iterable[int] = (),
) -> None:
    """Adds kernels of an operator of ONNX to a registry."""
    ort = maker.ort
    ep, check = ort.ep, ort.check_status
    builder = ort.get_out(ep.CreateKernelDefBuilder, "OrtKernelDefBuilder *")
    try:
        check(ep.KernelDefBuilder_SetOperatorType(builder, ort.string(operator)))
        check(ep.KernelDefBuilder_SetDomain(builder, ort.string("")))
        check(ep.KernelDefBuilder_SetSinceVersion(builder, *versions))
        check(ep.KernelDefBuilder_SetExecutionProvider(builder, ort.string(provider)))
        for name, allowed in types.items():
            array = ffi.new("const OrtDataType *[]", allowed)
            check(ep.KernelDefBuilder_AddTypeConstraint(builder, ort.string(name), array, len(allowed)))
        for place in host_inputs:
            check(ep.KernelDefBuilder_SetInputMemType(builder, place, HOST_INPUT))
        for place in host_outputs:
            check(ep.KernelDefBuilder_SetOutputMemType(builder, place, HOST_OUTPUT))
        definition = ort.get(ep.KernelDefBuilder_Build, builder, "OrtKernelDef *")
    finally:
        ep.ReleaseKernelDefBuilder(builder)
    check(ep.KernelRegistry_AddKernel(registry, definition, ffi.addressof(lib, "c_CreateKernel"), maker.state))
    ep.ReleaseKernelDef(definition)


class MemcpyKernels:
    """The registry of the two Memcpy kernels under the name of one provider, for one session. `close()` gives it back.

    `made` counts the kernels that the session has asked for.
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
        MemcpyKernel(ort).hand_out(out)

    def close(self) -> None:
        # An interrupt can be raised behind the call, and closing begun again: the pointer goes first.
        registry, self.registry = self.registry, ffi.NULL
        if registry:
            self.ort.ep.ReleaseKernelRegistry(registry)


def _maker(state: Any) -> KernelMaker:
    made: KernelMaker = ffi.from_handle(ffi.cast("WgpuKernels *", state).handle)
    return made


def _create_kernel(state: Any, info: Any, out: Any) -> None:
    maker = _maker(state)
    maker.create(maker.ort, info, out)


export(
    "CreateKernel",
    lambda state: partial(_create_kernel, state),
    lambda error, state, _: failed(_maker(state).ort, error),
)
