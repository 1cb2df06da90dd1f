"""Choices for squeeze-and-excitation blocks: the average of an image and the two small products after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...program.tuning import Bound
from ...records import dataclass
from ..dims import Dim
from ..ir import Variant
from .base import PRODUCT_SIZES, Parameters, constants


@dataclass(frozen=True)
class ExcitationShape:
    """`rows` rows of `depth` elements, with `hidden` and then `columns` results per row."""

    rows: Dim
    depth: int
    hidden: int
    columns: int

    @property
    def weights(self) -> int:
        return self.hidden * (self.depth + self.columns)

    def row(self, splits: int) -> int:
        """Returns the elements in workgroup memory: those of a row, or of the results of one of `splits` workgroups."""
        return max(self.depth + -self.depth % 4, self.part(splits))

    def part(self, splits: int) -> int:
        """Returns the results of a workgroup, rounded up to a multiple of four."""
        return 4 * -(-self.columns // (4 * splits))


@dataclass(frozen=True)
class SqueezeExcite(Parameters):
    """Squeeze-and-excitation blocks. `fused` is how many of the average and the two products after it are in one kernel, 3, 2 or
    0. `splits` workgroups of `threads` invocations compute the results of a row; each repeats the steps before these."""

    kernel: ClassVar[str] = "squeeze_excite"
    about: ClassVar[Mapping[str, str]] = {
        "rows": "images",
        "weights": "of both products",
        "image": "elements summed per row, if neighbours in memory are channels and the sums have one reader",
        "storage": "bytes of workgroup memory that rows leave free",
    }
    allowed: ClassVar = {"fused": (0, 2, 3)}
    others: ClassVar = ((0, 1, 1), (2, 1024, 1), (2, 512, 4), (3, 1024, 1), (3, 512, 4))
    fused: int
    threads: int
    splits: int

    @property
    def invocations(self) -> int:
        return self.threads

    @property
    def bounds(self) -> tuple[Bound, ...]:
        image = (Bound("image", 1, None, known=True),) if self.fused == 3 else ()
        return (*image, Bound("storage", 16 * self.threads))

    def variant(self, shape: ExcitationShape) -> Variant:
        """Returns the kernel for a block of this shape."""
        chosen = constants(SPLITS=self.splits, N1=shape.part(self.splits), ROW=shape.row(self.splits))
        return Variant(shape.rows * self.splits, self.threads, 1, chosen)


@dataclass(frozen=True)
class GatedRows(Parameters):
    """Products with rows of an image scaled by a gate, which is computed from the image. `inlined` is 1 if they scale on load, or
    0 if a map does so first."""

    kernel: ClassVar[str] = "gated_rows"
    about: ClassVar[Mapping[str, str]] = PRODUCT_SIZES
    allowed: ClassVar = {"inlined": (0, 1)}
    others: ClassVar = ((0,),)
    inlined: int
