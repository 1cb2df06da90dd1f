"""Root mean squares between products of one row, which become part of these products."""

from __future__ import annotations

import ast
from dataclasses import replace

from ....program.dtypes import DType
from ...dims import Dim, equal, quotient
from ...ir import Map, Read, Tensor, View
from ..fuse import FusedGroup
from .product import Between, Norm, OneRowProduct, reads_elementwise


def is_norm(group: FusedGroup) -> bool:
    """Returns whether the kernel of a group is a root mean square of rows."""
    call = group.anchor
    return call is not None and call.template == "layer_norm" and not call.constants["CENTRED"]


def norm_of(group: FusedGroup) -> Norm | str:
    """Returns the norm of a group that has only a root mean square of rows and maps that scale it; otherwise the reason."""
    call = group.anchor
    assert call is not None
    if set(call.results) != {"y"} or len(group.stores) != 1:
        return "the kernel stores more than the norm"
    y = group.stores[0]
    if y.is_stored or y.place:
        return "the norm must be stored in memory"
    maps = [it for it in group.nodes if isinstance(it, Map)]
    inside = {call.results["y"].tensor, *(it.output for it in maps)}
    if not all(_is_linear(it, inside) for it in maps):
        return "other operations than multiplications follow the norm"
    x, bias = call.operands["x"], call.operands["bias"].view.tensor
    if not bias.is_literal or _number(bias) != 0.0:
        return "a bias is added to the norm"
    if not x.view.is_whole or x.groups[1] != 1:
        return "rows are not contiguous in memory"
    return Norm(group, call, x.view.tensor, y, maps)


def _number(literal: Tensor) -> float:
    data = literal.data.numpy() if hasattr(literal.data, "numpy") else literal.data
    return float(data.reshape(-1)[0])


def _is_linear(node: Map, inside: set[Tensor]) -> bool:
    """Returns whether a map is linear in the norm, up to rounding: a conversion, or a product with another operand."""
    if not node.is_pointwise or node.output.dtype.compute != "f32":
        return False
    own = [name for name, read in node.operands.items() if read.view.tensor in inside]
    if len(own) != 1 or not reads_elementwise(node, node.operands[own[0]].view.tensor):
        return False
    text = ast.parse(node.expression, mode="eval").body
    if isinstance(text, ast.Name):
        return text.id == own[0]
    if not isinstance(text, ast.BinOp) or not isinstance(text.op, ast.Mult):
        return False
    factors = {it.id for it in (text.left, text.right) if isinstance(it, ast.Name)}
    return factors == set(node.operands) and len(factors) == 2


def norm_obstacle(norm: Norm, first: OneRowProduct, readers: list[OneRowProduct]) -> str | None:
    """Returns why a norm cannot become part of the product before it, `first`, and of the products that read it, or None."""
    write, columns = first.call.results["y"], norm.call.parameters["columns"]
    if not write.in_fours or quotient(columns, 16) is None:
        return f"rows of {columns} elements are not known to be multiples of 16"
    whole = equal(norm.x.size, write.tensor.size) == 1 and equal(first.call.parameters["n"], columns) == 1
    if norm.x.place is not None or not whole:
        return "the norm has other rows than the product before it"
    if not all(it.one == first.one and it.before is None and _multiplies_rows(it, norm.y, columns) for it in readers):
        return "a product does not read the norm exactly once as whole rows"
    return None


def _multiplies_rows(row: OneRowProduct, y: Tensor, columns: Dim) -> bool:
    """Returns whether a product reads y once, as whole rows, and nothing else in its kernel reads y."""
    read = row.call.operands["a"]
    whole = read.view.tensor is y and read.view.is_whole and equal(row.call.parameters["k"], columns) == 1
    return whole and len(row.group.loads[y]) == 1


def between_of(norm: Norm) -> Between:
    """Returns the maps of the norm, applied to x times the gain instead of the norm. They use f32, since such numbers may be
    large."""
    x, call = norm.x, norm.call
    rank = len(x.shape)
    operands = {"x": View.of(x), "gain": call.operands["gain"].view.expand(x.shape)}
    maps = [
        Map(
            Tensor(DType.FLOAT32, x.shape),
            {name: Read(view, (rank,)) for name, view in operands.items()},
            "x * gain",
            origin=call.origin,
        )
    ]
    replaced = {call.results["y"].tensor: maps[0].output}
    for node in norm.maps:
        own = next(read.view.tensor for read in node.operands.values() if read.view.tensor in replaced)
        if len(node.operands) == 1:  # a conversion
            replaced[node.output] = replaced[own]
            continue
        read = {
            name: replace(it, view=replace(it.view, tensor=replaced.get(it.view.tensor, it.view.tensor)))
            for name, it in node.operands.items()
        }
        maps.append(replace(node, output=Tensor(DType.FLOAT32, node.output.shape), operands=read))
        replaced[node.output] = maps[-1].output
    for it in maps:
        it.output.producer = it
    quarter = quotient(call.parameters["columns"], 4)
    assert quarter is not None
    return Between(norm, replaced[norm.y], maps, Tensor(DType.FLOAT32, (call.parameters["rows"], quarter)))
