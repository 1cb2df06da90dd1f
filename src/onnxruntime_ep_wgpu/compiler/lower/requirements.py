"""What a graph that is lowered requires: of a run, that its sizes and data are what kernels rely on; of the target, that memory,
loops and bindings suffice.

In: conditions over dims, tensors, nodes. Out: `checks`, which a plan evaluates, and `assertions`, which runs that check everything
look at; or UnsupportedError where it is known already that a condition does not hold.
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
    """Those of one graph. `origin` is the name of the ONNX node that is lowered, which a refusal is about."""

    def __init__(self, target: Target, settings: CompileSettings, limits: Limits) -> None:
        self.target, self.settings, self.limits = target, settings, limits
        self.checks: dict[Dim, Message] = {}  # conditions, each once, with the message of the first one
        self._assumed: dict[Dim, str] = {}  # conditions that are true of what was assumed, each in words
        self.assertions: list[DataAssertion] = []
        self.origin: tuple[str, ...] = ()

    def require(self, condition: Dim, text: str, *parts: Part, limit: bool = False) -> None:
        """The condition must not be 0 when a plan is made; a constant 0 is an error now.

        `text` says what is wrong, with a `{}` for each of `parts`: their sizes are put there when they are known. `limit`
        says that it is about what the target can do: when a plan fails it, the graph is compiled for its sizes.
        """
        if condition == 0:
            wrong = text.format(*(list(p) if isinstance(p, tuple) else p for p in parts))
            relied = [shown for it, shown in self._assumed.items() if it in self.checks]
            raise UnsupportedError("; ".join([wrong, *dict.fromkeys(relied)]))
        if not isinstance(condition, int):
            self.checks.setdefault(condition, message(self.origin, text, parts, limit))

    def assume(self, dim: Dim, value: int, what: str, shown: str = "") -> int:
        """A dim that kernels need as a number. One that a run decides is taken for `value`, which messages call what is `shown`, or
        for one that it may be; a run where it is another number compiles the graph for that. Raises UnsupportedError where runs
        cannot."""
        if isinstance(dim, int):
            return dim
        holds = equal(dim, value)
        if holds == 0 and (possible := dim.samples[1]) is not None:
            value, shown = possible, ""
            holds = equal(dim, value)
        if not self.settings.compiled_again or holds == 0:
            fixed(what, dim)
        self.require(holds, f"{what} is {{}}, and kernels are made for {value}", dim, limit=True)
        self._assumed[holds] = (
            f"{what} of {self.origin[0]!r} is taken for {shown or value}, because the model leaves it open"
        )
        return value

    def assumed_ints(self, given: Sequence[Dim], what: str, guess: Callable[[int], Sequence[int]]) -> list[int]:
        """The dims, which are `what`, as numbers. Those that a run decides are taken for what `guess` makes of how many there
        are."""
        if all(isinstance(it, int) for it in given):
            return fixed(what, *given)
        return [self.assume(it, value, what) for it, value in zip(given, guess(len(given)), strict=True)]

    def assumed_floats(self, x: Operand, what: str, guess: Callable[[int], Sequence[float]]) -> list[float]:
        """The same for the elements of floats, whose bits a run decides."""
        if x.constant is None and x.has_host:
            return [float(it) for it in self.assumed_ints(x.dims(what), what, lambda n: [int(it) for it in guess(n)])]
        if not x.has_bits:
            return x.floats(what)
        bits = x.bits.reshape(-1).tolist()
        taken = zip(bits, np.array(guess(len(bits)), x.dtype.numpy), strict=True)
        return [real_of(self.assume(it, bits_of(value), what, f"{value}"), x.dtype) for it, value in taken]

    @property
    def assumes(self) -> bool:
        """Whether anything was assumed, so that extents may be other numbers in a run."""
        return not self._assumed.keys().isdisjoint(self.checks)

    @property
    def conditions(self) -> list[tuple[Dim, Message]]:
        """What a plan checks. Where an assumption does not hold, nothing else counts that may follow from it."""
        assumed = product(it for it in self.checks if it in self._assumed)
        return [(it if about.limit else select(assumed, it, 1), about) for it, about in self.checks.items()]

    # ---- loops

    def bound_rows(self, columns: Dim) -> None:
        """The bound for kernels of rows, which are no longer than `target`'s `longest_row` in any run."""
        self._bound(columns, self.longest_row, "a row of {} elements", columns)

    @property
    def longest_row(self) -> int | None:
        """The most elements of a row for kernels that take `row_variants` and pass over it at most three times, in blocks of
        32; None where no limit is."""
        most = self.target.longest_loop
        return None if most is None else most * (max(256, self.target.max_invocations) * 5 // 16)

    def bound_loop(self, iterations: Dim, what: str, *parts: Dim) -> None:
        """lavapipe ends a shader after 65,535 iterations of all loops of an invocation, without a word: refuse instead.

        Where sizes decide, that is a limit of a run, which compiles the graph for them: the caller splits a loop that is
        known to be too long, so that what is claimed runs whatever its sizes.
        """
        self._bound(iterations, self.target.longest_loop, what, *parts)

    def _bound(self, length: Dim, most: int | None, what: str, *parts: Dim) -> None:
        if most is not None:
            self.require(
                less_equal(length, most), f"{what} is longer than software adapters can loop over", *parts, limit=True
            )

    # ---- memory

    def check_size(self, tensor: Tensor, what: str, in_memory: bool = True) -> None:
        """Raises UnsupportedError for a tensor, which is `what`, that is known to be beyond what a buffer holds or a kernel counts
        to, if the node that is lowered is held to that (`limits.py`), as inputs and weights are."""
        if isinstance(tensor.size, int) and tensor.size > intervals.MOST_ELEMENTS:
            raise UnsupportedError(
                f"{what} of shape {list(tensor.shape)} has {tensor.size} elements, more than any computer holds"
            )
        if in_memory and not is_storable(tensor, self.target) and self._is_held(tensor):
            limit = self.target.max_buffer_bytes
            raise UnsupportedError(
                f"{what} of shape {list(tensor.shape)} takes {nbytes(tensor)} bytes and a buffer of the adapter has at most {limit}"
            )
        if not is_countable(tensor) and self._is_held(tensor):
            raise UnsupportedError(
                f"{what} of shape {list(tensor.shape)} has {tensor.size} elements and kernels count to {MOST_ELEMENTS - 1}"
            )

    def _is_held(self, tensor: Tensor) -> bool:
        return tensor.storage is not Storage.TEMP or self.limits.hold(self.origin)

    def check_bindings(self, node: Node) -> None:
        """Raises BindingsError for a node whose kernel has not enough bindings, if it is held to that."""
        try:
            check_bindings(node, self.target)
        except BindingsError:
            if self.limits.hold(self.origin):
                raise
