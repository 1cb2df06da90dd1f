"""What the kernel for one row of a product is made of."""

from __future__ import annotations

from ....program.dtypes import DType
from ....records import dataclass
from ...dims import Dim, product
from ...ir import Call, Map, Node, Tensor, Variant
from ...tune.products import PRODUCTS
from ..fuse import FusedGroup


@dataclass(frozen=True, eq=False)
class Norm:
    """A root mean square of rows of `x`, whose result `y` all of its readers multiply. `maps` make y of what is normalised."""

    group: FusedGroup
    call: Call
    x: Tensor
    y: Tensor
    maps: list[Map]


@dataclass(frozen=True, eq=False)
class Between:
    """What passes from a product to those behind it in place of a norm: rows of x times the gain, in f32, the maps that make them,
    and sums of squares of every four elements of x."""

    norm: Norm
    scaled: Tensor
    maps: list[Map]
    squares: Tensor


@dataclass(frozen=True)
class OneRowProduct:
    """What the kernel for one row of a product is made of. `one` is 1 in runs with one row. `others`: the products that it makes
    too, and `stores` what it stores for them; `before` and `behind`: what passes in place of the norms of its operand and of a
    result that it stores."""

    group: FusedGroup
    call: Call
    variant: Variant
    others: tuple[FusedGroup, ...] = ()
    stores: tuple[Tensor, ...] = ()
    before: Between | None = None
    behind: Between | None = None

    @property
    def one(self) -> Dim:
        return self.variant.guard

    @property
    def is_alone(self) -> bool:
        """Whether its kernel would be the product's own."""
        return not (self.others or self.before or self.behind)


def row_product_of(group: FusedGroup) -> OneRowProduct | None:
    """What a kernel for one row may be made of, where the product has one that can make several."""
    call = group.anchor
    if call is None or call.template not in PRODUCTS or call.inner or call.onto or call.repeats != 1:
        return None
    first, write = next((it for it in call.variants if it.product_bytes is not None), None), call.results["y"]
    if first is None or dict(first.constants)["ROWS"] != 1 or write.tensor.dtype is not DType.FLOAT32:
        return None
    return OneRowProduct(group, call, first) if product(write.tensor.shape[: write.groups[0]]) == 1 else None


def in_step(node: Node, tensor: Tensor) -> bool:
    """Whether all that a map reads of a tensor is read at its own index."""
    views = [view for view in node.reads if view.tensor is tensor]
    return isinstance(node, Map) and node.is_pointwise and all(v.is_whole and v.size == node.output.size for v in views)
