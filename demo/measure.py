"""Measures the recorded sessions: the first run as recorded, then steady runs, both compared with the CPU provider."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort

import onnxruntime_ep_wgpu

from .reader import Feeds, Recorded

ENOUGH = 10.0  # seconds of steady runs before measuring stops


@dataclass(frozen=True)
class Row:
    """One session: times in seconds, and the largest absolute difference from the CPU provider over all recorded runs."""

    part: str
    model: str
    nodes_webgpu: int
    nodes_cpu: dict[str, int]
    reasons: list[str]
    creation: float
    first_run: float
    steady_run: float
    cpu_steady_run: float
    difference: float
    shapes: list[list[int]]


def measure(recorded: Recorded, repeats: int, step: Callable[[str], None]) -> Row:
    """Measures `repeats` steady runs of the first recorded inputs, and compares every recorded run with the CPU provider.

    `step` is called after the comparison, and after the steady runs.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 3
    cpu = ort.InferenceSession(str(recorded.path), options, providers=["CPUExecutionProvider"])
    runs = recorded.runs
    difference = max(
        (_difference(results, cpu.run(None, feeds)) for feeds, results, _ in runs),
        default=float("nan"),
    )
    step(f"{recorded.part}: compared {len(runs)} runs with the CPU provider")
    feeds, _, first = runs[0] if runs else ({}, [], float("nan"))
    steady = _steady(recorded.session, feeds, repeats) if runs else float("nan")
    cpu_steady = _steady(cpu, feeds, repeats) if runs else float("nan")
    step(f"{recorded.part}: steady run {steady:.3f} s")
    report = onnxruntime_ep_wgpu.report(recorded.session)
    return Row(
        part=recorded.part,
        model=recorded.path.name,
        nodes_webgpu=len(report.nodes) - len(report.on_cpu),
        nodes_cpu=dict(Counter(node.op_type for node in report.on_cpu)),
        reasons=sorted({f"{node.op_type}: {node.reason}" for node in report.on_cpu}),
        creation=recorded.creation,
        first_run=first,
        steady_run=steady,
        cpu_steady_run=cpu_steady,
        difference=difference,
        shapes=[list(next(iter(f.values())).shape) for f, _, _ in runs],
    )


def _steady(session: ort.InferenceSession, feeds: Feeds, repeats: int) -> float:
    """Returns the median of `repeats` runs, or of fewer if they take longer than ENOUGH. The inputs have run here before."""
    times: list[float] = []
    while len(times) < repeats and sum(times) < ENOUGH:
        start = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _difference(got: list[np.ndarray], want: list[np.ndarray]) -> float:
    return max(float(np.abs(g - w).max()) for g, w in zip(got, want, strict=True))
