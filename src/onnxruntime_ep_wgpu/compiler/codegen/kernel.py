"""One fused group to one kernel: WGSL per variant, bindings, uniforms and the number of workgroups."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...program.dtypes import DType
from ...program.target import Target, elements_per_word
from ..dims import Dim, ceildiv
from ..lowered import REPETITION, Call, Function, Map, Write, split_groups
from ..passes.fuse import Group
from ..view import Tensor, View
from ..windows import Window, parts
from . import prelude, storage
from .accessor import LETTERS, Accessors, constant, substitute
from .expression import to_wgsl
from .position import Position
from .scalar import INFINITIES, Scalars
from .uniforms import Uniforms
from .value import Value

MAP_WORKGROUP = 64


@dataclass
class Source:
    """A generated kernel. `bindings` are tensors in binding order with True for written ones, and the window that is bound,
    None for all of it; uniforms follow them. It is dispatched `repeats` times.

    `makes_infinity`: its own text, without the functions it shares with others, has an infinite constant.
    """

    variants: list[tuple[Dim, str, Dim]]  # guard, WGSL, workgroups
    bindings: list[tuple[Tensor, bool, Window | None]]
    uniforms: list[Dim]
    label: str
    repeats: Dim
    makes_infinity: bool


@dataclass(frozen=True)
class _Text:
    """A variant before its functions and declarations are put in front: `code` is `kernel` and `main`."""

    guard: Dim
    workgroups: Dim
    code: str


class _Writer:
    """Writes the variants of one kernel, which share bindings, uniforms and accessors.

    Fusion decided what the kernel reads from memory and what it stores; nothing else has a binding.
    """

    def __init__(self, group: Group, target: Target) -> None:
        self.group, self.target = group, target
        self.scalars = Scalars(target.int64)
        maps = {n.output: n for n in group.nodes if isinstance(n, Map)}
        loads = group.loads
        self.placement = group.placement(group.stores, target)
        self.bindings = {tensor: f"b{k}" for k, tensor in enumerate((*loads, *group.stores))}
        self._loads = frozenset(loads)
        self._tensors = {name: tensor for tensor, name in self.bindings.items()}
        # A call compiles slowly and is used for many sizes, so its dims are uniforms and layers of other sizes share it.
        # Where it inlines index arithmetic, divisions by constants are worth a kernel per size; maps compile quickly.
        self.uniforms = Uniforms(group.anchor is not None and all(n.is_pointwise for n in maps.values()))
        self.dim = self.uniforms.text
        operands = group.anchor.operands.values() if group.anchor else ()
        vectors = frozenset(
            r.view.tensor
            for r in operands
            if r.vector
            and r.loads_vectors
            and r.view.tensor in self._loads
            and self.lanes(r.view.dtype) == 1
            and r.view.dtype.compute in ("f32", "i32", "u32")
        )
        self.vectors = vectors
        self.access = Accessors(self.scalars, maps, self.bind, self.dim, self.lanes, self.word, vectors)

    def bind(self, tensor: Tensor) -> str:
        """The name of the buffer that holds what another kernel made. Raises AssertionError for what this one makes: its
        memory is not written yet, and nothing would say so."""
        if tensor not in self._loads:
            raise AssertionError(
                f"the kernel of {', '.join(self.group.origin)} would load {tensor!r}, which it computes"
            )
        return self.bindings[tensor]

    # ---- windows

    def word(self, buffer: str, index: str) -> str:
        """The word of a buffer at an index into its tensor's memory."""
        tensor = self._tensors[buffer]
        if not self.placement.windows[tensor]:
            return f"{buffer}[{index}]"
        if tensor in self.placement.moving:
            return f"{buffer}_0[({index}) - {self._begin(tensor)}]"
        kind = self._array_element(tensor)
        self.access.functions[f"{buffer}_word"] = (
            f"fn {buffer}_word(i: u32) -> {kind} {{\n{self._choice(buffer, 'return {place};')}\n}}"
        )
        return f"{buffer}_word({index})"

    def set_word(self, buffer: str, index: str, value: str) -> str:
        """The statement that stores a word."""
        tensor = self._tensors[buffer]
        if not self.placement.windows[tensor]:
            return f"{buffer}[{index}] = {value};"
        if tensor in self.placement.moving:
            return f"{buffer}_0[({index}) - {self._begin(tensor)}] = {value};"
        kind = self._array_element(tensor)
        self.access.functions[f"{buffer}_set"] = (
            f"fn {buffer}_set(i: u32, value: {kind}) {{\n{self._choice(buffer, '{place} = value;')}\n}}"
        )
        return f"{buffer}_set({index}, {value});"

    def _begin(self, tensor: Tensor) -> str:
        """The word of a tensor with which this dispatch begins."""
        return self.dim(REPETITION * (self.placement.part * tensor.dtype.bits // 8 // self._word_bytes(tensor)))

    def _choice(self, buffer: str, statement: str) -> str:
        """`statement` about the place of word `i`, in the window that has it."""
        tensor = self._tensors[buffer]
        size, lines = self._word_bytes(tensor), []
        windows = self.placement.windows[tensor]
        for k, window in enumerate(windows):
            assert isinstance(window.offset, int) and isinstance(window.nbytes, int)
            place = f"{buffer}_{k}[i - {window.offset // size}u]"
            end = (window.offset + window.nbytes) // size
            test = f"if (i < {end}u) " if k < len(windows) - 1 else ""
            lines.append(
                f"  {test}{{ {statement.format(place=place)}{' return;' if 'return' not in statement else ''} }}"
            )
        return "\n".join(lines)

    def _word_bytes(self, tensor: Tensor) -> int:
        """Bytes of an element of the tensor's bindings."""
        if tensor in self.vectors:
            return 16
        return 4 if self.lanes(tensor.dtype) > 1 or tensor.dtype is DType.BOOL else tensor.dtype.bits // 8

    def names(self, tensor: Tensor) -> list[str]:
        """The names of a tensor's bindings."""
        windows = self.placement.windows[tensor]
        return [f"{self.bindings[tensor]}_{k}" for k in range(len(windows))] if windows else [self.bindings[tensor]]

    def lanes(self, dtype: DType) -> int:
        return elements_per_word(dtype, self.target)

    # ---- stores

    def store(self, tensor: Tensor, index: str, value: str) -> str:
        stored = f"f16({value})" if self._element(tensor.dtype) == "f16" else value
        return self.set_word(self.bindings[tensor], index, stored)

    def put(self, name: str, write: Write) -> str:
        """`fn <name>_put(coordinates..., value)`: the fused maps that follow a Call's result, then the stores."""
        tensor = write.tensor
        extents = split_groups(tensor.shape, write.groups)
        position = Position(self.access.scope(), LETTERS[: len(extents)], extents)
        scope = position.scope
        scope.known[tensor, position] = Value("value", tensor.dtype.compute or "")
        stores = []
        for target in self.group.stores:
            if self._follows(target, tensor):
                value = self.access.element(View.of(target), position)
                stores.append(self.store(target, position.number, value.text))
        parameters = ", ".join(
            [*(f"{c}: u32" for c in LETTERS[: len(extents)]), f"value: {self.scalars.type(tensor.dtype.compute or '')}"]
        )
        return f"fn {name}_put({parameters}) {{\n" + "\n".join(f"  {x}" for x in [*scope.lines, *stores]) + "\n}"

    def carried(self, name: str, write: Write) -> str:
        """`fn <name>_at(coordinates...)`: what a Call stored before, here or in the dispatch before. Its template says when."""
        extents = split_groups(write.tensor.shape, write.groups)
        position = Position(self.access.scope(), LETTERS[: len(extents)], extents)
        value = self.access.loaded(self.bindings[write.tensor], write.tensor, position.number)
        kind = self.scalars.type(write.tensor.dtype.compute or "")
        parameters = ", ".join(f"{c}: u32" for c in LETTERS[: len(extents)])
        lines = "\n".join(f"  {x}" for x in [*position.scope.lines, f"return {value};"])
        return f"fn {name}_at({parameters}) -> {kind} {{\n{lines}\n}}"

    def _follows(self, target: Tensor, source: Tensor) -> bool:
        """True when a stored result is `source`, or computed from it by the maps of this group."""
        pending, seen = [target], {target}
        while pending:
            tensor = pending.pop()
            if tensor is source:
                return True
            if tensor in self.access.maps:
                following = {v.tensor for v in self.access.maps[tensor].reads} - seen
                seen |= following
                pending.extend(following)
        return False

    # ---- kernels

    def call(self, call: Call) -> list[_Text]:
        """The variants of a Call; their functions are the same."""
        access = self.access
        marks = {n: self.dim(d) for n, d in call.parameters.items()}
        marks |= {n: constant(c) for n, c in call.constants.items()}
        for name, read in call.operands.items():
            marks[f"{name}_t"] = self.scalars.type(read.view.dtype.compute or "")
            access.accessor(f"{name}_at", read)
            if read.vector:
                access.vector_accessor(f"{name}_at", read)
        for name, write in call.results.items():
            marks[f"{name}_t"] = self.scalars.type(write.tensor.dtype.compute or "")
            access.functions[f"{name}_put"] = self.put(name, write)
            if name in call.carried:
                access.functions[f"{name}_at"] = self.carried(name, write)
        for name, function in call.functions.items():
            access.functions[name] = self.function(name, function)
        template = prelude.template(call.template)
        texts = []
        for variant in call.variants:
            own = marks | {n: self.dim(d) for n, d in variant.parameters}
            own |= {n: constant(c) for n, c in variant.constants}
            own["WG"] = f"{variant.workgroup_size}u"
            main = self.main(variant.workgroup_size, variant.workgroups)
            texts.append(_Text(variant.guard, variant.workgroups, f"{substitute(template, own)}\n{main}"))
        return texts

    def function(self, name: str, function: Function) -> str:
        names = {n: Value(n, kind) for n, kind in function.parameters}
        text = to_wgsl(function.expression, names, {}, self.scalars, function.result)
        parameters = ", ".join(f"{n}: {self.scalars.type(kind)}" for n, kind in function.parameters)
        return f"fn {name}({parameters}) -> {self.scalars.type(function.result)} {{ return {text}; }}"

    def maps(self) -> _Text:
        """A kernel without a Call: each invocation owns `pack` consecutive elements, whole words of every output."""
        stored = self.group.stores
        pack = max(self.lanes(t.dtype) for t in stored)
        size = stored[0].size
        position = Position(self.access.scope(), ("i",), (stored[0].shape,))
        stores: list[str] = []
        words: list[tuple[Tensor, str, int]] = []
        for tensor in stored:
            value = self.access.element(View.of(tensor), position).text
            count = self.lanes(tensor.dtype)
            if count == 1:
                stores.append(self.store(tensor, "i", value))
            else:
                word = f"word{len(words)}"
                words.append((tensor, word, count))
                shift = f"((e % {count}u) * {32 // count}u)"
                stores.append(f"{word}[e / {count}u] |= {storage.pack(value, tensor.dtype)} << {shift};")
        lines = [*position.scope.lines, *stores]
        part = self.placement.part
        begin = f"{self.dim(REPETITION * part)} + " if part else ""
        if pack == 1:
            body = [f"let i = {begin}w * {MAP_WORKGROUP}u + lane;", f"if (i >= {self.dim(size)}) {{ return; }}", *lines]
        else:
            body = [
                f"let first = {begin}(w * {MAP_WORKGROUP}u + lane) * {pack}u;",
                f"if (first >= {self.dim(size)}) {{ return; }}",
            ]
            body += [f"var {word} = array<u32, {pack // count}>();" for _, word, count in words]
            body += [
                f"for (var e = 0u; e < {pack}u; e++) {{",
                "  let i = first + e;",
                f"  if (i >= {self.dim(size)}) {{ break; }}",
            ]
            body += [f"  {line}" for line in lines] + ["}"]
            for tensor, word, count in words:
                for k in range(pack // count):
                    guard = f"if (first + {k * count}u < {self.dim(size)}) " if k else ""
                    body.append(f"{guard}{{ {self.store(tensor, f'first / {count}u + {k}u', f'{word}[{k}u]')} }}")
        kernel = "fn kernel(w: u32, lane: u32) {\n" + "\n".join(f"  {x}" for x in body) + "\n}"
        groups = ceildiv(part or size, MAP_WORKGROUP * pack)
        return _Text(1, groups, f"{kernel}\n{self.main(MAP_WORKGROUP, groups)}")

    def main(self, workgroup_size: int, workgroups: Dim) -> str:
        """The entry point. A grid of more than 65,535 workgroups is folded, so the number of a workgroup is made of two,
        and the surplus of a grid that did not fold evenly ends here: together, so that barriers stay legal."""
        return (
            f"const WORKGROUP = {workgroup_size}u;\n@compute @workgroup_size({workgroup_size})\n"
            "fn main(@builtin(workgroup_id) id: vec3u, @builtin(num_workgroups) count: vec3u, "
            "@builtin(local_invocation_index) lane: u32) {\n"
            "  let w = id.x + id.y * count.x;\n"
            f"  if (w >= {self.dim(workgroups)}) {{ return; }}\n"
            "  kernel(w, lane);\n}"
        )

    def module(self, body: str, uniforms: int) -> str:
        """The whole text: features, bindings, the block of `uniforms` dims, and the body."""
        head = ["enable f16;"] if any(self._element(t.dtype) == "f16" for t in self.bindings) else []
        names = [(tensor, name) for tensor in self.bindings for name in self.names(tensor)]
        for k, (tensor, name) in enumerate(names):
            mode = "read" if tensor in self._loads else "read_write"
            head.append(f"@group(0) @binding({k}) var<storage, {mode}> {name}: array<{self._array_element(tensor)}>;")
        if uniforms:
            members = ", ".join(f"d{k}: u32" for k in range(uniforms))
            head.append(f"struct Dims {{ {members} }}\n@group(0) @binding({len(names)}) var<uniform> dims: Dims;")
        return re.sub(r"[ \t]+\n", "\n", "\n".join([*head, body, ""]))

    def _array_element(self, tensor: Tensor) -> str:
        element = self._element(tensor.dtype)
        return f"vec4<{element}>" if tensor in self.vectors else element

    def _element(self, dtype: DType) -> str:
        if self.lanes(dtype) > 1:
            return "u32"
        return "f16" if dtype is DType.FLOAT16 else self.scalars.type(dtype.compute or "")

    def source(self) -> Source:
        anchor, own, pairs = self.group.anchor, self.access.functions, self.scalars.pairs
        variants = self.call(anchor) if anchor is not None else [self.maps()]
        bodies, uniforms = self.uniforms.numbered([f"{prelude.needed(v.code, pairs, own)}\n{v.code}" for v in variants])
        unused = [
            repr(t) for t in self.bindings for name in self.names(t) if not any(f"{name}[" in body for body in bodies)
        ]
        if unused:
            raise AssertionError(f"the kernel of {', '.join(self.group.origin)} binds {', '.join(unused)} for nothing")
        return Source(
            [
                (v.guard, self.module(body, len(uniforms)), v.workgroups)
                for v, body in zip(variants, bodies, strict=True)
            ],
            [
                (tensor, tensor not in self._loads, window)
                for tensor in self.bindings
                for window in self.placement.windows[tensor] or (None,)
            ],
            uniforms,
            anchor.template if anchor is not None else "map",
            anchor.repeats if anchor is not None else parts(self.group.stores, self.placement.part),
            any(infinity in text for infinity in INFINITIES for text in (*own.values(), *(v.code for v in variants))),
        )


def generate(group: Group, target: Target) -> Source:
    """WGSL for a fused group. Bindings and uniforms are the same for all its variants, and as many as fusion counted."""
    return _Writer(group, target).source()
