"""What the kernel for one row of a product is made of, and in which order groups run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ....program.dtypes import DType
from ...dims import Dim, product
from ...ir import Call, Map, Node, Tensor, Variant
from ...tune.products import PRODUCTS
from ..fuse import FusedGroup


@dataclass(eq=False)
class Norm:
    """A root mean square of rows of `x`, whose result `y` all of its readers multiply. `maps` make y of what is normalised."""

    group: FusedGroup
    call: Call
    x: Tensor
    y: Tensor
    maps: list[Map]


@dataclass(eq=False)
class Between:
    """What passes from a product to those behind it in place of a norm: rows of x times the gain, in f32, the maps that make them,
    and sums of squares of every four elements of x."""

    scaled: Tensor
    maps: list[Map]
    squares: Tensor


@dataclass(eq=False)
class Row:
    """What the kernel for one row of a product is made of. `one` is 1 in runs with one row. `others`: the products that it makes
    too, and `stores` what it stores for them; `before` and `behind`: the norms of its operand and of a result that it stores."""

    group: FusedGroup
    call: Call
    variant: Variant
    others: list[FusedGroup] = field(default_factory=list)
    stores: list[Tensor] = field(default_factory=list)
    before: Norm | None = None
    behind: Norm | None = None

    @property
    def one(self) -> Dim:
        return self.variant.guard


def row_of(group: FusedGroup) -> Row | None:
    """What a kernel for one row may be made of, where the product has one that can make several."""
    call = group.anchor
    if call is None or call.template not in PRODUCTS or call.inner or call.onto or call.repeats != 1:
        return None
    first, write = call.variants[0], call.results["y"]
    alone = first.product_bytes is not None and dict(first.constants)["ROWS"] == 1
    batch = product(write.tensor.shape[: write.groups[0]])
    return Row(group, call, first) if alone and batch == 1 and write.tensor.dtype is DType.FLOAT32 else None


@dataclass(frozen=True)
class Order:
    """Groups in the order in which they run, and which of them stores a tensor and load it."""

    position: Mapping[FusedGroup, int]
    stored_by: Mapping[Tensor, FusedGroup]
    loaded_by: Mapping[Tensor, list[FusedGroup]]

    @staticmethod
    def of(groups: Iterable[FusedGroup]) -> Order:
        position = {group: at for at, group in enumerate(groups)}
        loaded_by: dict[Tensor, list[FusedGroup]] = {}
        for group in position:
            for tensor in group.loads:
                loaded_by.setdefault(tensor, []).append(group)
        return Order(position, {tensor: group for group in position for tensor in group.stores}, loaded_by)

    def is_ready(self, group: FusedGroup, before: FusedGroup | Tensor) -> bool:
        """Whether what a group needs is stored before another group runs, or before the one that stores a tensor, but for that."""
        at = self.position[self.stored_by[before] if isinstance(before, Tensor) else before]
        needed = (it for it in group.needs() if it in self.stored_by and it is not before)
        return all(self.position[self.stored_by[it]] < at for it in needed)


def in_step(node: Node, tensor: Tensor) -> bool:
    """Whether all that a map reads of a tensor is read at its own index."""
    views = [view for view in node.reads if view.tensor is tensor]
    return isinstance(node, Map) and node.is_pointwise and all(v.is_whole and v.size == node.output.size for v in views)
