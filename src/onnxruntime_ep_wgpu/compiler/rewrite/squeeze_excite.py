"""Squeeze-and-excitation: the average of an image's channels and two small products after it, in one kernel.

In: a product with few weights. Maps compute its rows from those of another product. The rows of that product come from an image,
through a reduction over its positions. Out: a `squeeze_excite`, which writes the result of the second product, so that maps
after it can be fused. The maps between become its `inner` maps.

The choice `squeeze_excite` decides whether to fuse, and whether to include the average. Including it requires that neighbours in
memory are channels and that the average has no other reader. Products with other rows than images may have many rows, and stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...program.target import Target
from ...records import dataclass
from ..dims import Dim, product
from ..ir import MAX_COST, Call, Constant, Function, Inner, Map, Node, Read, Storage, View, Write, coalesce
from ..tune import squeeze_excite as chosen
from ..tune.products import PRODUCTS
from ..tune.squeeze import ExcitationShape
from .between import Chain, chains_back, reads_elementwise
from .operands import exchanged, factor
from .rule import MatchResult, Replace, Rule, origin_of


@dataclass(frozen=True)
class _Product:
    """A product of rows and weights.

    `x` is read by (row, none, element), `weights` by (column, element), and `y` is written by (row, column).
    """

    call: Call
    x: Read
    weights: Read
    y: Write

    @property
    def rows(self) -> Dim:
        return product(self.x.extents[0])

    @property
    def depth(self) -> Dim:
        return product(self.x.extents[2])

    @property
    def columns(self) -> Dim:
        return product(self.weights.extents[0])


def squeeze_excite(call: Call, target: Target) -> MatchResult:
    """Returns the block that ends with this product, or None."""
    for second in _with_weights(call):
        for between in chains_back(second.x.view.tensor, PRODUCTS):
            assert isinstance(between.source.producer, Call)
            for first in _with_weights(between.source.producer):
                for before in chains_back(first.x.view.tensor, ("reduce",)):
                    block = _Block(first, second, between, before)
                    if block.matches:
                        return block.reason() or block.replacement(target)
    return None


def _with_weights(call: Call) -> Iterator[_Product]:
    """Yields the ways to see a product as rows by weights. Either operand may be the weights.

    The weights of a convolution of images without positions are its left operand, repeated for each image.
    """
    result, left, right = call.results["y"], factor(call, "a"), factor(call, "b")
    batch, m, n = result.groups
    weights = _without_batch(right, batch)
    if weights is not None:
        x = Read(left.view, (batch + m, 0, left.groups[2]), vector=True)
        exchange = exchanged(weights)
        yield _Product(
            call, x, replace(exchange, groups=exchange.groups[1:]), Write(result.tensor, (batch + m, n), vector=True)
        )
    weights = _without_batch(left, batch)
    if weights is not None and all(extent == 1 for extent in right.extents[2]):
        x = Read(right.view, (batch, 0, right.view.rank - batch), vector=True)
        y = Write(result.tensor, (batch, m + n), vector=True)
        yield _Product(call, x, replace(weights, groups=weights.groups[1:], reuse=True, vector=True), y)


def _without_batch(read: Read, batch: int) -> Read | None:
    """Returns an operand (batch, ...) without its batch, if it is the same for the whole batch."""
    view = read.view
    if any(factor.stride != 0 for axis in view.axes[:batch] for factor in axis):
        return None
    one = View(view.tensor, view.shape[batch:], view.axes[batch:], view.offset)
    return replace(read, view=one, groups=(0, *read.groups[1:]))


@dataclass(frozen=True)
class _Block:
    """The products `first` and `second`, the maps `between` them, and the maps `before` the first one, after a reduction."""

    first: _Product
    second: _Product
    between: Chain
    before: Chain

    @property
    def matches(self) -> bool:
        """Whether the row counts match and the number of elements per row is known."""
        first, second = self.first, self.second
        return (
            all(isinstance(it, int) and it > 0 for it in (first.depth, second.depth, second.columns))
            and first.x.view.is_whole
            and second.x.view.is_whole
            and (first.rows, first.columns) == (second.rows, second.depth)
        )

    def reason(self) -> str | None:
        """Returns why these parts form no kernel, independent of any choice."""
        if self.between.other_readers(self.second.call):
            return "the result of the first product has another reader"
        weights = (self.first.weights.view.tensor, self.second.weights.view.tensor)
        if any(it.storage is not Storage.WEIGHT for it in weights):
            return "the weights are not constant"
        if any(it.results["y"].tensor.dtype.compute != "f32" for it in (self.first.call, self.second.call)):
            return "the products are not of floats"
        return _inner_obstacle(self.hidden)

    def replacement(self, target: Target) -> MatchResult:
        depth, hidden, columns = self.first.depth, self.second.depth, self.second.columns
        assert isinstance(depth, int) and isinstance(hidden, int) and isinstance(columns, int)
        shape, image = ExcitationShape(self.first.rows, depth, hidden, columns), self._image()
        positions = product(image.extents[1]) if image else None
        form = chosen(shape, positions * depth if positions is not None else None, target)
        if form is None:
            return f"{shape.weights} weights of {shape.rows} rows are read faster by products (the choice 'squeeze_excite')"
        nodes: list[Node] = [self.first.call, *self.between.maps, self.second.call]
        constants: dict[str, Constant] = {
            "K0": depth,
            "K1": hidden,
            "N0": hidden,
            "COLUMNS": columns,
            "ALONG0": self.first.weights.loads_vectors,
            "ALONG1": self.second.weights.loads_vectors,
            "AVERAGED": form.fused == 3,
        }
        x, parameters, functions, inner = self.first.x, dict[str, Dim](), dict[str, Function](), {"hidden": self.hidden}
        if form.fused == 3:
            assert image is not None and positions is not None
            reduction = self.reduction
            nodes = [reduction, *self.before.maps, *nodes]
            x, inner["averaged"] = image, self._averaged(image)
            parameters = {"positions": positions, "count": reduction.parameters["count"]}
            functions = {"finish": reduction.functions["finish"]}
        made = Call(
            "squeeze_excite",
            {
                "x": replace(x, reuse=form.splits > 1),
                "w0": self.first.weights,
                "w1": self.second.weights,
                **{name: read for of, it in inner.items() for name, read in _inner_operands(of, it)},
            },
            {"y": self.second.y},
            (form.variant(shape),),
            constants,
            parameters,
            functions,
            origin=origin_of(nodes),
            flops=sum((it.flops for it in nodes if isinstance(it, Call)), start=0),
            inner=inner,
        )
        return Replace(tuple(nodes), (made,))

    @property
    def reduction(self) -> Call:
        assert isinstance(self.before.source.producer, Call)
        return self.before.source.producer

    @property
    def hidden(self) -> Inner:
        return Inner(self.between.source, self.between.result, self.between.maps, self.first.y.groups)

    def _averaged(self, image: Read) -> Inner:
        return Inner(self.before.source, self.before.result, self.before.maps, (image.groups[0], image.groups[2]))

    def _image(self) -> Read | None:
        """Returns the summed tensor by (row, position, element), or None if the kernel cannot sum it."""
        functions, read = self.reduction.functions, _before_conversion(self.reduction.operands["x"])
        sums = [functions[name].expression for name in ("identity", "prepare", "combine")] == ["-0.0", "x", "x + y"]
        if not sums or functions["combine"].result != "f32" or self.before.other_readers(self.first.call):
            return None
        kept, reduced = read.groups
        rows = next((k for k in range(kept + 1) if product(read.view.shape[:k]) == self.first.rows), None)
        if rows is None or product(read.view.shape[rows:kept]) != self.first.depth:
            return None
        order = (*range(rows), *range(kept, kept + reduced), *range(rows, kept))
        image = Read(read.view.permute(order), (rows, reduced, kept - rows), vector=True)
        channels = coalesce([it for axis in image.view.axes[rows + reduced :] for it in axis])
        if not channels or channels[-1].stride != 1 or _inner_obstacle(self._averaged(image)) is not None:
            return None
        return image


def _before_conversion(read: Read) -> Read:
    """Returns an operand of narrow floats as it is in memory. A load converts it, and can load four elements."""
    view, node = read.view, read.view.tensor.producer
    if isinstance(node, Map) and node.expression in ("x", "f32(x)"):
        source = node.operands["x"].view
        if reads_elementwise(node, source) and source.dtype.compute == "f32":
            return replace(read, view=replace(view, tensor=source.tensor))
    return read


def _inner_obstacle(inner: Inner) -> str | None:
    """Returns why these maps cannot become inner maps of the kernel, or None."""
    inside = {inner.source, *(it.output for it in inner.maps)}
    if any(view.tensor in inside and not reads_elementwise(it, view) for it in inner.maps for view in it.reads):
        return "the result of the first product is read at other indices"
    if not inner.is_countable:
        return f"{inner.source.size} elements between the products exceed the range of indices"
    if sum(it.cost for it in inner.maps) > MAX_COST:
        return f"the operations between the products exceed the limit of a kernel ({MAX_COST})"
    return None


def _inner_operands(name: str, inner: Inner) -> Iterator[tuple[str, Read]]:
    """Yields the other operands of the inner maps. Elements of a smaller tensor are read repeatedly."""
    for at, view in enumerate(dict.fromkeys(inner.operands)):
        yield f"{name}{at}", Read(view, (view.rank,), reuse=view.size != view.tensor.size)


SQUEEZE_EXCITE = Rule("squeeze_excite", "matmul", squeeze_excite)
