"""Measures which form of a kernel is fastest on an adapter, and makes a table of choices.

In: a device, and names of kernels. Out: an `Outcome` per kernel and class of shapes; `choices_of` makes the table. Candidates
are measured in turns, so that other load on the GPU affects all equally, and are compared by the median GPU time. Invariants: a
candidate is never chosen if its results differ from the shipped choice's, or if it is not clearly faster."""

from __future__ import annotations

import difflib
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ..compiler import tune
from ..compiler.compile import compile_graph
from ..compiler.tune.base import Parameters
from ..device import Adapter, Device, Place, open_device
from ..errors import OptionError, UnsupportedError, WgpuEpError
from ..program.dtypes import DType
from ..program.program import Program
from ..program.target import TIMESTAMPS, Target
from ..program.tuning import Bound, Choice, Choices
from ..records import dataclass
from ..runtime.executable import Executable
from ..runtime.inputs import DeviceTensor
from .tuning_classes import CLASSES, KERNELS, ShapeClass, arrays, candidates

# Required speed-up over the shipped choice, as the geometric mean over a class's graphs. Less is within measurement noise.
CLEARLY = 1.03
AT_LEAST = 0.98  # required speed-up on every single graph
HOPELESS = 1.5  # candidates slower than this multiple of the best are dropped after the first rounds
FIRST_ROUNDS = 3
MOST_ROUNDS = 200
WARM_SECONDS = 0.3  # an idle GPU is slow at first
TOLERANCE = {DType.FLOAT32: 1e-4, DType.FLOAT16: 5e-3}  # relative to the largest element; integers are equal


@dataclass(frozen=True)
class Outcome:
    """The result for one class of shapes.

    - `chosen`: the fastest parameters, None for the shipped choice.
    - `ratio`: the speed-up of `chosen` over the shipped choice.
    - `milliseconds`: the times of the shipped choice by graph.
    - `tried`: the number of candidates that ran.
    - `refused`: the reasons why others did not.
    """

    shapes: ShapeClass
    chosen: Parameters | None
    ratio: float
    milliseconds: dict[str, float]
    tried: int
    refused: tuple[str, ...]

    def choice(self) -> Choice | None:
        """Returns the row for a table of choices; None for the shipped choice."""
        return None if self.chosen is None else tune.use(self.chosen, *self.shapes.bounds, dtype=self.shapes.dtype)


def choices_of(outcomes: Sequence[Outcome]) -> Choices:
    """Returns the table of choices that differ from the shipped ones."""
    return tuple(choice for it in outcomes if (choice := it.choice()) is not None)


def wanted(kernels: Sequence[str]) -> tuple[ShapeClass, ...]:
    """Returns the shape classes of these kernels, or of all without names. Raises OptionError for an unknown name."""
    for name in kernels:
        if name not in KERNELS:
            near = difflib.get_close_matches(name, KERNELS, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise OptionError(f"no kernel {name!r} can be tuned{hint}; there are: {', '.join(KERNELS)}")
    return tuple(it for it in CLASSES if not kernels or it.kernel in kernels)


def kernels_of(open_session: Callable[[], Any], target: Target) -> list[str]:
    """Returns the tunable kernels of a model on a Target. `open_session` creates a session of the model.

    Raises UnsupportedError if there are none."""
    from ..plugin.tools import wrapping

    found: set[str] = set()

    def compiled(group: Any, read_graph: Callable[[], ir.Graph]) -> Any:
        graph = read_graph()
        with tune.record_kernels() as noted:
            compile_graph(graph, graph.opset_imports, replace(target, tuning=()))
        found.update(noted)
        return group

    with wrapping(compiled):
        open_session()
    kernels = [it for it in KERNELS if it in found]
    if not kernels:
        raise UnsupportedError("the model has no tunable kernel")
    return kernels


def opened(adapter: Adapter) -> Device:
    """Opens a device for measurements. Raises UnsupportedError for a software adapter, which has fixed choices."""
    if adapter.software:
        raise UnsupportedError(f"{adapter.name!r} is a software adapter, which has fixed choices: measure a GPU")
    return open_device(adapter)


def tuned(device: Device, kernels: Sequence[str] = (), seconds: float = 120.0) -> Iterator[Outcome]:
    """Measures each class of shapes and yields its Outcome.

    All classes take `seconds` together, or slightly more, since each candidate runs at least `FIRST_ROUNDS` times. Raises
    OptionError for an unknown kernel, and UnsupportedError for an adapter without timestamps.
    """
    classes = wanted(kernels)
    if TIMESTAMPS not in device.target.features:
        raise UnsupportedError(f"the adapter {device.adapter.name!r} has no timestamps, by which kernels are measured")
    end = time.monotonic() + seconds
    for number, shapes in enumerate(classes):
        yield _outcome(device, shapes, max(0.0, end - time.monotonic()) / (len(classes) - number))


def _outcome(device: Device, shapes: ShapeClass, seconds: float) -> Outcome:
    target = replace(device.target, tuning=())
    graphs = shapes.graphs()
    times: dict[Parameters | None, list[float]] = {}
    refused: list[str] = []
    shipped: dict[str, float] = {}
    for model in graphs:
        found, problems = _measured(device, target, shapes, model, seconds / len(graphs))
        refused += problems
        shipped[model.graph.name] = 1e3 * found[None]
        for parameters, taken in found.items():
            times.setdefault(parameters, []).append(found[None] / taken)
    ratios = {it: math.prod(faster) ** (1 / len(faster)) for it, faster in times.items() if len(faster) == len(graphs)}
    best = max((it for it in ratios if it is None or min(times[it]) >= AT_LEAST), key=ratios.__getitem__)
    if ratios[best] < CLEARLY:
        best = None
    return Outcome(shapes, best, ratios[best], shipped, len(times) - 1, tuple(dict.fromkeys(refused)))


def _measured(
    device: Device, target: Target, shapes: ShapeClass, model: onnx.ModelProto, seconds: float
) -> tuple[dict[Parameters | None, float], list[str]]:
    """Returns GPU seconds by parameters, None for the shipped choice, of the correct and promising candidates; and the
    refusals."""
    module = ir.from_proto(model)

    def compiled(*choices: Choice) -> Program:
        return compile_graph(module.graph, module.opset_imports, replace(target, tuning=(*choices, *shapes.beside)))

    inputs = []
    for array in arrays(model):
        buffer = device.buffer(array.nbytes)
        device.upload(buffer, 0, array.reshape(-1).view(np.uint8).data)
        inputs.append(DeviceTensor(DType.of_numpy(array.dtype), array.shape, buffer))
    default = _Run(compiled(), device, inputs)
    runs: dict[Parameters | None, _Run] = {None: default}
    texts = {_texts(default.program)}
    refused: list[str] = []
    for parameters in candidates(shapes.kernel):
        try:
            program = compiled(tune.use(parameters))
            if _texts(program) in texts:
                continue  # the target or the sizes do not allow it, or an equal candidate exists
            texts.add(_texts(program))
            run = _Run(program, device, inputs)
        except WgpuEpError as error:
            refused.append(f"{shown(parameters)}: {error}")
            continue
        problem = _difference(run.results, default.results)
        if problem:
            refused.append(f"{shown(parameters)} computes other results for {model.graph.name}: {problem}")
        else:
            runs[parameters] = run
    return _interleaved(runs, seconds), refused


def _interleaved(runs: dict[Parameters | None, _Run], seconds: float) -> dict[Parameters | None, float]:
    begin = time.monotonic()
    while time.monotonic() < begin + WARM_SECONDS:
        runs[None].seconds()
    taken: dict[Parameters | None, list[float]] = {it: [] for it in runs}
    pending = list(runs)
    for number in range(MOST_ROUNDS):
        if number >= FIRST_ROUNDS and time.monotonic() > begin + seconds:
            break
        for it in pending:
            taken[it].append(runs[it].seconds())
        if number == FIRST_ROUNDS - 1:
            best = min(statistics.median(it) for it in taken.values())
            pending = [it for it in runs if it is None or statistics.median(taken[it]) <= HOPELESS * best]
    return {it: max(statistics.median(durations), 1e-9) for it, durations in taken.items()}


def shown(parameters: Parameters | None) -> str:
    """Returns parameters in one line, in the form of the table."""
    return (
        "shipped" if parameters is None else ", ".join(f"{name} {value}" for name, value in asdict(parameters).items())
    )


def shown_bounds(bounds: Sequence[Bound]) -> str:
    """Returns bounds in one line."""
    return ", ".join(
        f"{'' if b.least is None else b.least}..{'' if b.most is None else b.most} {b.quantity}" for b in bounds
    )


def _texts(program: Program) -> tuple[Any, ...]:
    return program.kernels, tuple((it.kernel, it.workgroups, it.guards) for it in program.dispatches)


def _difference(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> str:
    """Returns how results differ from those of the shipped choice; "" if within TOLERANCE."""
    for got, want in zip(found, expected, strict=True):
        largest = float(np.abs(want.astype(np.float64)).max(initial=0.0))
        error = float(np.abs(got.astype(np.float64) - want.astype(np.float64)).max(initial=0.0))
        if not error <= TOLERANCE.get(DType.of_numpy(want.dtype), 0.0) * largest:
            return f"they differ by {error:.3g}, the largest is {largest:.3g}"
    return ""


class _Run:
    """A Program with its tensors on the device. `results` are those of a finished run."""

    def __init__(self, program: Program, device: Device, tensors: Sequence[DeviceTensor]) -> None:
        self.program, self._device = program, device
        executable = Executable(program, device)
        with executable.prepare(tensors) as run:
            outputs = [(device.buffer(max(16, d.nbytes(math.prod(shape)))), d, shape) for d, shape in run.outputs]
            run.submit([Place(buffer, 0) for buffer, _, _ in outputs])
        self.results = []
        for buffer, dtype, shape in outputs:
            array = np.empty(shape, dtype.numpy)
            device.download(buffer, 0, array.reshape(-1).view(np.uint8).data)
            self.results.append(array)
        plan = executable.plan(tensors)
        where = {v: Place(t.buffer, 0) for v, t in zip(program.inputs, tensors, strict=True) if t.buffer is not None}
        where |= {v: Place(buffer, 0) for v, (buffer, _, _) in zip(program.outputs, outputs, strict=True)}
        self._kept = executable, plan
        self._dispatches = plan.bound(where)

    def seconds(self) -> float:
        """Returns the GPU time of all dispatches."""
        return sum(self._device.measure(self._dispatches))
