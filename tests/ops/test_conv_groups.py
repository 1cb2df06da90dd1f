"""Convolutions in groups of images whose channels are last in memory, on the kernels of GPUs, beside the CPU provider's: groups of
few and of many channels, whose weights fit into a workgroup's memory at once or in parts."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx.helper import make_node as node

from tests import targets
from tests.support import Runner, compile_model, make_model

F = np.float32
# channels and features of a group: one four and several, a prime number of fours, more than weights fit of
GROUPS = ((4, 4), (8, 12), (12, 68), (24, 24), (64, 256), (40, 8))


def _random(rng: random.Random) -> tuple[dict[str, Any], tuple[int, int], tuple[int, int, int]]:
    """Attributes, the kernel, and batch, height and width, of which windows leave at least one position."""
    kernel = rng.choice((1, 2, 3, 5)), rng.choice((1, 3, 4, 7))
    dilations, strides = [rng.choice((1, 1, 2)) for _ in "yx"], [rng.choice((1, 2, 3)) for _ in "yx"]
    pads = [rng.randrange(3) for _ in range(4)]
    least = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    sizes = rng.choice((1, 2, 5)), least[0] + rng.randrange(9), least[1] + rng.choice((0, 1, 5, 13))
    return {"pads": pads, "strides": strides, "dilations": dilations}, kernel, sizes


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("channels", "features"), GROUPS)
def test_results_are_the_cpu_providers(channels: int, features: int, seed: int) -> None:
    rng, numbers = random.Random(seed * 1000 + channels * features), np.random.default_rng(seed)
    groups = rng.choice((1, 2, 3)) if features > 100 else rng.choice((2, 3, 5))
    attributes, kernel, (batch, height, width) = _random(rng)
    weights = {
        "spread": numbers.standard_normal((groups * channels, 3, 1, 1), F),
        "w": numbers.standard_normal((groups * features, channels, *kernel), F),
        "bias": numbers.standard_normal(groups * features, F),
    }
    nodes = [
        node("Conv", ["x", "spread"], ["c"]),
        node("Conv", ["c", "w", "bias"], ["g"], group=groups, **attributes),
        node("Relu", ["g"], ["y"]),
    ]
    sizes = [batch, 3, height, width] if rng.randrange(2) else ["n", 3, "h", "w"]
    model = make_model(nodes, {"x": (F, sizes)}, weights)
    x = numbers.standard_normal((batch, 3, height, width), F)
    program = compile_model(model, targets.device(targets.Way("channels")).target)
    if groups > 1:
        assert any("grouped_last" in kernel.label for kernel in program.kernels)
    (got,) = Runner(program)(x)
    (want,) = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * max(1, channels * kernel[0] * kernel[1]) ** 0.5)
