"""Every stored value of a compiled model against the CPU provider.

In: a model file and inputs. Out: per kernel and value the error. The model goes through ONNX Runtime's basic
optimisations first, as it does in a session; each group of nodes is compiled and run dispatch by dispatch, and starts
from the CPU provider's values, so a difference is not blamed on a later group.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import DeviceError

if TYPE_CHECKING:
    from .device import Adapter


TOLERANCE = {"float16": 4e-3}
"""By type where the tolerance is not that of OTHERS: f16 has 11 bits, and both providers round every value to them."""
OTHERS = 1e-3


@dataclass(frozen=True)
class Compared:
    """One stored value. `error` is the largest difference as a part of `scale`, the largest finite value; NaN in one
    only counts as infinite, and so does any difference of integers or bools."""

    kernel: str
    value: str
    dtype: str
    shape: str
    error: float
    scale: float
    nodes: tuple[str, ...]

    def differs(self, tolerance: float | None = None) -> bool:
        """Whether the error is above `tolerance`, by default that of the type."""
        return not self.error <= (TOLERANCE.get(self.dtype, OTHERS) if tolerance is None else tolerance)


@dataclass
class Found:
    device: str
    nodes: int
    dispatches: int = 0
    on_cpu: list[tuple[str, str, str]] = field(default_factory=list)
    kernels: list[Compared] = field(default_factory=list)


def verify(
    path: Path, feeds_for: Callable[[Any], dict[str, Any]], device_name: str | None, step: Callable[[str], None]
) -> Found:
    """Compares the model at `path` on the inputs that `feeds_for(session)` gives. `device_name` is a number or a part of
    a name; `step` hears what is done next. Raises what loading or compiling the model raises."""
    import onnx_ir as ir
    import onnxruntime as ort

    from .device import adapters, adapters_problem, open_device
    from .plugin.claim import claim

    found = adapters()
    if not found:
        raise DeviceError(adapters_problem() or "there is no adapter")
    chosen = _pick(found, device_name)
    model = _optimised(path)
    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    feeds = feeds_for(session)
    truth = {**_every_value(model, feeds), **feeds}
    step("compiling")
    graph = ir.from_proto(model).graph
    device = open_device(chosen)
    decided = claim(graph, device.target, [""] * len(graph), frozenset())
    nodes = list(graph)
    result = Found(chosen.name, len(nodes))
    result.on_cpu = [(n.name or "", n.op_type, r) for n, r in zip(nodes, decided.reasons, strict=True) if r is not None]
    step("kernels")
    for group in decided.groups:
        _verify_group(graph, [nodes[k] for k in group], device, truth, result)
    return result


def _pick(found: tuple[Adapter, ...], name: str | None) -> Adapter:
    if name is None:
        return found[0]
    for adapter in found:
        if name == str(adapter.index) or name.lower() in adapter.name.lower():
            return adapter
    raise DeviceError(f"no device is called {name!r}; there are {', '.join(f'{a.index}: {a.name}' for a in found)}")


def _optimised(path: Path) -> Any:
    """The model after ONNX Runtime's basic optimisations, which a provider sees."""
    import onnx
    import onnxruntime as ort

    with tempfile.TemporaryDirectory() as folder:
        settings = ort.SessionOptions()
        settings.log_severity_level = 3
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        settings.optimized_model_filepath = str(Path(folder) / "optimised.onnx")
        ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
        return onnx.load(settings.optimized_model_filepath)


def _every_value(model: Any, feeds: dict[str, Any]) -> dict[str, Any]:
    """All intermediate values, from the CPU provider without further optimisation."""
    import onnx
    import onnxruntime as ort

    shown = type(model)()
    shown.CopyFrom(model)
    names = [name for node in model.graph.node for name in node.output if name]
    del shown.graph.output[:]
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(shown.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(names, feeds), strict=True))


def _verify_group(graph: Any, nodes: list[Any], device: Any, truth: dict[str, Any], result: Found) -> None:
    from .compile import compile_graph
    from .dtypes import DType
    from .model.subgraph import extract
    from .run import DeviceTensor, Executable

    cut = extract(graph, nodes)
    names = [value.name or "" for value in cut.inputs]
    program = compile_graph(cut, graph.opset_imports, device.target)
    tensors = []
    for name in names:
        array = np.ascontiguousarray(truth[name])
        buffer = device.buffer(max(16, array.nbytes))
        if array.nbytes:
            device.upload(buffer, 0, array.reshape(-1).view(np.uint8).data)
        tensors.append(DeviceTensor(DType.of_numpy(array.dtype), array.shape, buffer, 0, partial(np.asarray, array)))
    first = result.dispatches
    result.dispatches += len(program.dispatches)
    for number, written in Executable(program, device).trace(tensors):
        dispatch = program.dispatches[number]
        label = f"{first + number} {program.kernels[dispatch.kernel].label}"
        for value, got in written.items():
            name = program.values[value].name
            if name in truth and truth[name].size == got.size:
                result.kernels.append(_compare(label, name, got, np.asarray(truth[name]), dispatch.origin))


def _compare(kernel: str, name: str, got: Any, want: Any, nodes: tuple[str, ...]) -> Compared:
    shape = "x".join(map(str, want.shape)) or "scalar"
    error, scale = _error(got.reshape(-1), want.reshape(-1)) if want.size else (0.0, 0.0)
    return Compared(kernel, name, str(want.dtype), shape, error, scale, nodes)


def _error(got: Any, want: Any) -> tuple[float, float]:
    """The largest difference as a part of the scale, and the scale."""
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    scale = float(np.abs(b[finite]).max()) if finite.any() else 0.0
    if want.dtype.kind in "iub":
        return float(np.inf if (got != want).any() else 0), scale
    with np.errstate(invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        difference = np.where(same, 0.0, np.where(np.isfinite(a) & finite, np.abs(a - b), np.inf))
    return float(difference.max() / (scale or 1.0)), scale
