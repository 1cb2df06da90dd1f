"""What rules put in place fits into the bindings of the target, however many windows its tensors take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.compiler.rewrite import engine
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import Target
from tests.compiler import attention_models, test_squeeze_excite
from tests.compiler.attention_models import Sizes
from tests.compiler.test_spelled import INVERSES, SQUARES, expected, model, softmax
from tests.support import Runner, compile_model, labels, make_model, target

TOLERANCE = 1e-5
WINDOWS = (1, 2, 3, 4, 5, 6, 7, 9, 12)  # that the largest tensor takes


def limited(nbytes: int, windows: int, buffers: int, software: bool) -> Target:
    """The target with bindings of which a tensor of so many bytes takes so many."""
    step = -(-nbytes // windows // 256) * 256
    return replace(target(), max_binding_bytes=max(256, step), max_storage_buffers=buffers, software=software)


def check(program: Program, on: Target, rule: str, label: str, want: np.ndarray, *given: np.ndarray) -> None:
    for dispatch in program.dispatches:
        assert len(dispatch.args) <= on.max_storage_buffers, program.kernels[dispatch.kernel].label
    made = label in set(labels(program))
    reasons = [it.reason for it in program.declined if it.rule == rule]
    # Without a reduction of whole rows, as when these are in parts, there is nothing for the rule.
    assert made or all("in one kernel: the adapter has 8" in it for it in reasons), reasons
    (y,) = Runner(program)(*given)
    np.testing.assert_allclose(y.astype(np.float64), want, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.costly
@pytest.mark.parametrize("software", [True, False], ids=["own", "gpu"])
@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("centred", [True, False], ids=["centred", "not centred"])
def test_normalisations(windows: int, centred: bool, software: bool) -> None:
    rng = np.random.default_rng(windows)
    shape = (int(rng.integers(2, 20)), int(rng.integers(2, 20)), int(rng.integers(64, 200)))
    square, inverse = rng.choice(list(SQUARES)), rng.choice(list(INVERSES))
    made = model(square, inverse, centred=centred, shape=shape)
    x = (rng.standard_normal(shape) * 3 + 2).astype(np.float32)
    on = limited(x.nbytes, windows, 8, software)
    check(compile_model(made, on), on, "normalisation", "layer_norm", expected(x, made, centred=centred), x)


@pytest.mark.costly
@pytest.mark.parametrize("software", [True, False], ids=["own", "gpu"])
@pytest.mark.parametrize("windows", WINDOWS)
def test_softmaxes(windows: int, software: bool) -> None:
    x = np.random.default_rng(windows).standard_normal((4, 6, 33)).astype(np.float32)
    powers = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    on = limited(x.nbytes, windows, 8, software)
    check(compile_model(softmax(), on), on, "softmax", "softmax", powers / powers.sum(-1, keepdims=True), x)


@pytest.mark.costly
@pytest.mark.parametrize("mask", ["none", "added", "chosen"])
@pytest.mark.parametrize("windows", WINDOWS)
def test_attention(windows: int, mask: str) -> None:
    rng = np.random.default_rng(windows)
    sizes = Sizes(1, 3, int(rng.integers(20, 70)), int(rng.integers(20, 70)), 32, 20)
    made = attention_models.attention_model("scores", mask, sizes)
    arrays = attention_models.feeds(made, mask, sizes, rng)
    on = limited(max(it.nbytes for it in arrays), windows, 8, False)
    want = attention_models.expected("scores", mask, sizes, arrays)
    check(compile_model(made, on), on, "attention", "flash_attention", want, *arrays)


def test_every_rule_is_held_to_the_bindings() -> None:
    """For each rule there is a size for which it is taken, and one for which the target has not enough bindings."""
    x = np.zeros((4, 6, 33), np.float32)
    cases = {
        "normalisation": (model("Mul", "divided", centred=False, shape=x.shape), x.nbytes),
        "softmax": (softmax(), x.nbytes),
        "attention": (
            attention_models.attention_model("scores", "added", Sizes(1, 3, 40, 40, 32, 32)),
            3 * 40 * 32 * 4,
        ),
        "squeeze_excite": (test_squeeze_excite.block((5, 60, 60), product="MatMul", given=True), 60 * 60 * 4),
        "split_k": (
            make_model(
                [node("MatMul", ["a", "b"], ["y"])],
                {"a": (np.float32, [128, 32])},
                {"b": np.ones((32, 128), np.float32)},
            ),
            8 * 128 * 128 * 4,
        ),
        "extremes": (
            make_model(
                [node("ArgMax", ["x"], ["at"], axis=1), node("ReduceMax", ["x", "axes"], ["most"])],
                {"x": (np.float32, [64, 33])},
                {"axes": np.array([1])},
            ),
            64 * 33 * 4,
        ),
        "picked": (
            make_model(
                [
                    node("Gather", ["x", "ids"], ["rows"]),
                    node("LayerNormalization", ["rows", "gain"], ["y"]),
                    node("Add", ["rows", "y"], ["sum"]),
                ],
                {"x": (np.float32, [6, 33]), "ids": (np.int64, [64])},
                {"gain": np.ones(33, np.float32)},
            ),
            64 * 33 * 4,
        ),
    }
    parts = (tune.use(tune.products.SplitK(32, 4)),)  # eight, of four tiles
    every = {rule.name for rules in engine.ROUNDS for rule in rules}
    # One takes an operand from a kernel that is held to them, one leaves it to fusion whether a map is in a kernel.
    assert cases.keys() == every - {"visible_keys", "gated"}
    for name, (made, nbytes) in cases.items():
        answers = [
            {it.reason for it in compile_model(made, on).declined if it.rule == name}
            for on in (replace(limited(nbytes, windows, 8, False), tuning=parts) for windows in WINDOWS)
        ]
        assert answers[0] == set(), name
        assert any("in one kernel: the adapter has 8" in it for reasons in answers for it in reasons), name


def test_a_kernel_beyond_the_bindings_is_not_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    on = limited(4 * 6 * 33 * 4, 6, 8, False)
    monkeypatch.setattr(engine, "too_many_bindings", lambda node, target: None)
    with pytest.raises(AssertionError, match=r"has 1\d bindings, and the adapter has 8"):
        compile_model(softmax(), on)
