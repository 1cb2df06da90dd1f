"""What an adapter offers and a Program needs: limits, features, and the kind of adapter that lowering decided for.

In: nothing. Out: `Target`, and `lack()`, what one lacks to run what was lowered for another. Invariant: every field says
how it is compared; a field without a rule is an error when this module is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, field, fields, replace
from typing import Any

from ..errors import ProgramError, cut
from ..records import dataclass
from .dtypes import DType
from .tuning import Choice

# WebGPU's names of the features that are used; INT64 and SUBGROUP, which is the same as SUBGROUPS and counts them, are
# wgpu-native's; SUBGROUP_MATRIX is Dawn's. COMPONENT_STORES is ours: to store a component of a vector in memory is to store nothing
# else, as in SPIR-V, not to read, change and store the vector, which other invocations may be storing to. So is INTEGER_DOTS: a GPU
# multiplies and adds four bytes in one instruction, which WGSL has everywhere and what lies below does not. Programs of an export
# that are for a GPU with memory of its own need DISCRETE.
COMPONENT_STORES = "component-stores"
DISCRETE = "discrete"
F16 = "shader-f16"
INTEGER_DOTS = "integer-dots"
OURS = frozenset({COMPONENT_STORES, DISCRETE, INTEGER_DOTS})
INT64 = "shader-int64"
SUBGROUP = "subgroup"
SUBGROUPS = "subgroups"
SUBGROUP_MATRIX = "chromium-experimental-subgroup-matrix"
TIMESTAMPS = "timestamp-query"

# Features that only choose texts.
_OF_TEXTS = frozenset({COMPONENT_STORES, SUBGROUP, SUBGROUPS, SUBGROUP_MATRIX})

# The fields that no Program relies on: through which library the adapter is used, and what decides which kernels are chosen.
UNSTORED = ("library", "tuning", "discrete")

# The types of elements that matrix units multiply, and those in which they sum them.
MATRIX_SUMS = {"f16": ("f32", "f16"), "i8": ("i32",), "u8": ("u32",)}

# Whether a target that has `has` runs what was lowered for one that has `needs`: rule(needs, has).
Rule = Callable[[Any, Any], bool]


def _compared(rule: Rule, default: Any) -> Any:
    return field(default=default, metadata={"rule": rule})


def _at_least(default: int) -> Any:
    """A limit that must not be lower than what lowering relied on."""
    return _compared(lambda needs, has: has >= needs, default)


@dataclass(frozen=True)
class MatrixUnit:
    """A product of matrices that a subgroup of `subgroup` invocations makes together: (m, k) by (k, n), elements of type `operand`,
    sums of type `result`, both as WGSL spells them. Raises ValueError for what is no such product."""

    m: int
    n: int
    k: int
    operand: str
    result: str
    subgroup: int

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "subgroup"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= 256:
                raise ValueError(f"a matrix unit has the {name} {cut(value)}, which is no number from 1 to 256")
        if self.subgroup & (self.subgroup - 1):
            raise ValueError(f"a matrix unit has subgroups of {self.subgroup}, which is no power of two")
        if not isinstance(self.operand, str) or self.result not in MATRIX_SUMS.get(self.operand, ()):
            raise ValueError(f"no matrix unit sums {cut(self.operand)} in {cut(self.result)}")

    @property
    def multiplies_halves(self) -> bool:
        """Whether kernels use it for floats: f16, summed in f32."""
        return (self.operand, self.result) == ("f16", "f32")

    @property
    def multiplies_bytes(self) -> bool:
        """Whether kernels use it for integers: signed bytes, summed in i32."""
        return (self.operand, self.result) == ("i8", "i32")

    @property
    def is_used(self) -> bool:
        """Whether kernels use it: of types that they multiply, and of sizes that are whole parts of 16 bytes."""
        whole = self.m % 8 == self.n % self.together == self.k % self.together == 0
        return whole and (self.multiplies_halves or self.multiplies_bytes)

    @property
    def together(self) -> int:
        """How many of its operands are 16 bytes, which kernels load and store at a time."""
        return 16 if self.multiplies_bytes else 8

    def __str__(self) -> str:
        """`16x16x16 of f16 into f32 by 32 invocations`: m, n and k."""
        return f"{self.m}x{self.n}x{self.k} of {self.operand} into {self.result} by {self.subgroup} invocations"


@dataclass(frozen=True)
class Target:
    """Limits and features that lowering may rely on. Byte limits are bytes, counts are counts.

    `int64` says how 64-bit integers are calculated: `native` (needs the feature `shader-int64`) or `pair`
    (two u32); both are exact.
    """

    name: str = _compared(lambda needs, has: True, "web-baseline")  # for people
    library: str = _compared(lambda needs, has: True, "")  # the WebGPU library by its name; "" in a browser
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
    # What subgroups multiply. With the feature SUBGROUP_MATRIX by units of their own; without it a kernel that is made for them
    # calculates the same in plain WGSL, as tests do.
    matrices: tuple[MatrixUnit, ...] = _compared(lambda needs, has: {*needs} <= {*has}, ())
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
        return replace(self, name="", library="", features=self.features - _OF_TEXTS)

    @property
    def needs(self) -> Target:
        """What a Program that was made for this target relies on: all but the fields in UNSTORED."""
        none: dict[str, Any] = {it.name: it.default for it in fields(Target) if it.name in UNSTORED}
        return replace(self, **none)

    def as_json(self) -> dict[str, Any]:
        """What a Program relies on, as JSON has it: matrices only where there are some."""
        found = {it.name: getattr(self, it.name) for it in fields(Target) if it.name not in UNSTORED}
        matrices = [list(astuple(it)) for it in found.pop("matrices")]
        return {**found, "features": sorted(self.features), **({"matrices": matrices} if matrices else {})}


_RULES: dict[str, Rule] = {it.name: it.metadata["rule"] for it in fields(Target)}


def lack(needs: Target, has: Target) -> str | None:
    """The first field in which `has` does not offer what `needs` relies on, in words; None when it runs all of it."""
    for name, rule in _RULES.items():
        wanted, offered = getattr(needs, name), getattr(has, name)
        if not rule(wanted, offered):
            if isinstance(wanted, frozenset):
                return f"needs the features {sorted(wanted - offered)}, which this adapter lacks"
            if isinstance(wanted, tuple):
                lacking = next(it for it in wanted if it not in offered)
                return f"needs matrices of {lacking}, which this adapter lacks"
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
