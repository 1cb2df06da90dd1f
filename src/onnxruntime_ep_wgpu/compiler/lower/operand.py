"""Operands of nodes during lowering: views of device memory, small integers on the host, or both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...errors import FreeSizeError, UnsupportedError
from ...program.dtypes import DType
from ...program.program import NO_EXTENT
from ...records import dataclass
from ..dims import Dim, are_dims, equal, product, symbols_of
from ..ir import Shape, Storage, Tensor, View

HostArray = Any  # a numpy object array of Dim
Conditions = dict[Dim, str]  # maps dims that must not be 0 in a run to the fault if one is
LARGEST_HOST_VALUE = 1024  # in elements; larger integer tensors are data, not shapes


class OnDeviceError(UnsupportedError):
    """Raised if the elements of `operand` decide sizes or kernels, and are known on the device alone."""

    def __init__(self, reason: str, operand: Operand) -> None:
        super().__init__(reason)
        self.operand = operand


class Operand:
    """A value during lowering: on the device as a view, on the host as small integers, or both.

    `known` host values follow from shapes and constants alone. Others come from integer inputs of the graph, and are computed
    only if a shape depends on them.

    The host value is correct in runs where none of `conditions` is 0. A shape that depends on the value requires these
    conditions.
    """

    def __init__(
        self,
        dtype: DType,
        shape: Shape,
        view: View | None = None,
        *,
        host: Callable[[], HostArray] | None = None,
        known: bool = False,
        conditions: Conditions | None = None,
        bits: Callable[[], HostArray] | None = None,
        listed: Callable[[int], HostArray] | None = None,
        sized: Operand | None = None,
    ) -> None:
        """`bits`: the bits of the elements of a small float input, as dims. `listed`: the elements of a list of integers if
        it has the given length, which a run decides. `sized`: the shape of a result with a data-dependent size, where `view`
        has the maximum number of elements."""
        self.dtype, self.shape, self.known = dtype, tuple(shape), known
        assert are_dims(self.shape), f"the shape {self.shape} contains a value that is not a dim"
        self.conditions = conditions or {}
        self.sized = sized
        self.host_value_used = False  # whether something relies on the host value
        self._view, self._host, self._bits, self._listed = view, host, bits, listed
        self._array: HostArray | None = None

    def __repr__(self) -> str:
        return f"{self.dtype.label}[{', '.join(map(str, self.shape))}]"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Dim:
        return product(self.shape)

    @property
    def view(self) -> View:
        """The elements on the device. A value known only on the host is written to the device when a plan is made."""
        if self._view is None:
            self.host_value_used = True
            elements = tuple(self.host.reshape(-1).tolist())
            self._view = View.of(Tensor(self.dtype, self.shape, Storage.HOST, elements=elements))
        return self._view

    @property
    def is_on_device(self) -> bool:
        """Whether the value is on the device, and not on the host alone."""
        return self._view is not None

    def name(self, name: str) -> None:
        """Names the tensor that contains exactly this value, for messages and inspection. The first name stays."""
        if self._view is not None and self._view.is_whole and not self._view.tensor.name:
            self._view.tensor.name = name

    @property
    def may_be_known(self) -> bool:
        """Whether the elements may be known before kernels run."""
        return any(it is not None for it in (self._host, self._bits, self._listed))

    @property
    def has_host(self) -> bool:
        return self._host is not None

    @property
    def host(self) -> HostArray:
        """The elements as dims in a numpy object array. Requires `has_host`."""
        if self._array is None:
            assert self._host is not None
            self._array = self._host()
        return self._array

    @property
    def has_bits(self) -> bool:
        return self._bits is not None

    @property
    def bits(self) -> HostArray:
        """The bits of the elements as dims. Requires `has_bits`."""
        assert self._bits is not None
        return self._bits()

    @property
    def constant(self) -> Any | None:
        """The numpy value of a weight, else None."""
        view = self._view
        if view is None or view.tensor.storage is not Storage.WEIGHT or not view.is_whole:
            return None
        data = view.tensor.data
        return np.asarray(data if isinstance(data, np.ndarray) else data.numpy()).reshape(self.shape)

    def check_one(self, what: str) -> None:
        """Raises UnsupportedError for a value that is not known to have one element."""
        if self.size != 1:
            raise UnsupportedError(f"{what} is {self} and not one number")

    def dims(self, what: str, count: int = 0) -> list[Dim]:
        """Returns the elements as dims. If a run decides the length, `count` elements are assumed. Raises UnsupportedError if
        the elements are known on the device alone."""
        if not self.has_host and self._listed is not None and count:
            self.host_value_used = True
            self.conditions = {**self.conditions, equal(self.shape[0], count): f"{what} is {count} numbers"}
            return list(self._listed(count))
        if not self.has_host:
            raise OnDeviceError(f"{what} is computed on the device, so the shape depends on data", self)
        self.host_value_used = True
        return [int(d) if isinstance(d, (bool, np.integer)) else d for d in self.host.reshape(-1).tolist()]

    def ints(self, what: str) -> list[int]:
        """Returns the elements as integers that are the same for every input; raises UnsupportedError otherwise."""
        return fixed(what, *self.dims(what))

    def floats(self, what: str) -> list[float]:
        """Returns the elements of a constant; raises UnsupportedError if it is not constant."""
        value = self.constant
        if value is None:
            raise OnDeviceError(f"{what} is not a constant", self)
        return [float(v) for v in value.reshape(-1)]


def bits_of(value: Any) -> int:
    """The bits of a float, a numpy scalar."""
    return int(value.view(f"u{value.itemsize}"))


def real_of(bits: int, dtype: DType) -> float:
    """The float of type `dtype` with these bits."""
    return float(np.array(bits, f"u{dtype.bits // 8}").view(dtype.numpy))


def fixed(what: str, *values: Dim) -> list[int]:
    """Returns `values` as integers that are the same for every input; raises UnsupportedError otherwise."""
    reason = decided_in_a_run(what, values)
    if reason is not None:
        raise reason
    return [int(v) for v in values]  # type: ignore[arg-type]  # none is an expression


def decided_in_a_run(what: str, values: Iterable[Dim]) -> UnsupportedError | None:
    """Returns None if `values` are the same in every run. Otherwise returns the error for a node that needs `what` before a
    run."""
    free = sorted({name for value in values for name in symbols_of(value)})
    if not free:
        return None
    read = dict.fromkeys(name.removeprefix(NO_EXTENT).rpartition("[")[0] for name in free if name.startswith(NO_EXTENT))
    if read:
        return UnsupportedError(
            f"the elements of {', '.join(map(repr, read))} decide {what} in a run, but it must be known before; make them"
            " constants of the model"
        )
    return FreeSizeError(f"sizes that are free ({', '.join(free)}) decide {what}, but it must be known before a run")


@dataclass(frozen=True)
class Dequantized:
    """The origin of a dequantised value: `integers` minus the zero point, times the scale. Scale and zero point are one
    number, or one per index of `axis`."""

    integers: Operand
    scale: Operand
    zero: Operand | None
    axis: int
