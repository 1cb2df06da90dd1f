"""Patterns of what a graph spells with maps, and with reductions of rows: written once, as Python writes expressions.

    SOFTMAX = Pattern(
        {"result": "powers / total", "total": "row_sum(powers)", "powers": "exp(x - row_max(x))"}, anchor="total", ...
    )

A name with an expression is a part, and `|` is between its alternatives; any other name is a variable. A part or a variable is the
same tensor wherever it stands, and the variables in `numbers` are constants of one element. Factors and summands may be exchanged.
One map or several may calculate an expression, and conversions to f32 between them are left out, since all is calculated in f32.
Invariant: a map reads an operand at its own place, or a number of each row in all columns of the row.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain

from ...records import dataclass
from ..dims import Dim, product
from ..ir import Call, Map, Node, Tensor, View
from ..ir.expression import parse
from .between import in_step, literal

_CASTS = ("x", "f32(x)")
_SUMS = {
    "x": "row_sum",
    "where(n == 0, 0, x)": "row_sum",
    "x / f32(n)": "row_mean",
    "where(n == 0, nan, x / f32(n))": "row_mean",
}


@dataclass(frozen=True)
class RowReduction:
    """A reduction of the last axes of a tensor: rows of columns, each to one number."""

    kind: str  # row_sum, row_mean, row_max
    source: Tensor
    kept: int
    call: Call

    @staticmethod
    def of(node: Node | None) -> RowReduction | None:
        """The reduction that a call is, when it is one of whole rows by itself."""
        if not isinstance(node, Call) or node.template != "reduce":
            return None
        functions, read = node.functions, node.operands["x"]
        prepare, combine, finish = (functions[name].expression for name in ("prepare", "combine", "finish"))
        if not read.view.is_whole or read.view.dtype.compute != "f32":
            return None
        if node.parameters["count"] != node.parameters["columns"]:
            return None  # of parts
        kind = {("x", "x + y"): _SUMS.get(finish), ("rank(x)", "max(x, y)"): "row_max"}.get((prepare, combine))
        return RowReduction(kind, read.view.tensor, read.groups[0], node) if kind else None

    @property
    def rows(self) -> Dim:
        return product(self.call.operands["x"].view.shape[: self.kept])

    @property
    def columns(self) -> Dim:
        return product(self.call.operands["x"].view.shape[self.kept :])

    def shows(self, view: View) -> bool:
        """Whether a view has a number of each row in all of its columns."""
        column = View.of(view.tensor).reshape((self.rows, 1))
        return column is not None and column.expand((self.rows, self.columns)).factors == view.factors


@dataclass(frozen=True)
class Found:
    """What a pattern stands for: tensors of its parts and variables, numbers, and the nodes, each behind those that it reads."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()

    def behind(self, *nodes: Node) -> Found:
        return replace(self, nodes=tuple(dict.fromkeys((*self.nodes, *nodes))))


@dataclass(frozen=True)
class Pattern:
    """The `anchor` is the part that a reduction makes, `result` the last one. Between them each tensor has one reader. Where one of
    the parts in `certain` is found and no result, `reasons` say why: of the part that was not where it has to be, or of the part
    that has `another reader`."""

    parts: Mapping[str, str]
    anchor: str
    certain: tuple[str, ...]
    reasons: Mapping[str, str]
    numbers: tuple[str, ...] = ()

    def around(self, call: Call) -> Found | str | None:
        """What is around a reduction, the reason why it is not this, or None for something else."""
        rows = RowReduction.of(call)
        if rows is None:
            return None
        search, tensor, part = _Search(self, rows), call.results["y"].tensor, self.anchor
        inside = search.part(part, tensor, Found())
        if inside is None:
            return None
        while True:
            certain = part in self.certain
            if tensor.is_stored or len(set(tensor.users)) != 1:
                return self.reasons["another reader"] if certain else None
            tensor, search.failed = tensor.users[0].outputs[0], ""
            if (found := search.part("result", tensor, inside)) is not None:
                return found
            reason = self.reasons.get(search.failed, self.reasons["result"])
            within = next((it for it in self.parts if search.part(it, tensor, inside) is not None), None)
            if within is None:
                return reason if certain else None
            part = within


class _Search:
    """`failed`: the first part that was not where an alternative has it."""

    def __init__(self, pattern: Pattern, rows: RowReduction) -> None:
        self.pattern, self.rows, self.failed = pattern, rows, ""

    def part(self, name: str, tensor: Tensor, found: Found) -> Found | None:
        return next(self._named(name, tensor, found), None)

    def _alternatives(self, name: str) -> list[ast.expr]:
        text = self.pattern.parts.get(name)
        return [parse(it.strip()) for it in text.split("|")] if text else []

    def _named(self, name: str, tensor: Tensor, found: Found) -> Iterator[Found]:
        narrow, casts = self._narrow(tensor)
        if found.tensors.get(name, narrow) is not narrow:
            self._fail(name)
            return
        known = name in found.tensors or name not in self.pattern.parts
        them = [[found]] if known else [self._tensor(it, narrow, found) for it in self._alternatives(name)]
        for then in chain.from_iterable(them):
            yield replace(then, tensors={**then.tensors, name: narrow}).behind(*casts)

    def _fail(self, name: str) -> None:
        self.failed = self.failed or name

    def _narrow(self, tensor: Tensor) -> tuple[Tensor, list[Map]]:
        """A tensor before it was only converted to f32, which its reader does as it loads; and conversions of numbers of rows."""
        casts: list[Map] = []
        while isinstance(node := tensor.producer, Map) and node.expression in _CASTS:
            view = node.operands["x"].view
            if not in_step(node, view) or view.dtype.compute != "f32":
                break
            casts[:0] = [node] if tensor.size == self.rows.rows else []
            tensor = view.tensor
        return tensor, casts

    def _tensor(self, it: ast.expr, tensor: Tensor, found: Found) -> Iterator[Found]:
        node = self._narrow(tensor)[0].producer
        if isinstance(it, ast.Name):
            yield from self._named(it.id, tensor, found)
        elif isinstance(it, ast.Call) and ast.unparse(it.func).startswith("row_"):
            of = RowReduction.of(node)
            if of is not None and (of.kind, of.kept) == (ast.unparse(it.func), self.rows.kept):
                yield from (then.behind(of.call) for then in self._tensor(it.args[0], of.source, found))
        elif isinstance(node, Map) and node.is_pointwise and node.expression:
            yield from (then.behind(node) for then in self._expression(it, node, parse(node.expression), found))

    def _expression(self, it: ast.expr, node: Map, of: ast.expr, found: Found) -> Iterator[Found]:
        """Where a part `of` a map's expression is what `it` says."""
        (kind, ours), (same, theirs) = _opened(it), _opened(of)
        if same == "f32":
            yield from self._expression(it, node, theirs[0], found)
        elif isinstance(of, ast.Name) and of.id in node.operands:
            yield from self._operand(it, node.operands[of.id].view, node, found)
        elif isinstance(it, ast.Name):
            for alternative in self._alternatives(it.id):
                yield from self._expression(alternative, node, of, found)
        elif kind == same:
            orders = (ours, ours[::-1]) if kind in ("Add", "Mult") else (ours,)
            for order in orders:
                yield from self._all(order, node, theirs, found)

    def _all(self, those: Sequence[ast.expr], node: Map, of: Sequence[ast.expr], found: Found) -> Iterator[Found]:
        if not those:
            yield found
            return
        for then in self._expression(those[-1], node, of[-1], found):
            yield from self._all(those[:-1], node, of[:-1], then)

    def _operand(self, it: ast.expr, view: View, node: Map, found: Found) -> Iterator[Found]:
        number, name = literal(view), it.id if isinstance(it, ast.Name) else ""
        if name in self.pattern.numbers:
            if number is not None:
                yield replace(found, numbers={**found.numbers, name: number})
        elif isinstance(it, (ast.Constant, ast.UnaryOp)):
            if number == ast.literal_eval(it):
                yield found
        elif in_step(node, view) or self.rows.shows(view):
            yield from self._tensor(it, view.tensor, found)
        else:
            self._fail(name)


def _opened(it: ast.expr) -> tuple[str, list[ast.expr]]:
    """What kind of expression it is: its function, signs or number; and what it is of."""
    if isinstance(it, ast.Call):
        return ast.unparse(it.func), it.args
    if isinstance(it, ast.Constant):
        return repr(it.value), []
    children = list(ast.iter_child_nodes(it))
    signs = [type(child).__name__ for child in children if not isinstance(child, ast.expr)]
    return " ".join(signs), [child for child in children if isinstance(child, ast.expr)]
