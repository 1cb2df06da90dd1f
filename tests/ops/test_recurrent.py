"""LSTM, GRU and RNN against the CPU provider (layout 1, which it lacks, against a run without it)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from onnxruntime_ep_wgpu.compiler.lower.ops import recurrent
from onnxruntime_ep_wgpu.program.file import load, save
from onnxruntime_ep_wgpu.program.target import Target
from onnxruntime_ep_wgpu.runtime.describe import Descriptions
from onnxruntime_ep_wgpu.runtime.settings import RunSettings
from tests import support, targets

from . import compare
from .compare import random

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, INPUT, HIDDEN = 7, 3, 5, 6
CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}


def directions(how: dict[str, Any]) -> int:
    return 2 if how.get("direction") == "bidirectional" else 1


def arrays(op: str, count: int = 1, *, steps: int = STEPS, batch: int = BATCH, hidden: int = HIDDEN, bias: bool = True,
           lengths: list[int] | None = None, states: bool = False, peepholes: bool = False,
           dtype: type = np.float32) -> list[np.ndarray | None]:  # fmt: skip
    width = GATES[op] * hidden
    out: list[np.ndarray | None] = [
        random(steps, batch, INPUT),
        random(count, width, INPUT, seed=1) / 2,
        random(count, width, hidden, seed=2) / 2,
        random(count, 2 * width, seed=3) / 2 if bias else None,
        np.array(lengths, np.int32) if lengths else None,
        random(count, batch, hidden, seed=4) if states else None,
    ]
    if op == "LSTM":
        out += [
            random(count, batch, hidden, seed=5) if states else None,
            random(count, 3 * hidden, seed=6) if peepholes else None,
        ]
    return [a.astype(dtype) if a is not None and a.dtype == np.float32 else a for a in out]


def check(op: str, given: list[np.ndarray | None], **how: Any) -> list[np.ndarray]:
    outputs = [given[0].dtype] * (3 if op == "LSTM" else 2)  # type: ignore[union-attr]
    while given[-1] is None:
        given = given[:-1]
    return compare.check(op, *given, outputs=outputs, hidden_size=given[2].shape[-1], **CLOSE, **how)  # type: ignore[union-attr]


@pytest.mark.costly
@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("lengths", [None, [7, 2, 5], [7, 0, 1]])
def test_directions_states_and_lengths(op: str, direction: str, states: bool, lengths: list[int] | None) -> None:
    how = {"direction": direction}
    check(op, arrays(op, directions(how), states=states, lengths=lengths), **how)


@pytest.mark.parametrize("op", GATES)
def test_backwards_from_the_end_of_each_sequence(op: str) -> None:
    """Behind a short sequence there are zeros, and its last step is the first one backwards, from a state that is not zero."""
    lengths = [2, STEPS, 0]
    for direction in ("reverse", "bidirectional"):
        how = {"direction": direction}
        y, *_ = check(op, arrays(op, directions(how), states=True, lengths=lengths), **how)
        for sequence, length in enumerate(lengths):
            assert not y[length:, :, sequence].any() and y[:length, :, sequence].all()


@pytest.mark.costly
@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("constants", [(1, 2), (1, 2, 3)])
def test_steps_and_batch_not_known_when_compiled(op: str, constants: tuple[int, ...]) -> None:
    check(op, arrays(op, 2), direction="bidirectional", symbolic=True, constants=constants)


@pytest.mark.costly
@pytest.mark.parametrize("op", GATES)
def test_without_bias(op: str) -> None:
    check(op, arrays(op, bias=False))


@pytest.mark.costly
@pytest.mark.parametrize("op", GATES)
def test_state_larger_than_a_workgroup(op: str) -> None:
    given = arrays(op, 1, steps=4, batch=2, hidden=267)
    check(op, [given[0], *(a / 8 if a is not None else None for a in given[1:])], constants=(1, 2, 3))


@pytest.mark.costly
@pytest.mark.parametrize("op", GATES)
def test_clip(op: str) -> None:
    check(op, arrays(op), clip=0.3)


@pytest.mark.costly
@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
def test_lstm_peepholes(states: bool, direction: str) -> None:
    how = {"direction": direction}
    check("LSTM", arrays("LSTM", directions(how), states=states, peepholes=True, lengths=[7, 2, 5]), **how)


@pytest.mark.costly
def test_lstm_coupled_gates() -> None:
    check("LSTM", arrays("LSTM"), input_forget=1)


@pytest.mark.costly
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_gru_linear_before_reset(direction: str) -> None:
    how = {"direction": direction}
    check("GRU", arrays("GRU", directions(how), states=True, lengths=[7, 2, 5]), linear_before_reset=1, **how)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Relu", {}), ("Softsign", {}), ("Softplus", {}), ("Sigmoid", {}),
        ("Affine", {"activation_alpha": [0.7], "activation_beta": [0.1]}),
        ("Affine", {"activation_alpha": [-0.7], "activation_beta": [-0.1]}), ("LeakyRelu", {"activation_alpha": [0.3]}),
        ("ThresholdedRelu", {"activation_alpha": [0.3]}), ("Elu", {"activation_alpha": [0.7]}),
        ("ScaledTanh", {"activation_alpha": [0.7], "activation_beta": [0.4]}),
        ("HardSigmoid", {"activation_alpha": [0.3], "activation_beta": [0.4]}),
    ],
)  # fmt: skip
def test_activations(name: str, parameters: dict[str, Any]) -> None:
    check("RNN", arrays("RNN"), activations=[name], **parameters)


@pytest.mark.costly
def test_activations_per_direction() -> None:
    given = arrays("LSTM", 2)
    names = ["Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Softsign", "ScaledTanh"]
    check(
        "LSTM",
        given,
        direction="bidirectional",
        activations=names,
        activation_alpha=[0.3, 0.8],
        activation_beta=[0.4, 0.9],
    )


@pytest.mark.costly
@pytest.mark.parametrize("op", GATES)
def test_batch_first(op: str) -> None:
    given = arrays(op, 2, states=True)
    turned = [a.swapaxes(0, 1).copy() if a is not None and k in (0, 5, 6) else a for k, a in enumerate(given)]
    kinds = [np.float32] * (3 if op == "LSTM" else 2)
    how: dict[str, Any] = {"direction": "bidirectional", "hidden_size": HIDDEN, "outputs": kinds}
    while turned[-1] is None:
        given, turned = given[:-1], turned[:-1]
    y, *last = compare.expected(
        compare.model(op, given, **how), {f"x{k}": a for k, a in enumerate(given) if a is not None})  # fmt: skip
    want = [y.transpose(2, 0, 1, 3), *(s.swapaxes(0, 1) for s in last)]
    compare.check(op, *turned, layout=1, want=want, **CLOSE, **how)


@pytest.mark.costly
@pytest.mark.parametrize("op", GATES)
def test_float16(op: str) -> None:
    given = arrays(op, dtype=np.float16)
    wide = [a.astype(np.float32) if a is not None and a.dtype == np.float16 else a for a in given]
    while given[-1] is None:
        given, wide = given[:-1], wide[:-1]
    how: dict[str, Any] = {"hidden_size": HIDDEN, "outputs": [np.float16] * (3 if op == "LSTM" else 2)}
    results = compare.expected(
        compare.model(op, wide, hidden_size=HIDDEN, outputs=[np.float32] * len(how["outputs"])),
        {f"x{k}": a for k, a in enumerate(wide) if a is not None},
    )
    compare.check(op, *given, want=[r.astype(np.float16) for r in results], **CLOSE, **how)


# ---- steps over several dispatches


@pytest.fixture(params=[1, 2, 3, 7])
def few_steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """A dispatch takes no more than this many of the seven steps."""
    monkeypatch.setattr(recurrent, "_dispatch", lambda *_: (64, request.param))
    return int(request.param)


@pytest.mark.costly
@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("symbolic", [False, True])
def test_the_state_goes_from_dispatch_to_dispatch(op: str, symbolic: bool, few_steps: int) -> None:
    given = arrays(op, 2, states=True, peepholes=op == "LSTM", lengths=[7, 0, 4])
    check(op, given, direction="bidirectional", symbolic=symbolic, constants=(1, 2, 3, 7))


@pytest.mark.costly
@pytest.mark.parametrize("op", GATES)
def test_dispatches_follow_the_number_of_steps(op: str, few_steps: int) -> None:
    """One program; every number of steps, none included, makes its own number of dispatches."""
    given = arrays(op)[:3]
    model = compare.model(op, given, symbolic=True, constants=(1, 2), hidden_size=HIDDEN, outputs=[np.float32] * 2)
    run = support.Runner(support.compile_model(model))
    for steps in (7, 1, 0, 30, 7):
        x = random(steps, BATCH, INPUT, seed=steps)
        got = run(x)
        if steps:  # the CPU provider refuses none
            for ours, theirs in zip(got, compare.expected(model, {"x0": x}), strict=True):
                np.testing.assert_allclose(ours, theirs, **CLOSE)
        else:
            assert got[0].shape == (0, 1, BATCH, HIDDEN) and not got[1].any()
    kernels = {step.dispatch: step.repeats for step in next(reversed(run.executable.plans.values())).layout.steps}
    assert max(kernels.values()) == -(-7 // few_steps)


@pytest.mark.parametrize("hidden", [2, 512, 1100])
@pytest.mark.parametrize("products", [1, 2])
def test_a_dispatch_is_as_long_as_software_adapters_loop(hidden: int, products: int) -> None:
    bounds: list[int] = []
    target = Target(software=True)
    builder = SimpleNamespace(target=target, bound_loop=lambda iterations, _what: bounds.append(iterations))
    size, chunk = recurrent._dispatch(builder, hidden, products)  # type: ignore[arg-type]
    (two_steps,) = bounds
    assert target.longest_loop is not None
    assert chunk >= 1 and (chunk + 1) * two_steps // 2 <= target.longest_loop + two_steps // 2
    assert size <= target.max_invocations and two_steps <= target.longest_loop


@pytest.mark.costly
@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize(("steps", "hidden"), [(40, 512), (70_000, 2), (5, 1100)])
def test_sequences_and_states_of_any_size_known_when_run(
    op: str, steps: int, hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Software adapters end an invocation after 65,535 iterations of its loops, without a word.

    So there the kernel of GPUs takes fewer steps in a dispatch.
    """
    if targets.pretended(targets.chosen()):
        monkeypatch.setattr(recurrent, "MOST_GPU_ITERATIONS", Target().max_iterations)
    given = arrays(op, steps=steps, batch=1, hidden=hidden)[:4]
    scaled = [given[0], *(a / hidden**0.5 if a is not None else None for a in given[1:])]
    outputs = [np.float32] * (3 if op == "LSTM" else 2)
    names = ["steps", "batch", INPUT]
    model = compare.model(op, scaled, constants=(1, 2, 3), hidden_size=hidden, outputs=outputs)
    for axis, name in enumerate(names[:2]):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = str(name)
    compare.check_model(model, scaled, **CLOSE)


@pytest.mark.costly
def test_profiles_and_checks_see_a_repeated_kernel_as_one(few_steps: int) -> None:
    """Its arithmetic is counted once, and its results are looked at when all of it has run."""
    given = arrays("LSTM", lengths=[7, 2, 5])
    model = compare.model("LSTM", given[:5], hidden_size=HIDDEN, outputs=[np.float32] * 3)
    program = support.compile_model(model)
    whole = support.Runner(program, RunSettings(stepwise=True, bounds_checks=True))
    feeds = [a for a in given[:5] if a is not None]
    results = [whole(*feeds), whole(*feeds)]
    for again, want in zip(results[1], compare.expected(model, {f"x{k}": a for k, a in enumerate(feeds)}), strict=True):
        np.testing.assert_allclose(again, want, **CLOSE)
    plan = next(iter(whole.executable.plans.values()))
    flops: dict[int, int] = {}
    for step, (_, args) in zip(plan.layout.steps, Descriptions(program).of(plan), strict=True):
        flops[step.dispatch] = flops.get(step.dispatch, 0) + args["flops"]
    layer = next(it.step.dispatch for it in plan.dispatches if it.label == "lstm")
    assert abs(flops[layer] - 2 * STEPS * BATCH * 4 * HIDDEN * HIDDEN) < 7


@pytest.mark.costly
def test_a_repeated_kernel_survives_the_file(few_steps: int, tmp_path: Path) -> None:
    given = arrays("GRU")[:3]
    model = compare.model("GRU", given, symbolic=True, constants=(1, 2), hidden_size=HIDDEN, outputs=[np.float32] * 2)
    program = support.compile_model(model)
    save(program, tmp_path / "p.wgpu")
    x = given[0]
    assert x is not None
    for ours, theirs in zip(support.Runner(load(tmp_path / "p.wgpu"))(x), support.Runner(program)(x), strict=True):
        np.testing.assert_array_equal(ours, theirs)
