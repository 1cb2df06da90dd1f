"""The base classes of all choices for kernels, and their table, `KERNELS`.

In: the numbers of a `Choice`. Out: the parameters, and the workgroup resources they need; or a ValueError. A class of parameters
that defines `kernel` registers itself in `KERNELS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import ClassVar, Self

from ...program.dtypes import DType
from ...program.tuning import Bound, Choice
from ...records import dataclass
from ..dims import Dim
from ..ir import Constant

KERNELS: dict[str, type[Parameters]] = {}
PRODUCT_SIZES: Mapping[str, str] = dict.fromkeys(("batch", "m", "n", "k"), "")  # an `about`


@dataclass(frozen=True)
class Parameters:
    """The numbers chosen for a kernel. `kernel` is its name in tables.

    The bounds in a table are about quantities of shapes. `about` explains these; "" marks a self-explanatory name. The docstring
    of a class is its row of `docs/tuning.md` (`scripts/document_tuning.py`).

    Every number is at least 1, unless `allowed` lists its values. `others` are numbers worth measuring on an adapter, besides the
    shipped choices.
    """

    kernel: ClassVar[str] = ""
    about: ClassVar[Mapping[str, str]] = {}
    allowed: ClassVar[Mapping[str, Sequence[int]]] = {}
    others: ClassVar[tuple[tuple[int, ...], ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kernel" in vars(cls):
            if cls.kernel in KERNELS:
                raise TypeError(
                    f"{cls.__name__}: {KERNELS[cls.kernel].__name__} is for the kernel {cls.kernel!r} already"
                )
            KERNELS[cls.kernel] = cls

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            allowed = self.allowed.get(name)
            if allowed is None:
                self._require(value > 0, f"{name} is at least 1")
            elif isinstance(allowed, range):
                self._require(value in allowed, f"{name} is from {allowed[0]} to {allowed[-1]}")
            else:
                self._require(value in allowed, f"{name} is {' or '.join(map(str, allowed))}")

    @classmethod
    def candidates(cls) -> tuple[Self, ...]:
        """Returns the parameters of `others`."""
        return tuple(cls(*it) for it in cls.others)

    @property
    def invocations(self) -> int:
        """The invocations of a workgroup."""
        return 1

    @property
    def workgroup_bytes(self) -> int:
        """The workgroup memory in bytes, if a choice can make it too large."""
        return 0

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The shapes for which a kernel with these parameters is correct, independent of any table."""
        return ()

    def quantities(self, sizes: Mapping[str, Dim]) -> Mapping[str, Dim]:
        """Returns quantities of shapes that depend on the choice itself."""
        return {}

    def _require(self, holds: bool, requirement: str) -> None:
        if not holds:
            raise ValueError(f"{self}: {requirement}")


@dataclass(frozen=True)
class Workgroups(Parameters):
    """The parameters of a kernel with `workgroup` invocations in a workgroup."""

    workgroup: int

    @property
    def invocations(self) -> int:
        return self.workgroup


def constants(**values: Constant) -> tuple[tuple[str, Constant], ...]:
    """Returns the constants of a Variant."""
    return tuple(values.items())


def use(parameters: Parameters, *bounds: Bound, dtype: DType | None = None) -> Choice:
    """Returns the choice of these parameters."""
    values = tuple(sorted(asdict(parameters).items()))
    return Choice(parameters.kernel, values, bounds, dtype.label if dtype else "")


def class_of(choice: Choice) -> type[Parameters]:
    """Returns the class of parameters for the kernel of a choice. Raises ValueError for an unknown kernel."""
    found = KERNELS.get(choice.kernel)
    if found is None:
        raise ValueError(f"{choice}: no kernel {choice.kernel!r} can be tuned; known: {', '.join(KERNELS)}")
    return found


@cache
def parameters_of(choice: Choice) -> Parameters:
    """Returns the parameters of a choice. Raises ValueError for an unknown kernel or invalid parameters."""
    kernel = class_of(choice)
    unknown = {it.quantity for it in choice.bounds} - set(kernel.about)
    if unknown:
        about = ", ".join(sorted(kernel.about)) or "nothing"
        raise ValueError(
            f"{choice}: a bound of {choice.kernel!r} is about {', '.join(sorted(unknown))}; known: {about}"
        )
    for name, value in choice.parameters:
        if type(value) is not int:
            raise ValueError(f"{choice}: {name} is {value!r}, not an integer")
    try:
        return kernel(**dict(choice.parameters))
    except TypeError as error:
        raise ValueError(f"{choice}: {error}") from error
