"""The builder: an operator's lowering function calls it to append nodes to the lowered graph. Arguments and results are
operands."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import UnsupportedError
from ...program.dtypes import DType
from ...program.settings import DEFAULT, CompileSettings
from ...program.target import Target, elements_per_word
from ..dims import Dim, equal, limits, maximum, symbol
from ..ir import (
    Bits,
    Body,
    Call,
    Constant,
    DataAssertion,
    Function,
    Join,
    Map,
    Node,
    Pad,
    Read,
    Shape,
    Storage,
    Tensor,
    Variant,
    View,
    Write,
    broadcast_shapes,
)
from ..ir.binding_ranges import is_large, of_weights, only_decodes_weights
from ..ir.expression import check_expression
from ..nodes.divide import BindingsError, divided, is_bindable, joined, placed_copies
from ..nodes.joins import picked
from ..nodes.pads import padding
from .limits import Limits
from .memory_format import MemoryFormats
from .operand import Dequantized
from .operand import Operand as Operand
from .requirements import Requirements
from .weights import Weights

MOST_NODES = 2048  # the limit for one ONNX node


class Builder(Requirements):
    """Appends lowered nodes for one graph, and collects what they require."""

    def __init__(self, target: Target, settings: CompileSettings = DEFAULT, limits: Limits | None = None) -> None:
        super().__init__(target, settings, limits or Limits())
        self.nodes: list[Node] = []
        self._first_node = 0  # the index of the first node of the current ONNX node
        self.weights = Weights(self)
        self.formats = MemoryFormats()
        self.dequantized: dict[View, Dequantized] = {}

    # ---- appended nodes

    def begin(self, origin: tuple[str, ...]) -> None:
        """Nodes appended from here on belong to the ONNX node of this name."""
        self.origin, self._first_node = origin, len(self.nodes)

    def _add_nodes(self, *nodes: Node) -> None:
        """Appends nodes. Raises UnsupportedError above `MOST_NODES`, which no division of sizes that fit reaches. A model of
        some hundred bytes can declare sizes that take millions of kernels."""
        self.nodes += nodes
        if len(self.nodes) - self._first_node > MOST_NODES:
            raise UnsupportedError(f"its sizes take more than {MOST_NODES} kernels")

    def mark(self) -> tuple[int, int, int]:
        """Returns the current state, for `undo`."""
        return len(self.nodes), len(self.checks), len(self.assertions)

    def undo(self, mark: tuple[int, int, int]) -> None:
        """Removes the nodes, checks and assertions that were appended after `mark`."""
        del self.nodes[mark[0] :], self.assertions[mark[2] :]
        while len(self.checks) > mark[1]:
            self.checks.popitem()

    # ---- values

    def constant(self, value: Any, name: str = "") -> Operand:
        """Returns a weight for a numpy array, or for an onnx_ir tensor, which is read when the program is loaded on a device."""
        return self.weights.constant(value, name)

    def host(self, dtype: DType, values: Any) -> Operand:
        """Returns a known host value. `values` are dims: a numpy object array or a nested sequence."""
        array = np.empty(np.shape(values), object)
        array[...] = values
        return Operand(dtype, array.shape, host=lambda: array, known=True)

    def expect(self, values: Operand, low: Dim, high: Dim, what: str) -> None:
        """Asserts that every element is from `low` to `high`. Otherwise the data is outside `what`, an error in runs that
        check everything."""
        if not self.settings.with_assertions:
            return
        tensor = values.view.tensor
        if not values.view.is_whole or tensor.storage not in (Storage.INPUT, Storage.TEMP):
            tensor = self.pointwise("x", {"x": values}, values.dtype).view.tensor
        tensor.kept = tensor.storage is Storage.TEMP
        self.assertions.append(DataAssertion(tensor, low, high, what, self.origin))

    def name(self, x: Operand, name: str) -> None:
        """Names the tensor that contains exactly this value, in any memory order. The first name stays."""
        x.name(name)
        if x.is_on_device:
            self.formats.name(x, name)

    # ---- views

    def view(self, x: Operand, view: View | None) -> Operand:
        """Returns `view` of x as an operand. The caller passes None only if it forgot a copy that its operation needs."""
        assert view is not None
        return Operand(x.dtype, view.shape, view)

    def copy(self, x: Operand) -> Operand:
        """Returns x in row-major order."""
        return x if x.view.is_whole else self.stored(x)

    def contiguous(self, x: Operand) -> Operand:
        """Returns x in row-major order. A weight with permuted axes is uploaded in that order, so the device copies nothing."""
        return x if x.view.is_whole else self.weights.contiguous(x) or self.stored(x)

    def stored(self, x: Operand) -> Operand:
        """Returns x in row-major order, stored in a new tensor."""
        reads = {"x": Read(x.view, (x.rank,))}
        return self._append(Map(self._tensor(x.dtype, x.shape), reads, expression="x"))

    def reshape(self, x: Operand, shape: Sequence[Dim]) -> Operand:
        view = x.view.reshape(tuple(shape)) or self.copy(x).view.reshape(tuple(shape))
        return self.view(x, view)

    def assumed(self, x: Operand, shape: Shape) -> Operand:
        """Returns x in a shape with the extents that `assume` returned as numbers."""
        return x if shape == x.shape else self.view(x, self.copy(x).view.taken_as(shape))

    def permute(self, x: Operand, permutation: Sequence[int]) -> Operand:
        return self.view(x, x.view.permute(permutation))

    def slice(self, x: Operand, axis: int, start: Dim, step: int, length: Dim) -> Operand:
        view = x.view.slice(axis, start, step, length) or self.copy(x).view.slice(axis, start, step, length)
        return self.view(x, view)

    def expand(self, x: Operand, shape: Sequence[Dim]) -> Operand:
        shape = tuple(shape)
        missing = len(shape) - x.rank
        if missing < 0:
            raise UnsupportedError(f"cannot broadcast {list(x.shape)} to {list(shape)}")
        for have, want in zip(x.shape, shape[missing:], strict=True):
            if have not in (1, want):
                broadcasts = maximum(equal(have, 1), equal(have, want))
                self.require(broadcasts, "cannot broadcast {} to {}", x.shape, shape)
        view = x.view
        if any(
            have != want and have != 1 and len(axis) > 1
            for have, want, axis in zip(x.shape, shape[missing:], view.axes, strict=True)
        ):
            view = self.copy(x).view
        return self.view(x, view.expand(shape))

    # ---- data-dependent sizes

    def sized(self, data: Operand, shape: Sequence[Dim | Operand]) -> Operand:
        """Returns a result of this shape, in which extents may be elements on the device. Its elements are the first ones of
        `data` in row-major order. The operator declares with `sized` which size depends on data."""
        parts = [
            self.cast(it, DType.INT64) if isinstance(it, Operand) else self.host(DType.INT64, [it]) for it in shape
        ]
        columns = [self.reshape(it, (1,)) for it in parts]
        extents = columns[0] if len(parts) == 1 else self.join(columns, 0, (len(parts),))
        name = f"{self.origin[0]}.{len(self.nodes)}"
        dims = tuple(symbol(f"{name}.{k}") if isinstance(it, Operand) else it for k, it in enumerate(shape))
        return Operand(data.dtype, dims, self.reshape(data, (data.size,)).view, sized=extents)

    # ---- state between runs

    def state(self, numbers: Sequence[int] = ()) -> Tensor:
        """Returns a tensor of four u32 that keeps its content from run to run, for a kernel that stores it. Before the first
        run it contains `numbers`, or random bits if there are none. The name does not depend on the sizes that the graph is
        compiled for, so all Programs of a graph share it."""
        known = {it.name for node in self.nodes for it in node.outputs if it.storage is Storage.STATE}
        names = (f"{self.origin[0]}.state{k}" for k in itertools.count())  # several nodes may have the same name
        name = next(it for it in names if it not in known)
        return Tensor(DType.UINT32, (4,), Storage.STATE, name, elements=tuple(numbers))

    # ---- nodes

    def cast(self, x: Operand, dtype: DType) -> Operand:
        """Returns x in another type, converted as in WGSL; x itself if it already has this type. Integers wrap when they lose
        bits."""
        if x.dtype is dtype:
            return x
        # A plain "x" copies bits, without wrapping.
        expression = "x" if x.dtype.compute == dtype.compute == "f32" else f"{dtype.compute}(x)"
        return self.pointwise(expression, {"x": x}, dtype)

    def pointwise(
        self,
        expression: str,
        operands: Mapping[str, Operand],
        dtype: DType,
        shape: Shape | None = None,
        *,
        cost: int = 1,
        inline: bool = False,
        parameters: Mapping[str, Dim] | None = None,
        **constants: Constant,
    ) -> Operand:
        """Computes output[i] = expression(operands[i]). Operands broadcast to `shape` or to their common shape.

        The expression may use `parameters`, dims that are i32 in it. For `inline` see `Map`.
        """
        shape = shape if shape is not None else broadcast_shapes(*(x.shape for x in operands.values()))
        kinds = {n: x.dtype.compute or "" for n, x in operands.items()} | dict.fromkeys(parameters or (), "i32")
        self._check_expression(expression, kinds, constants, dtype.compute or "")
        memory = self.formats.of(x.view for x in operands.values() if x.shape == shape)
        reads = {n: Read(memory.permuted(self.expand(x, shape).view), (len(shape),)) for n, x in operands.items()}
        output = self._tensor(dtype, memory.by_axis(shape), not inline or not of_weights(reads.values()))
        made = Map(output, reads, expression, dict(constants), cost=cost, inline=inline)
        made.parameters = dict(parameters or {})
        return memory.in_result_order(self._append(made))

    def map(
        self,
        body: str,
        dtype: DType,
        shape: Shape,
        coordinates: Sequence[str],
        groups: Sequence[int],
        operands: Mapping[str, tuple[Operand, Sequence[int]]],
        *,
        parameters: Mapping[str, Dim] | None = None,
        functions: Mapping[str, Function | Bits] | None = None,
        cost: int = 4,
        reuse: bool = False,
        inline: bool = False,
        neighbours: bool = False,
        iterations: Dim = 0,
        **constants: Constant,
    ) -> Operand:
        """Computes output[coordinates] = the value that `body` returns. It reads operands by `<name>_at(coordinates)`.

        `body` is the name of a file in `wgsl/bodies/`, or a text of up to three statements. Its directives (see
        `templates/preprocess.py`) and its `$NAME` refer to `constants` and `parameters`. `functions` are the expressions that
        a `$NAME` can refer to.

        `reuse`: the output as a whole reads elements of the operands more than once. For `inline`, `neighbours` and
        `iterations` see `Map`. If all groups are single axes, the result has the memory order of an operand of the same
        shape.
        """
        for function in (functions or {}).values():
            if isinstance(function, Function):
                self._check_expression(function.expression, dict(function.parameters), {}, function.result)
        # One invocation computes all the elements that share a word.
        self.bound_loop(iterations * elements_per_word(dtype, self.target), "a loop of {} steps", iterations)
        reads = {n: Read(x.view, tuple(g), reuse) for n, (x, g) in operands.items()}
        by_axes = len(shape) > 2 and all(g == 1 for g in groups)
        memory = self.formats.of(x.view for x, _ in operands.values() if by_axes and x.rank == len(shape))
        output = self._tensor(dtype, memory.by_axis(shape), not inline or not of_weights(reads.values()))
        result = self._append(
            Map(
                output,
                reads,
                body=Body.made(body, constants, {*operands, *(parameters or {})}),
                coordinates=memory.by_axis(coordinates),
                groups=tuple(groups),
                inline=inline,
                neighbours=neighbours,
                iterations=iterations,
                constants=dict(constants),
                parameters=dict(parameters or {}),
                functions=dict(functions or {}),
                cost=cost,
            )
        )
        return memory.in_result_order(result)

    def call(
        self,
        template: str,
        operands: Mapping[str, Read],
        results: Mapping[str, tuple[DType, Shape, Sequence[int]]],
        variants: Sequence[Variant],
        *,
        parameters: Mapping[str, Dim] | None = None,
        functions: Mapping[str, Function] | None = None,
        flops: Dim = 0,
        repeats: Dim = 1,
        loop_carried: frozenset[str] = frozenset(),
        vectors: bool = False,
        onto: Mapping[str, Operand] | None = None,
        largest: frozenset[str] = frozenset(),
        note: str = "",
        **constants: Constant,
    ) -> list[Operand]:
        """Appends a cooperative kernel. `results` are (dtype, shape, coordinate groups of the store accessor).

        For `repeats`, `loop_carried` and `note` see `Call`, and for `onto` too, which is for results of kernels that nothing
        else reads. `vectors`: the template stores by `<name>_put4`. `largest`: the results that it stores by `<name>_max`.
        """
        for function in (functions or {}).values():
            self._check_expression(function.expression, dict(function.parameters), {}, function.result)
        return self.add(
            Call(
                template,
                dict(operands),
                {n: self.write(d, s, g, vectors=vectors, largest=n in largest) for n, (d, s, g) in results.items()},
                tuple(variants),
                dict(constants),
                dict(parameters or {}),
                dict(functions or {}),
                origin=self.origin,
                flops=flops,
                repeats=repeats,
                loop_carried=loop_carried,
                onto={name: x.view.tensor for name, x in (onto or {}).items()},
                note=note,
            )
        )

    def write(
        self, dtype: DType, shape: Shape, groups: Sequence[int], *, vectors: bool = False, largest: bool = False
    ) -> Write:
        """Returns a result for a call that the caller is about to create."""
        return Write(self._tensor(dtype, shape), tuple(groups), vectors, largest)

    def add(self, node: Call) -> list[Operand]:
        """Appends a call with results from `write`."""
        for name, begun in node.onto.items():
            begun.place = View.of(node.results[name].tensor)
        self.check_bindings(node)
        self._add_nodes(node)
        for tensor in node.outputs:
            tensor.producer = node
        return [Operand(it.dtype, it.shape, View.of(it)) for it in node.outputs]

    def _check_expression(
        self, expression: str, kinds: Mapping[str, str], constants: Mapping[str, Constant], result: str
    ) -> None:
        """Raises UnsupportedError for an expression that is not valid for its types, so that everything that lowers can be
        emitted."""
        values = tuple((name, type(value).__name__, value) for name, value in constants.items())
        check_expression(expression, tuple(kinds.items()), values, self.target.int64, result)

    def join(self, xs: Sequence[Operand], axis: int, shape: Shape) -> Operand:
        """Returns the operands concatenated along an axis. `shape` is the shape of the result."""
        formats = {self.formats.of([x.view]) for x in xs}
        if len(formats) == 1 and (memory := formats.pop()).permutation:
            return memory.in_result_order(
                self._joined(
                    [self.view(x, memory.permuted(x.view)) for x in xs], memory.place(axis), memory.by_axis(shape)
                )
            )
        return self._joined(xs, axis, shape)

    def _joined(self, xs: Sequence[Operand], axis: int, shape: Shape) -> Operand:
        output = self._tensor(xs[0].dtype, shape)
        join = Join(output, {f"x{k}": Read(x.view, (x.rank,)) for k, x in enumerate(xs)}, axis)
        if not any(is_large(t, self.target) for t in (output, *(x.view.tensor for x in xs))):
            return self._append(join)
        steps = list(picked(join, self.target))
        if elements_per_word(output.dtype, self.target) == 1 and not all(is_bindable(it, self.target) for it in steps):
            return self.joined(xs, axis)
        return [self._append(step) for step in steps][-1]  # a kernel with a moving binding range

    def pad(self, x: Operand, fill: Operand, begins: Sequence[Dim], shape: Shape) -> Operand:
        """Returns x placed in `shape` at the offset `begins`. The rest is `fill`, one element of its type.

        If x extends beyond the result, in some or all runs, the part outside is left out.
        """
        memory = self.formats.of([x.view])
        if memory.permutation:
            return memory.in_result_order(
                self.pad(
                    self.view(x, memory.permuted(x.view)), fill, memory.by_axis(tuple(begins)), memory.by_axis(shape)
                )
            )
        output = self._tensor(x.dtype, shape)
        reads = {"x": Read(x.view, (x.rank,)), "fill": Read(self.reshape(fill, (1,)).view, (1,))}
        pad = Pad(output, reads, tuple(begins))
        lies_inside = all(
            limits(it)[0] >= 0 for b, d, e in zip(begins, x.shape, shape, strict=True) for it in (b, e - b - d)
        )
        if not lies_inside or any(is_large(t, self.target) for t in (output, x.view.tensor)):
            return self._append(padding(pad))
        return self._append(pad)

    def joined(self, xs: Sequence[Operand], axis: int) -> Operand:
        """Returns the results of kernels that compute parts of a large tensor, concatenated along an axis. Each is stored in
        place."""
        extent = sum((x.shape[axis] for x in xs), start=0)
        output = self._tensor(xs[0].dtype, (*xs[0].shape[:axis], extent, *xs[0].shape[axis + 1 :]))
        parts: list[Map] = []
        start: Dim = 0
        for x in xs:
            place = View.of(output).slice(axis, start, 1, x.shape[axis])
            assert place is not None  # it is a view of a whole tensor
            parts += placed_copies(x.view, place, self.origin, self.target)
            start = start + x.shape[axis]
        self._add_nodes(*parts, joined(output, parts, self.origin))
        return Operand(output.dtype, output.shape, View.of(output))

    def append(self, nodes: Sequence[Node]) -> None:
        """Appends nodes that were created elsewhere, and sets them as the producers of their results."""
        for node in nodes:
            self.check_bindings(node)
            for tensor in node.outputs:
                self.check_size(tensor, "a result")
                tensor.producer = node
            self._add_nodes(node)

    def _tensor(self, dtype: DType, shape: Shape, in_memory: bool = True) -> Tensor:
        tensor = Tensor(dtype, tuple(shape))
        self.check_size(tensor, "a result", in_memory)
        return tensor

    def _append(self, node: Map | Join | Pad) -> Operand:
        node.origin = self.origin
        node.output.producer = node
        self._add_nodes(*(self._divided(node) if isinstance(node, Map) and not only_decodes_weights(node) else [node]))
        return Operand(node.output.dtype, node.output.shape, View.of(node.output))

    def _divided(self, node: Map) -> Sequence[Node]:
        try:
            self.check_bindings(node)
        except BindingsError:
            return divided(node, self.target)
        return [node]
