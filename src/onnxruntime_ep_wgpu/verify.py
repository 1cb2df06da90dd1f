"""Every value that the kernels of a session store, against the CPU provider.

In: a way to open a session on WebGPU, and inputs. Out: per kernel and value the error. The session is a real one: every
group of nodes is compared as ONNX Runtime cut it out, on what it was given in the first run. The CPU provider calculates
all values of the same group from the same inputs. Then the group runs dispatch by dispatch, and each dispatch reads the
CPU provider's values where there are any: so an error is the kernel's own, and none is blamed on a later one.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .dtypes import packed, unpacked

if TYPE_CHECKING:
    from .plugin.placement import Placement

TOLERANCE = {"float16": 4e-3}
"""By type where the tolerance is not that of OTHERS: f16 has 11 bits, and both providers round every value to them."""
OTHERS = 1e-3


@dataclass(frozen=True)
class Compared:
    """One stored value. `error` is the largest difference as a part of `scale`, the largest finite value; NaN in one
    only counts as infinite, and so does any difference of integers or bools. `elements`: how many are above the tolerance
    of the type, as "3 of 1000"; a few in a quantised model were at the boundary of two integers."""

    kernel: str
    value: str
    dtype: str
    shape: str
    error: float
    scale: float
    elements: str
    nodes: tuple[str, ...]

    def differs(self, tolerance: float | None = None) -> bool:
        """Whether the error is above `tolerance`, by default that of the type."""
        return not self.error <= (TOLERANCE.get(self.dtype, OTHERS) if tolerance is None else tolerance)


@dataclass
class Found:
    """`stored` counts the values that kernels store. Those between two values of the model are not in `kernels`."""

    device: str
    nodes: tuple[Placement, ...]
    dispatches: int = 0
    stored: int = 0
    kernels: list[Compared] = field(default_factory=list)

    @property
    def on_cpu(self) -> list[Placement]:
        return [node for node in self.nodes if node.partition is None]


def verify(
    open_session: Callable[[], Any], feeds_for: Callable[[Any], dict[str, Any]], step: Callable[[str], None]
) -> Found:
    """Runs the session that `open_session` makes on the inputs that `feeds_for(session)` gives, and compares.

    `step` hears what is done next. Raises what making or running the session raises.
    """
    from .plugin.watch import wrapping
    from .reports import report

    with tempfile.TemporaryDirectory() as folder:
        groups: list[_Group] = []

        def keep(group: Any, read_graph: Callable[[], Any]) -> _Group:
            groups.append(_Group(group, _with_every_value(read_graph(), Path(folder) / str(len(groups)))))
            return groups[-1]

        with wrapping(keep):
            session = open_session()
        step("first run")
        session.run(None, feeds_for(session))
        placed = report(session)
        found = Found(placed.device, placed.nodes)
        step("kernels")
        for group in groups:
            if group.given is not None:
                group.compare(found)
        return found


class _Group:
    """A compiled group that keeps what its first run was given."""

    def __init__(self, group: Any, path: Path) -> None:
        self.live, self.path = group.executable(), path
        self.device = self.live.device
        self.given: list[Any] | None = None

    def executable(self) -> _Group:
        """This group: it runs on one device only."""
        return self

    def run(self, inputs: Sequence[Any], allocate: Any) -> None:
        if self.given is None:
            self.given = [self._array(tensor) for tensor in inputs]
        self.live.run(inputs, allocate)

    def _array(self, tensor: Any) -> Any:
        data = np.empty(tensor.dtype.nbytes(math.prod(tensor.shape)), np.uint8)
        if data.size:
            self.device.download(tensor.buffer, tensor.offset, data.data)
        return unpacked(data, tensor.dtype, tensor.shape)

    def compare(self, found: Found) -> None:
        from .run import DeviceTensor

        program, device = self.live.program, self.device
        tensors = []
        for value, array in zip(program.inputs, self.given or (), strict=True):
            data = packed(array)
            buffer = device.buffer(max(16, data.size))
            if data.size:
                device.upload(buffer, 0, data.data)
            dtype = program.values[value].dtype
            tensors.append(DeviceTensor(dtype, array.shape, buffer, 0, partial(np.asarray, array)))
        names = [program.values[value].name for value in program.inputs]
        truth = _calculated(self.path, dict(zip(names, self.given or (), strict=True)))

        def right(value: int, got: Any) -> Any:
            """The CPU provider's array where it has this value; a kernel may store it in another shape."""
            want = truth.get(program.values[value].name)
            return want if want is not None and (want.size, want.dtype) == (got.size, got.dtype) else None

        first = found.dispatches
        found.dispatches += len(program.dispatches)
        for number, written in self.live.trace(tensors, right):
            dispatch = program.dispatches[number]
            label = f"{first + number} {program.kernels[dispatch.kernel].label}"
            found.stored += len(written)
            for value, got in written.items():
                want = right(value, got)
                if want is not None:
                    found.kernels.append(_compare(label, program.values[value].name, got, want, dispatch.origin))


def _with_every_value(graph: Any, folder: Path) -> Path:
    """A file of the group whose outputs are all of its values; weights lie beside it, so that their size does not matter."""
    import onnx_ir as ir

    graph.outputs[:] = [v for node in graph for v in node.outputs if v.name and v.dtype is not None]
    folder.mkdir()
    path = folder / "group.onnx"
    ir.save(ir.Model(graph, ir_version=10), path, external_data="weights")
    return path


def _calculated(path: Path, feeds: dict[str, Any]) -> dict[str, Any]:
    """All values of the group, from the CPU provider without optimisations, and its inputs."""
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return {**feeds, **dict(zip(names, session.run(names, feeds), strict=True))}


def _compare(kernel: str, name: str, got: Any, want: Any, nodes: tuple[str, ...]) -> Compared:
    shape = "x".join(map(str, want.shape)) or "scalar"
    errors, scale = _errors(got.reshape(-1), want.reshape(-1)) if want.size else (np.zeros(1), 0.0)
    above = int(np.count_nonzero(errors > TOLERANCE.get(str(want.dtype), OTHERS)))
    elements = f"{above} of {want.size}"
    return Compared(kernel, name, str(want.dtype), shape, float(errors.max()), scale, elements, nodes)


def _errors(got: Any, want: Any) -> tuple[Any, float]:
    """The difference of every element as a part of the scale, and the scale."""
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    scale = float(np.abs(b[finite]).max()) if finite.any() else 0.0
    if want.dtype.kind in "iub":
        return np.where(got == want, 0.0, np.inf), scale
    with np.errstate(invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        difference = np.where(same, 0.0, np.where(np.isfinite(a) & finite, np.abs(a - b), np.inf))
    return difference / (scale or 1.0), scale
