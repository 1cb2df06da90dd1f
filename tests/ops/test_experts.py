"""Mixtures of experts beside numpy by the words of the schema, and beside the CPU provider where it has what is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests import support
from tests.ops.compare import expected, random
from tests.ops.test_blocks import as_inputs, packed

MICROSOFT = "com.microsoft"
F32, F16 = np.float32, np.float16


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": gelu,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "identity": lambda x: x,
}


@dataclass(frozen=True)
class Mixture:
    """`bits` 0: weights as they are, else quantised in blocks of `block`, 0 for whole columns."""

    experts: int = 4
    hidden: int = 32
    inner: int = 48
    k: int = 2
    activation: str = "silu"
    fusion: int = 0
    gate: bool = False
    bias: bool = False
    normalise: int = 0
    bits: int = 0
    block: int = 0
    zeros: bool = False
    dtype: Any = F32
    limit: float | None = None
    separate: bool = False

    def layers(self) -> dict[str, tuple[int, int]]:
        wide = 2 if self.activation == "swiglu" else 1
        out = {"fc1": (wide * self.inner, self.hidden), "fc2": (self.hidden, self.inner)}
        return out | ({"fc3": (self.inner, self.hidden)} if self.gate else {})

    def made(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Initializers by name, and the real weights (experts, n, k) in float64."""
        rng = np.random.default_rng(self.hidden)
        arrays: dict[str, np.ndarray] = {}
        real: dict[str, np.ndarray] = {}
        for name, (n, k) in self.layers().items():
            if self.bias:
                arrays[f"{name}_bias"] = rng.standard_normal((self.experts, n)).astype(self.dtype)
            if not self.bits:
                arrays[name] = (rng.standard_normal((self.experts, n, k)) * 0.2).astype(self.dtype)
                real[name] = arrays[name].astype(np.float64)
                continue
            q = rng.integers(0, 1 << self.bits, (self.experts, n, k))
            blocks = k // self.block if self.block else 1
            scales = (rng.random((self.experts, n, blocks)) * 0.02 + 0.01).astype(self.dtype)
            zero: Any = np.full((self.experts, n, blocks), 1 << self.bits - 1)
            arrays[name] = packed(q, self.bits)
            arrays[f"{name}_scales"] = scales if self.block else scales[..., 0]
            if self.zeros:
                zero = rng.integers(0, 1 << self.bits, (self.experts, n, blocks))
                arrays[f"{name}_zeros"] = packed(zero if self.block else zero[..., 0], self.bits)
            spread = [np.repeat(p, k // blocks, -1) for p in (zero, scales.astype(np.float64))]
            real[name] = (q - spread[0]) * spread[1]
        return arrays, real

    def model(self, shape: list[Any], **more: Any) -> onnx.ModelProto:
        arrays, _ = self.made()
        if self.bits:
            order = ["fc1", "fc1_scales", "fc1_bias", "fc2", "fc2_scales", "fc2_bias", "fc3", "fc3_scales", "fc3_bias"]
            order += ["fc1_zeros", "fc2_zeros", "fc3_zeros", "mixing"]
            how: dict[str, Any] = {"expert_weight_bits": self.bits} | ({"block_size": self.block} if self.block else {})
        else:
            order, how = ["fc1", "fc1_bias", "fc2", "fc2_bias", "fc3", "fc3_bias"], {}
        given = ["x", "probs", *(n if n in arrays or (n == "mixing" and self.separate) else "" for n in order)]
        while not given[-1]:
            given.pop()
        how |= {"k": self.k, "activation_type": self.activation, "normalize_routing_weights": self.normalise}
        if self.activation == "swiglu":
            how |= {"swiglu_fusion": self.fusion, "activation_alpha": 1.702, "activation_beta": 1.0}
            how |= {} if self.limit is None else {"swiglu_limit": self.limit}
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        rows = [math.prod(shape[:-1]) if all(isinstance(d, int) for d in shape) else "rows", self.experts]
        inputs = {"x": shape, "probs": rows} | ({"mixing": rows} if self.separate else {})
        graph = helper.make_graph(
            [helper.make_node("QMoE" if self.bits else "MoE", given, ["y"], domain=MICROSOFT, **{**how, **more})],
            "mixture",
            [helper.make_tensor_value_info(n, kind, s) for n, s in inputs.items()],
            [helper.make_tensor_value_info("y", kind, None)],
            [numpy_helper.from_array(a, n) for n, a in arrays.items()],
        )
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def wanted(self, x: np.ndarray, probs: np.ndarray, mixing: np.ndarray | None = None) -> np.ndarray:
        arrays, real = self.made()
        rows = x.reshape(-1, self.hidden).astype(np.float64)
        logits = probs.astype(np.float64)
        best = np.argsort(-logits, axis=1, kind="stable")[:, : self.k]
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        shares = np.take_along_axis(shares if mixing is None else mixing.astype(np.float64), best, 1)
        if self.normalise or (self.bits and mixing is None):  # QMoE on the CPU provider ignores the attribute then
            shares /= shares.sum(1, keepdims=True)
        out = np.zeros((len(rows), self.hidden))
        for t, row in enumerate(rows):
            for share, e in zip(shares[t], best[t], strict=True):

                def layer(name: str, v: np.ndarray, e: int = e) -> np.ndarray:
                    return real[name][e] @ v + (arrays[f"{name}_bias"][e] if self.bias else 0)

                h = layer("fc1", row)
                if self.activation == "swiglu":
                    g, linear = (h[0::2], h[1::2]) if self.fusion == 1 else np.split(h, 2)
                    if self.limit is not None:
                        g, linear = np.minimum(g, self.limit), np.clip(linear, -self.limit, self.limit)
                    h = g / (1 + np.exp(-1.702 * g)) * (linear + 1)
                else:
                    h = ACTIVATIONS[self.activation](h)
                h = h * layer("fc3", row) if self.gate else h
                out[t] += share * layer("fc2", h)
        return out.reshape(x.shape)


def check(mixture: Mixture, *shape: int, symbolic: bool = False, cpu: bool = False) -> None:
    rows = math.prod(shape)
    x = random(*shape, mixture.hidden, dtype=mixture.dtype)
    probs = random(rows, mixture.experts, dtype=mixture.dtype, seed=1)
    mixing = np.abs(random(rows, mixture.experts, dtype=mixture.dtype, seed=2)) if mixture.separate else None
    feeds = [a for a in (x, probs, mixing) if a is not None]
    dims = [f"d{k}" for k in range(len(shape))] if symbolic else list(shape)
    model = mixture.model([*dims, mixture.hidden])
    (y,) = support.run_model(model, *feeds)
    want = mixture.wanted(x, probs, mixing)
    assert y.dtype == mixture.dtype
    tolerance = 2e-3 if mixture.dtype is F16 else 3e-5
    np.testing.assert_allclose(y, want, rtol=tolerance, atol=tolerance * np.abs(want).max(), err_msg=str(mixture))
    if cpu:
        names = [v.name for v in model.graph.input]
        (theirs,) = expected(model, dict(zip(names, feeds, strict=True)))
        np.testing.assert_allclose(y, theirs, rtol=1e-3, atol=1e-3 * np.abs(want).max())


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [F32, F16], ids=["f32", "f16"])
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_activations(activation: str, dtype: Any) -> None:
    check(Mixture(activation=activation, dtype=dtype, bias=True), 5, cpu=dtype is F32)


@pytest.mark.costly
@pytest.mark.parametrize("mixture", [Mixture(), Mixture(bits=4, block=16, zeros=True), Mixture(bits=8)], ids=str)
def test_weights_that_are_inputs(mixture: Mixture) -> None:
    x, probs = random(5, mixture.hidden), random(5, mixture.experts, seed=1)
    model = mixture.model([5, mixture.hidden])
    (y,) = support.run_model(model, x, probs, *as_inputs(model, False))
    np.testing.assert_allclose(y, mixture.wanted(x, probs), rtol=3e-5, atol=3e-5)


@pytest.mark.costly
@pytest.mark.parametrize("fusion", [1, 2])
def test_swiglu(fusion: int) -> None:
    check(Mixture(activation="swiglu", fusion=fusion, normalise=1, bias=True), 3, cpu=fusion == 1)
    check(Mixture(activation="swiglu", fusion=fusion, limit=0.5, k=3), 3)


@pytest.mark.costly
def test_a_gate_of_its_own() -> None:
    check(Mixture(gate=True, bias=True, normalise=1), 6)


@pytest.mark.costly
def test_how_many_experts() -> None:
    for k in (1, 3, 4):
        for normalise in (0, 1):
            check(Mixture(k=k, normalise=normalise, hidden=33, inner=19), 4, cpu=True)


@pytest.mark.costly
def test_batches_and_sizes_that_are_known_in_a_run() -> None:
    check(Mixture(), 2, 3)
    check(Mixture(bits=4, block=16, hidden=64, inner=32), 2, 3, symbolic=True)


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [F32, F16], ids=["f32", "f16"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_quantised_experts(bits: int, dtype: Any) -> None:
    for block, zeros in ((16, False), (32, True), (0, False), (0, True)):
        check(Mixture(bits=bits, block=block, zeros=zeros, dtype=dtype, hidden=96, inner=64, bias=zeros), 3)


@pytest.mark.costly
def test_quantised_experts_beside_the_cpu_provider() -> None:
    check(Mixture(bits=4, block=32, hidden=96, inner=64, normalise=1), 3, cpu=True)
    check(Mixture(bits=4, block=32, zeros=True, hidden=96, inner=64, activation="swiglu", fusion=1), 3, cpu=True)
    check(Mixture(bits=4, block=32, hidden=96, inner=64, separate=True), 3, cpu=True)


@pytest.mark.costly
def test_results_weighed_by_another_tensor() -> None:
    for normalise in (0, 1):
        check(Mixture(bits=4, block=16, separate=True, normalise=normalise, hidden=64, inner=32), 5)


def test_expert_weights_stay_packed() -> None:
    mixture = Mixture(bits=4, block=32, hidden=96, inner=64)
    program = support.compile_model(mixture.model([1, 96]))
    sizes = [value.dtype.nbytes(math.prod(value.shape)) for value in program.values if value.weight >= 0]
    assert max(sizes) == 4 * 96 * 64 // 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 5}, "k 5 must be from 1 to the number of experts, 4"),
        ({"activation_type": "tanh"}, "activation_type='tanh' is not one of 'relu'"),
        ({"quant_type": "fp4"}, "quant_type='fp4'"),
        ({"block_size": 24}, "block_size 24: a power of two"),
        ({"expert_weight_bits": 3}, "expert_weight_bits 3 of fc1"),
        ({"weights_prepacked": 1}, "weights_prepacked 1"),
        ({"use_sparse_mixer": 1}, "use_sparse_mixer 1"),
        ({"block_size": 16}, r"fc1_scales float32\[4, 64, 3\] does not have the 1536 numbers of shape \[4, 64, 6\]"),
    ],
)
def test_errors_name_the_value(change: dict[str, Any], message: str) -> None:
    model = Mixture(bits=4, block=32, hidden=96, inner=64).model([2, 96], **change)
    with pytest.raises(UnsupportedError, match=message):
        support.compile_model(model)
