"""What all that can be chosen for kernels has in common, and the table of it: `KERNELS`.

In: the numbers of a `Choice`. Out: the parameters, with what they take of a workgroup; or a ValueError. A class of parameters that
names its `kernel` is in `KERNELS` by that, and nowhere else listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple
from functools import cache
from typing import ClassVar, Self

from ...program.dtypes import DType
from ...program.tuning import Bound, Choice
from ...records import dataclass
from ..dims import Dim
from ..ir import Constant

KERNELS: dict[str, type[Parameters]] = {}


@dataclass(frozen=True)
class Parameters:
    """What is chosen for a kernel, all numbers; `kernel` is its name in tables, whose bounds may be about the quantities of
    shapes that `about` explains, "" for a name that says it. The docstring of a class is its row of `docs/tuning.md`
    (`scripts/document_tuning.py`)."""

    kernel: ClassVar[str] = ""
    about: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kernel" in vars(cls):
            if cls.kernel in KERNELS:
                raise TypeError(
                    f"{cls.__name__}: {KERNELS[cls.kernel].__name__} is for the kernel {cls.kernel!r} already"
                )
            KERNELS[cls.kernel] = cls

    @classmethod
    def candidates(cls) -> tuple[Self, ...]:
        """What is worth measuring on an adapter, besides what is shipped."""
        return ()

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


@dataclass(frozen=True)
class Workgroups(Parameters):
    """What is chosen for a kernel with `workgroup` invocations in a workgroup."""

    workgroup: int

    @property
    def invocations(self) -> int:
        return self.workgroup


def constants(**values: Constant) -> tuple[tuple[str, Constant], ...]:
    """The constants of a Variant."""
    return tuple(values.items())


def use(parameters: Parameters, *bounds: Bound, dtype: DType | None = None) -> Choice:
    """The choice of these parameters."""
    values = tuple(sorted(asdict(parameters).items()))
    return Choice(parameters.kernel, values, bounds, dtype.label if dtype else "")


def class_of(choice: Choice) -> type[Parameters]:
    """What can be chosen for its kernel; raises ValueError when it names none."""
    found = KERNELS.get(choice.kernel)
    if found is None:
        raise ValueError(f"{choice}: no kernel {choice.kernel!r} can be tuned; known: {', '.join(KERNELS)}")
    return found


@cache
def parameters_of(choice: Choice) -> Parameters:
    """The parameters of a choice; raises ValueError when it names no kernel, or not what can be chosen for it."""
    kernel = class_of(choice)
    unknown = {it.quantity for it in choice.bounds} - set(kernel.about)
    if unknown:
        about = ", ".join(sorted(kernel.about)) or "nothing"
        raise ValueError(
            f"{choice}: a bound of {choice.kernel!r} is about {', '.join(sorted(unknown))}; known: {about}"
        )
    for name, value in choice.parameters:
        if type(value) is not int:
            raise ValueError(f"{choice}: {name} is {value!r}, which is no whole number")
    try:
        return kernel(**dict(choice.parameters))
    except TypeError as error:
        raise ValueError(f"{choice}: {error}") from error
