"""The compiled form of a graph: plain data that can be saved, loaded, planned and run without onnx.

Kernels are WGSL text, shapes are postfix expressions over named symbols (see `postfix`), weights are arrays by index. The
native runner, a browser, a cache and an inspector all read this one format.
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
NO_EXTENT = (
    "@"  # begins the names of symbols that are no extents and may be negative: elements of inputs, and REPETITION
)
REPETITION = f"{NO_EXTENT}repetition"  # the symbol that counts the runs of a repeated dispatch


class Storage(enum.Enum):
    """The owner of a value's memory, and when it is written."""

    INPUT = "input"  # the caller's, read
    OUTPUT = "output"  # the caller's, written
    WEIGHT = "weight"  # the session's, written once
    TEMP = "temp"  # planned from liveness
    HOST = "host"  # small integers computed from dimensions, written when a plan is made
    STATE = "state"  # the session's, four u32: what a run leaves there the next one finds


@dataclass(frozen=True)
class Value:
    """A tensor. `weight` indexes `Program.weights`; `elements` are the dims a HOST value holds, row-major, or the numbers
    that a STATE begins with, which is random bits where there are none."""

    name: str
    dtype: DType
    shape: tuple[Postfix, ...]
    storage: Storage
    weight: int = -1
    elements: tuple[Postfix, ...] = ()


@dataclass(frozen=True)
class Kernel:
    """WGSL texts, one per variant, that bind the same. `bindings` are "read" or "read_write" in binding order; a uniform
    block of `uniforms` u32 follows them when it is not 0. `makes_infinity`: it has an infinite constant, as masks do."""

    label: str
    wgsl: tuple[str, ...]
    bindings: tuple[str, ...]
    uniforms: int
    makes_infinity: bool = False

    @property
    def all_bindings(self) -> tuple[str, ...]:
        """The bindings with the uniform block, as a pipeline needs them."""
        return (*self.bindings, "uniform") if self.uniforms else self.bindings


@dataclass(frozen=True, kw_only=True)
class Dispatch:
    """One use of a kernel. `args` are values in binding order, `uniforms` u32 dims, `origin` ONNX node names.

    `guards` and `workgroups` have one entry per variant of the kernel: the first variant whose guard is not 0 runs.
    `operators` are the ONNX operators of `origin`. `flops` (arithmetic operations) and `traffic` (bytes read and written)
    are for profiles; see `passes/cost.py`. It runs `repeats` times, at least once, one after another; `uniforms` may use the symbol
    `REPETITION`, which counts them from 0. `ranges` has for every one of `args` the first byte and the number of bytes that
    are bound, None for all of it; a value with several ranges is there as often.
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
    """Every element of a value, integers, is from `low` to `high`, else outside `what`; the nodes `origin` rely on it."""

    value: int
    low: Postfix
    high: Postfix
    what: str
    origin: tuple[str, ...]


@dataclass(frozen=True)
class Symbol:
    """A number known when the inputs are: the extent of an input's axis, or an element of a small integer input."""

    name: str
    input: int
    index: int
    is_element: bool


@dataclass(frozen=True)
class Check:
    """`condition` must not be 0. Otherwise `text` says what is wrong, with a place `{}` for each of `dims`.

    `limit`: it is a limit of the target, so that a Program for these very sizes may do better.
    """

    condition: Postfix
    text: str
    dims: tuple[Postfix, ...] = ()
    limit: bool = False


@dataclass(frozen=True)
class Declined:
    """A rule of the compiler left the ONNX nodes `origin` as they are, because of `reason`: for people."""

    rule: str
    reason: str
    origin: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Program:
    """Everything needed to run a graph on any device that satisfies `target`.

    `definitions` are further symbols, each an expression over those before it. `inputs` and `outputs` index `values` in ONNX
    order; in a Flow an output may be a HOST value, which no kernel stores. `aliases` are pairs of an output and an input, values:
    in a run in which both have one shape, the output begins as the input, which the dispatches of such a run do not read. A host
    copies, or has both in one place, which is then updated where it lies. `checks` are conditions that must not be 0;
    `assertions` are about data, and looked at only by runs that check everything. `message_definitions` are
    those that only messages use. `sized` are pairs of outputs, values: one whose size data decides, with room for the most elements
    that it may have, row-major from its beginning on, and its shape.
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
        """Whether a limit is about elements of inputs and no sizes: kernels are made for their values."""
        return check.limit and bool(self._elements) and self._named(check.condition) <= self._elements

    @cached_property
    def decisive(self) -> frozenset[str]:
        """The symbols of elements of inputs that kernels are made for: other values take another Program."""
        return frozenset(
            it for check in self.checks if self.is_of_elements(check) for it in self._named(check.condition)
        )

    @cached_property
    def _elements(self) -> frozenset[str]:
        return frozenset(it.name for it in self.symbols if it.is_element)

    def _named(self, dim: Postfix) -> frozenset[str]:
        """The symbols that an expression depends on."""
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
        """The values of its symbols, by name."""
        return {it.name: value for it, value in zip(self.symbols, symbols, strict=True)}
