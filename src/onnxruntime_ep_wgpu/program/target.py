"""What an adapter offers and a Program needs: limits, features, and the kind of adapter that lowering decided for.

In: nothing. Out: `Target`, and `lack()`, what one lacks to run what was lowered for another. Invariant: every field says
how it is compared; a field without a rule is an error when this module is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..errors import ProgramError
from .dtypes import DType
from .tuning import Choice

# WebGPU's names of the features that somebody uses; INT64 and SUBGROUP, which is the same as SUBGROUPS and counts them, are
# wgpu-native's. COMPONENT_STORES is ours: to store a component of a vector in memory is to store nothing else, as in SPIR-V, not to
# read, change and store the vector, which other invocations may be storing to. So is INTEGER_DOTS: a GPU multiplies and adds four
# bytes in one instruction, which WGSL has everywhere and what lies below does not.
COMPONENT_STORES = "component-stores"
F16 = "shader-f16"
INTEGER_DOTS = "integer-dots"
OURS = frozenset({COMPONENT_STORES, INTEGER_DOTS})
INT64 = "shader-int64"
SUBGROUP = "subgroup"
SUBGROUPS = "subgroups"
TIMESTAMPS = "timestamp-query"

# The fields that decide which kernels are chosen, which no Program relies on.
FOR_CHOICES = ("tuning", "discrete")

# Whether a target that has `has` runs what was lowered for one that has `needs`: rule(needs, has).
Rule = Callable[[Any, Any], bool]


def _compared(rule: Rule, default: Any) -> Any:
    return field(default=default, metadata={"rule": rule})


def _at_least(default: int) -> Any:
    """A limit that must not be lower than what lowering relied on."""
    return _compared(lambda needs, has: has >= needs, default)


@dataclass(frozen=True)
class Target:
    """Limits and features that lowering may rely on. Byte limits are bytes, counts are counts.

    `int64` says how 64-bit integers are calculated: `native` (needs the feature `shader-int64`) or `pair`
    (two u32); both are exact.
    """

    name: str = _compared(lambda needs, has: True, "web-baseline")  # for people
    features: frozenset[str] = _compared(lambda needs, has: needs <= has, frozenset())
    max_storage_buffers: int = _at_least(8)
    max_invocations: int = _at_least(256)
    max_workgroup_storage: int = _at_least(16384)
    max_binding_bytes: int = _at_least(128 << 20)
    max_buffer_bytes: int = _at_least(256 << 20)
    # Bytes; a tensor at a multiple of it can be bound in place.
    offset_alignment: int = _compared(lambda needs, has: has <= needs, 256)
    # Software adapters end long loops without a word: what was lowered for hardware does not know.
    software: bool = _compared(lambda needs, has: needs or not has, False)
    # Of all loops of an invocation on a software adapter; lavapipe ends a shader after 65,535.
    max_iterations: int = _at_least(60_000)
    # Which kernels are chosen before those that are shipped (`compiler/tune/`), and whether the GPU has memory of its own, which
    # choices may ask; a Program has been made by then.
    tuning: tuple[Choice, ...] = _compared(lambda needs, has: True, ())
    discrete: bool = _compared(lambda needs, has: True, False)

    @property
    def int64(self) -> str:
        return "native" if INT64 in self.features else "pair"

    @property
    def longest_loop(self) -> int | None:
        """The most iterations of all loops of an invocation; None where hardware has no such limit."""
        return self.max_iterations if self.software else None

    @property
    def lowered(self) -> Target:
        """What lowering and fusion look at: graphs are lowered alike where this is equal. These features only choose texts."""
        return replace(self, name="", features=self.features - {COMPONENT_STORES, SUBGROUP, SUBGROUPS})

    @property
    def needs(self) -> Target:
        """What a Program that was made for this target relies on: all but the choices."""
        none: dict[str, Any] = {it.name: it.default for it in fields(Target) if it.name in FOR_CHOICES}
        return replace(self, **none)

    def as_json(self) -> dict[str, Any]:
        """What a Program relies on, as JSON has it."""
        found = {it.name: getattr(self, it.name) for it in fields(Target) if it.name not in FOR_CHOICES}
        return {**found, "features": sorted(self.features)}


_RULES: dict[str, Rule] = {it.name: it.metadata["rule"] for it in fields(Target)}


def lack(needs: Target, has: Target) -> str | None:
    """The first field in which `has` does not offer what `needs` relies on, in words; None when it runs all of it."""
    for name, rule in _RULES.items():
        wanted, offered = getattr(needs, name), getattr(has, name)
        if not rule(wanted, offered):
            if isinstance(wanted, frozenset):
                return f"needs the features {sorted(wanted - offered)}, which this adapter lacks"
            return f"is made for {name} {wanted}, this adapter has {offered}"
    return None


WEB_BASELINE = Target()


def elements_per_word(dtype: DType, target: Target) -> int:
    """How many elements of a type share the smallest unit that a kernel can store; 1 for whole words."""
    if dtype is DType.FLOAT16 and F16 in target.features:
        return 1
    return max(1, 32 // dtype.bits)


def check_target(needs: Target, has: Target, what: str) -> None:
    """Raises ProgramError naming the first thing that a program for `needs` relies on and `has` lacks."""
    missing = lack(needs, has)
    if missing:
        raise ProgramError(f"{what} {missing}: export it for this target")
