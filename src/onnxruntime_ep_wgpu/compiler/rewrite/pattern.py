"""Patterns that match maps and row reductions, written as Python expressions.

    SOFTMAX = Pattern(
        {"result": "powers / total", "total": "row_sum(powers)", "powers": "exp(x - row_max(x))"}, anchor="total", ...

A name with an expression is a part; `|` separates its alternatives. Any other name is a variable. Each part or variable is the
same tensor at every occurrence. The variables in `numbers` are constants of one element. Factors and summands may be exchanged.

One map or several may calculate an expression. Conversions to f32 between them are skipped, since all arithmetic is in f32.

Invariant: a map reads an operand at its own index, or reads one number per row in all columns of the row.
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
from .between import literal, reads_elementwise

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
        """Returns the reduction of a call that reduces whole rows and does nothing else."""
        if not isinstance(node, Call) or node.template != "reduce":
            return None
        functions, read = node.functions, node.operands["x"]
        prepare, combine, finish = (functions[name].expression for name in ("prepare", "combine", "finish"))
        if not read.view.is_whole or read.view.dtype.compute != "f32":
            return None
        if node.parameters["count"] != node.parameters["columns"]:
            return None  # a reduction of parts of rows
        kind = {("x", "x + y"): _SUMS.get(finish), ("rank(x)", "max(x, y)"): "row_max"}.get((prepare, combine))
        return RowReduction(kind, read.view.tensor, read.groups[0], node) if kind else None

    @property
    def rows(self) -> Dim:
        return product(self.call.operands["x"].view.shape[: self.kept])

    @property
    def columns(self) -> Dim:
        return product(self.call.operands["x"].view.shape[self.kept :])

    def shows(self, view: View) -> bool:
        """Returns whether a view shows one number per row in all columns of the row."""
        column = View.of(view.tensor).reshape((self.rows, 1))
        return column is not None and column.expand((self.rows, self.columns)).factors == view.factors


@dataclass(frozen=True)
class Found:
    """A match: the tensors of parts and variables, the numbers, and the nodes, each after its operands."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()

    def with_nodes(self, *nodes: Node) -> Found:
        return replace(self, nodes=tuple(dict.fromkeys((*self.nodes, *nodes))))


@dataclass(frozen=True)
class Pattern:
    """`anchor` is the part that a reduction computes, `result` the last part. Each tensor between them has one reader.

    If a part of `certain` matches but the result does not, `reasons` explains the failure. Its keys are the part that did not
    match, or `another reader` for a part with a second reader.
    """

    parts: Mapping[str, str]
    anchor: str
    certain: tuple[str, ...]
    reasons: Mapping[str, str]
    numbers: tuple[str, ...] = ()

    def around(self, call: Call) -> Found | str | None:
        """Returns the match around a reduction, the reason for a failed match, or None if the reduction is no candidate."""
        rows = RowReduction.of(call)
        if rows is None:
            return None
        search, tensor, part = _Search(self, rows), call.results["y"].tensor, self.anchor
        inside = search.part(part, tensor, Found())
        if inside is None:
            return None
        while True:
            is_certain = part in self.certain
            if tensor.is_stored or len(set(tensor.users)) != 1:
                return self.reasons["another reader"] if is_certain else None
            tensor, search.failed = tensor.users[0].outputs[0], ""
            if (found := search.part("result", tensor, inside)) is not None:
                return found
            reason = self.reasons.get(search.failed, self.reasons["result"])
            within = next((it for it in self.parts if search.part(it, tensor, inside) is not None), None)
            if within is None:
                return reason if is_certain else None
            part = within


class _Search:
    """One search. `failed`: the first part that did not match an alternative."""

    def __init__(self, pattern: Pattern, rows: RowReduction) -> None:
        self.pattern, self.rows, self.failed = pattern, rows, ""

    def part(self, name: str, tensor: Tensor, found: Found) -> Found | None:
        return next(self._named(name, tensor, found), None)

    def _alternatives(self, name: str) -> list[ast.expr]:
        text = self.pattern.parts.get(name)
        return [parse(it.strip()) for it in text.split("|")] if text else []

    def _named(self, name: str, tensor: Tensor, found: Found) -> Iterator[Found]:
        narrow, casts = self._without_casts(tensor)
        if found.tensors.get(name, narrow) is not narrow:
            self._fail(name)
            return
        known = name in found.tensors or name not in self.pattern.parts
        candidates = [[found]] if known else [self._tensor(it, narrow, found) for it in self._alternatives(name)]
        for extended in chain.from_iterable(candidates):
            yield replace(extended, tensors={**extended.tensors, name: narrow}).with_nodes(*casts)

    def _fail(self, name: str) -> None:
        self.failed = self.failed or name

    def _without_casts(self, tensor: Tensor) -> tuple[Tensor, list[Map]]:
        """Returns a tensor before conversions to f32, which its reader applies on load, and the conversions of per-row numbers."""
        casts: list[Map] = []
        while isinstance(node := tensor.producer, Map) and node.expression in _CASTS:
            view = node.operands["x"].view
            if not reads_elementwise(node, view) or view.dtype.compute != "f32":
                break
            casts[:0] = [node] if tensor.size == self.rows.rows else []
            tensor = view.tensor
        return tensor, casts

    def _tensor(self, it: ast.expr, tensor: Tensor, found: Found) -> Iterator[Found]:
        node = self._without_casts(tensor)[0].producer
        if isinstance(it, ast.Name):
            yield from self._named(it.id, tensor, found)
        elif isinstance(it, ast.Call) and ast.unparse(it.func).startswith("row_"):
            of = RowReduction.of(node)
            if of is not None and (of.kind, of.kept) == (ast.unparse(it.func), self.rows.kept):
                yield from (extended.with_nodes(of.call) for extended in self._tensor(it.args[0], of.source, found))
        elif isinstance(node, Map) and node.is_pointwise and node.expression:
            yield from (
                extended.with_nodes(node) for extended in self._expression(it, node, parse(node.expression), found)
            )

    def _expression(self, it: ast.expr, node: Map, of: ast.expr, found: Found) -> Iterator[Found]:
        """Yields matches of `it` with a part `of` the expression of a map."""
        (kind, pattern_operands), (node_kind, node_operands) = _kind_and_operands(it), _kind_and_operands(of)
        if node_kind == "f32":
            yield from self._expression(it, node, node_operands[0], found)
        elif isinstance(of, ast.Name) and of.id in node.operands:
            yield from self._operand(it, node.operands[of.id].view, node, found)
        elif isinstance(it, ast.Name):
            for alternative in self._alternatives(it.id):
                yield from self._expression(alternative, node, of, found)
        elif kind == node_kind:
            orders = (pattern_operands, pattern_operands[::-1]) if kind in ("Add", "Mult") else (pattern_operands,)
            for order in orders:
                yield from self._all(order, node, node_operands, found)

    def _all(self, patterns: Sequence[ast.expr], node: Map, of: Sequence[ast.expr], found: Found) -> Iterator[Found]:
        if not patterns:
            yield found
            return
        for extended in self._expression(patterns[-1], node, of[-1], found):
            yield from self._all(patterns[:-1], node, of[:-1], extended)

    def _operand(self, it: ast.expr, view: View, node: Map, found: Found) -> Iterator[Found]:
        number, name = literal(view), it.id if isinstance(it, ast.Name) else ""
        if name in self.pattern.numbers:
            if number is not None:
                yield replace(found, numbers={**found.numbers, name: number})
        elif isinstance(it, (ast.Constant, ast.UnaryOp)):
            if number == ast.literal_eval(it):
                yield found
        elif reads_elementwise(node, view) or self.rows.shows(view):
            yield from self._tensor(it, view.tensor, found)
        else:
            self._fail(name)


def _kind_and_operands(it: ast.expr) -> tuple[str, list[ast.expr]]:
    """Returns the kind of an expression (its function, operators or number) and its operands."""
    if isinstance(it, ast.Call):
        return ast.unparse(it.func), it.args
    if isinstance(it, ast.Constant):
        return repr(it.value), []
    children = list(ast.iter_child_nodes(it))
    signs = [type(child).__name__ for child in children if not isinstance(child, ast.expr)]
    return " ".join(signs), [child for child in children if isinstance(child, ast.expr)]
