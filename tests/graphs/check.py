"""One case, run by stock onnxruntime with this package, and judged.

Expected are the values that the graph had when it grew, within the errors that it allows there. The CPU provider runs the same
model: it must agree too, unless a node is in the table `CPU_DIFFERS` or has types that it lacks, so that what is expected here is
what users of onnxruntime expect.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime as ort

from tests import feeding, provider

from . import semantics, values
from .case import Case, Node, pruned
from .values import Value

RIGHT = "right"
FAILURES = ("wrong", "error", "refused", "expectation", "crash", "hang")
"""`wrong`: other results than expected; `error`: a run that fails, `refused`: no session; `expectation`: the CPU provider gives
what we do, so what is expected is in doubt; `crash`, `hang`: of the process."""


def _empty(node: Node, read: Sequence[Value]) -> bool:
    return any(v.least_elements == 0 for v in read)


def _beyond_32_bits(node: Node, read: Sequence[Value]) -> bool:
    return any(v.dtype in ("int64", "uint64") and v.largest >= 2**31 for v in read)


def _half(node: Node, read: Sequence[Value]) -> bool:
    return node.attributes.get("reduction", "none") != "none" and read[0].dtype == "float16"


def _beyond_53_bits(node: Node, read: Sequence[Value]) -> bool:
    """Whether a product of all integers but those that are 0, or the sum of all squares, may be more than a float holds exactly."""
    samples = (abs(x.astype(float)) for run in read[0].runs for x in run if "int" in read[0].dtype)
    if node.op == "ReduceProd":
        return any(np.log2(np.maximum(x, 1)).sum() >= 53 for x in samples)
    return any((x * x).sum() >= 2.0**53 for x in samples)


def _cut_to_nothing(node: Node, read: Sequence[Value]) -> bool:
    """Whether negative pads take all of an axis that is mirrored or repeated."""
    if node.attributes.get("mode", "constant") == "constant":
        return False
    for x, pads in zip(read[0].runs, read[1].runs, strict=True):
        begin, end = np.minimum(pads[0].astype(int), 0).reshape(2, -1)
        if (np.array(x[0].shape) + begin + end <= 0).any():
            return True
    return False


def _near_zero(node: Node, read: Sequence[Value]) -> bool:
    return any((abs(x) < 0.1).any() for run in read[0].runs for x in run)


def _far_from_zero(node: Node, read: Sequence[Value]) -> bool:
    return any((abs(x) > 64).any() for run in read[0].runs for x in run)


def _far_below_zero(node: Node, read: Sequence[Value]) -> bool:
    return any((x < -4).any() for run in read[0].runs for x in run)


CPU_DIFFERS: tuple[tuple[str, Callable[[Node, Sequence[Value]], bool], str], ...] = (
    ("MatMul Gemm Attention", _empty, "refuses an extent of 0"),
    ("MatMulInteger ConvInteger QLinearMatMul", _empty, "leaves sums of nothing unwritten"),
    ("Clip Max Min Sign ReduceMax ReduceMin", _beyond_32_bits, "compares 64-bit integers by their lower halves"),
    (
        "ReduceSum ReduceMean ReduceL1 ReduceProd ReduceSumSquare ReduceL2 ReduceLogSum",
        _beyond_53_bits,
        "calculates with integers in floats of 64 bits",
    ),
    ("Pad", _empty, "refuses to mirror or repeat an axis because another one is empty"),
    ("Pad", _cut_to_nothing, "refuses to mirror or repeat an axis of which nothing is left"),
    ("Selu Elu Celu", _near_zero, "takes 1 from the exponential"),
    ("Einsum", _empty, "divides by an extent of 0, and ends the process"),
    ("Sigmoid", _far_below_zero, "rounds to steps of 6e-8"),
    ("ScatterElements ScatterND", _half, "has no reduction of halves"),
    ("ArgMax ArgMin", _empty, "gives the shape of its input"),
    ("Split", _empty, "refuses parts of an extent of 0"),
    ("InstanceNormalization GroupNormalization", _empty, "reads the first of no elements, and ends the process"),
    ("InstanceNormalization", _far_from_zero, "scales elements and mean before it subtracts them, which loses digits"),
    ("GroupNormalization", lambda node, read: True, "has no kernel: ONNX's function in f32 loses digits of its means"),
    ("LayerNormalization RMSNormalization", _empty, "refuses rows of no elements"),
    (" ".join(semantics.REDUCTIONS), _empty, "gives an empty result, or an error, for a reduction of no elements"),
    (
        "BatchNormalization",
        lambda node, read: bool(node.attributes.get("training_mode")),
        "it stores running statistics over those that it reads, which may be constants of the model",
    ),
)
"""Nodes (operators, condition) for which the CPU provider is no measure, and why."""


@dataclass
class Outcome:
    """`status`: `right` or one of FAILURES; `kind`: what failures have in common; `placed`: the provider of each operator."""

    status: str
    kind: str = ""
    detail: str = ""
    output: str = ""
    on_gpu: dict[str, int] = field(default_factory=dict)
    on_cpu: dict[str, int] = field(default_factory=dict)
    cpu_checked: bool = False


def run(case: Case, known: Mapping[str, Value], before_cpu: Callable[[], None] = lambda: None) -> Outcome:
    """Opens the case's model, runs it for every set of sizes and the first twice more, and compares.

    Then the CPU provider does the same; `before_cpu` is called first, because it ends the process on some empty tensors.
    """
    model = case.model().SerializeToString()
    outcome = Outcome(RIGHT)
    ours = _Session(case, model, cpu=False)
    if _folded_by_table(case, known):
        return Outcome(RIGHT, "folded by the CPU provider, which is no measure")
    if ours.problem:
        before_cpu()
        if _Session(case, model, cpu=True).problem:
            return Outcome(RIGHT, "unsupported", ours.problem)  # a type or a form that neither provider has
        if case.optimise and _Session(case, model, cpu=True, optimise=True).problem == ours.problem:
            return Outcome(RIGHT, "ONNX Runtime's optimiser made a graph that it refuses", ours.problem)
        return Outcome("refused", _kind(ours.problem), ours.problem)
    outcome.on_gpu = Counter(op for _, op in ours.placed.on_gpu)
    outcome.on_cpu = Counter(op for _, op in ours.placed.on_cpu)
    if _on_cpu_by_table(case, known, ours.placed):  # it may end the process
        return Outcome(RIGHT, "on the CPU provider, which is no measure")
    for run in (*range(case.runs), 0, 0):
        got, problem = ours.results(run)
        if problem:
            before_cpu()
            if _Session(case, model, cpu=True).results(run)[
                1
            ]:  # as of functions of ONNX that have no empty tensors in mind
                return Outcome(RIGHT, "unsupported", problem)
            return _failed(outcome, "error", f"run {run}: {problem}", _kind(problem))
        for k, (name, dtype, _) in enumerate(case.outputs):
            different = difference(got[k], known[name].runs[run], dtype)
            if different:
                if case.optimise and _changed_by_optimiser(case, known, run, k):
                    return Outcome(RIGHT, "ONNX Runtime's optimiser changed what the graph says")
                by_cpu = None if differs_on_cpu(case, known) else _Session(case, model, cpu=True).results(run)[0]
                same = by_cpu and _near(got[k], by_cpu[k], known[name].runs[run], dtype)
                detail = f"run {run}: {name}: {different}"
                status = "expectation" if same else "wrong"
                return _failed(outcome, status, detail, _maker(case, name), name)
    if differs_on_cpu(case, known):
        return outcome
    before_cpu()
    cpu = _Session(case, model, cpu=True)
    outcome.cpu_checked = not cpu.problem
    for run in range(case.runs if outcome.cpu_checked else 0):
        wanted, problem = cpu.results(run)
        if problem:
            return _failed(outcome, "expectation", f"run {run}: the CPU provider fails: {problem}", _kind(problem))
        for k, (name, dtype, _) in enumerate(case.outputs):
            different = difference(wanted[k], known[name].runs[run], dtype)
            if different:
                detail = f"run {run}: {name}: the CPU provider, not we: {different}"
                return _failed(outcome, "expectation", detail, _maker(case, name), name)
    return outcome


class _Session:
    def __init__(self, case: Case, model: bytes, cpu: bool, optimise: bool = False) -> None:
        """On the CPU, ONNX Runtime's optimisations are used when `optimise` says so, here when the case does."""
        settings = ort.SessionOptions()
        settings.log_severity_level = 4
        if not (optimise if cpu else case.optimise):
            settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        settings.intra_op_num_threads = settings.inter_op_num_threads = 1
        self.case, self.problem = case, ""
        # A process opens one device: drivers of GPUs take long, and not beside each other.
        options = {"preserveDevice": "1"}
        if case.on_cpu and not case.optimise:
            options["forceCpuNodeNames"] = "\n".join(case.on_cpu)
        try:
            self.session = provider.open_session(
                model, "cpu" if cpu else "ours", {} if cpu else options, settings, case.alias and not cpu
            )
            self.placed = provider.placement(self.session)
        except Exception as error:
            self.problem = brief(error)

    def results(self, run: int) -> tuple[list[np.ndarray], str]:
        feeds = {
            s.name: s.arrays[run]
            if feeding.native(values.CODES[s.dtype])
            else feeding.ort_value(s.arrays[run], values.CODES[s.dtype])
            for s in self.case.inputs
        }
        try:
            return feeding.run(self.session, feeds), ""
        except Exception as error:
            return [], brief(error)


def _changed_by_optimiser(case: Case, known: Mapping[str, Value], run: int, output: int) -> bool:
    """Whether ONNX Runtime's optimiser made another graph of what an output needs: without it we and the CPU provider are
    right, with it the latter is wrong or fails as well. For one, dims of a Reshape become a -1, which no empty tensor has."""
    name, dtype, _ = case.outputs[output]
    part = pruned(case, [name])
    shape_alone = differs_on_cpu(part, known)
    model, plain = part.model().SerializeToString(), dataclasses.replace(part, optimise=False)
    right = []
    for session in (_Session(plain, model, False), _Session(part, model, True), _Session(part, model, True, True)):
        got, problem = ([], session.problem) if session.problem else session.results(run)
        wanted = known[name].runs[run]
        same = not problem and got[0].shape == wanted[0].shape
        right.append(same and (shape_alone or not difference(got[0], wanted, dtype)))
    return right == [True, True, False]


def difference(got: np.ndarray, samples: values.Samples, dtype: str) -> str:
    """What is wrong with a result, in words; empty when nothing is."""
    first = samples[0]
    if got.shape != first.shape:
        return f"shape {list(got.shape)}, expected {list(first.shape)}"
    if got.dtype != values.numpy_type(dtype):
        return f"type {got.dtype}, expected {dtype}"
    if not first.size:
        return ""
    if dtype not in values.UNIT:
        bad = got != first
    else:
        # A comparison with NaN is false.
        bad = ~(np.abs(got.astype(np.float64) - first) <= values.tolerance(samples, dtype))
    if not bad.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(bad)[0])
    allowed = "" if dtype not in values.UNIT else f" within {values.tolerance(samples, dtype)[place]:.2g}"
    return (
        f"{int(bad.sum())} of {got.size} elements, first {list(place)}: {got[place]}, expected {first[place]}{allowed}"
    )


def _near(got: np.ndarray, reference: np.ndarray, samples: values.Samples, dtype: str) -> bool:
    if got.shape != reference.shape or got.dtype != reference.dtype:
        return False
    if dtype not in values.UNIT:
        return bool((got == reference).all())
    apart = np.abs(got.astype(np.float64) - reference.astype(np.float64))
    return got.shape == samples[0].shape and bool((apart <= values.tolerance(samples, dtype)).all())


def differs_on_cpu(case: Case, known: Mapping[str, Value]) -> bool:
    """Whether a node is in the table of those for which the CPU provider is no measure."""
    return not all(measured_on_cpu(n, [known[name] for name in n.inputs if name]) for n in case.nodes)


def _folded_by_table(case: Case, known: Mapping[str, Value]) -> bool:
    """Whether ONNX Runtime's optimiser folds a node whose operands are all known with the CPU provider, which is no measure
    of it."""
    made = {name for n in case.nodes for name in n.outputs}
    folded = {n for n in known if n not in made and known[n].constant}
    for node in case.nodes if case.optimise else ():
        read = [name for name in node.inputs if name]
        if folded.issuperset(read):
            if not measured_on_cpu(node, [known[name] for name in read]):
                return True
            folded.update(node.outputs)
    return False


def measured_on_cpu(node: Node, read: Sequence[Value]) -> bool:
    """Whether the CPU provider is a measure of this node."""
    return not any(node.op in operators.split() and condition(node, read) for operators, condition, _ in CPU_DIFFERS)


def _on_cpu_by_table(case: Case, known: Mapping[str, Value], placed: provider.Placement) -> bool:
    """Whether the CPU provider ran a node that it is no measure of."""
    there = {name for name, _ in placed.on_cpu}
    return any(n.name in there and not measured_on_cpu(n, [known[i] for i in n.inputs if i]) for n in case.nodes)


def _failed(outcome: Outcome, status: str, detail: str, kind: str, output: str = "") -> Outcome:
    outcome.status, outcome.detail, outcome.kind, outcome.output = status, detail, kind, output
    return outcome


def _maker(case: Case, name: str) -> str:
    """The operator that makes a value, which failures are counted by until they are shrunk."""
    return next((node.op for node in case.nodes if name in node.outputs), "input")


def _kind(problem: str) -> str:
    """A message without its names and numbers."""
    return re.sub(r"\d+", "#", re.sub(r"\b[vnwx]\d+(_\d)?\b", "_", problem))[:90]


def brief(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:600]


def summary_of(outcome: Outcome) -> dict[str, Any]:
    return dict(vars(outcome))
