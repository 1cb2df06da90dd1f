"""Adds kernels to the registry of a session: their definitions, and the functions that create them.

In: an operator, the types of its values and the memory that they lie in. Out: an entry of an `OrtKernelRegistry`. Invariant:
the state that ONNX Runtime passes to `CreateKernel` lives as long as its `KernelMaker`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ..._ort import ffi, lib
from ..abi import Ort, OrtError
from ..callbacks import export, failed
from ..memory.descriptors import BITS

# The memory of a kernel's inputs and outputs that are not on the device (ONNX Runtime's OrtMemType).
_HOST_INPUT, _HOST_OUTPUT = -2, -1


class KernelMaker:
    """Creates the kernels of one definition with `create(ort, info, out)`. Keep it as long as the registry."""

    def __init__(self, ort: Ort, create: Callable[[Ort, Any, Any], None]) -> None:
        self.ort, self.create = ort, create
        # ONNX Runtime passes `state`, which contains this handle, to CreateKernel.
        self._handle = ffi.new_handle(self)
        self.state = ffi.new("WgpuKernels *", {"handle": self._handle, "api": ort.api})


def tensor_types(ort: Ort, codes: Iterable[int] = tuple(BITS)) -> list[Any]:
    """Returns ONNX Runtime's types of tensors with these element types."""
    types = []
    for code in codes:
        with contextlib.suppress(OrtError):  # an older ONNX Runtime does not have the newest element types
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
    """Adds the kernels of an ONNX operator to a registry."""
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
            check(ep.KernelDefBuilder_SetInputMemType(builder, place, _HOST_INPUT))
        for place in host_outputs:
            check(ep.KernelDefBuilder_SetOutputMemType(builder, place, _HOST_OUTPUT))
        definition = ort.get(ep.KernelDefBuilder_Build, builder, "OrtKernelDef *")
    finally:
        ep.ReleaseKernelDefBuilder(builder)
    check(ep.KernelRegistry_AddKernel(registry, definition, ffi.addressof(lib, "c_CreateKernel"), maker.state))
    ep.ReleaseKernelDef(definition)


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
