"""The memory of a kernel in its text: bindings and their ranges, loads and stores of words, the entry point and the module.

In: a fused group, which determines the bindings. Out: statements and declarations for `calls.py` and `maps.py`, which write the
computation, and the `VariantText` of a variant. Invariant: a kernel never loads what it computes, and every binding is used.
"""

from __future__ import annotations

from ...program.dtypes import DType
from ...program.target import COMPONENT_STORES, SUBGROUP, SUBGROUP_MATRIX, SUBGROUPS, Target, elements_per_word
from ...records import dataclass
from ..dims import Dim, quotient
from ..ir import REPETITION, Map, Tensor, View
from ..ir.kinds import WIDE
from ..passes.fuse import FusedGroup
from . import storage
from .accessor import Accessors, fn
from .position import Position
from .reached import reached
from .scalar import Scalars
from .uniforms import UniformBlock


@dataclass(frozen=True)
class VariantText:
    """A variant without its functions and declarations.

    `code` has `kernel` and `main`, which may call `functions`. `vectors` are bound as arrays of four elements, `eights` as arrays
    of eight halves.
    """

    guard: Dim
    workgroups: Dim
    code: str
    functions: dict[str, str]
    vectors: frozenset[Tensor]
    eights: frozenset[Tensor]


# The kernel ensures uniform control flow here. The check wrongly treats it as a decision of each invocation.
_UNCHECKED = ("diagnostic(off, chromium.subgroup_matrix_uniformity);",)


class Writer:
    """What the variants of one kernel share: bindings, uniforms and accessors, and the access to words.

    Fusion decides what the kernel reads from memory and what it stores; nothing else has a binding.
    """

    def __init__(self, group: FusedGroup, target: Target) -> None:
        self.group, self.target = group, target
        self.scalars = Scalars(target.int64)
        self.counted = SUBGROUP in target.features
        self.subgroups = self.counted or SUBGROUPS in target.features
        self.component_stores = COMPONENT_STORES in target.features
        self.matrix_units = SUBGROUP_MATRIX in target.features
        self.browser = not target.library
        inner = group.anchor.inner.values() if group.anchor else ()
        maps = {n.output: n for n in (*group.nodes, *(it for i in inner for it in i.maps)) if isinstance(n, Map)}
        loads = group.loads
        self.placement = group.placement(group.stores, target)
        self.bindings = {
            tensor: f"b{k}" for k, tensor in enumerate(dict.fromkeys((*loads, *(t.memory for t in group.stores))))
        }
        self.loads = frozenset(loads)
        self.updated = frozenset(group.anchor.updated) if group.anchor else frozenset[Tensor]()
        results = group.anchor.results.values() if group.anchor else ()
        self.atomic = frozenset(write.tensor.memory for write in results if write.largest)
        self._tensors = {name: tensor for tensor, name in self.bindings.items()}
        # A call compiles slowly and is used for many sizes, so its dims are uniforms, and layers of other sizes share it. If it
        # inlines index arithmetic, divisions by constants are worth a kernel per size. Maps compile quickly.
        self.uniforms = UniformBlock(group.anchor is not None and all(n.is_pointwise for n in maps.values()))
        self.dim = self.uniforms.text
        self.fused = maps
        self.renew(frozenset())

    def renew(
        self,
        vectors: frozenset[Tensor],
        fours: frozenset[Dim] = frozenset(),
        eights: frozenset[Tensor] = frozenset(),
    ) -> None:
        """Begins the text of a variant, or of all variants that share their functions."""
        self.vectors, self.eights = vectors - eights, eights
        self.access = Accessors(
            self.scalars, self.fused, self.bind, self.uniforms, self.lanes, self.word, self.vectors, fours, eights
        )

    def bind(self, tensor: Tensor) -> str:
        """Returns the name of the buffer of a tensor that another kernel computed.

        Raises AssertionError for a tensor that this kernel computes, except for one that it updates: its memory is not written
        yet, and no error would report that.
        """
        if tensor not in self.loads and tensor not in self.updated:
            raise AssertionError(
                f"the kernel of {', '.join(self.group.origin)} would load {tensor!r}, which it computes"
            )
        return self.bindings[tensor]

    def word(self, buffer: str, index: str) -> str:
        """Returns the word of a buffer at an index into its tensor's memory."""
        name = f"{buffer}_word"
        if place := self._place(buffer, index):
            return place
        self.access.functions[name] = fn(
            name, "i: u32", self._range_selection(buffer, "return {place};"), self._kind(buffer)
        )
        return f"{name}({index})"

    def set_word(self, buffer: str, index: str, value: str) -> str:
        """Returns the statement that stores a word."""
        return self._statement(f"{buffer}_set", buffer, index, value, "{place} = {value};", self._kind(buffer))

    def raise_word(self, buffer: str, index: str, value: str) -> str:
        """Returns the statement that raises a word of an atomic buffer to at least a value."""
        return self._statement(f"{buffer}_max", buffer, index, value, "atomicMax(&{place}, {value});", "i32")

    def _statement(self, name: str, buffer: str, index: str, value: str, text: str, kind: str) -> str:
        """Returns a statement with a word and a value of a `kind`. If a buffer has several ranges, it calls a function of this
        name."""
        if place := self._place(buffer, index):
            return text.format(place=place, value=value)
        self.access.functions[name] = fn(name, f"i: u32, value: {kind}", self._range_selection(buffer, text))
        return f"{name}({index}, {value});"

    def _place(self, buffer: str, index: str) -> str:
        """Returns the word at an index, or "" if it is in one of several ranges, depending on the index."""
        tensor = self._tensors[buffer]
        if not self.placement.ranges[tensor]:
            return f"{buffer}[{index}]"
        return f"{buffer}_0[({index}) - {self._begin(tensor)}]" if tensor in self.placement.moving else ""

    def _kind(self, buffer: str) -> str:
        """Returns the type of a buffer's words."""
        return self._array_element(self._tensors[buffer], self.vectors, self.eights)

    def _begin(self, tensor: Tensor) -> str:
        """Returns the first word of a tensor in this dispatch."""
        return self.dim(REPETITION * (self.placement.part * tensor.dtype.bits // 8 // self._word_bytes(tensor)))

    def _range_selection(self, buffer: str, statement: str) -> list[str]:
        """Returns `statement` for word `i`, in the range that contains it."""
        tensor = self._tensors[buffer]
        size, lines = self._word_bytes(tensor), []
        ranges = self.placement.ranges[tensor]
        for k, byte_range in enumerate(ranges):
            assert isinstance(byte_range.offset, int) and isinstance(byte_range.nbytes, int)
            place = f"{buffer}_{k}[i - {self.dim(byte_range.offset // size)}]"
            end = (byte_range.offset + byte_range.nbytes) // size
            test = f"if (i < {self.dim(end)}) " if k < len(ranges) - 1 else ""
            lines.append(
                f"{test}{{ {statement.format(place=place, value='value')}{' return;' if 'return' not in statement else ''} }}"
            )
        return lines

    def _word_bytes(self, tensor: Tensor) -> int:
        """Returns the bytes of an element of the tensor's bindings."""
        if tensor in self.eights:
            return 16
        if tensor in self.vectors:
            return max(4, tensor.dtype.bits // 2)
        return 4 if self.lanes(tensor.dtype) > 1 or tensor.dtype is DType.BOOL else tensor.dtype.bits // 8

    def names(self, tensor: Tensor) -> list[str]:
        """Returns the names of a tensor's bindings."""
        ranges = self.placement.ranges[tensor]
        return [f"{self.bindings[tensor]}_{k}" for k in range(len(ranges))] if ranges else [self.bindings[tensor]]

    def lanes(self, dtype: DType) -> int:
        return elements_per_word(dtype, self.target)

    def store(self, tensor: Tensor, at: Position, value: str) -> str:
        """Returns the statement that stores an element of at least one word."""
        index = self.place(tensor, at).number
        stored = f"f16({value})" if self._element(tensor.dtype) == "f16" else value
        return self.set_word(self.bindings[tensor.memory], index, stored)

    def place(self, tensor: Tensor, at: Position) -> Position:
        """Returns the position in memory of a stored element."""
        placed = at if tensor.place is None else at.through(tensor.place)
        assert placed is not None, f"four elements of {tensor!r} are not neighbours in memory"
        return placed

    def store_word(self, tensor: Tensor, word: str, value: str) -> str:
        """Returns the statement that stores a word of narrow elements, by its number in the tensor."""
        if tensor.place is not None and tensor.place.offset != 0:
            begin = quotient(tensor.place.offset, self.lanes(tensor.dtype))
            assert begin is not None  # a part consists of whole words (`passes/place.py`)
            word = f"{word} + {self.uniforms.begin(begin)}"
        return self.set_word(self.bindings[tensor.memory], word, value)

    def store4(self, tensor: Tensor, position: Position) -> list[str]:
        """Returns the statements that store the four elements at a position of four."""
        if tensor.memory not in self.vectors:
            elements = [self.access.element(View.of(tensor), lane).text for lane in position.lanes()]
            return [self.store(tensor, lane, text) for lane, text in zip(position.lanes(), elements, strict=True)]
        value = self.scalars.spread(self.access.element(View.of(tensor), position))
        if self.lanes(tensor.dtype) > 1:
            text = storage.pack4(position.scope.let("v", value.text), tensor.dtype)
        else:
            text = f"vec4<f16>({value.text})" if tensor.dtype is DType.FLOAT16 else value.text
        return [self.set_word(self.bindings[tensor.memory], f"{self.place(tensor, position).number} >> 2u", text)]

    def has_vectors(self, tensor: Tensor) -> bool:
        """Returns whether four elements in memory are one word, or a vector that WGSL has."""
        return tensor.dtype.compute not in WIDE and self.lanes(tensor.dtype) in (1, 2, 4)

    def follows(self, target: Tensor, source: Tensor) -> bool:
        """Returns whether a stored result is `source`, or computed from it by the maps of this group."""
        pending, seen = [target], {target}
        while pending:
            tensor = pending.pop()
            if tensor is source:
                return True
            if tensor in self.fused:
                following = {v.tensor for v in self.fused[tensor].reads} - seen
                seen |= following
                pending.extend(following)
        return False

    def text(self, guard: Dim, workgroups: Dim, code: str) -> VariantText:
        return VariantText(guard, workgroups, code, self.access.functions, self.vectors, self.eights)

    def main(self, workgroup_size: int, workgroups: Dim, subgroups: bool = False) -> str:
        """Returns the entry point.

        A grid of more than 65,535 workgroups is folded, so the number of a workgroup has two components. The surplus workgroups
        of an unevenly folded grid return here, as whole workgroups, so that barriers stay valid. With `subgroups` the prelude
        receives the subgroup and lane of this invocation.
        """
        inputs, statements = "", ""
        if subgroups:
            assert workgroup_size & (workgroup_size - 1) == 0, "subgroups of a power of two"
            inputs = ", @builtin(subgroup_invocation_id) place: u32"
            statements = "  subgroup_lane = place;\n  subgroup_leads = subgroupBroadcastFirst(place) == place;\n"
            if self.counted:
                inputs += ", @builtin(subgroup_id) number: u32, @builtin(num_subgroups) numbers: u32"
                statements += "  subgroup_number = number;\n  subgroup_count = numbers;\n  subgroup_width = WORKGROUP / numbers;\n"
            else:
                statements += "  subgroup_width = subgroupAdd(1u);\n  count_subgroups(lane);\n"
        return (
            f"const WORKGROUP = {workgroup_size}u;\n@compute @workgroup_size({workgroup_size})\n"
            "fn main(@builtin(workgroup_id) id: vec3u, @builtin(num_workgroups) count: vec3u, "
            f"@builtin(local_invocation_index) lane: u32{inputs}) {{\n"
            "  let w = id.x + id.y * count.x;\n"
            f"  if (w >= {self.dim(workgroups)}) {{ return; }}\n"
            f"{statements}  kernel(w, lane);\n}}"
        )

    def module(self, body: str, uniforms: int, variant: VariantText) -> str:
        """Returns the whole text of a variant: features, bindings, the block of `uniforms` dims, and the body."""
        head = ["enable f16;"] if any(self._element(t.dtype) == "f16" for t in self.bindings) else []
        if self.matrix_units and "subgroup_matrix_" in body:
            head = ["enable f16;", "enable chromium_experimental_subgroup_matrix;", *_UNCHECKED]
        head += ["enable subgroups;"] if "subgroup_lane" in body and not self.counted else []
        names = [(tensor, name) for tensor in self.bindings for name in self.names(tensor)]
        for k, (tensor, name) in enumerate(names):
            mode = "read" if tensor in self.loads else "read_write"
            kind = self._array_element(tensor, variant.vectors, variant.eights)
            head.append(f"@group(0) @binding({k}) var<storage, {mode}> {name}: array<{kind}>;")
        if uniforms:
            members = ", ".join(f"d{k}: u32" for k in range(uniforms))
            head.append(f"struct Dims {{ {members} }}\n@group(0) @binding({len(names)}) var<uniform> dims: Dims;")
        text = "\n".join([line.rstrip(" \t") for line in "\n".join([*head, body, ""]).split("\n")])
        # A page parses each text in every session. Natively this would take longer than the parsing that it saves.
        return reached(text) if self.browser else text

    def _array_element(self, tensor: Tensor, vectors: frozenset[Tensor], eights: frozenset[Tensor]) -> str:
        if tensor in eights:
            return "vec4<u32>"
        element = self._element(tensor.dtype)
        if tensor in self.atomic:
            return f"atomic<{element}>"
        width = 4 // self.lanes(tensor.dtype) if tensor in vectors else 1
        return f"vec{width}<{element}>" if width > 1 else element

    def _element(self, dtype: DType) -> str:
        if self.lanes(dtype) > 1:
            return "u32"
        return "f16" if dtype is DType.FLOAT16 else self.scalars.type(dtype.compute or "")


def place_vector_requirements(tensor: Tensor) -> tuple[Dim, ...] | None:
    """Returns the dims that must be multiples of 4 so that every four elements of a stored tensor are neighbours in memory, or
    None."""
    if tensor.place is None:
        return (0,)
    factors = tensor.place.factors
    return tensor.place.fours if factors and factors[-1].stride == 1 else None
