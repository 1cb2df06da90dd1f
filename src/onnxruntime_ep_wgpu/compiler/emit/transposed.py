"""Maps that read a tensor across its rows, like transposes: through a tile in workgroup memory.

In: the tensors that a kernel of maps stores, and the views it reads through. Out: the read that should use a tile, and the digits
of an element's number in it. Neighbouring invocations then load neighbours and store neighbours. So an H200 transposes 8192 x
8192 f32 at 3.27 TB/s; if only the stores are contiguous, at 0.68.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...records import dataclass
from ..dims import Dim, ceildiv, product
from ..ir import Factor, Map, Tensor, View

TILE = 32  # rows and columns; a row has one element more in memory, so that a column is spread over all banks
ROWS = 8  # that a workgroup moves at a time
WORKGROUP = TILE * ROWS


@dataclass(frozen=True)
class TransposedRead:
    """A view with a last axis that is not contiguous in memory. Factor `along` is the contiguous one."""

    view: View
    factors: tuple[Factor, ...]
    along: int

    @property
    def long(self) -> Dim:
        """The extent of the axis that is contiguous in memory."""
        return self.factors[self.along].extent

    @property
    def last(self) -> Factor:
        """The axis that is contiguous in the stored tensor."""
        return self.factors[-1]

    @property
    def outer(self) -> list[int]:
        """The factors with one value per tile."""
        return [k for k in range(len(self.factors) - 1) if k != self.along]

    def below(self, k: int) -> Dim:
        """Returns the distance in stored elements between two values of a factor."""
        return product(f.extent for f in self.factors[k + 1 :])

    @property
    def workgroups(self) -> Dim:
        tiles = ceildiv(self.long, TILE) * ceildiv(self.last.extent, TILE)
        return tiles * product(self.factors[k].extent for k in self.outer)


def transposed_read(
    stores: Sequence[Tensor], maps: Mapping[Tensor, Map], loads: Collection[Tensor]
) -> TransposedRead | None:
    """Returns the first read across rows at the index of a store. Only kernels of pointwise maps qualify."""
    if not all(node.is_pointwise for node in maps.values()):
        return None
    pending, seen = list(stores), set(stores)
    while pending:
        node = maps.get(pending.pop(0))
        for view in node.reads if node else ():
            if view.tensor in maps and view.is_whole and view.tensor not in seen:
                seen.add(view.tensor)
                pending.append(view.tensor)
            factors = tuple(view.factors)
            along = [k for k, f in enumerate(factors[:-1]) if f.stride == 1]
            if view.tensor in loads and along and factors[-1].stride not in (0, 1):
                return TransposedRead(view, factors, along[0])
    return None
