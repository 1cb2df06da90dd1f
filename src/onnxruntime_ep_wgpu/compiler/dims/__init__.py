"""Dimensions during lowering: integers, or exact expressions over named symbols.

- `nodes`: the expressions, which are polynomials in canonical form.
- `intervals`, `samples`, `bounds`: facts about their values.
- `functions`: operations beyond polynomials (floor division, minimum, broadcasting...), each reduced to its simplest form.
- `naming`: their conversion for a Program, which evaluates them without this package (see `postfix`).

Symbols stand for dimensions, or for elements of small integer inputs. A dimension is never negative; 0 and 1 are not special.
"""

from .bounds import limits, may_be, nonnegative
from .functions import (
    LARGEST,
    broadcast,
    ceildiv,
    equal,
    floordiv,
    less,
    less_equal,
    maximum,
    minimum,
    mod,
    scaled,
    select,
    truncdiv,
)
from .naming import Names, symbols_of, to_postfix
from .nodes import Dim, Expr, are_dims, product, quotient, reads_elements, symbol

__all__ = [
    "LARGEST",
    "Dim",
    "Expr",
    "Names",
    "are_dims",
    "broadcast",
    "ceildiv",
    "equal",
    "floordiv",
    "less",
    "less_equal",
    "limits",
    "maximum",
    "may_be",
    "minimum",
    "mod",
    "nonnegative",
    "product",
    "quotient",
    "reads_elements",
    "scaled",
    "select",
    "symbol",
    "symbols_of",
    "to_postfix",
    "truncdiv",
]
