"""The lowered graph: the kinds of node, which together express every operator.

- A `Map` computes one output element from its index: pointwise expressions, gathers, pads, pooling windows. It has no workgroup.
  It can be inlined into the kernel that reads it, or into the store of the kernel that it reads from.
- A `Call` is a cooperative kernel from `wgsl/` (matrix product, reduction, normalisation). It reads and writes through accessors.
- A `Join` computes nothing. It places tensors next to each other in a larger one, where their kernels store them.
- A `Pad` places one tensor in a larger one, with fill around it.

Views are not nodes; an operand is read through a view.
"""

from __future__ import annotations

from dataclasses import field

from ...program import program
from ...program.dtypes import DType
from ...records import dataclass
from ..dims import Dim, product, quotient, symbol
from ..templates.files import template
from ..templates.preprocess import Constant, declared
from .body import Body
from .view import Node, Read, Storage, Tensor, View, distribute, split_groups

MAX_COST = 160  # scalar operations in one kernel; a kernel with 200 operations takes seconds to compile on lavapipe
MAX_INLINED_COST = 24  # of a map that each of its readers calculates again
MOST_ELEMENTS = 1 << 32  # of a tensor: kernels count in u32
REPETITION = symbol(program.REPETITION)


def packed_run(read: Read) -> int:
    """Returns the length of the longest run along the last coordinate of packed weights that can be unpacked together.

    A map converts the weights to real numbers. A run is whole words, at most 16 bytes, with the same quantisation parameters. Its
    length divides the columns and the blocks of parameters. Returns 0 for other operands.
    """
    node, view = read.view.tensor.producer, read.view
    if not (isinstance(node, Map) and node.inline and node.is_pointwise and node.output.dtype.compute == "f32"):
        return 0
    rows, columns = view.tensor.shape[0], product(view.tensor.shape[1:])
    factors = [f for axis in view.axes for f in axis]
    contiguous = (
        [(f.extent, f.stride) for f in factors[:1]] == [(rows, columns)]
        and len(factors) == 2
        and factors[1].stride == 1
    )
    if view.offset != 0 or not contiguous:
        return 0
    operands = [r.view for r in node.operands.values() if not r.view.tensor.is_literal]
    whole = [it for it in operands if it.is_whole]
    if len(whole) != 1 or whole[0].dtype.bits > 8 or not whole[0].dtype.is_integer:
        return 0
    producer = whole[0].tensor.producer
    if isinstance(producer, Map) and producer.inline:  # not in memory
        return 0
    blocks = [it.factors[-1] for it in operands if it is not whole[0] and it.factors]
    if any(block.stride != 0 for block in blocks):
        return 0
    bits = whole[0].dtype.bits
    runs = [words * 32 // bits for words in (4, 2, 1)]
    possible = [
        run for run in runs if all(quotient(size, run) is not None for size in (columns, *(it.extent for it in blocks)))
    ]
    return possible[0] if possible else 0


@dataclass(frozen=True)
class Function:
    """A function that a template calls, or that the body of a map uses as `$NAME`: an expression over `parameters`.

    The parameters are (name, compute type) pairs. In a body they are its variables.
    """

    parameters: tuple[tuple[str, str], ...]
    expression: str
    result: str


@dataclass(frozen=True)
class Bits:
    """A conversion between a variable of a body and an element of `dtype`, which is narrower than a word.

    If `packed`, it gives the bits of the element; otherwise the element with the bits in the variable.
    """

    variable: str
    dtype: DType
    packed: bool


@dataclass(eq=False)
class Map(Node):
    """Computes one output element from elements of the operands.

    Pointwise: `expression` uses Python syntax over the names of operands and parameters; every operand view has the output's
    shape.

    Otherwise `body` contains WGSL, the statements of a function that returns the element. Its arguments are the output's
    coordinates (named by `coordinates`, grouped by `groups`). Slots read operands.

    - `inline` marks a result that is not worth memory, such as the matrix of windows that a convolution multiplies, or a narrow
      integer minus its zero point. Its only reader computes it on load, even if it loads elements more than once
      (`is_read_again`).
    - `neighbours`: the same statements compute every aligned four elements along the last coordinate from four neighbours of each
      operand. So one execution of the text computes all four if these are one vector.
    - `iterations` counts the iterations of loops in the body, 0 without loops.
    """

    output: Tensor
    operands: dict[str, Read]
    expression: str = ""
    constants: dict[str, Constant] = field(default_factory=dict)
    body: Body = field(default_factory=Body)
    coordinates: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    parameters: dict[str, Dim] = field(default_factory=dict)
    functions: dict[str, Function | Bits] = field(default_factory=dict)
    cost: int = 1
    inline: bool = False
    neighbours: bool = False
    iterations: Dim = 0
    origin: tuple[str, ...] = ()

    @property
    def is_pointwise(self) -> bool:
        return not self.body.parts

    @property
    def outputs(self) -> list[Tensor]:
        return [self.output]


def is_read_again(node: Node, read: Read) -> bool:
    """Returns whether a kernel of the node reads an element of this operand more than a few times.

    Either the node itself does, or one of its readers does, since an inline map is calculated where it is read.
    """
    if read.reuse or not (isinstance(node, Map) and node.inline):
        return read.reuse
    for reader in node.output.users:
        for other_read in reader.operands.values():
            if other_read.view.tensor is node.output and (
                other_read.view.size != node.output.size or is_read_again(reader, other_read)
            ):
                return True
    return False


@dataclass(frozen=True)
class Variant:
    """One way to run a Call, used if `guard` is not 0. Its constants and parameters extend those of the Call.

    `template` selects another algorithm with the same operands and results. `product_bytes` belongs to a kernel that can compute
    several matrix products of one operand: the workgroup memory that the products share, and that of each product.
    """

    workgroups: Dim
    workgroup_size: int
    guard: Dim = 1
    constants: tuple[tuple[str, Constant], ...] = ()
    parameters: tuple[tuple[str, Dim], ...] = ()
    template: str = ""
    product_bytes: tuple[int, int] | None = None

    @property
    def by_matrices(self) -> bool:
        """Whether it multiplies matrices with subgroup matrix operations."""
        return any(name == "UNIT_M" for name, _ in self.constants)


@dataclass(frozen=True)
class Write:
    """A result of a Call and the coordinate groups of its store accessor `<name>_put(coordinates..., value)`.

    - `vector`: the template stores only by `<name>_put4(coordinates..., value)`. This stores four elements from the last
      coordinate on, which is a multiple of 4, except for those beyond its end.
    - `largest`: the template stores only by `<name>_max(coordinates..., value)`. This atomic operation on an i32 keeps the
      maximum of the new and the previous value.
    - `also`: tensors of the same shape. The accessor gets an element of each after that of `tensor`. Fused maps can combine
      them.
    - `squares`: the second tensor gets the sum of squares of each four elements of the first, which is this result or a map of
      it. This needs `in_fours`. It is no map, because a map computes an element from elements of one index.
    - `by_matrices`: variants with subgroup matrices store like those with `vector`.
    """

    tensor: Tensor
    groups: tuple[int, ...]
    vector: bool = False
    largest: bool = False
    also: tuple[Tensor, ...] = ()
    squares: tuple[Tensor, Tensor] | None = None
    by_matrices: bool = False

    @property
    def in_fours(self) -> bool:
        """Whether each store writes four elements at a multiple of 4, and so whole words of narrow types."""
        return self.vector and quotient(product(split_groups(self.tensor.shape, self.groups)[-1]), 4) is not None


@dataclass(frozen=True)
class Inner:
    """Pointwise maps in the middle of a Call. Its template calls `<name>(coordinates..., v)` to apply them to v.

    v takes the role of an element of `source`; the last map computes `result`. Neither is in memory. `groups` are those of the
    coordinates over the axes of `source`.
    """

    source: Tensor
    result: Tensor
    maps: tuple[Map, ...]
    groups: tuple[int, ...]

    @property
    def operands(self) -> list[View]:
        """The operands of the maps, without each other's results."""
        own = {self.source, *(it.output for it in self.maps)}
        return [view for it in self.maps for view in it.reads if view.tensor not in own]

    @property
    def is_countable(self) -> bool:
        """Whether kernels can count all elements: either there are few enough, or all operands are read by coordinates."""
        if not isinstance(self.source.size, int) or self.source.size < MOST_ELEMENTS:
            return True
        extents = tuple(map(product, split_groups(self.source.shape, self.groups)))
        return all(distribute(view.factors, extents) is not None for view in self.operands)


@dataclass(eq=False)
class Call(Node):
    """A cooperative kernel: `template` names a file in wgsl/ with a function `kernel(w, lane)` that runs once per workgroup.

    - `flops`: the arithmetic that its definition requires, 0 if memory bounds it.
    - `repeats`: the number of dispatches, at least one. Parameters may use their index as `REPETITION`, from 0.
    - `loop_carried`: results passed from one dispatch to the next. They are always in memory, and `<name>_at(...)` reads them.
    - `inner`: maps inside of the kernel. `operands` includes their operands, so code that inspects the reads of a Call can ignore
      them.
    - `onto`: tensors that provide the elements of a result that the Call does not store. Such a tensor shares the result's
      memory.
    - `note`: shows users what a rule added to the template.

    An operand may show a result, which is then `updated`: the template reads no element of it that any invocation stores.
    """

    template: str
    operands: dict[str, Read]
    results: dict[str, Write]
    variants: tuple[Variant, ...]
    constants: dict[str, Constant] = field(default_factory=dict)
    parameters: dict[str, Dim] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    origin: tuple[str, ...] = ()
    flops: Dim = 0
    repeats: Dim = 1
    loop_carried: frozenset[str] = frozenset()
    inner: dict[str, Inner] = field(default_factory=dict)
    onto: dict[str, Tensor] = field(default_factory=dict)
    note: str = ""

    @property
    def names(self) -> frozenset[str]:
        """The names that its template may use: operands, results and parameters."""
        return frozenset((*self.operands, *self.results, *self.parameters))

    def constant(self, name: str) -> Constant:
        """Returns the value of a constant; its default may come from the template. Raises KeyError for an unknown name."""
        return declared(template(self.template), self.constants, self.names)[1][name]

    @property
    def label(self) -> str:
        """The display name of the kernel: its template and its note."""
        units = "matrix units" if any(it.by_matrices for it in self.variants) else ""
        detail = ", ".join(filter(None, (self.note, units)))
        return f"{self.template} ({detail})" if detail else self.template

    @property
    def updated(self) -> list[Tensor]:
        """The results with previous elements that it reads as operands."""
        own = [write.tensor for write in self.results.values()]
        return [it for it in own if any(view.tensor is it for view in self.reads)]

    @property
    def stays(self) -> list[Tensor]:
        """The results that must be in memory even without other readers."""
        return [self.results[name].tensor for name in self.loop_carried]

    @property
    def outputs(self) -> list[Tensor]:
        results = self.results.values()
        return [t for w in results for t in (w.tensor, *w.also, *(w.squares[1:] if w.squares else ()))]


@dataclass(eq=False)
class Join(Node):
    """Tensors next to each other along `axis` of `output`.

    `passes/place.py` turns it into a map, or lets the kernels of the operands store them in place. A placed join has operands
    that are parts of `output`, and no kernel.
    """

    output: Tensor
    operands: dict[str, Read]
    axis: int
    origin: tuple[str, ...] = ()

    @property
    def is_placed(self) -> bool:
        """Whether its operands are placed in its output."""
        return all(view.tensor.place is not None for view in self.reads)

    @property
    def outputs(self) -> list[Tensor]:
        return [self.output]


@dataclass(eq=False)
class Pad(Node):
    """The operand `x` inside of `output`, from element `begins` of each axis on, with `fill`, one element, around it.

    `passes/place.py` turns it into a map, or places both: the kernel of x stores x, and another one stores the fill. The result
    is then a Join of these.
    """

    output: Tensor
    operands: dict[str, Read]
    begins: tuple[Dim, ...]
    origin: tuple[str, ...] = ()

    @property
    def outputs(self) -> list[Tensor]:
        return [self.output]


@dataclass(frozen=True)
class DataAssertion:
    """Asserts that every element of `values`, integers, is from `low` to `high`; otherwise it is outside of `what`. `origin`
    requires this."""

    values: Tensor
    low: Dim
    high: Dim
    what: str
    origin: tuple[str, ...]


@dataclass(frozen=True)
class Message:
    """A text with a placeholder `{}` for each of `dims`, which are known when it is shown. `limit`: it is about a limit."""

    text: str
    dims: tuple[Dim, ...] = ()
    limit: bool = False


@dataclass
class LoweredGraph:
    """Nodes in an order that respects data flow. `outputs` are tensors that must exist in memory, in ONNX order."""

    symbols: tuple[tuple[str, int, int, bool], ...]  # name, input index, axis or element, True for an element's value
    inputs: list[Tensor]
    outputs: list[Tensor]
    nodes: list[Node]
    checks: list[tuple[Dim, Message]]  # each must not be 0 when a plan is made; the message explains the error
    operators: dict[str, str]  # of the ONNX nodes by name, as in `origin`
    assertions: list[DataAssertion] = field(default_factory=list)  # about data; evaluated by runs with full checks
    declined: list[program.Declined] = field(default_factory=list)  # by rules of rewrite/ and by passes/one_row/
    aliases: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # as `Program.aliases`
    sized: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # as `Program.sized`

    def weights(self) -> list[Tensor]:
        """Returns the weights that nodes or assertions read, without duplicates."""
        tensors = [view.tensor for node in self.nodes for view in node.reads]
        tensors += [assertion.values for assertion in self.assertions]
        return [it for it in dict.fromkeys(tensors) if it.storage is Storage.WEIGHT]
