"""Every value that the kernels of a session store, against the CPU provider.

In: a way to open a session on WebGPU, and inputs. Out: per kernel and value the error. The session is a real one: every
group of nodes is compared as ONNX Runtime cut it out, on what it was given in the first run. The CPU provider calculates
all values of the same group from the same inputs. Then the group runs dispatch by dispatch, and each dispatch reads the
CPU provider's values where there are any: so an error is the kernel's own, and none is blamed on a later one.

The CPU provider is not always right. Where the two differ, the value is calculated in float64 from what the kernel read
(`exact.py`), and a kernel is at fault only when it is further from that than the tolerance, than what the rounding of its
operands explains, and than the CPU provider.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..program.axes import model_name
from ..program.dtypes import packed, unpacked
from ..writing import naming
from .exact import NoReference, Reference

if TYPE_CHECKING:
    from ..plugin.assign.placement import Placement

TOLERANCE = {"float16": 4e-3}
"""By type where the tolerance is not that of OTHERS: f16 has 11 bits, and both providers round every value to them."""
OTHERS = 1e-3


ROUNDING = 4
"""How many times the effect of rounding the operands once is no fault: a kernel rounds in between as well."""


@dataclass(frozen=True)
class Compared:
    """One stored value. `error` is the largest difference as a part of `scale`, the largest finite value; NaN in one
    only counts as infinite, and so does any difference of integers or bools. `elements`: how many are above the
    tolerance, as "3 of 1000"; a few in a quantised model were at the boundary of two integers.

    Where `error` is above the tolerance, `to_f64` is the error against float64, less what the rounding of the operands
    explains, and `cpu_to_f64` that of the CPU provider; None without such a judge, and then `judge` says why.
    """

    kernel: str
    value: str
    dtype: str
    shape: str
    error: float
    scale: float
    elements: str
    nodes: tuple[str, ...]
    to_f64: float | None = None
    cpu_to_f64: float | None = None
    judge: str = ""

    def disagrees(self, tolerance: float | None = None) -> bool:
        """Whether the two providers differ by more than `tolerance`, by default that of the type."""
        return not self.error <= _tolerance(self.dtype, tolerance)

    def differs(self, tolerance: float | None = None) -> bool:
        """Whether they disagree, and it is not shown that the kernel is right or the CPU provider no better."""
        if not self.disagrees(tolerance) or self.to_f64 is None or self.cpu_to_f64 is None:
            return self.disagrees(tolerance)
        return not (self.to_f64 <= _tolerance(self.dtype, tolerance) or self.to_f64 <= self.cpu_to_f64)


def _tolerance(dtype: str, asked: float | None) -> float:
    return TOLERANCE.get(dtype, OTHERS) if asked is None else asked


@dataclass(frozen=True)
class Uncompared:
    """A stored value that the CPU provider does not have, and why."""

    kernel: str
    value: str
    nodes: tuple[str, ...]
    reason: str


@dataclass
class Found:
    """`stored` counts the values that kernels store: those in `kernels` and those in `uncompared`."""

    device: str
    nodes: tuple[Placement, ...]
    dispatches: int = 0
    stored: int = 0
    kernels: list[Compared] = field(default_factory=list)
    uncompared: list[Uncompared] = field(default_factory=list)

    @property
    def on_cpu(self) -> list[Placement]:
        return [node for node in self.nodes if not node.on_webgpu]


def verify(
    open_session: Callable[[], Any],
    feeds_for: Callable[[Any], dict[str, Any]],
    step: Callable[[str], None],
    tolerance: float | None = None,
) -> Found:
    """Runs the session that `open_session` makes on the inputs that `feeds_for(session)` gives, and compares.

    `step` hears what is done next; errors above `tolerance` are judged in float64. Raises what making or running the session
    raises.
    """
    from ..plugin.wrap import wrapping
    from .reports import report

    with tempfile.TemporaryDirectory() as folder:
        groups: list[_ComparedGroup] = []

        def keep(group: Any, read_graph: Callable[[], Any]) -> _ComparedGroup:
            groups.append(_ComparedGroup(group, _with_every_value(read_graph(), Path(folder) / str(len(groups)))))
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
                group.compare(found, tolerance)
        return found


class _ComparedGroup:
    """A compiled group that keeps what its first run was given."""

    def __init__(self, group: Any, path: Path) -> None:
        self.live, self.path = group.on_device(), path
        self.device = self.live.device
        self.given: list[Any] | None = None
        self._reference: Reference | None = None

    def on_device(self) -> _ComparedGroup:
        """This group: it runs on one device only."""
        return self

    def prepare(self, inputs: Any) -> Any:
        if self.given is not None:
            return self.live.prepare(inputs)

        def kept(valued: frozenset[int]) -> Any:
            tensors = inputs(valued)
            self.given = [self._array(tensor) for tensor in tensors]
            return tensors

        return self.live.prepare(kept)

    def _array(self, tensor: Any) -> Any:
        data = np.empty(tensor.dtype.nbytes(math.prod(tensor.shape)), np.uint8)
        if data.size:
            self.device.download(tensor.buffer, tensor.offset, data.data)
        return unpacked(data, tensor.dtype, tensor.shape)

    def compare(self, found: Found, tolerance: float | None) -> None:
        from ..runtime.inputs import DeviceTensor

        program, device = self.live.executable.program, self.device  # whose inputs every Program of the group has
        tensors = []
        for value, array in zip(program.inputs, self.given or (), strict=True):
            data = packed(array)
            buffer = device.buffer(max(16, data.size))
            if data.size:
                device.upload(buffer, 0, data.data)
            dtype = program.values[value].dtype
            tensors.append(DeviceTensor(dtype, array.shape, buffer, 0, np.asarray(array)))
        with self.live.prepare(lambda _valued: tensors) as run:
            executable = run.executable  # the one that ran: for these sizes maybe another than for most
        program = executable.program
        names = [program.values[value].name for value in program.inputs]
        truth = _calculated(self.path, dict(zip(names, self.given or (), strict=True)))
        told = [model_name(value.name) for value in program.values]

        def right(value: int, got: Any) -> Any:
            """The CPU provider's array where it has this value; a kernel may store it in another shape."""
            name, axes = told[value]
            want = _by_axes(truth.get(name), axes)
            return want if want is not None and (want.size, want.dtype) == (got.size, got.dtype) else None

        first = found.dispatches
        found.dispatches += len(program.dispatches)
        for number, written in executable.trace(tensors, right):
            dispatch = program.dispatches[number]
            label = f"{first + number} {program.kernels[dispatch.kernel].label}"
            found.stored += len(written)
            for value, got in written.items():
                (name, axes), want = told[value], right(value, got)
                if want is None:
                    why = _uncompared(name, _by_axes(truth.get(name), axes), got)
                    found.uncompared.append(Uncompared(label, name, dispatch.origin, why))
                    continue
                compared = _compare(label, name, got, want, dispatch.origin, tolerance)
                if compared.disagrees(tolerance):
                    read = frozenset(told[it][0] for it in dispatch.args if it not in written)
                    compared = self._judged(compared, got, axes, truth, read)
                found.kernels.append(compared)

    def _judged(
        self, compared: Compared, got: Any, axes: tuple[int, ...], truth: dict[str, Any], read: frozenset[str]
    ) -> Compared:
        """The comparison with both providers' errors against float64. `got` has its axes in this order."""
        want = _by_axes(truth[compared.value], axes)
        try:
            if self._reference is None:
                self._reference = Reference(self.path)
            exact = self._reference.value(compared.value, truth, read)
            if exact.value.size != want.size:
                raise NoReference(f"the reference gives the shape {list(exact.value.shape)}")
        except NoReference as error:
            return replace(compared, judge=f"no judge in float64: {error}")
        value, slack = (_by_axes(it, axes).reshape(-1) for it in (exact.value, ROUNDING * exact.moves))
        ours, cpu = (float(_errors(it.reshape(-1), value, slack)[0].max()) for it in (got, want))
        return replace(compared, to_f64=ours, cpu_to_f64=cpu)


def _by_axes(array: Any, axes: tuple[int, ...]) -> Any:
    """An array with its axes in this order, () for its own; None for None."""
    return array.transpose(axes) if axes and array is not None else array


def _uncompared(name: str, want: Any, got: Any) -> str:
    if want is None:
        return "lies between values of the model" if not name else "is not a value of the model as it was given"
    return f"is stored as {got.dtype} {list(got.shape)}, in the model it is {want.dtype} {list(want.shape)}"


def _with_every_value(graph: Any, folder: Path) -> Path:
    """A file of the group whose outputs are all of its values; weights lie beside it, so that their size does not matter."""
    import onnx_ir as ir

    graph.outputs[:] = [v for node in graph for v in node.outputs if v.name and v.dtype is not None]
    path = folder / "group.onnx"
    with naming(path):
        folder.mkdir()
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


def _compare(kernel: str, name: str, got: Any, want: Any, nodes: tuple[str, ...], tolerance: float | None) -> Compared:
    shape = "x".join(map(str, want.shape)) or "scalar"
    errors, scale = _errors(got.reshape(-1), want.reshape(-1)) if want.size else (np.zeros(1), 0.0)
    above = int(np.count_nonzero(~(errors <= _tolerance(str(want.dtype), tolerance))))
    elements = f"{above} of {want.size}"
    return Compared(kernel, name, str(want.dtype), shape, float(errors.max()), scale, elements, nodes)


def _errors(got: Any, want: Any, slack: Any = 0.0) -> tuple[Any, float]:
    """The difference of every element, less `slack`, as a part of the scale, and the scale."""
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    scale = float(np.abs(b[finite]).max()) if finite.any() else 0.0
    whole = got.dtype.kind in "iub"
    with np.errstate(invalid="ignore"):
        # 64-bit integers are not told apart in float64.
        same = got == want if whole else (a == b) | (np.isnan(a) & np.isnan(b))
        apart = np.maximum(np.abs(a - b), 1.0) if whole else np.abs(a - b)
        difference = np.where(same, 0.0, np.where(np.isfinite(a) & finite, apart, np.inf))
    difference = np.maximum(0.0, difference - slack)
    if whole:
        return np.where(difference == 0, 0.0, np.inf), scale
    return difference / (scale or 1.0), scale
