"""The lowered graph: the kinds of node, which together express every operator.

A `Map` computes one output element from its index: pointwise expressions, gathers, pads, pooling windows. It has no
workgroup and can be inlined into the kernel that reads it or into the store of the kernel that feeds it. A `Call` is a
cooperative kernel from `wgsl/` (matrix product, reduction, normalisation) that reads and writes through accessors. A
`Join` computes nothing: it says which tensors lie side by side in a larger one, where the kernels that make them store them; a
`Pad` says so of one tensor, and what is around it.
Views are not nodes: they are how operands are looked at.
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

MAX_COST = 160  # scalar operations in one kernel; a 200-operation kernel takes seconds to compile on lavapipe
MAX_INLINED_COST = 24  # of a map that each of its readers calculates for itself
MOST_ELEMENTS = 1 << 32  # of a tensor: kernels count in u32
REPETITION = symbol(program.REPETITION)


def packed_run(read: Read) -> int:
    """Of packed weights which a map makes real numbers of: how many elements along the last coordinate are the longest run of
    words, at most 16 bytes, that has the same parameters and a multiple of its length everywhere before it. 0 for others."""
    node, view = read.view.tensor.producer, read.view
    if not (isinstance(node, Map) and node.inline and node.is_pointwise and node.output.dtype.compute == "f32"):
        return 0
    rows, columns = view.tensor.shape[0], product(view.tensor.shape[1:])
    factors = [f for axis in view.axes for f in axis]
    lies = (
        [(f.extent, f.stride) for f in factors[:1]] == [(rows, columns)]
        and len(factors) == 2
        and factors[1].stride == 1
    )
    if view.offset != 0 or not lies:
        return 0
    operands = [r.view for r in node.operands.values() if not r.view.tensor.is_literal]
    whole = [it for it in operands if it.is_whole]
    if len(whole) != 1 or whole[0].dtype.bits > 8 or not whole[0].dtype.is_integer:
        return 0
    maker = whole[0].tensor.producer
    if isinstance(maker, Map) and maker.inline:  # in no memory
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
    """A function that a template calls, or the body of a map has as `$NAME`, given as an expression over parameters: (name, compute
    type) pairs. In a body these are its variables."""

    parameters: tuple[tuple[str, str], ...]
    expression: str
    result: str


@dataclass(frozen=True)
class Bits:
    """What a variable of a body has to do with an element of `dtype`, which is narrower than a word: the bits of this element,
    where it is to be `packed`, else the element that has these bits."""

    variable: str
    dtype: DType
    packed: bool


@dataclass(eq=False)
class Map(Node):
    """One output element from elements of the operands.

    Pointwise: `expression` in Python syntax over the names of operands and parameters; every operand view has the output's shape.
    Otherwise `body` has WGSL, the statements of a function of the output's coordinates (named by `coordinates`, grouped
    by `groups`), and slots where it reads operands; it returns the element.

    `inline` marks what is not worth memory of its own, such as the matrix of windows that a convolution multiplies, or a
    narrow integer less its zero point: its one reader computes it where it loads elements, even when it loads them more
    than once (`is_read_again`). `neighbours`: every four elements along the last coordinate, from a multiple of 4 on, are made
    of four neighbours of each operand by the same statements, so that its text makes them all where they are one vector.
    `iterations` counts those of the body's loops, 0 without any.
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
    """Whether a kernel of the node reads an element of this operand more than a few times: because the node does or, as an
    inline map is calculated where it is read, because one of its readers does."""
    if read.reuse or not (isinstance(node, Map) and node.inline):
        return read.reuse
    for reader in node.output.users:
        for theirs in reader.operands.values():
            if theirs.view.tensor is node.output and (
                theirs.view.size != node.output.size or is_read_again(reader, theirs)
            ):
                return True
    return False


@dataclass(frozen=True)
class Variant:
    """One way to run a Call: taken when `guard` is not 0. `workgroups` counts them; constants and parameters add to the Call's.

    `template` is another algorithm than the Call's, which has the same operands and results. `product_bytes`, of a kernel that
    can make several matrix products of one operand: how much workgroup memory they share, and how much each of them takes besides.
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
        """Whether it multiplies matrices of subgroups."""
        return any(name == "UNIT_M" for name, _ in self.constants)


@dataclass(frozen=True)
class Write:
    """A result of a Call and the coordinate groups of its store accessor `<name>_put(coordinates..., value)`.

    With `vector` the template stores by `<name>_put4(coordinates..., value)` alone: the elements from the last coordinate, a
    multiple of 4, to the next three, less those beyond its end. With `largest` it does so by `<name>_max(coordinates..., value)`
    alone, an atomic operation: the largest of what is stored there, and of what was there before, stays; an i32. The accessor is
    given an element of each tensor in `also`, of the same shape, behind that of this one: maps may be fused in which these meet. Of
    `squares` the second tensor gets the sum of squares of each four elements of the first, which is this result or follows it; that
    needs `in_fours`, and is no map, because a map makes an element from elements of one index. With `by_matrices` the variants of a
    call that multiply matrices of subgroups store like those with `vector`.
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
        """Whether what is stored at a time is always four elements, at a multiple of 4: whole words of narrow types too."""
        return self.vector and quotient(product(split_groups(self.tensor.shape, self.groups)[-1]), 4) is not None


@dataclass(frozen=True)
class Inner:
    """Pointwise maps in the middle of a Call: its template calls `<name>(coordinates..., v)` for what they make of v.

    `source` is the tensor that v would be an element of and `result` what the maps end with; neither is in memory.
    `groups` are those of the coordinates over the axes of `source`.
    """

    source: Tensor
    result: Tensor
    maps: tuple[Map, ...]
    groups: tuple[int, ...]

    @property
    def operands(self) -> list[View]:
        """What the maps read besides each other's results."""
        own = {self.source, *(it.output for it in self.maps)}
        return [view for it in self.maps for view in it.reads if view.tensor not in own]

    @property
    def is_countable(self) -> bool:
        """Whether no number of an element is beyond what kernels count to: there are not so many, or all is read by coordinates."""
        if not isinstance(self.source.size, int) or self.source.size < MOST_ELEMENTS:
            return True
        extents = tuple(map(product, split_groups(self.source.shape, self.groups)))
        return all(distribute(view.factors, extents) is not None for view in self.operands)


@dataclass(eq=False)
class Call(Node):
    """A cooperative kernel: `template` names a file in wgsl/ whose function `kernel(w, lane)` runs once per workgroup.

    `flops` is the arithmetic that its definition asks for, 0 where memory is what it is about. It is dispatched `repeats`
    times, at least once; its parameters may count the dispatches by `REPETITION`, from 0. What one dispatch leaves to the
    next are the `loop_carried` results: always in memory, and read through `<name>_at(...)` too. What the maps of `inner` read is
    among the operands, so that code which asks what a Call reads need not know of them. What a Call does not
    store of a result in `onto` is what that tensor has there, whose place is the result's memory. An operand may show a result,
    one that is `updated`: its template reads no element of it that any invocation stores. `note` shows users what a rule has made
    of it that its template does not.
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
        """What its template may ask for: operands, results and parameters."""
        return frozenset((*self.operands, *self.results, *self.parameters))

    def constant(self, name: str) -> Constant:
        """The value of a constant, which the template may declare. Raises KeyError for another one."""
        return declared(template(self.template), self.constants, self.names)[1][name]

    @property
    def label(self) -> str:
        """What the kernel is called: its template, and its note."""
        units = "matrix units" if any(it.by_matrices for it in self.variants) else ""
        detail = ", ".join(filter(None, (self.note, units)))
        return f"{self.template} ({detail})" if detail else self.template

    @property
    def updated(self) -> list[Tensor]:
        """The results of which it reads, as operands, what was there before."""
        own = [write.tensor for write in self.results.values()]
        return [it for it in own if any(view.tensor is it for view in self.reads)]

    @property
    def stays(self) -> list[Tensor]:
        """The results that must be in memory although nothing else may read them."""
        return [self.results[name].tensor for name in self.loop_carried]

    @property
    def outputs(self) -> list[Tensor]:
        results = self.results.values()
        return [t for w in results for t in (w.tensor, *w.also, *(w.squares[1:] if w.squares else ()))]


@dataclass(eq=False)
class Join(Node):
    """Tensors side by side along `axis` of `output`. `passes/place.py` decides how: as a map, or stored in place by the
    kernels that make them. What is left of it then has as operands what lies in `output`, and has no kernel."""

    output: Tensor
    operands: dict[str, Read]
    axis: int
    origin: tuple[str, ...] = ()

    @property
    def is_placed(self) -> bool:
        """Whether its operands lie in its output."""
        return all(view.tensor.place is not None for view in self.reads)

    @property
    def outputs(self) -> list[Tensor]:
        return [self.output]


@dataclass(eq=False)
class Pad(Node):
    """The operand `x` inside of `output`, from element `begins` of each axis on, and `fill`, one element, around it.

    `passes/place.py` decides how: as a map, or stored in place by the kernel that makes x, and filled around that by another
    one. Its result is a Join of these then.
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
    """Every element of `values`, integers, is from `low` to `high`, else outside `what`; `origin` relies on it."""

    values: Tensor
    low: Dim
    high: Dim
    what: str
    origin: tuple[str, ...]


@dataclass(frozen=True)
class Message:
    """A text with a place `{}` for each of `dims`, which are known when it is said; whether it is about a limit."""

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
    checks: list[tuple[Dim, Message]]  # must not be 0 when a plan is made; the message says what is wrong
    operators: dict[str, str]  # of the ONNX nodes by name, as in `origin`
    assertions: list[DataAssertion] = field(default_factory=list)  # about data; looked at by runs that check everything
    declined: list[program.Declined] = field(default_factory=list)  # by rules of rewrite/, and passes/one_row/
    aliases: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # as `Program.aliases`
    sized: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # as `Program.sized`

    def weights(self) -> list[Tensor]:
        """The weights that nodes read or assertions are about, each once."""
        tensors = [view.tensor for node in self.nodes for view in node.reads]
        tensors += [assertion.values for assertion in self.assertions]
        return [it for it in dict.fromkeys(tensors) if it.storage is Storage.WEIGHT]
