"""The operands of matrix products as matrices, independent of the template that reads them."""

from __future__ import annotations

from ..dims import Dim, product
from ..ir import Call, Read, View


def factor(call: Call, side: str) -> Read:
    """Returns the operand "a" of a product as (batch, m, k), or "b" as (batch, k, n)."""
    read = call.operands[side]
    return exchanged(read) if side == "b" and call.constants["TRANSPOSED"] else read


def exchanged(read: Read) -> Read:
    """Returns the same matrices with rows and columns exchanged."""
    first, second, third = read.groups
    axes = range(read.view.rank)
    order = [*axes[:first], *axes[first + second :], *axes[first : first + second]]
    return Read(read.view.permute(order), (first, third, second), reuse=True, vector=True)


def matrix_sizes(view: View, groups: tuple[int, ...]) -> tuple[Dim, Dim, Dim]:
    """Returns batch, rows and columns."""
    first, second = groups[0], groups[0] + groups[1]
    return product(view.shape[:first]), product(view.shape[first:second]), product(view.shape[second:])
