"""The parts of a kernel for one row of a product."""

from __future__ import annotations

from ....program.dtypes import DType
from ....records import dataclass
from ...dims import Dim, product
from ...ir import Call, Map, Node, Tensor, Variant
from ...tune.products import PRODUCTS
from ..fuse import FusedGroup


@dataclass(frozen=True, eq=False)
class Norm:
    """A root mean square of rows of `x`. All readers of its result `y` are products. `maps` compute y from the normalised rows."""

    group: FusedGroup
    call: Call
    x: Tensor
    y: Tensor
    maps: list[Map]


@dataclass(frozen=True, eq=False)
class Between:
    """The values that replace a norm between a product and the products after it.

    `scaled`: rows of x times the gain, in f32, computed by `maps`. `squares`: sums of squares of every four elements of x.
    """

    norm: Norm
    scaled: Tensor
    maps: list[Map]
    squares: Tensor


@dataclass(frozen=True)
class OneRowProduct:
    """The parts of a kernel for one row of a product.

    - `one` is 1 in runs with one row.
    - `others`: the products merged into this kernel; `stores`: their results that it stores.
    - `before`: replaces the norm of its operand.
    - `after`: replaces the norm of its result.
    """

    group: FusedGroup
    call: Call
    variant: Variant
    others: tuple[FusedGroup, ...] = ()
    stores: tuple[Tensor, ...] = ()
    before: Between | None = None
    after: Between | None = None

    @property
    def one(self) -> Dim:
        return self.variant.guard

    @property
    def is_alone(self) -> bool:
        """Whether the kernel would contain only the product itself."""
        return not (self.others or self.before or self.after)


def row_product_of(group: FusedGroup) -> OneRowProduct | None:
    """Returns the parts of a kernel for one row, if the product has a variant that can compute several products."""
    call = group.anchor
    if call is None or call.template not in PRODUCTS or call.inner or call.onto or call.repeats != 1:
        return None
    first, write = next((it for it in call.variants if it.product_bytes is not None), None), call.results["y"]
    if first is None or dict(first.constants)["ROWS"] != 1 or write.tensor.dtype is not DType.FLOAT32:
        return None
    return OneRowProduct(group, call, first) if product(write.tensor.shape[: write.groups[0]]) == 1 else None


def reads_elementwise(node: Node, tensor: Tensor) -> bool:
    """Returns whether a map reads a tensor only at its own index."""
    views = [view for view in node.reads if view.tensor is tensor]
    return isinstance(node, Map) and node.is_pointwise and all(v.is_whole and v.size == node.output.size for v in views)
