"""The properties of an adapter that lowering relies on: limits, features, and the kind of adapter.

In: nothing. Out: `Target`, and `lack()`, which finds what a target lacks to run a Program that was lowered for another.
Invariant: every field has a comparison rule. A field without a rule is an error when this module is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, field, fields, replace
from typing import Any

from ..errors import ProgramError, cut
from ..records import dataclass
from .dtypes import DType
from .tuning import Choice

# The features that are used, by WebGPU's names, with these exceptions.
# INT64 and SUBGROUP are wgpu-native's. SUBGROUP is the same as SUBGROUPS, with the number of subgroups as a builtin.
# SUBGROUP_MATRIX is Dawn's.
# COMPONENT_STORES is ours: a store to a component of a vector in memory stores nothing else, as in SPIR-V. It does not read,
# change and store the whole vector, which other invocations may write.
# INTEGER_DOTS is ours: the GPU multiplies and adds four bytes in one instruction. WGSL has the function everywhere, but not all
# hardware has the instruction.
# DISCRETE is ours: Programs of an export that are for a GPU with memory of its own need it.
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

# Features that only affect WGSL texts.
_OF_TEXTS = frozenset({COMPONENT_STORES, SUBGROUP, SUBGROUPS, SUBGROUP_MATRIX})

# Fields that no Program relies on: the library of the adapter, and the inputs to the choice of kernels.
UNSTORED = ("library", "tuning", "discrete")

# The operand types of matrix units, and the accumulator types of each.
MATRIX_SUMS = {"f16": ("f32", "f16"), "i8": ("i32",), "u8": ("u32",)}

# rule(needs, has): whether a target that has `has` runs what was lowered for one that has `needs`.
Rule = Callable[[Any, Any], bool]


def _compared(rule: Rule, default: Any) -> Any:
    return field(default=default, metadata={"rule": rule})


def _at_least(default: int) -> Any:
    """A limit that must not be lower than the one at lowering."""
    return _compared(lambda needs, has: has >= needs, default)


@dataclass(frozen=True)
class MatrixUnit:
    """A product of matrices that a subgroup of `subgroup` invocations computes together: (m, k) by (k, n).

    `operand` is the type of elements and `result` that of sums, both in WGSL's spelling. Raises ValueError for an invalid
    product.
    """

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
                raise ValueError(f"a matrix unit has the {name} {cut(value)}, which is not an integer from 1 to 256")
        if self.subgroup & (self.subgroup - 1):
            raise ValueError(f"a matrix unit has subgroups of {self.subgroup}, which is not a power of two")
        if not isinstance(self.operand, str) or self.result not in MATRIX_SUMS.get(self.operand, ()):
            raise ValueError(f"no matrix unit sums {cut(self.operand)} in {cut(self.result)}")

    @property
    def multiplies_halves(self) -> bool:
        """Whether kernels use it for floats: f16, accumulated in f32."""
        return (self.operand, self.result) == ("f16", "f32")

    @property
    def multiplies_bytes(self) -> bool:
        """Whether kernels use it for integers: signed bytes, accumulated in i32."""
        return (self.operand, self.result) == ("i8", "i32")

    @property
    def is_used(self) -> bool:
        """Whether kernels use it: of supported types, and of sizes that are multiples of 16 bytes."""
        whole = self.m % 8 == self.n % self.together == self.k % self.together == 0
        return whole and (self.multiplies_halves or self.multiplies_bytes)

    @property
    def together(self) -> int:
        """The number of operands in 16 bytes, which kernels load and store at a time."""
        return 16 if self.multiplies_bytes else 8

    def __str__(self) -> str:
        """`16x16x16 of f16 into f32 by 32 invocations`: m, n and k."""
        return f"{self.m}x{self.n}x{self.k} of {self.operand} into {self.result} by {self.subgroup} invocations"


@dataclass(frozen=True)
class Target:
    """Limits and features that lowering may rely on. Byte limits are in bytes.

    `int64` is how 64-bit integers are calculated: `native` (needs the feature `shader-int64`) or `pair` (two u32). Both are
    exact.
    """

    name: str = _compared(lambda needs, has: True, "web-baseline")  # for humans
    library: str = _compared(lambda needs, has: True, "")  # the name of the WebGPU library; "" in a browser
    features: frozenset[str] = _compared(lambda needs, has: needs <= has, frozenset())
    max_storage_buffers: int = _at_least(8)
    max_invocations: int = _at_least(256)
    max_workgroup_storage: int = _at_least(16384)
    max_binding_bytes: int = _at_least(128 << 20)
    max_buffer_bytes: int = _at_least(256 << 20)
    # In bytes. Tensors at its multiples can be bound in place.
    offset_alignment: int = _compared(lambda needs, has: has <= needs, 256)
    # Software adapters abort long loops without an error. Kernels that were lowered for hardware do not limit their loops.
    software: bool = _compared(lambda needs, has: needs or not has, False)
    # Of all loops of an invocation on a software adapter. lavapipe aborts a shader after 65,535.
    max_iterations: int = _at_least(60_000)
    # The products of subgroup matrices. With the feature SUBGROUP_MATRIX they run on matrix units. Without it, such kernels
    # compute the same in plain WGSL, as tests do.
    matrices: tuple[MatrixUnit, ...] = _compared(lambda needs, has: {*needs} <= {*has}, ())
    # Tuned choices, which take precedence over the shipped ones (`compiler/tune/`), and whether the GPU has memory of its own,
    # which choices may depend on. Both are only used when a Program is made.
    tuning: tuple[Choice, ...] = _compared(lambda needs, has: True, ())
    discrete: bool = _compared(lambda needs, has: True, False)

    @property
    def int64(self) -> str:
        return "native" if INT64 in self.features else "pair"

    @property
    def longest_loop(self) -> int | None:
        """The most iterations of all loops of an invocation; None if there is no limit, as on hardware."""
        return self.max_iterations if self.software else None

    @property
    def lowered(self) -> Target:
        """The part that lowering and fusion depend on.

        Graphs are lowered identically if it is equal. Other features affect only texts.
        """
        return replace(self, name="", library="", features=self.features - _OF_TEXTS)

    @property
    def needs(self) -> Target:
        """The part that a Program for this target relies on: all but the fields in UNSTORED."""
        none: dict[str, Any] = {it.name: it.default for it in fields(Target) if it.name in UNSTORED}
        return replace(self, **none)

    def as_json(self) -> dict[str, Any]:
        """Returns the part that a Program relies on as JSON objects. `matrices` is omitted if it is empty."""
        found = {it.name: getattr(self, it.name) for it in fields(Target) if it.name not in UNSTORED}
        matrices = [list(astuple(it)) for it in found.pop("matrices")]
        return {**found, "features": sorted(self.features), **({"matrices": matrices} if matrices else {})}


_RULES: dict[str, Rule] = {it.name: it.metadata["rule"] for it in fields(Target)}


def lack(needs: Target, has: Target) -> str | None:
    """Returns the first field in which `has` does not offer what `needs` relies on, in words; None if it offers everything."""
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
    """The number of elements of a type in the smallest unit that a kernel can store; 1 for whole words."""
    if dtype is DType.FLOAT16 and F16 in target.features:
        return 1
    return max(1, 32 // dtype.bits)


def check_target(needs: Target, has: Target, what: str) -> None:
    """Raises ProgramError that names the first thing that a program for `needs` relies on and `has` lacks."""
    missing = lack(needs, has)
    if missing:
        raise ProgramError(f"{what} {missing}: export it for this target")
