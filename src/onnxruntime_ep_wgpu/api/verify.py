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
from ..writing import naming
from .differences import above, errors, tolerance_of
from .exact import NoReference, Reference
from .outputs import Output, Suspect, Suspects, outputs_of
from .stand_in import StandIn, cpu_session

if TYPE_CHECKING:
    from ..plugin.assign.placement import Placement

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
        return not self.error <= tolerance_of(self.dtype, tolerance)

    def differs(self, tolerance: float | None = None) -> bool:
        """Whether they disagree, and it is not shown that the kernel is right or the CPU provider no better."""
        if not self.disagrees(tolerance) or self.to_f64 is None or self.cpu_to_f64 is None:
            return self.disagrees(tolerance)
        return not (self.to_f64 <= tolerance_of(self.dtype, tolerance) or self.to_f64 <= self.cpu_to_f64)


@dataclass(frozen=True)
class Uncompared:
    """A stored value that the CPU provider does not have, and why."""

    kernel: str
    value: str
    nodes: tuple[str, ...]
    reason: str


KERNELS = ("kernel", "value", "shape", "error", "to f64", "CPU to f64", "above", "scale", "nodes")
OUTPUTS = ("output", "shape", "error", "to f64", "CPU to f64", "above", "scale")
SHOWN = 20  # kernels that a notebook shows


@dataclass
class Verification:
    """What `verify` found. `kernels` has a `Compared` for each value, in the order of a run, `uncompared` what has no measure. A
    notebook shows the largest errors.

    `stored` counts the values that kernels store: those in `kernels` and those in `uncompared`. `outputs` are the model's.
    """

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
        """The values that differ by more than the tolerance, in the order of a run: the first one is where to look."""
        return [it for it in self.kernels if it.differs(self.tolerance)]

    def kernel_rows(self) -> list[list[object]]:
        """What was compared as a table with KERNELS shows it, the largest errors first."""
        worst = sorted(self.kernels, key=lambda k: -k.error if k.error == k.error else -math.inf)
        return [
            [k.kernel, k.value, k.shape, f"{k.error:.1e}", k.judge or shown_error(k.to_f64), shown_error(k.cpu_to_f64),
             k.elements, f"{k.scale:.3g}", ", ".join(k.nodes[:3])]
            for k in worst
        ]  # fmt: skip

    def output_rows(self) -> list[list[object]]:
        """The model's outputs as a table with OUTPUTS shows them."""
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
        """What notebooks show."""
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
    """Runs the session that `open_session` makes on the inputs that `feeds_for(session)` gives, and compares.

    `step` hears what is done next; errors above `tolerance` are judged in float64. Raises what making or running the session
    raises.
    """
    from ..plugin.wrap import wrapping
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
    """Runs a model once on `feeds`, arrays by input, and compares every value that its kernels store with the CPU provider's.

    `tolerance` is the largest error that is none, as a part of the largest value: by default 1e-3, and 4e-3 for f16; integers must
    be equal. The other arguments are those of `session`. Raises OptionError, and what `session` and `run` raise.
    """
    from .session import session

    if tolerance is not None and not (isinstance(tolerance, int | float) and 0 <= tolerance < math.inf):
        raise OptionError(f"tolerance is {tolerance!r}, it takes a number from 0 on")
    return compared(lambda: session(model, **arguments), lambda _session: dict(feeds), lambda _step: None, tolerance)


def shown_error(value: float | None) -> str:
    """An error as tables show it; "" for none."""
    return "" if value is None else f"{value:.1e}"


class _ComparedGroup(StandIn):
    """A group whose kernels are compared on what its first run was given."""

    def compare(self, found: Verification, suspects: Suspects, tolerance: float | None) -> None:
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
        self.elements = sum(np.asarray(it).size for it in truth.values())
        labels = [model_name(value.name) for value in program.values]

        def right(value: int, got: Any) -> Any:
            """The CPU provider's array where it has this value; a kernel may store it in another shape."""
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
                    if want is None:  # else its readers have what the CPU provider drew
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
        """What a kernel stored, in the shape and order of axes of the CPU provider's array `like`."""
        order = axes or tuple(range(like.ndim))
        array = got.reshape([like.shape[axis] for axis in order]).transpose(np.argsort(order))
        return Suspect(compared.kernel, compared.value, compared.nodes, compared.error, self, array)

    def _judged(
        self, compared: Compared, got: Any, axes: tuple[int, ...], truth: dict[str, Any], read: frozenset[str]
    ) -> Compared:
        """The comparison with both providers' errors against float64. `got` has its axes in this order."""
        want = _by_axes(truth[compared.value], axes)
        try:
            if self.reference is None:
                self.reference = Reference(self.path)
            exact = self.reference.value(compared.value, truth, read)
            if exact.value.size != want.size:
                raise NoReference(f"the reference gives the shape {list(exact.value.shape)}")
        except NoReference as error:
            return replace(compared, judge=f"no judge in float64: {error}")
        value, slack = (_by_axes(it, axes).reshape(-1) for it in (exact.value, ROUNDING * exact.moves))
        ours, cpu = (float(errors(it.reshape(-1), value, slack)[0].max()) for it in (got, want))
        return replace(compared, to_f64=ours, cpu_to_f64=cpu)


def _by_axes(array: Any, axes: tuple[int, ...]) -> Any:
    """An array with its axes in this order, () for its own; None for None."""
    return array.transpose(axes) if axes and array is not None else array


def _uncompared(name: str, want: Any, got: Any) -> str:
    if want is None:
        return "lies between values of the model" if not name else "is not a value of the model as it was given"
    return f"is stored as {got.dtype} {list(got.shape)}, in the model it is {want.dtype} {list(want.shape)}"


def _with_every_value(graph: Any, given: Collection[str], folder: Path) -> Path:
    """A file of the group whose outputs are all of its values that depend on the inputs `given`; nothing that runs needs others.
    Weights lie beside it, so that their size does not matter."""
    import onnx_ir as ir

    unknown = {it for it in graph.inputs if it.name not in given}
    for node in list(graph):
        if not unknown.isdisjoint((*node.inputs, *node.meta.get("implicit_inputs", ()))):
            unknown.update(node.outputs)
            graph.remove(node)
    graph.inputs[:] = [it for it in graph.inputs if it not in unknown]
    graph.outputs[:] = [v for node in graph for v in node.outputs if v.name and v.dtype is not None]
    seen: set[str | None] = set()
    for node in graph:  # the iterations of a Loop have its name, and ONNX Runtime takes a name once
        node.name = None if node.name in seen else node.name
        seen.add(node.name)
    path = folder / "group.onnx"
    with naming(path):
        folder.mkdir()
        ir.save(ir.Model(graph, ir_version=10), path, external_data="weights")
    return path


def _calculated(path: Path, feeds: dict[str, Any]) -> dict[str, Any]:
    """All values of the group, from the CPU provider without optimisations, and its inputs."""
    session = cpu_session(path)
    names = [output.name for output in session.get_outputs()]
    return {**feeds, **dict(zip(names, session.run(names, feeds), strict=True))}


def _compare(kernel: str, name: str, got: Any, want: Any, nodes: tuple[str, ...], tolerance: float | None) -> Compared:
    shape = "x".join(map(str, want.shape)) or "scalar"
    return Compared(kernel, name, str(want.dtype), shape, *above(got, want, tolerance), nodes)
