"""One fused group to one kernel: WGSL per variant, bindings, uniforms and the number of workgroups."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..dims import Dim, ceildiv, product
from ..dtypes import DType
from ..lowered import Call, Function, Map, Variant, Write, split_groups
from ..passes.fuse import Group, elements_per_word
from ..target import Target
from ..view import Tensor, View
from . import prelude, storage
from .accessor import Accessors, Index, Scope, constant, substitute
from .expression import to_wgsl
from .scalar import Scalars

MAP_WORKGROUP = 64


@dataclass
class Source:
    """A generated kernel. `bindings` are tensors in binding order with True for written ones; uniforms follow them."""

    variants: list[tuple[Dim, str, Dim]]  # guard, WGSL, workgroups
    bindings: list[tuple[Tensor, bool]]
    uniforms: list[Dim]
    label: str


@dataclass
class _Writer:
    """The state shared by the variants of one kernel: what is bound and which dims are uniforms."""

    group: Group
    target: Target
    bindings: dict[Tensor, tuple[str, bool]] = field(default_factory=dict)
    uniforms: list[Dim] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scalars = Scalars(self.target.int64)
        # A call compiles slowly and is used for many sizes, so its dims are uniforms and layers of other sizes share it.
        # Where it inlines index arithmetic, divisions by constants are worth a kernel per size; maps compile quickly.
        self.maps_inside = {n.output: n for n in self.group.nodes if isinstance(n, Map)}
        self.shared = self.group.anchor is not None and all(n.is_pointwise for n in self.maps_inside.values())
        operands = self.group.anchor.operands.values() if self.group.anchor else ()
        inside = {t for n in self.group.nodes for t in n.outputs}
        self.vectors = frozenset(
            r.view.tensor
            for r in operands
            if r.vector
            and r.loads_vectors
            and r.view.tensor not in inside
            and self.lanes(r.view.dtype) == 1
            and r.view.dtype.compute in ("f32", "i32", "u32")
        )

    def bind(self, tensor: Tensor, written: bool) -> str:
        name, was = self.bindings.get(tensor, (f"b{len(self.bindings)}", False))
        self.bindings[tensor] = (name, written or was)
        return name

    def dim(self, value: Dim) -> str:
        if isinstance(value, int) and (value in (0, 1) or not self.shared):
            return f"{value & 0xFFFFFFFF}u"
        if self.shared:
            # A uniform per place, so that which sizes happen to be equal does not change the text.
            self.uniforms.append(value)
            return f"dims.d{len(self.uniforms) - 1}"
        if value not in self.uniforms:
            self.uniforms.append(value)
        return f"dims.d{self.uniforms.index(value)}"

    def accessors(self) -> Accessors:
        return Accessors(self.scalars, self.maps_inside, self.bind, self.dim, self.lanes, self.vectors)

    def lanes(self, dtype: DType) -> int:
        return elements_per_word(dtype, self.target)

    # ---- stores

    def store(self, tensor: Tensor, index: str, value: str) -> str:
        stored = f"f16({value})" if self._element(tensor.dtype) == "f16" else value
        return f"{self.bind(tensor, True)}[{index}] = {stored};"

    def put(self, access: Accessors, name: str, write: Write) -> str:
        """`fn <name>_put(coordinates..., value)`: the fused maps that follow a Call's result, then the stores."""
        tensor = write.tensor
        extents = split_groups(tensor.shape, write.groups)
        coordinates = tuple("abcdefgh"[: len(extents)])
        scope = Scope()
        flat = coordinates[0]
        for coordinate, extent in zip(coordinates[1:], extents[1:], strict=True):
            flat = f"({flat} * {self.dim(product(extent))} + {coordinate})"
        scope.lines.append(f"let i = {flat};")
        scope.known[id(tensor), coordinates] = "value"
        scope.known[id(tensor), (flat,)] = "value"
        scope.known[id(tensor), ("i",)] = "value"
        stores = []
        for target in self.group.stores:
            if target is tensor:
                stores.append(self.store(target, "i", "value"))
            elif isinstance(target.producer, Map) and self._follows(target, tensor):
                index = Index(coordinates, extents) if target.shape == tensor.shape else Index(("i",), (target.shape,))
                value = access.element(View.of(target), index, scope)
                stores.append(self.store(target, "i", value))
        kind = self.scalars.type(tensor.dtype.compute or "")
        parameters = ", ".join([*(f"{c}: u32" for c in coordinates), f"value: {kind}"])
        return f"fn {name}_put({parameters}) {{\n" + "\n".join(f"  {x}" for x in [*scope.lines, *stores]) + "\n}"

    def stored(self, access: Accessors, name: str, write: Write) -> str:
        """`fn <name>_at(coordinates...)`: what a Call stored before, here or in the dispatch before."""
        extents = split_groups(write.tensor.shape, write.groups)
        coordinates = tuple("abcdefgh"[: len(extents)])
        flat = coordinates[0]
        for coordinate, extent in zip(coordinates[1:], extents[1:], strict=True):
            flat = f"({flat} * {self.dim(product(extent))} + {coordinate})"
        kind = self.scalars.type(write.tensor.dtype.compute or "")
        parameters = ", ".join(f"{c}: u32" for c in coordinates)
        return f"fn {name}_at({parameters}) -> {kind} {{ return {access.load(write.tensor, flat)}; }}"

    def _follows(self, target: Tensor, source: Tensor) -> bool:
        """True when a fused map's result is computed from `source` inside this group."""
        inside = self.maps_inside
        pending, seen = [target], set()
        while pending:
            tensor = pending.pop()
            if tensor is source:
                return True
            if tensor in inside and tensor not in seen:
                seen.add(tensor)
                pending.extend(v.tensor for v in inside[tensor].reads)
        return False

    # ---- kernels

    def call(self, call: Call, variant: Variant) -> str:
        access = self.accessors()
        marks = {n: self.dim(d) for n, d in (*call.parameters.items(), *variant.parameters)}
        marks |= {n: constant(c) for n, c in (*call.constants.items(), *variant.constants)}
        marks["WG"] = f"{variant.workgroup_size}u"
        for name, read in call.operands.items():
            marks[f"{name}_t"] = self.scalars.type(read.view.dtype.compute or "")
            access.accessor(f"{name}_at", read)
            if read.vector:
                access.vector_accessor(f"{name}_at", read)
        puts = []
        for name, write in call.results.items():
            marks[f"{name}_t"] = self.scalars.type(write.tensor.dtype.compute or "")
            puts.append(self.put(access, name, write))
            if name in call.carried:
                puts.append(self.stored(access, name, write))
        functions = [self.function(name, f) for name, f in call.functions.items()]
        body = substitute(prelude.template(call.template), marks)
        return "\n".join([*functions, *access.functions, *puts, body, _main(variant.workgroup_size)])

    def function(self, name: str, function: Function) -> str:
        names = {n: (n, kind) for n, kind in function.parameters}
        text = to_wgsl(function.expression, names, {}, self.scalars, function.result)
        parameters = ", ".join(f"{n}: {self.scalars.type(kind)}" for n, kind in function.parameters)
        return f"fn {name}({parameters}) -> {self.scalars.type(function.result)} {{ return {text}; }}"

    def maps(self) -> tuple[str, Dim]:
        """A kernel without a Call: each invocation owns `pack` consecutive elements, whole words of every output."""
        access = self.accessors()
        pack = max(self.lanes(t.dtype) for t in self.group.stores)
        size = self.group.stores[0].size
        scope = Scope()
        stores: list[str] = []
        words: list[tuple[Tensor, str, int]] = []
        for tensor in self.group.stores:
            value = access.element(View.of(tensor), Index(("i",), (tensor.shape,)), scope)
            count = self.lanes(tensor.dtype)
            if count == 1:
                stores.append(self.store(tensor, "i", value))
            else:
                word = f"w{len(words)}"
                words.append((tensor, word, count))
                shift = f"((e % {count}u) * {32 // count}u)"
                stores.append(f"{word}[e / {count}u] |= {storage.pack(value, tensor.dtype)} << {shift};")
        lines = [*scope.lines, *stores]
        if pack == 1:
            body = [f"let i = w * {MAP_WORKGROUP}u + lane;", f"if (i >= {self.dim(size)}) {{ return; }}", *lines]
        else:
            body = [
                f"let first = (w * {MAP_WORKGROUP}u + lane) * {pack}u;",
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
        groups = ceildiv(size, MAP_WORKGROUP * pack)
        return "\n".join([*access.functions, kernel, _main(MAP_WORKGROUP)]), groups

    def module(self, body: str) -> str:
        """The whole WGSL text: features, bindings, uniforms, the prelude's functions and the body."""
        head = ["enable f16;"] if any(self._element(t.dtype) == "f16" for t in self.bindings) else []
        for k, (tensor, (name, written)) in enumerate(self.bindings.items()):
            mode = "read_write" if written else "read"
            head.append(f"@group(0) @binding({k}) var<storage, {mode}> {name}: array<{self._array_element(tensor)}>;")
        if self.uniforms:
            members = ", ".join(f"d{k}: u32" for k in range(len(self.uniforms)))
            head.append(
                f"struct Dims {{ {members} }}\n@group(0) @binding({len(self.bindings)}) var<uniform> dims: Dims;"
            )
        return "\n".join([*head, prelude.needed(body, self.scalars.pairs), body, ""])

    def _array_element(self, tensor: Tensor) -> str:
        element = self._element(tensor.dtype)
        return f"vec4<{element}>" if tensor in self.vectors else element

    def _element(self, dtype: DType) -> str:
        if self.lanes(dtype) > 1:
            return "u32"
        return "f16" if dtype is DType.FLOAT16 else self.scalars.type(dtype.compute or "")


def _main(workgroup_size: int) -> str:
    """The entry point. A grid of more than 65,535 workgroups is folded, so the number of the workgroup is linear."""
    return (
        f"@compute @workgroup_size({workgroup_size})\n"
        "fn main(@builtin(workgroup_id) id: vec3u, @builtin(num_workgroups) count: vec3u, "
        "@builtin(local_invocation_index) lane: u32) {\n  kernel(id.x + id.y * count.x, lane);\n}"
    )


def generate(group: Group, target: Target) -> Source:
    """WGSL for a fused group. Bindings and uniforms are the same for all its variants."""
    writer = _Writer(group, target)
    bodies: list[tuple[Dim, str, Dim]] = []
    if group.anchor is None:
        body, workgroups = writer.maps()
        bodies.append((1, body, workgroups))
        label = "map"
    else:
        for variant in group.anchor.variants:
            body = writer.call(group.anchor, variant)
            bodies.append((variant.guard, body, variant.workgroups))
        label = group.anchor.template
    used = [(g, re.sub(r"[ \t]+\n", "\n", writer.module(b)), w) for g, b, w in bodies]
    return Source(used, [(t, w) for t, (_, w) in writer.bindings.items()], writer.uniforms, label)
