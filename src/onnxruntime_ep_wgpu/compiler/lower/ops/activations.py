"""Activations: one expression each, for activation operators and for operators that contain an activation.

The names are those of ONNX's operators, or of the activations of its recurrent ones. Each operator declares which it
supports, and how its attributes spell them and their parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from ....program.dtypes import DType
from ....records import dataclass
from ..builder import Builder, Operand


@dataclass(frozen=True)
class Activation:
    """An expression of `x` and of `parameters`, which map names to defaults in the order of an attribute's list. `halves` is
    a shorter expression that is equally precise for f16 results."""

    expression: str
    cost: int = 1
    parameters: Mapping[str, float] = field(default_factory=dict)
    halves: str = ""

    def of(self, dtype: DType) -> str:
        """Returns the expression for results of this type."""
        return self.halves if self.halves and dtype is DType.FLOAT16 else self.expression

    def values(self, given: Sequence[float]) -> dict[str, Any]:
        """Returns the parameters with the first ones replaced by `given`."""
        return {**self.parameters, **dict(zip(self.parameters, given, strict=False))}

    def text(self, values: Mapping[str, float]) -> str:
        """Returns the expression with numbers in place of its parameters."""
        return re.sub(r"[a-z]\w*", lambda it: f"({values[it[0]]!r})" if it[0] in values else it[0], self.expression)


ACTIVATIONS = {
    "Identity": Activation("x"),
    "Relu": Activation("max(0, x)"),
    "LeakyRelu": Activation("where(x < 0, alpha * x, x)", 2, {"alpha": 0.01}),
    "ThresholdedRelu": Activation("where(x > alpha, x, 0)", 1, {"alpha": 1.0}),
    "Elu": Activation("where(x < 0, alpha * expm1(x), x)", 12, {"alpha": 1.0}),
    "Celu": Activation("max(x, 0) + min(alpha * expm1(x / alpha), 0)", 16, {"alpha": 1.0}),
    "Selu": Activation("gamma * where(x > 0, x, alpha * expm1(x))", 12, {"alpha": 1.6732632, "gamma": 1.0507009}),
    "Tanh": Activation("tanh(x)", 10),
    "ScaledTanh": Activation("alpha * tanh(beta * x)", 12, {"alpha": 1.0, "beta": 1.0}),
    "Sigmoid": Activation("sigmoid(x)", 6),
    "HardSigmoid": Activation("max(0, min(1, fma(alpha, x, beta)))", 8, {"alpha": 0.2, "beta": 0.5}),
    # x + 3 is exact near the zero at -3, x / 6 + 1 / 2 is not.
    "HardSwish": Activation("x * (max(0, min(6, x + 3)) * 0.16666667)", 4),
    "Silu": Activation("silu(x)", 8, halves="silu_half(x)"),
    "Swish": Activation("swish(x, alpha)", 8, {"alpha": 1.0}),
    "Gelu": Activation("gelu(x)", 24, halves="gelu_half(x)"),
    "GeluTanh": Activation("gelu_tanh(x)", 24, halves="gelu_tanh_half(x)"),
    "Mish": Activation("mish(x)", 16),
    "Softplus": Activation("softplus(x)", 12),
    "Softsign": Activation("x / (1 + abs(x))"),
    "Affine": Activation("alpha * x + beta", 1, {"alpha": 1.0, "beta": 0.0}),
    "Clip": Activation("min(high, max(low, x))", 2, {"low": -3.4028234663852886e38, "high": 3.4028234663852886e38}),
}


def activated(b: Builder, x: Operand, name: str, given: Sequence[float] = (), to: DType | None = None) -> Operand:
    """Applies the activation `name`, with its first parameters replaced by `given`."""
    it = ACTIVATIONS[name]
    dtype = to or x.dtype
    return b.pointwise(it.of(dtype), {"x": x}, dtype, cost=it.cost, **it.values(given))
