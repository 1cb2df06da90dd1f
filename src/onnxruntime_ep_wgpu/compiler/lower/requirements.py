"""The requirements of a graph during lowering. Kernels rely on sizes and data of runs. Memory, loops and bindings must be
within the limits of the target.

In: conditions over dims, tensors, nodes. Out: `checks`, which a plan evaluates, and `assertions`, which are tested in runs
that check everything. Raises UnsupportedError if a condition is already known to be false.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...errors import UnsupportedError
from ...program.settings import CompileSettings
from ...program.target import Target
from ..dims import Dim, equal, intervals, less_equal, product, select
from ..ir import MOST_ELEMENTS, DataAssertion, Message, Node, Storage, Tensor
from ..ir.binding_ranges import is_countable, is_storable, nbytes
from ..nodes.divide import BindingsError, check_bindings
from .limits import Limits
from .messages import Part, message
from .operand import Operand, bits_of, fixed, real_of


class Requirements:
    """The requirements of one graph. `origin` is the name of the ONNX node that is being lowered, for messages."""

    def __init__(self, target: Target, settings: CompileSettings, limits: Limits) -> None:
        self.target, self.settings, self.limits = target, settings, limits
        self.checks: dict[Dim, Message] = {}  # each condition once, with the message of its first use
        self._assumed: dict[Dim, str] = {}  # conditions that hold if the assumptions do, each with its text
        self.assertions: list[DataAssertion] = []
        self.origin: tuple[str, ...] = ()

    def require(self, condition: Dim, text: str, *parts: Part, limit: bool = False) -> None:
        """Requires that the condition is not 0 when a plan is made; a constant 0 is an error now.

        `text` states the fault, with a `{}` for each of `parts`, which is replaced by sizes once they are known. `limit`: the
        condition is about the target's limits. If a plan violates it, the graph is compiled for the plan's sizes.
        """
        if condition == 0:
            wrong = text.format(*(list(p) if isinstance(p, tuple) else p for p in parts))
            relied = [shown for it, shown in self._assumed.items() if it in self.checks]
            raise UnsupportedError("; ".join([wrong, *dict.fromkeys(relied)]))
        if not isinstance(condition, int):
            self.checks.setdefault(condition, message(self.origin, text, parts, limit))

    def assume(self, dim: Dim, value: int, what: str, shown: str = "") -> int:
        """Returns a dim as a number, for kernels that need one. If a run decides the dim, `value` is assumed, or a possible
        value of the dim if it cannot be `value`. Messages show `value` as `shown`. A run with another number compiles the
        graph again for that number. Raises UnsupportedError where that is not possible."""
        if isinstance(dim, int):
            return dim
        holds = equal(dim, value)
        if holds == 0 and (possible := dim.samples[1]) is not None:
            value, shown = possible, ""
            holds = equal(dim, value)
        if not self.settings.compiled_again or holds == 0:
            fixed(what, dim)
        self.require(holds, f"{what} is {{}}, but kernels are made for {value}", dim, limit=True)
        self._assumed[holds] = (
            f"{what} of {self.origin[0]!r} is assumed to be {shown or value}, because the model does not fix it"
        )
        return value

    def assumed_ints(self, given: Sequence[Dim], what: str, guess: Callable[[int], Sequence[int]]) -> list[int]:
        """Returns the dims, which messages call `what`, as numbers. If a run decides some, their values are assumed from
        `guess(count)`."""
        if all(isinstance(it, int) for it in given):
            return fixed(what, *given)
        return [self.assume(it, value, what) for it, value in zip(given, guess(len(given)), strict=True)]

    def assumed_floats(self, x: Operand, what: str, guess: Callable[[int], Sequence[float]]) -> list[float]:
        """The same for the elements of a float tensor: a run decides their bits."""
        if x.constant is None and x.has_host:
            return [float(it) for it in self.assumed_ints(x.dims(what), what, lambda n: [int(it) for it in guess(n)])]
        if not x.has_bits:
            return x.floats(what)
        bits = x.bits.reshape(-1).tolist()
        taken = zip(bits, np.array(guess(len(bits)), x.dtype.numpy), strict=True)
        return [real_of(self.assume(it, bits_of(value), what, f"{value}"), x.dtype) for it, value in taken]

    @property
    def assumes(self) -> bool:
        """Whether an assumption was made, so that extents may be other numbers in a run."""
        return not self._assumed.keys().isdisjoint(self.checks)

    @property
    def conditions(self) -> list[tuple[Dim, Message]]:
        """The conditions that a plan checks. If an assumption fails, conditions that may depend on it are ignored."""
        assumed = product(it for it in self.checks if it in self._assumed)
        return [(it if about.limit else select(assumed, it, 1), about) for it, about in self.checks.items()]

    # ---- loops

    def bound_rows(self, columns: Dim) -> None:
        """Checks that rows are not longer than `longest_row` in any run, for row kernels."""
        self._bound(columns, self.longest_row, "a row of {} elements", columns)

    @property
    def longest_row(self) -> int | None:
        """The longest row for kernels that take `row_variants` and pass over it at most three times, in blocks of 32; None
        for no limit."""
        most = self.target.longest_loop
        return None if most is None else most * (max(256, self.target.max_invocations) * 5 // 16)

    def bound_loop(self, iterations: Dim, what: str, *parts: Dim) -> None:
        """Refuses loops beyond the target's limit. lavapipe ends a shader without an error after 65,535 iterations of all
        loops of an invocation.

        If sizes decide the count, it is a limit of a run, which compiles the graph for its sizes. The caller splits a loop
        that is known to be too long, so that every claimed node runs with any sizes.
        """
        self._bound(iterations, self.target.longest_loop, what, *parts)

    def _bound(self, length: Dim, most: int | None, what: str, *parts: Dim) -> None:
        if most is not None:
            self.require(
                less_equal(length, most), f"{what} exceeds the loop limit of software adapters", *parts, limit=True
            )

    # ---- memory

    def check_size(self, tensor: Tensor, what: str, in_memory: bool = True) -> None:
        """Raises UnsupportedError for a tensor that is known to exceed a buffer's size or the range of a kernel's counter.
        Messages call it `what`. The limits apply to inputs and weights, and to the results of nodes that `limits.py` does not
        exempt."""
        if isinstance(tensor.size, int) and tensor.size > intervals.MOST_ELEMENTS:
            raise UnsupportedError(
                f"{what} of shape {list(tensor.shape)} has {tensor.size} elements, more than any computer holds"
            )
        if in_memory and not is_storable(tensor, self.target) and self._is_held(tensor):
            limit = self.target.max_buffer_bytes
            raise UnsupportedError(
                f"{what} of shape {list(tensor.shape)} takes {nbytes(tensor)} bytes,"
                f" but a buffer of the adapter has at most {limit}"
            )
        if not is_countable(tensor) and self._is_held(tensor):
            raise UnsupportedError(
                f"{what} of shape {list(tensor.shape)} has {tensor.size} elements, but kernels count to {MOST_ELEMENTS - 1}"
            )

    def _is_held(self, tensor: Tensor) -> bool:
        return tensor.storage is not Storage.TEMP or self.limits.applies(self.origin)

    def check_bindings(self, node: Node) -> None:
        """Raises BindingsError if a node's kernel needs more bindings than there are, and the limit applies to it."""
        try:
            check_bindings(node, self.target)
        except BindingsError:
            if self.limits.applies(self.origin):
                raise
