"""If, Loop and Scan for this provider: ONNX Runtime's own kernels, with the copies and transposes that they need.

In: the registry of a session. Out: kernels that pass device tensors to bodies. Invariant: conditions and trip counts lie on the
host. All other values lie where the nodes of the bodies read them.
"""

from __future__ import annotations

from typing import Any

from ..._ort import ffi
from ..abi import Ort
from ..callbacks import CallbackTable, callback
from ..memory.copies import Batch
from ..memory.descriptors import tensor_of
from .registry import KernelMaker, define, tensor_types
from .transposer import Transposer

# If the last version is the largest integer, ONNX Runtime treats a definition as one of the first version only.
VERSIONS = (1, 1000)
SCAN_VERSIONS = (9, 1000)  # a Scan of version 8 has a batch axis
_INT64, _BOOL = 7, 9


class LoopHelper(CallbackTable, struct="OrtLoopKernelHelper"):
    """Concatenates the results of a Loop's iterations, in one submission for each scan output."""

    @callback("ConcatOutput", device=True)
    def concat_output(self, _stream: Any, parts: Any, count: int, output: Any, _nbytes: int) -> None:
        with Batch() as batch:
            batch.join([tensor_of(self.ort, parts[number]) for number in range(count)], output)

    @callback("Release")
    def released(self) -> None:
        self.release()


class ScanHelper(CallbackTable, struct="OrtScanKernelHelper"):
    """Transposes tensors for a Scan along another axis than the first.

    A Scan moves that axis to the front before it begins, and back at its end.
    """

    def __init__(self, ort: Ort) -> None:
        super().__init__(ort)
        self._transposer = Transposer(ort)

    @callback("Transpose", device=True)
    def transpose(self, axes: Any, count: int, source: Any, _stream: Any, result: Any) -> None:
        self._transposer.run(ffi.unpack(axes, count), source, result)

    @callback("Release")
    def released(self) -> None:
        self.release()


def _create_if(ort: Ort, info: Any, out: Any) -> None:
    ort.check_status(ort.ep.CreateIfKernel(info, out))


def _create_loop(ort: Ort, info: Any, out: Any) -> None:
    helper, place = LoopHelper(ort), ffi.new("OrtLoopKernelHelper *[1]")
    helper.pass_to_ort(place)
    ort.check_status(ort.ep.CreateLoopKernel(info, place[0], out))


def _create_scan(ort: Ort, info: Any, out: Any) -> None:
    helper, place = ScanHelper(ort), ffi.new("OrtScanKernelHelper *[1]")
    helper.pass_to_ort(place)
    ort.check_status(ort.ep.CreateScanKernel(info, place[0], out))


class ControlKernels:
    """The control flow kernels in the registry of one session, only for tensor values."""

    def __init__(self, ort: Ort, provider: str, registry: Any) -> None:
        tensors, boolean, integer = tensor_types(ort), tensor_types(ort, (_BOOL,)), tensor_types(ort, (_INT64,))
        self._makers = KernelMaker(ort, _create_if), KernelMaker(ort, _create_loop), KernelMaker(ort, _create_scan)
        to_if, to_loop, to_scan = self._makers
        define(to_if, registry, provider, "If", VERSIONS, {"B": boolean, "V": tensors}, host_inputs=(0,))
        types = {"I": integer, "B": boolean, "V": tensors}
        define(to_loop, registry, provider, "Loop", VERSIONS, types, host_inputs=(0, 1))
        define(to_scan, registry, provider, "Scan", SCAN_VERSIONS, {"V": tensors})
