"""Kernels over rows as calls, for operators (`ops/normalise.py`) and for the rules that find them written out
(`rewrite/spelled.py`). Constants that a template declares itself are omitted.

`x` is read by (row, column). A row has the elements of the axes in its second group.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...program.target import Target
from ..dims import Dim, product
from ..ir import Call, Constant, Read, View, Write
from ..tune import row_variants


def layer_norm(
    x: Read,
    gain: View,
    bias: View,
    results: Mapping[str, Write],
    target: Target,
    *,
    epsilon: float,
    centred: bool,
    origin: tuple[str, ...],
) -> Call:
    """Returns a call with the results "y", and "mean" and "inverse" deviation if requested. `gain` and `bias` have the axes of a
    row."""
    constants: dict[str, Constant] = {"EPSILON": float(epsilon), "CENTRED": centred}
    operands = {"x": x, "gain": Read(gain, (gain.rank,)), "bias": Read(bias, (bias.rank,))}
    return _rows("layer_norm", operands, results, target, constants, origin)


def softmax(
    x: Read,
    y: Write,
    target: Target,
    *,
    logarithm: bool = False,
    masked: bool = False,
    sink: Read | None = None,
    origin: tuple[str, ...],
) -> Call:
    """Returns the call. `masked`: a row without finite elements becomes 0. `sink`: one more number per row enters only the sum."""
    constants: dict[str, Constant] = {"LOGARITHM": logarithm, "MASKED": masked}
    return _rows("softmax", {"x": x, **({"sink": sink} if sink else {})}, {"y": y}, target, constants, origin)


def _rows(
    template: str,
    operands: Mapping[str, Read],
    results: Mapping[str, Write],
    target: Target,
    constants: dict[str, Constant],
    origin: tuple[str, ...],
) -> Call:
    view, (kept, _) = operands["x"].view, operands["x"].groups
    sizes: dict[str, Dim] = {"rows": product(view.shape[:kept]), "columns": product(view.shape[kept:])}
    variants = row_variants(sizes["rows"], sizes["columns"], target)
    return Call(template, dict(operands), dict(results), variants, constants, sizes, origin=origin)
