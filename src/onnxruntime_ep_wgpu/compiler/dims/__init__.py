"""Dimensions while a graph is lowered: integers, or exact expressions over named symbols.

`nodes` holds the expressions, polynomials in canonical form; `intervals`, `samples` and `bounds` what is known of their values;
`functions` what a polynomial cannot say (floor division, minimum, broadcasting...), each brought to its simplest form;
`naming` their way into a Program, which needs nothing of this to be evaluated (see `postfix`).

Symbols stand for dimensions or elements of small integer inputs. A dimension is never negative; 0 and 1 are as good as
any other.
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
