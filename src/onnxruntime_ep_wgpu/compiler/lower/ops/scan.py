"""Running totals along an axis."""

from __future__ import annotations

from ....records import dataclass
from ...dims import product
from ...ir import Function, Read
from ...ir.expression import spelled
from ...tune import row_variants
from ..builder import Builder, Operand
from .choices import Flag
from .chunked_rows import by_rows, cut
from .named_axes import one_axis_of
from .reduction import CHUNKS, WHOLE, WORDS_OF, reduce_axes
from .registry import INTEGERS, NUMBERS, at_least, op


@dataclass(frozen=True)
class _Scan:
    """The combination of running totals. `identity` changes none, and `reduction` computes the last one."""

    identity: float
    combine: str
    reduction: str

    def functions(self, kind: str) -> dict[str, Function]:
        # A sum of floats begins with minus zero: 0 + -0 is 0.
        identity = repr(-0.0 if kind in ("f32", "f64") and self.identity == 0 else self.identity)
        return {
            "identity": Function((), identity, kind),
            "combine": Function((("x", kind), ("y", kind)), self.combine, kind),
        }


def _declare(name: str, scan: _Scan) -> None:
    @op(name, types=NUMBERS, axis=INTEGERS, ranks={"x": at_least(1)})
    def lower(b: Builder, x: Operand, axis: Operand, *, exclusive: Flag = 0, reverse: Flag = 0) -> Operand:
        """Running totals along one axis, from either end, inclusive or exclusive."""
        along = one_axis_of(b, axis, x.rank)
        wide = WORDS_OF[x.dtype.compute or ""]
        order = [*(k for k in range(x.rank) if k != along), along]
        source = b.cast(b.permute(x, order), wide)
        result = _scanned(b, source, scan, bool(exclusive), bool(reverse))
        if exclusive and scan.identity == 0 and wide.is_float:
            # The sum of nothing is 0, and so is 0 + -0.
            result = b.pointwise("where(x == 0, 0, x)", {"x": result}, wide)
        if wide is not x.dtype:
            result = b.pointwise(f"{x.dtype.compute}(x)", {"x": result}, x.dtype)
        return b.permute(result, [order.index(k) for k in range(x.rank)])


def _scanned(b: Builder, x: Operand, scan: _Scan, exclusive: bool, reverse: bool) -> Operand:
    """Returns running totals along the last axis."""
    found = by_rows(b, x, x.rank - 1, lambda rows: _scanned_rows(b, rows, scan, exclusive, reverse))
    return found[0] if found is not None else _scanned_in_chunks(b, x, scan, exclusive, reverse)


def _scanned_rows(b: Builder, x: Operand, scan: _Scan, exclusive: bool, reverse: bool) -> list[Operand]:
    groups = (x.rank - 1, 1)
    rows, columns = product(x.shape[:-1]), x.shape[-1]
    return b.call(
        "scan",
        {"x": Read(x.view, groups, reuse=True)},
        {"y": (x.dtype, x.shape, groups)},
        row_variants(rows, columns, b.target),
        parameters={"rows": rows, "columns": columns},
        functions=scan.functions(x.dtype.compute or ""),
        flops=rows * columns,
        EXCLUSIVE=exclusive,
        REVERSE=reverse,
    )


def _scanned_in_chunks(b: Builder, x: Operand, scan: _Scan, exclusive: bool, reverse: bool, number: int = 0) -> Operand:
    """Returns running totals of chunks, each combined with the total of the previous chunks. `number` is the number of
    chunks, 0 for few."""
    kept = x.rank - 1
    chunks = b.copy(cut(b, x, kept, spelled(scan.identity), number))
    totals = reduce_axes(b, scan.reduction, chunks, [kept + 1], False, wraps=True)
    before = _scanned(b, totals, scan, True, reverse)
    inside = _scanned(b, chunks, scan, exclusive, reverse)
    operands = {"x": b.reshape(before, (*before.shape, 1)), "y": inside}
    together = b.pointwise(scan.combine, operands, x.dtype, inside.shape)
    return b.slice(b.reshape(together, (*x.shape[:kept], product(inside.shape[kept:]))), kept, 0, 1, x.shape[kept])


_SUMS = _Scan(0, "x + y", "ReduceSum")


def running_totals(b: Builder, x: Operand) -> Operand:
    """Returns the inclusive running totals of a list. A long list is split into many rows, so that all of a GPU is used."""
    if isinstance(x.size, int) and x.size <= WHOLE:
        return _scanned(b, x, _SUMS, False, False)
    return _scanned_in_chunks(b, x, _SUMS, False, False, CHUNKS)


def running_totals_of_rows(b: Builder, x: Operand) -> Operand:
    """Returns the inclusive running totals of each row, along the last axis."""
    return _scanned(b, x, _SUMS, False, False)


_declare("CumSum", _SUMS)
_declare("CumProd", _Scan(1, "x * y", "ReduceProd"))
