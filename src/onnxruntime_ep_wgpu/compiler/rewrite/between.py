"""The nodes between two calls: elementwise maps, and other readers of their results."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...records import dataclass
from ..dims import Dim
from ..ir import Call, Map, Node, Tensor, View


@dataclass(frozen=True)
class Chain:
    """Maps, in an order that respects data flow, that compute `result` from elements of `source` at the same index."""

    source: Tensor
    result: Tensor
    maps: tuple[Map, ...]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.source, *(it.output for it in self.maps))

    def other_readers(self, call: Call) -> bool:
        """Returns whether anything besides the maps and `call` reads a tensor of the chain."""
        inside = {call, *self.maps}
        return any(tensor.is_stored or not inside.issuperset(tensor.users) for tensor in self.tensors)


def chains_back(result: Tensor, templates: tuple[str, ...]) -> Iterator[Chain]:
    """Yields the chains to `result` from a result of each call of one of the templates, nearest call first."""
    for source in _sources(result, templates):
        memo: dict[Tensor, bool] = {source: True}
        maps: list[Map] = []
        if _depends(result, memo, maps):
            yield Chain(source, result, tuple(maps))


def reads_elementwise(node: Map, view: View) -> bool:
    """Returns whether a map reads an operand at its own index."""
    return node.is_pointwise and view.is_whole and view.size == node.output.size


def _sources(result: Tensor, templates: tuple[str, ...]) -> list[Tensor]:
    pending, seen, found = [result], {result}, []
    while pending:
        tensor = pending.pop(0)
        node = tensor.producer
        if isinstance(node, Call):
            if node.template in templates:
                found.append(tensor)
        elif isinstance(node, Map):
            following = [v.tensor for v in node.reads if reads_elementwise(node, v) and v.tensor not in seen]
            seen.update(following)
            pending += following
    return found


def _depends(tensor: Tensor, memo: dict[Tensor, bool], maps: list[Map]) -> bool:
    """Returns whether a tensor depends elementwise on the source, which `memo` contains. Appends its maps in order."""
    pending = [(tensor, False)]
    while pending:
        tensor, complete = pending.pop()
        node = tensor.producer
        if tensor in memo and not complete:
            continue
        inner = [v.tensor for v in node.reads if reads_elementwise(node, v)] if isinstance(node, Map) else []
        if complete:
            memo[tensor] = any(memo[t] for t in inner)
            if memo[tensor]:
                assert isinstance(node, Map)
                maps.append(node)
        else:
            memo[tensor] = False
            pending.append((tensor, True))
            pending += [(t, False) for t in dict.fromkeys(inner) if t not in memo]
    return memo[tensor]


@dataclass(frozen=True)
class SoleReader:
    """The only call that reads a tensor, as its operand `name`. Casts in between are skipped.

    `nan_is_zero`: a map in between replaces NaN by zero.
    """

    call: Call
    name: str
    nan_is_zero: bool


def only_reader(tensor: Tensor, templates: tuple[str, ...]) -> SoleReader | str | None:
    """Returns the call of one of the templates that is the only reader of the tensor, also through casts; otherwise the reason.

    Returns None if no such call reads the tensor.
    """
    nan_is_zero = False
    while True:
        users = list(dict.fromkeys(tensor.users))
        guarded = _nan_guarded(tensor, users)
        if guarded is not None:
            tensor, nan_is_zero = guarded, True
            continue
        calls = [u for u in users if isinstance(u, Call) and u.template in templates]
        if tensor.is_stored or len(users) != 1:
            return "the weights have another reader" if calls else None
        (user,) = users
        if isinstance(user, Map) and user.expression in CASTS and reads_elementwise(user, user.operands["x"].view):
            tensor = user.output
            continue
        if isinstance(user, Map):
            read_by = any(isinstance(u, Call) and u.template in templates for u in user.output.users)
            return f"the weights pass through {user.expression or 'a map'} before they are used" if read_by else None
        if not calls or not isinstance(user, Call):
            return None
        names = [name for name, read in user.operands.items() if read.view.tensor is tensor]
        if len(names) != 1:
            return "the weights are multiplied by themselves"
        return SoleReader(user, names[0], nan_is_zero)


# Casts between floats. Without them a weight is rounded less.
CASTS = frozenset({"x", "f32(x)", "half(f32(x))", "bfloat(f32(x))"})


def _nan_guarded(tensor: Tensor, users: list[Node]) -> Tensor | None:
    """Returns the result of `where(isnan(x), 0, x)`, which exporters put after a softmax."""
    if len(users) != 2 or tensor.is_stored:
        return None
    test, choice = sorted(users, key=lambda u: not (isinstance(u, Map) and u.expression == "isnan(x)"))
    if not isinstance(test, Map) or test.expression != "isnan(x)" or test.output.users != [choice]:
        return None
    if not isinstance(choice, Map) or test.output.is_stored or not choice.is_pointwise:
        return None
    views = {name: read.view for name, read in choice.operands.items()}
    named = {view.tensor: name for name, view in views.items()}
    if len(views) != 3 or test.output not in named or tensor not in named:
        return None
    condition, x = named[test.output], named[tensor]
    (zero,) = set(views) - {condition, x}
    whole = all(reads_elementwise(choice, views[n]) for n in (condition, x)) and reads_elementwise(
        test, test.operands["x"].view
    )
    if choice.expression != f"where({condition}, {zero}, {x})" or not whole or literal(views[zero]) != 0:
        return None
    return choice.output


def literal(view: View) -> float | None:
    """Returns the number that a view shows at every index, if its tensor is a constant of one element."""
    if not view.tensor.is_literal:
        return None
    data = view.tensor.data
    return float(np.asarray(data if isinstance(data, np.ndarray) else data.numpy()).reshape(-1)[0])


def same_everywhere(view: View) -> bool:
    """Returns whether a view shows the same element at every index."""
    return all(factor.stride == 0 for factor in view.factors)


def swapped(view: View, batch: Dim, rows: Dim, columns: Dim) -> bool:
    """Returns whether a view shows the matrices (batch, rows, columns) of its tensor with the last two axes exchanged."""
    matrices = View.of(view.tensor).reshape((batch, rows, columns))
    return matrices is not None and view.offset == 0 and matrices.permute((0, 2, 1)).factors == view.factors
