"""WGSL of expressions (`ir/expression.py`), and of what else a body asks for by name."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir import Bits, Constant, Function
from ..ir.expression import evaluated
from .scalar import Scalars
from .storage import written
from .value import TypedValue


def to_wgsl(
    expression: str, names: Mapping[str, TypedValue], constants: Mapping[str, Constant], scalars: Scalars, kind: str
) -> TypedValue:
    """WGSL of an expression whose result has compute type `kind`; `names` are operands, `constants` attribute values.

    The result is as wide as the widest operand. Raises TypeError for what has no meaning.
    """
    return evaluated(expression, names, constants, scalars, kind)


def in_body(function: Function | Bits, scalars: Scalars) -> str:
    """WGSL of what stands for a name of a map's body, over names that are variables there."""
    if isinstance(function, Bits):
        return written(function)
    names = {name: TypedValue(name, kind) for name, kind in function.parameters}
    return to_wgsl(function.expression, names, {}, scalars, function.result).text
