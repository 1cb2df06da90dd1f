"""Compares every value that the kernels of a session store with the CPU provider.

In: a function that opens a session on WebGPU, and inputs. Out: the error per kernel and value.

The session is a real one. Each group is compared in the form that ONNX Runtime cut out, with the inputs of its first run. The
CPU provider calculates all values of the group from these inputs. Then the group runs dispatch by dispatch, and each dispatch
reads the CPU provider's values if they exist. So an error is the kernel's own, and does not propagate to later kernels.

The CPU provider is not always right. If the two differ, the value is calculated in float64 from the kernel's operands
(`exact.py`). A kernel is at fault only if its float64 error exceeds all of these: the tolerance, the effect of rounding the
operands, and the CPU provider's float64 error.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import OptionError
from ..program.axes import model_name
from ..program.dtypes import packed
from ..program.program import Storage
from ..records import dataclass
from ..tabular import html_table, text_lines
from ..writing import errors_about
from .differences import above, errors, tolerance_of
from .exact import NoReference, Reference
from .outputs import Output, Suspect, Suspects, outputs_of
from .stand_in import StandIn, cpu_session

if TYPE_CHECKING:
    from ..plugin.assign.placement import Placement

ROUNDING = 4
"""Accepted multiple of the effect of rounding the operands once, because a kernel also rounds intermediate values."""


@dataclass(frozen=True)
class Compared:
    """The comparison of one stored value.

    `error` is the largest difference relative to `scale`, the largest finite value. It is infinite if only one value is NaN, or
    if integers or bools differ. `elements` counts those above the tolerance, as "3 of 1000". A few in a quantised model are
    values at the boundary of two integers.

    If `error` is above the tolerance, `to_f64` is the error against float64 minus the effect of rounding the operands, and
    `cpu_to_f64` that of the CPU provider. Without a float64 result, both are None and `judge` is the reason.
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
        """Returns whether the two providers differ by more than `tolerance`, by default the type's."""
        return not self.error <= tolerance_of(self.dtype, tolerance)

    def differs(self, tolerance: float | None = None) -> bool:
        """Returns whether they disagree and float64 does not show that the kernel is right, or no worse than the CPU
        provider."""
        if not self.disagrees(tolerance) or self.to_f64 is None or self.cpu_to_f64 is None:
            return self.disagrees(tolerance)
        return not (self.to_f64 <= tolerance_of(self.dtype, tolerance) or self.to_f64 <= self.cpu_to_f64)


@dataclass(frozen=True)
class Uncompared:
    """A stored value without a counterpart on the CPU provider, and the reason."""

    kernel: str
    value: str
    nodes: tuple[str, ...]
    reason: str


KERNELS = ("kernel", "value", "shape", "error", "to f64", "CPU to f64", "above", "scale", "nodes")
OUTPUTS = ("output", "shape", "error", "to f64", "CPU to f64", "above", "scale")
SHOWN = 20  # limit of kernels in a notebook


@dataclass
class Verification:
    """The result of `verify`. A notebook shows the largest errors.

    `kernels` has a `Compared` for each value in run order, `uncompared` the values without comparison. `stored` is the number
    of values that kernels store, in both lists. `outputs` are the model's."""

    device: str
    nodes: tuple[Placement, ...]
    dispatches: int = 0
    stored: int = 0
    kernels: list[Compared] = field(default_factory=list)
    uncompared: list[Uncompared] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    tolerance: float | None = None

    @property
    def differing(self) -> list[Compared]:
        """The values that differ by more than the tolerance, in run order. Start with the first one."""
        return [it for it in self.kernels if it.differs(self.tolerance)]

    def kernel_rows(self) -> list[list[object]]:
        """Returns the comparisons as rows for KERNELS, largest errors first."""
        worst = sorted(self.kernels, key=lambda k: -k.error if k.error == k.error else -math.inf)
        return [
            [k.kernel, k.value, k.shape, f"{k.error:.1e}", k.judge or shown_error(k.to_f64), shown_error(k.cpu_to_f64),
             k.elements, f"{k.scale:.3g}", ", ".join(k.nodes[:3])]
            for k in worst
        ]  # fmt: skip

    def output_rows(self) -> list[list[object]]:
        """Returns the model's outputs as rows for OUTPUTS."""
        return [
            [it.output, it.shape, f"{it.error:.1e}", it.judge or shown_error(it.to_f64), shown_error(it.cpu_to_f64),
             it.elements, f"{it.scale:.3g}"]
            for it in self.outputs
        ]  # fmt: skip

    def _title(self) -> str:
        bad = self.differing
        found = f"{len(bad)} differ, first {bad[0].value} of {bad[0].kernel}" if bad else "none differs"
        return f"{self.device}: {len(self.kernels)} of {self.stored} stored values compared, {found}"

    def __str__(self) -> str:
        kernels, outputs = self.kernel_rows()[:SHOWN], self.output_rows()
        return "\n".join([self._title(), *text_lines(KERNELS, kernels), "", *text_lines(OUTPUTS, outputs)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Returns HTML tables, for notebooks."""
        outputs = html_table(OUTPUTS, self.output_rows(), "outputs, when all of the model runs here")
        return html_table(KERNELS, self.kernel_rows()[:SHOWN], self._title()) + outputs

    @property
    def on_cpu(self) -> list[Placement]:
        return [node for node in self.nodes if not node.on_webgpu]


def compared(
    open_session: Callable[[], Any],
    feeds_for: Callable[[Any], dict[str, Any]],
    step: Callable[[str], None],
    tolerance: float | None = None,
) -> Verification:
    """Runs the session from `open_session` on the inputs from `feeds_for(session)`, and compares.

    `step` receives the name of each next step, for a progress display. Errors above `tolerance` are judged in float64. Raises
    the errors of the session's creation and run."""
    from ..plugin.tools import wrapping
    from .reports import report

    with tempfile.TemporaryDirectory() as folder:
        groups: list[_ComparedGroup] = []

        def keep(group: Any, read_graph: Callable[[], Any]) -> _ComparedGroup:
            program = group.on_device().executable.program
            given = {program.values[value].name for value in program.inputs}
            path = _with_every_value(read_graph(), given, Path(folder) / str(len(groups)))
            groups.append(_ComparedGroup(group, path))
            return groups[-1]

        with wrapping(keep):
            session = open_session()
        step("first run")
        feeds = feeds_for(session)
        results = session.run(None, feeds)
        placed = report(session)
        found, suspects = Verification(placed.device, placed.nodes, tolerance=tolerance), Suspects()
        step("kernels")
        for group in groups:
            if group.given is not None:
                group.compare(found, suspects, tolerance)
        step("outputs")
        found.outputs += outputs_of(session, feeds, results, groups, suspects, tolerance)
        return found


def verify(
    model: str | os.PathLike[str] | bytes,
    feeds: Mapping[str, Any],
    *,
    tolerance: float | None = None,
    **arguments: Any,
) -> Verification:
    """Runs a model once and compares every value that its kernels store with the CPU provider's.

    `feeds` maps input names to arrays. `tolerance` is the largest accepted error relative to the largest value, by default
    1e-3, and 4e-3 for f16; integers must be equal. The other arguments are those of `session`. Raises OptionError, and what
    `session` and `run` raise."""
    from .session import session

    if tolerance is not None and not (isinstance(tolerance, int | float) and 0 <= tolerance < math.inf):
        raise OptionError(f"tolerance is {tolerance!r}, it must be a number of at least 0")
    return compared(lambda: session(model, **arguments), lambda _session: dict(feeds), lambda _step: None, tolerance)


def shown_error(value: float | None) -> str:
    """Returns an error as text for tables; "" for None."""
    return "" if value is None else f"{value:.1e}"


class _ComparedGroup(StandIn):
    """A group with a comparison of its kernels on the inputs of its first run."""

    def compare(self, found: Verification, suspects: Suspects, tolerance: float | None) -> None:
        from ..runtime.inputs import DeviceTensor

        program, device = self.live.executable.program, self.device  # all Programs of the group have the same inputs
        tensors = []
        for value, array in zip(program.inputs, self.given or (), strict=True):
            data = packed(array)
            buffer = device.buffer(max(16, data.size))
            if data.size:
                device.upload(buffer, 0, data.data)
            dtype = program.values[value].dtype
            tensors.append(DeviceTensor(dtype, array.shape, buffer, 0, np.asarray(array)))
        with self.live.prepare(lambda _valued: tensors) as run:
            executable = run.executable  # the one for these sizes, which may differ from the default
        program = executable.program
        names = [program.values[value].name for value in program.inputs]
        truth = _calculated(self.path, dict(zip(names, self.given or (), strict=True)))
        self.elements = sum(np.asarray(it).size for it in truth.values())
        labels = [model_name(value.name) for value in program.values]

        def right(value: int, got: Any) -> Any:
            """Returns the CPU provider's array of a value, if any. A kernel may store it in another shape."""
            name, axes = labels[value]
            want = _by_axes(truth.get(name), axes)
            return want if want is not None and (want.size, want.dtype) == (got.size, got.dtype) else None

        first = found.dispatches
        found.dispatches += len(program.dispatches)
        random = {k for k, value in enumerate(program.values) if value.storage is Storage.STATE}
        for number, written in executable.trace(tensors, right):
            dispatch = program.dispatches[number]
            label = f"{first + number} {program.kernels[dispatch.kernel].label}"
            found.stored += len(written)
            is_random = not random.isdisjoint(dispatch.args)
            for value, got in written.items():
                (name, axes), want = labels[value], right(value, got)
                if is_random:
                    if want is None:  # otherwise its readers use the CPU provider's random numbers
                        random.add(value)
                    found.uncompared.append(Uncompared(label, name, dispatch.origin, "holds random numbers"))
                    continue
                if want is None:
                    why = _uncompared(name, _by_axes(truth.get(name), axes), got)
                    found.uncompared.append(Uncompared(label, name, dispatch.origin, why))
                    continue
                compared = _compare(label, name, got, want, dispatch.origin, tolerance)
                if compared.disagrees(tolerance):
                    read = frozenset(labels[it][0] for it in dispatch.args if it not in written)
                    compared = self._judged(compared, got, axes, truth, read)
                found.kernels.append(compared)
                if got.dtype.kind == "f":
                    like = np.asarray(truth[name])
                    suspects.add(self._suspect(compared, got, axes, like))

    def _suspect(self, compared: Compared, got: Any, axes: tuple[int, ...], like: Any) -> Suspect:
        """Returns the kernel's stored value in the shape and axis order of the CPU provider's array `like`."""
        order = axes or tuple(range(like.ndim))
        array = got.reshape([like.shape[axis] for axis in order]).transpose(np.argsort(order))
        return Suspect(compared.kernel, compared.value, compared.nodes, compared.error, self, array)

    def _judged(
        self, compared: Compared, got: Any, axes: tuple[int, ...], truth: dict[str, Any], read: frozenset[str]
    ) -> Compared:
        """Adds both providers' errors against float64. `axes` is the axis order of `got`."""
        want = _by_axes(truth[compared.value], axes)
        try:
            if self.reference is None:
                self.reference = Reference(self.path)
            exact = self.reference.value(compared.value, truth, read)
            if exact.value.size != want.size:
                raise NoReference(f"the reference result has the shape {list(exact.value.shape)}")
        except NoReference as error:
            return replace(compared, judge=f"no reference in float64: {error}")
        value, slack = (_by_axes(it, axes).reshape(-1) for it in (exact.value, ROUNDING * exact.moves))
        ours, cpu = (float(errors(it.reshape(-1), value, slack)[0].max()) for it in (got, want))
        return replace(compared, to_f64=ours, cpu_to_f64=cpu)


def _by_axes(array: Any, axes: tuple[int, ...]) -> Any:
    """Transposes an array to this axis order; () means its own. None stays None."""
    return array.transpose(axes) if axes and array is not None else array


def _uncompared(name: str, want: Any, got: Any) -> str:
    if want is None:
        return "is an intermediate value within one node" if not name else "is not a value of the original model"
    return f"is stored as {got.dtype} {list(got.shape)}, in the model it is {want.dtype} {list(want.shape)}"


def _with_every_value(graph: Any, given: Collection[str], folder: Path) -> Path:
    """Writes the group's model with all values that depend on the inputs `given` as outputs, and returns its path.

    Values of other inputs are not used in a run. Weights are external, so their size is not limited."""
    import onnx_ir as ir

    unknown = {it for it in graph.inputs if it.name not in given}
    for node in list(graph):
        if not unknown.isdisjoint((*node.inputs, *node.meta.get("implicit_inputs", ()))):
            unknown.update(node.outputs)
            graph.remove(node)
    graph.inputs[:] = [it for it in graph.inputs if it not in unknown]
    graph.outputs[:] = [v for node in graph for v in node.outputs if v.name and v.dtype is not None]
    seen: set[str | None] = set()
    for node in graph:  # iterations of a Loop share a node name, and ONNX Runtime requires unique names
        node.name = None if node.name in seen else node.name
        seen.add(node.name)
    path = folder / "group.onnx"
    with errors_about(path):
        folder.mkdir()
        ir.save(ir.Model(graph, ir_version=10), path, external_data="weights")
    return path


def _calculated(path: Path, feeds: dict[str, Any]) -> dict[str, Any]:
    """Returns all values of the group from the unoptimised CPU provider, and its inputs."""
    session = cpu_session(path)
    names = [output.name for output in session.get_outputs()]
    return {**feeds, **dict(zip(names, session.run(names, feeds), strict=True))}


def _compare(kernel: str, name: str, got: Any, want: Any, nodes: tuple[str, ...], tolerance: float | None) -> Compared:
    shape = "x".join(map(str, want.shape)) or "scalar"
    return Compared(kernel, name, str(want.dtype), shape, *above(got, want, tolerance), nodes)
