"""What can be chosen for a kernel: one class per kernel, whose fields are the names in a table (`docs/tuning.md`); those of
attention are in `attention.py`, those of matrix products in `products.py`.

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
from .products import DirectProduct, PackedRows, ProductParts, RegisterProduct, RowProduct, Tile


@dataclass(frozen=True)
class Rows(Parameters):
    """Kernels that treat rows: `lanes` invocations share one, and `rows` of them a workgroup. Quantities: rows, columns."""

    kernel: ClassVar[str] = "rows"
    quantity_names: ClassVar[frozenset[str]] = frozenset({"rows", "columns"})
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
    quantity_names: ClassVar[frozenset[str]] = frozenset({"elements"})
    busy: int
    columns: int

    def __post_init__(self) -> None:
        self._require(self.busy > 0 < self.columns, "both are at least 1")


@dataclass(frozen=True)
class Grid(Parameters):
    """A kernel of maps: workgroups of `workgroup`, whose invocations take `steps` steps, or as many as `elements` need.
    Quantities: size."""

    kernel: ClassVar[str] = "map"
    quantity_names: ClassVar[frozenset[str]] = frozenset({"size"})
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
    quantity_names: ClassVar[frozenset[str]] = frozenset({"pixels"})
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
    quantity_names: ClassVar[frozenset[str]] = frozenset({"pixels"})
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
    Tile, ProductParts, RowProduct, PackedRows, DirectProduct, RegisterProduct, Rows, RowsAcross, Parts, Grid, Vectors,
    DirectConvolution, RegisterConvolution, Depthwise, FlashTile, FlashRows, FlashParts, AttentionForm,
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
    kernel = KERNELS[choice.kernel]
    unknown = {it.quantity for it in choice.bounds} - kernel.quantity_names
    if unknown:
        about = ", ".join(sorted(kernel.quantity_names)) or "nothing"
        raise ValueError(
            f"{choice}: a bound of {choice.kernel!r} is about {', '.join(sorted(unknown))}; known: {about}"
        )
    try:
        return kernel(**dict(choice.parameters))
    except TypeError as error:
        raise ValueError(f"{choice}: {error}") from error
