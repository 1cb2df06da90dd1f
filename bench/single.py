"""Compiles one small model, checks its result, and times its dispatches.

In: a model, and inputs as numpy arrays. Out: seconds of GPU time: the sum of the best times of its dispatches, from timestamps,
or the time of the dispatches among many in a row.
An idle GPU is slow for a while: an H200 runs at 345 MHz and takes half a second to recover. Therefore the GPU is kept busy
before the measurement. A software adapter runs the kernels for GPUs, to try out a benchmark.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.device import Device, Place, adapters, open_device
from onnxruntime_ep_wgpu.device.encoding import Recording
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import Target
from onnxruntime_ep_wgpu.runtime.executable import DeviceTensor, Executable
from tests import targets

WARM_SECONDS = 0.5
FEW, MANY = 4, 44  # repetitions in one submission
DTYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def device_of(index: int) -> Device:
    adapter = adapters()[index]
    return targets.device(targets.Way("gpu")) if adapter.software else open_device(adapter)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray],
) -> onnx.ModelProto:
    """Returns a model of fixed sizes. ONNX infers the types of its outputs."""
    kinds = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in inputs.items()}
    graph = helper.make_graph(
        list(nodes),
        "benchmark",
        [helper.make_tensor_value_info(n, kinds[n], a.shape) for n, a in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [onnx.numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return onnx.shape_inference.infer_shapes(made, strict_mode=True)


def compiled(made: onnx.ModelProto, device: Device, on: Target | None = None) -> Program:
    """Returns the model's Program for the device, or for a Target with other choices."""
    module = ir.from_proto(made)
    return compile_graph(module.graph, module.opset_imports, on or device.target)


class Run:
    """A Program with its inputs on the device. `results` are the outputs of the first run."""

    def __init__(self, program: Program, device: Device, inputs: Sequence[np.ndarray]) -> None:
        self.device = device
        tensors = []
        for array in inputs:
            buffer = device.buffer(array.nbytes)
            device.upload(buffer, 0, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            tensors.append(DeviceTensor(DType.of_numpy(array.dtype), array.shape, buffer))
        outputs: list[tuple[Any, DType, tuple[int, ...]]] = []

        executable = Executable(program, device)
        with executable.prepare(tensors) as run:
            outputs += [(device.buffer(d.nbytes(int(np.prod(shape)))), d, shape) for d, shape in run.outputs]
            run.submit([Place(buffer, 0) for buffer, _, _ in outputs])
        plan = executable.plan(tensors)
        where = {v: (t.buffer, 0) for v, t in zip(program.inputs, tensors, strict=True)}
        where |= {v: (buffer, 0) for v, (buffer, _, _) in zip(program.outputs, outputs, strict=True)}
        self._kept = executable, plan
        self._outputs = outputs
        self._dispatches = plan.bound(where)

    @property
    def results(self) -> list[np.ndarray]:
        out = []
        for buffer, dtype, shape in self._outputs:
            array = np.empty(shape, dtype.numpy)
            self.device.download(buffer, 0, array.reshape(-1).view(np.uint8).data)
            out.append(array)
        return out

    @property
    def dispatches(self) -> int:
        return len(self._dispatches)

    def seconds(self, repeats: int) -> float:
        """Returns the sum of the best GPU times of the dispatches."""
        times = [self.device.measure(self._dispatches) for _ in range(repeats)]
        return sum(map(min, zip(*times, strict=True)))

    def seconds_together(self, repeats: int) -> float:
        """Returns the time of the dispatches in a long row of them, where one begins as soon as the last one ends.

        It is the median difference between long and short submissions, so it has no fixed cost of a submission or a timestamp."""
        short, long = (Recording(self._dispatches * count) for count in (FEW, MANY))
        return median(self._waited(long) - self._waited(short) for _ in range(repeats)) / (MANY - FEW)

    def _waited(self, recording: Recording) -> float:
        begin = time.perf_counter()
        self.device.submit(recording)
        self.device.wait()
        return time.perf_counter() - begin

    def warm(self) -> None:
        end = time.perf_counter() + WARM_SECONDS
        while time.perf_counter() < end:
            self.device.measure(self._dispatches)
