"""The compiled form of a graph: plain data that is saved, loaded, planned and run without onnx.

Kernels are WGSL text, shapes are postfix expressions over named symbols (see `postfix`), weights are arrays by index. The native
runner, browsers, the cache and inspection tools read this one format.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

from ..records import dataclass
from .dtypes import DType
from .postfix import Postfix
from .target import Target

FORMAT_VERSION = 10
# The prefix of symbols that are no extents and may be negative: elements of inputs, and REPETITION.
NO_EXTENT = "@"
REPETITION = f"{NO_EXTENT}repetition"  # the symbol that numbers the runs of a repeated dispatch


class Storage(enum.Enum):
    """The owner of a value's memory, and when it is written."""

    INPUT = "input"  # the caller's; read
    OUTPUT = "output"  # the caller's; written
    WEIGHT = "weight"  # the session's; written once
    TEMP = "temp"  # planned from liveness
    HOST = "host"  # small integers computed from dims; written when a plan is made
    STATE = "state"  # the session's, four u32; kept from run to run


@dataclass(frozen=True)
class Value:
    """A tensor. `weight` indexes `Program.weights`.

    `elements` are the dims of a HOST value, row-major, or the initial numbers of a STATE. A STATE without them begins with
    random bits.
    """

    name: str
    dtype: DType
    shape: tuple[Postfix, ...]
    storage: Storage
    weight: int = -1
    elements: tuple[Postfix, ...] = ()


@dataclass(frozen=True)
class Kernel:
    """WGSL texts, one per variant, with the same bindings.

    `bindings` are "read" or "read_write" in binding order. If `uniforms` is not 0, a uniform block of that many u32 follows them.
    `makes_infinity`: the kernel has an infinite constant, as masks do.
    """

    label: str
    wgsl: tuple[str, ...]
    bindings: tuple[str, ...]
    uniforms: int
    makes_infinity: bool = False

    @property
    def all_bindings(self) -> tuple[str, ...]:
        """The bindings with the uniform block, for a pipeline."""
        return (*self.bindings, "uniform") if self.uniforms else self.bindings


@dataclass(frozen=True, kw_only=True)
class Dispatch:
    """One use of a kernel.

    - `args`: values in binding order. `uniforms`: u32 dims. `origin`: ONNX node names, with their `operators`.
    - `guards` and `workgroups`: one entry per variant of the kernel. The first variant with a guard that is not 0 runs.
    - `flops` (arithmetic operations) and `traffic` (bytes read and written): for profiles; see `passes/cost.py`.
    - `repeats`: it runs this many times, at least once, one after another. `uniforms` may use the symbol `REPETITION`, which
      counts from 0.
    - `ranges`: per argument the first byte and the number of bytes that are bound, None for all of it. A value with several
      ranges is an argument several times.
    """

    kernel: int
    args: tuple[int, ...]
    uniforms: tuple[Postfix, ...]
    guards: tuple[Postfix, ...]
    workgroups: tuple[Postfix, ...]
    origin: tuple[str, ...]
    operators: tuple[str, ...]
    flops: Postfix
    traffic: Postfix
    repeats: Postfix = 1
    ranges: tuple[tuple[Postfix, Postfix] | None, ...] = ()


@dataclass(frozen=True)
class Assertion:
    """Every element of an integer value is from `low` to `high`.

    Otherwise it is outside `what`. The nodes `origin` rely on it.
    """

    value: int
    low: Postfix
    high: Postfix
    what: str
    origin: tuple[str, ...]


@dataclass(frozen=True)
class Symbol:
    """A number that follows from the inputs: the extent of an input's axis, or an element of a small integer input."""

    name: str
    input: int
    index: int
    is_element: bool


@dataclass(frozen=True)
class Check:
    """A condition that must not be 0. Otherwise `text` describes the fault, with a placeholder `{}` for each of `dims`.

    `limit`: it is a limit of the target, so a Program for exactly these sizes may succeed.
    """

    condition: Postfix
    text: str
    dims: tuple[Postfix, ...] = ()
    limit: bool = False


@dataclass(frozen=True)
class Declined:
    """A rule of the compiler left the ONNX nodes `origin` unchanged, for a human-readable `reason`."""

    rule: str
    reason: str
    origin: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Program:
    """Everything needed to run a graph on any device that satisfies `target`.

    - `definitions`: further symbols, each an expression over those before it. `message_definitions`: those that only messages
      use.
    - `inputs` and `outputs` index `values` in ONNX order. In a Flow an output may be a HOST value, which no kernel stores.
    - `aliases`: pairs of an output and an input. In a run in which both have one shape, the output begins as the input, and the
      dispatches do not read the input. A host copies the input, or places both in the same memory, which is then updated in
      place.
    - `checks`: conditions that must not be 0. `assertions`: conditions on data, which only fully validated runs check.
    - `sized`: pairs of outputs. The first has a size that data decides and room for the most elements that it may have. They are
      row-major from its beginning on. The second is its shape.
    """

    name: str
    target: Target
    symbols: tuple[Symbol, ...]
    definitions: tuple[tuple[str, Postfix], ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    values: tuple[Value, ...]
    kernels: tuple[Kernel, ...]
    dispatches: tuple[Dispatch, ...]
    checks: tuple[Check, ...] = ()
    assertions: tuple[Assertion, ...] = ()
    message_definitions: tuple[tuple[str, Postfix], ...] = ()
    declined: tuple[Declined, ...] = ()
    aliases: tuple[tuple[int, int], ...] = ()
    sized: tuple[tuple[int, int], ...] = ()
    weights: tuple[Any, ...] = field(default=(), repr=False)
    format_version: int = FORMAT_VERSION

    def is_of_elements(self, check: Check) -> bool:
        """Whether a limit is about elements of inputs and not about sizes, because kernels are made for these values."""
        return check.limit and bool(self._elements) and self._named(check.condition) <= self._elements

    @cached_property
    def decisive(self) -> frozenset[str]:
        """The symbols of elements of inputs that kernels are made for. Other values need another Program."""
        return frozenset(
            it for check in self.checks if self.is_of_elements(check) for it in self._named(check.condition)
        )

    @cached_property
    def _elements(self) -> frozenset[str]:
        return frozenset(it.name for it in self.symbols if it.is_element)

    def _named(self, dim: Postfix) -> frozenset[str]:
        """Returns the symbols that an expression depends on."""
        definitions, found = dict(self.definitions), set[str]()
        pending: list[Postfix] = [dim]
        while pending:
            it = pending.pop()
            for token in () if isinstance(it, int) else it:
                if isinstance(token, str) and token.startswith("$") and (name := token[1:]) not in found:
                    found.add(name)
                    if name in definitions:
                        pending.append(definitions[name])
        return frozenset(found - definitions.keys())

    def sizes(self, symbols: Sequence[int]) -> dict[str, int]:
        """Returns the values of its symbols, by name."""
        return {it.name: value for it, value in zip(self.symbols, symbols, strict=True)}
