"""What all that can be chosen for kernels has in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import ClassVar

from ...program.tuning import Bound
from ..dims import Dim
from ..ir import Constant


@dataclass(frozen=True)
class Parameters:
    """What is chosen for a kernel, all numbers; `kernel` is its name in tables, whose bounds may be about `quantity_names`."""

    kernel: ClassVar[str] = ""
    quantity_names: ClassVar[frozenset[str]] = frozenset()

    @property
    def invocations(self) -> int:
        """Of a workgroup."""
        return 1

    @property
    def workgroup_bytes(self) -> int:
        """Memory of a workgroup, where a choice can make it too much."""
        return 0

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The shapes for which a kernel with these parameters is right, whatever a table says."""
        return ()

    def quantities(self, sizes: Mapping[str, Dim]) -> Mapping[str, Dim]:
        """Those of the shapes that the choice itself gives."""
        return {}

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            raise ValueError(f"{self}: {what}")

    def _require_positive(self) -> None:
        self._require(min(astuple(self)) > 0, "every number is at least 1")


def constants(**values: Constant) -> tuple[tuple[str, Constant], ...]:
    """The constants of a Variant."""
    return tuple(values.items())
