"""Any graph, cut anywhere: the results are the CPU provider's, run after run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from . import models

OPERATORS = {"Add": 2, "Mul": 2, "Sub": 2, "Max": 2, "Relu": 1, "Neg": 1, "Transpose": 1, "Tanh": 1}
SIZE = 6  # square, so that a transposed matrix fits everywhere


@st.composite
def cut_graphs(draw: st.DrawFn) -> tuple[bytes, str]:
    """A model with inputs x0 and x1, and the names of the nodes that stay on the CPU."""
    values = ["x0", "x1"]
    nodes, on_cpu = [], []
    for number in range(draw(st.integers(2, 14))):
        operator = draw(st.sampled_from(sorted(OPERATORS)))
        # Mostly recent values, so that chains form.
        inputs = [values[-1 - draw(st.integers(0, min(4, len(values) - 1)))] for _ in range(OPERATORS[operator])]
        nodes.append(models.node(operator, inputs, [f"v{number}"], f"n{number}"))
        values.append(f"v{number}")
        if draw(st.integers(0, 3)) == 0:
            on_cpu.append(f"n{number}")
    used = {name for node in nodes for name in node.input}
    outputs = [name for name in values[2:] if name not in used or draw(st.integers(0, 4)) == 0]
    shape = ["N", "N"]
    model = models.model(
        nodes, [(name, models.FLOAT, shape) for name in values[:2]], [(name, models.FLOAT, shape) for name in outputs]
    )
    return model, "\n".join(on_cpu)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut_graphs(), st.booleans(), st.integers(0, 2**32 - 1))
def test_a_graph_cut_anywhere_gives_the_cpu_providers_results(
    open_session: Callable[..., Any], graph: tuple[bytes, str], alias: bool, seed: int
) -> None:
    model, on_cpu = graph
    # As they are: ONNX Runtime would take out a node that repeats another one, and a name that no node has is an error.
    unchanged = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = open_session(model, {"forceCpuNodeNames": on_cpu}, alias=alias, graph_optimization_level=unchanged)
    reference = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    given_names = {value.name for value in session.get_inputs()}
    dice = np.random.default_rng(seed)
    for size in (SIZE, SIZE, 9, SIZE):
        feeds = {name: dice.uniform(-1, 1, (size, size)).astype(np.float32) for name in ("x0", "x1")}
        feeds = {name: value for name, value in feeds.items() if name in given_names}
        for got, want in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
