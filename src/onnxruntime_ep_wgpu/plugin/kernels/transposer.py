"""Permutes the axes of tensors on a device, for a Scan along another axis than the first.

In: two tensors of one element type in device memory, and the permutation. Out: the elements of the first in the second.
Invariant: there is one Program for each element type and permutation, for all sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..._ort import ffi, lib
from ...program.dtypes import DType
from ...runtime.executable import Executable
from ...runtime.inputs import DeviceTensor
from ..abi import Ort, address
from ..memory import space as memory
from ..memory.descriptors import element_type, shape_of, tensor_bytes

if TYPE_CHECKING:
    import onnx_ir as ir

    from ...device import Device

_OPSETS = {"": 17}


class Transposer:
    """The transposes of one kernel. Each is compiled at the first run that needs it, and again after the device was lost."""

    def __init__(self, ort: Ort) -> None:
        self._ort = ort
        self._made: dict[tuple[DType, tuple[int, ...]], Executable] = {}

    def run(self, axes: Sequence[int], source: Any, result: Any) -> None:
        """Writes the OrtValue `result`: its axis k is axis `axes[k]` of the OrtValue `source`. Raises DeviceError."""
        given, made = (self._tensor(it) for it in (source, result))
        nbytes, shape = tensor_bytes(given.type, shape_of(given)), shape_of(given)
        if not nbytes:
            return
        space, dtype = memory.space(), element_type(given.type)
        device, read = space.read(address(given.data), nbytes)
        _, written = space.write(address(made.data), nbytes)
        executable = self._executable(device, dtype, tuple(axes))
        executable.run([DeviceTensor(dtype, shape, read.buffer, read.offset)], [written])

    def _tensor(self, value: Any) -> Any:
        tensor = ffi.new("Given *")
        self._ort.check_status(lib.read_tensor(self._ort.api, value, tensor))
        return tensor

    def _executable(self, device: Device, dtype: DType, axes: tuple[int, ...]) -> Executable:
        found = self._made.get((dtype, axes))
        if found is None or found.device is not device:
            # Imported here so that a process without such a Scan imports no compiler if its Programs are in the cache.
            from ...compiler.compile import compile_graph

            program = compile_graph(_graph(dtype, axes), _OPSETS, device.target, "Transpose of a Scan")
            found = self._made[dtype, axes] = Executable(program, device)
        return found


def _graph(dtype: DType, axes: tuple[int, ...]) -> ir.Graph:
    import onnx_ir as ir

    kind = ir.TensorType(ir.DataType(dtype.code))
    x = ir.Value(name="x", type=kind, shape=ir.Shape([f"n{axis}" for axis in range(len(axes))]))
    node = ir.node("Transpose", [x], {"perm": list(axes)})
    (y,) = node.outputs
    y.name, y.type = "y", kind
    return ir.Graph([x], [y], nodes=[node], opset_imports=_OPSETS, name="transpose")
