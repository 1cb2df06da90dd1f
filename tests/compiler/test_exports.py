"""Graphs as exporters spell them: what their shapes become does not grow with depth, and is right for every size."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnxruntime as ort
import pytest

from onnxruntime_ep_wgpu.compiler import dims
from onnxruntime_ep_wgpu.compiler.dims import bounds, nodes
from onnxruntime_ep_wgpu.compiler.passes import fuse
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import Target
from tests.support import Runner, compile_model
from tests.zoo.exports import EXPORTS, inputs

# Layers of two depths between which everything is regular, and sizes for `inputs`.
DEPTHS = {"t5_encoder": (3, 12), "t5_decoder": (3, 9), "swin": (2, 6), "detector": (2, 10)}
SIZES = {
    "t5_encoder": ((1, 5), (3, 1), (2, 12)),
    "t5_decoder": ((1, 1, 3, 4), (2, 3, 0, 5), (3, 1, 9, 1), (1, 4, 4, 4)),
    "swin": ((1, 28, 56), (2, 30, 61), (1, 4, 120)),
    "detector": ((1, 64, 96), (2, 33, 47), (1, 16, 128)),
}


def tokens(program: Program) -> int:
    """Tokens of the longest expression."""
    found = [d for v in program.values for d in (*v.shape, *v.elements)]
    found += [d for x in program.dispatches for d in (*x.uniforms, *x.guards, *x.workgroups)]
    found += [c.condition for c in program.checks] + [
        d for _, d in (*program.definitions, *program.message_definitions)
    ]
    return max(len(d) for d in found if not isinstance(d, int))


def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts what may grow faster than the graph while something is compiled."""
    calls: Counter[str] = Counter()

    def count(owner: object, name: str) -> None:
        inner = getattr(owner, name)

        def counting(*arguments: object) -> object:
            calls[name] += 1
            return inner(*arguments)

        monkeypatch.setattr(owner, name, counting)

    count(nodes.Expr, "__init__")
    count(nodes.Operation, "__init__")
    count(bounds._Proof, "of")
    count(fuse._Fusion, "_producer_groups")
    count(fuse._Fusion, "_binds")
    return calls


@pytest.mark.costly
@pytest.mark.parametrize("name", EXPORTS)
def test_deeper_exports_have_the_same_shapes_and_checks(name: str) -> None:
    few, many = (compile_model(EXPORTS[name](depth), Target()) for depth in DEPTHS[name])
    assert tokens(many) <= max(tokens(few), 96)
    assert len(many.checks) == len(few.checks)
    past = 4 * (DEPTHS[name][1] - DEPTHS[name][0]) if name == "t5_decoder" else 0  # each cache is an output
    assert len(many.definitions) <= len(few.definitions) + past
    assert len(many.kernels) <= len(few.kernels) + 2


@pytest.mark.costly
@pytest.mark.parametrize("name", EXPORTS)
def test_the_work_of_a_layer_does_not_depend_on_the_layers_before_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counted(monkeypatch)
    found = []
    compile_model(EXPORTS[name](DEPTHS[name][1]), Target())  # what the process does once
    for depth in (1, 2, 4):
        model = EXPORTS[name](depth * DEPTHS[name][1])
        nodes._sum.cache_clear()
        nodes._product.cache_clear()
        calls.clear()
        compile_model(model, Target())
        found.append((len(model.graph.node), Counter(calls)))
    (one, first), (two, second), (four, third) = found
    assert 1.5 * one < two < 0.7 * four
    for what in first:
        # Per node of the second half and of the last, with room for what is done once.
        assert (third[what] - second[what]) / (four - two) <= 1.5 * (second[what] - first[what]) / (two - one) + 1


@pytest.mark.costly
@pytest.mark.parametrize("name", EXPORTS)
def test_exports_compute_what_the_cpu_provider_does(name: str) -> None:
    layers = 2
    model = EXPORTS[name](layers)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    program = compile_model(model)
    assert not [s for s in program.symbols if s.is_element]
    run = Runner(program)
    for sizes in SIZES[name]:
        feeds = inputs(name, layers, *sizes)
        wanted = session.run(None, feeds)
        got = run(*(feeds[value.name] for value in model.graph.input))
        for value, want, have in zip(model.graph.output, wanted, got, strict=True):
            assert have.shape == want.shape, value.name
            assert np.isfinite(want).all()
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(want).max(initial=0))))


def test_a_dim_is_equal_to_what_a_later_layer_makes_of_it() -> None:
    """Windows that are cut, rolled and put together again leave the height that there was."""
    height = dims.floordiv(dims.symbol("h"), 4)
    for _ in range(30):
        padded = height + dims.mod(7 - dims.mod(height, 7), 7)
        low = dims.minimum(3, padded)
        rolled = (padded - low) + low
        back = dims.maximum(rolled - 3, 0) + (rolled - dims.maximum(rolled - 3, 0))
        again = dims.floordiv(back, 7) * 7
        after = dims.minimum(height, again)
        assert after == height
        height = after
