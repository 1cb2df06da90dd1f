"""What can be chosen for a kernel: one class per kernel, whose fields are the names in a table (`docs/tuning.md`); those of
attention are in `attention.py`.

In: the numbers of a `Choice`. Out: the parameters, with what they take of a workgroup; or a ValueError. Each class names the
quantities of shapes that bounds of its choices may be about.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import ClassVar

from ...program.dtypes import DType
from ...program.tuning import Bound, Choice
from .attention import AttentionForm, FlashParts, FlashRows, FlashTile
from .base import Parameters


@dataclass(frozen=True)
class Tile(Parameters):
    """A tile of `m` x `n` results of a product from `k` columns at a time; an invocation computes `rows` x `columns` of it.

    `slices` groups of invocations split k between them; `unrolled` steps of k are written out. Quantities: batch, m, n, k,
    `packed` as of PackedRows, and `workgroups`, which the tile itself gives. Raises ValueError for a tile that its invocations
    cannot share evenly.
    """

    kernel: ClassVar[str] = "matmul"
    m: int
    n: int
    k: int
    rows: int
    columns: int
    slices: int
    unrolled: int = 4

    def __post_init__(self) -> None:
        fours = all(it > 0 and it % 4 == 0 for it in (self.m, self.n, self.k, self.rows, self.columns))
        self._require(fours, "m, n, k, rows and columns are multiples of 4")
        self._require(self.m % self.rows == 0 == self.n % self.columns, "rows divide m, and columns n")
        self._require(self.slices > 0 and self.unrolled > 0 and self.k % self.unrolled == 0, "unrolled divides k")
        loaded = 4 * self.per_slice
        evenly = self.m * self.k % loaded == 0 == self.n * self.k % loaded
        self._require(evenly, f"its {self.per_slice} invocations do not load {self.k} columns in fours evenly")

    @property
    def per_slice(self) -> int:
        """Invocations that share a slice of k."""
        return self.m * self.n // (self.rows * self.columns)

    @property
    def invocations(self) -> int:
        return self.per_slice * self.slices

    @property
    def workgroup_bytes(self) -> int:
        return 4 * max(self.slices * self.k * (self.m + self.n), self.invocations * self.columns)


@dataclass(frozen=True)
class RowProduct(Parameters):
    """A product of at most `rows` rows: a workgroup of `threads` sums 4 x `columns4` columns of them, its invocations parts of
    k, `steps` rows of the other operand at a time. Quantities: batch, m, n, k, and `transposed`, 1 where neighbours in k are
    neighbours in memory."""

    kernel: ClassVar[str] = "matvec"
    rows: int
    columns4: int
    steps: int
    threads: int = 256

    def __post_init__(self) -> None:
        self._require(self.rows > 0 < self.steps, "rows and steps are at least 1")
        self._require(self.threads > 0 and self.threads & (self.threads - 1) == 0, "threads are a power of two")
        halves = self.columns4 > 0 and self.columns4 & (self.columns4 - 1) == 0
        self._require(halves and self.columns4 <= self.threads, "columns4 is a power of two up to the threads")

    @property
    def bounds(self) -> tuple[Bound, ...]:
        return (Bound("m", None, self.rows),)

    @property
    def invocations(self) -> int:
        return self.threads

    @property
    def workgroup_bytes(self) -> int:
        return 16 * (self.threads + self.rows * self.columns4)


@dataclass(frozen=True)
class PackedRows(Parameters):
    """A product by packed weights that lie along k, of `rows` rows at a time and at most `tiles` times that: an invocation sums
    four columns, which `parts` of a workgroup share, `columns` times; it unpacks at most `words` words of each at a time, in
    `steps` places. Quantities: batch, m, n, k, `packed`, the words that can be unpacked together, and `words`, those of a column
    where it is known."""

    kernel: ClassVar[str] = "packed_rows"
    rows: int
    parts: int
    columns: int
    steps: int
    words: int
    tiles: int = 1

    def __post_init__(self) -> None:
        self._require_positive()
        self._require(self.parts & (self.parts - 1) == 0, "parts are a power of two")

    @property
    def bounds(self) -> tuple[Bound, ...]:
        return (Bound("m", None, self.rows * self.tiles), Bound("packed", 1))

    @property
    def invocations(self) -> int:
        return self.parts * self.columns

    @property
    def workgroup_bytes(self) -> int:
        return 16 * self.rows * self.invocations


@dataclass(frozen=True)
class DirectProduct(Parameters):
    """A product whose operands are read directly, `rows` x 64 results per workgroup of 8. Quantities: batch, m, n, k."""

    kernel: ClassVar[str] = "matmul_direct"
    rows: int

    @property
    def invocations(self) -> int:
        return 8


@dataclass(frozen=True)
class RegisterProduct(Parameters):
    """A product whose operands are read directly, one element at a time: each of `lanes` invocations sums `rows` x
    `columns` results in variables. Quantities: batch, m, n, k."""

    kernel: ClassVar[str] = "matmul_registers"
    rows: int
    columns: int
    lanes: int

    def __post_init__(self) -> None:
        self._require_positive()

    @property
    def invocations(self) -> int:
        return self.lanes


@dataclass(frozen=True)
class Rows(Parameters):
    """Kernels that treat rows: `lanes` invocations share one, and `rows` of them a workgroup. Quantities: rows, columns."""

    kernel: ClassVar[str] = "rows"
    lanes: int
    rows: int

    def __post_init__(self) -> None:
        self._require(self.lanes > 0 and self.lanes & (self.lanes - 1) == 0, "lanes are a power of two")
        self._require(self.rows > 0, "rows are at least 1")

    @property
    def invocations(self) -> int:
        return self.lanes * self.rows


@dataclass(frozen=True)
class RowsAcross(Rows):
    """Rows whose neighbours, not whose columns, are neighbours in memory: with an invocation each those of a workgroup load
    together."""

    kernel: ClassVar[str] = "rows_across"


@dataclass(frozen=True)
class Parts(Parameters):
    """Into how many parts long rows across are cut, which are reduced by themselves first: as many as `busy` invocations in all
    need, of at least `columns` each. Quantities: elements."""

    kernel: ClassVar[str] = "parts_across"
    busy: int
    columns: int

    def __post_init__(self) -> None:
        self._require(self.busy > 0 < self.columns, "both are at least 1")


@dataclass(frozen=True)
class Grid(Parameters):
    """A kernel of maps: workgroups of `workgroup`, whose invocations take `steps` steps, or as many as `elements` need.
    Quantities: size."""

    kernel: ClassVar[str] = "map"
    workgroup: int
    steps: int = 1
    elements: int = 0

    def __post_init__(self) -> None:
        self._require(self.workgroup > 0 < self.steps, "workgroup and steps are at least 1")

    @property
    def invocations(self) -> int:
        return self.workgroup


@dataclass(frozen=True)
class Vectors(Parameters):
    """Maps load, calculate and store `width` elements at a time, 4 or 1."""

    kernel: ClassVar[str] = "vectors"
    width: int

    def __post_init__(self) -> None:
        self._require(self.width in (1, 4), "the width is 1 or 4")


@dataclass(frozen=True)
class DirectConvolution(Parameters):
    """A convolution read from the image, `pixels` results of 8 channels per invocation. Quantities: pixels."""

    kernel: ClassVar[str] = "conv_direct"
    pixels: int
    channels: ClassVar[int] = 8

    @property
    def invocations(self) -> int:
        return 8


@dataclass(frozen=True)
class RegisterConvolution(Parameters):
    """A convolution read from the image, one element at a time: each of `lanes` invocations sums `pixels` results of `channels`
    channels in variables. Quantities: pixels."""

    kernel: ClassVar[str] = "conv_registers"
    pixels: int
    channels: int
    lanes: int

    def __post_init__(self) -> None:
        self._require_positive()

    @property
    def invocations(self) -> int:
        return self.lanes


@dataclass(frozen=True)
class Depthwise(Parameters):
    """A depthwise convolution by workgroups of `workgroup`; `shared`: each in one plane, whose weights it then loads once."""

    kernel: ClassVar[str] = "depthwise"
    workgroup: int
    shared: int

    def __post_init__(self) -> None:
        self._require(self.workgroup > 0 and self.shared in (0, 1), "the workgroup is at least 1, shared is 0 or 1")

    @property
    def invocations(self) -> int:
        return self.workgroup


_CLASSES = (
    Tile, RowProduct, PackedRows, DirectProduct, RegisterProduct, Rows, RowsAcross, Parts, Grid, Vectors, DirectConvolution,
    RegisterConvolution, Depthwise, FlashTile, FlashRows, FlashParts, AttentionForm,
)  # fmt: skip
KERNELS: dict[str, type[Parameters]] = {it.kernel: it for it in _CLASSES}


def use(parameters: Parameters, *bounds: Bound, dtype: DType | None = None) -> Choice:
    """The choice of these parameters."""
    values = tuple(sorted(asdict(parameters).items()))
    return Choice(parameters.kernel, values, bounds, dtype.label if dtype else "")


@cache
def parameters_of(choice: Choice) -> Parameters:
    """The parameters of a choice; raises ValueError when it names no kernel, or not what can be chosen for it."""
    if choice.kernel not in KERNELS:
        raise ValueError(f"{choice}: no kernel {choice.kernel!r} can be tuned; known: {', '.join(KERNELS)}")
    try:
        return KERNELS[choice.kernel](**dict(choice.parameters))
    except TypeError as error:
        raise ValueError(f"{choice}: {error}") from error
