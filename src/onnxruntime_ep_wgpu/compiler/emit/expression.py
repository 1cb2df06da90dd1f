"""WGSL of expressions (`ir/expression.py`), and of the functions that a body uses by name."""

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
    """Returns the WGSL of an expression with result kind `kind`. `names` are operands, `constants` attribute values.

    The result is as wide as the widest operand. Raises TypeError for an invalid expression.
    """
    return evaluated(expression, names, constants, scalars, kind)


def in_body(function: Function | Bits, scalars: Scalars) -> str:
    """Returns the WGSL that replaces a name in a map's body. The parameters are variables there."""
    if isinstance(function, Bits):
        return written(function)
    names = {name: TypedValue(name, kind) for name, kind in function.parameters}
    return to_wgsl(function.expression, names, {}, scalars, function.result).text
