"""One fused group to one kernel: WGSL per variant, bindings, uniforms and the number of workgroups."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...program.dtypes import DType
from ...program.target import Target, elements_per_word
from ..dims import Dim, ceildiv, equal, less_equal, mod, product, quotient
from ..ir import REPETITION, Call, Function, Inner, Map, Tensor, View, Write, split_groups
from ..passes.fuse import Group
from ..tune import MapShape, map_shapes, maps_in_fours
from ..windows import Window, parts
from . import prelude, storage
from .accessor import LETTERS, Accessors, constant, substitute
from .expression import to_wgsl
from .position import Extents, Position
from .scalar import INFINITIES, WIDE, Scalars
from .turned import ROWS, TILE, WORKGROUP, Turned, turned
from .uniforms import Uniforms
from .unroll import unroll
from .value import Value

MOST_ASSUMED = 6  # multiples of 4 that a variant asks for; a check of each is made for every set of sizes


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
    """A variant before its functions and declarations are put in front: `code` is `kernel` and `main`, which may call
    `functions`; `vectors` are bound as arrays of four elements."""

    guard: Dim
    workgroups: Dim
    code: str
    functions: dict[str, str]
    vectors: frozenset[Tensor]


class _Writer:
    """Writes the variants of one kernel, which share bindings, uniforms and accessors.

    Fusion decided what the kernel reads from memory and what it stores; nothing else has a binding.
    """

    def __init__(self, group: Group, target: Target) -> None:
        self.group, self.target = group, target
        self.scalars = Scalars(target.int64)
        inner = group.anchor.inner.values() if group.anchor else ()
        maps = {n.output: n for n in (*group.nodes, *(it for i in inner for it in i.maps)) if isinstance(n, Map)}
        loads = group.loads
        self.placement = group.placement(group.stores, target)
        self.bindings = {
            tensor: f"b{k}" for k, tensor in enumerate(dict.fromkeys((*loads, *(t.memory for t in group.stores))))
        }
        self._loads = frozenset(loads)
        self._tensors = {name: tensor for tensor, name in self.bindings.items()}
        # A call compiles slowly and is used for many sizes, so its dims are uniforms and layers of other sizes share it.
        # Where it inlines index arithmetic, divisions by constants are worth a kernel per size; maps compile quickly.
        self.uniforms = Uniforms(group.anchor is not None and all(n.is_pointwise for n in maps.values()))
        self.dim = self.uniforms.text
        self._maps = maps
        self._renew(self._vectors_of_call(group.anchor) if group.anchor else frozenset())

    def _renew(self, vectors: frozenset[Tensor], fours: frozenset[Dim] = frozenset()) -> None:
        """Begins the text of a variant, or of all that share their functions."""
        self.vectors = vectors
        self.access = Accessors(
            self.scalars, self._maps, self.bind, self.dim, self.lanes, self.word, vectors, fours, self.uniforms.shared
        )

    def _vectors_of_call(self, call: Call) -> frozenset[Tensor]:
        """The tensors that a call reads and writes four elements at a time."""
        loaded = {
            r.view.tensor
            for r in call.operands.values()
            if r.vector
            and r.loads_vectors
            and r.view.tensor in self._loads
            and self.lanes(r.view.dtype) == 1
            and r.view.dtype.compute in ("f32", "i32", "u32")
        }
        written = [w for w in call.results.values() if w.in_fours]
        stored = {t for t in self.group.stores if any(self._follows(t, w.tensor) for w in written)}
        fitting = {
            t
            for t in stored
            if self._has_vectors(t) and all(quotient(d, 4) is not None for d in _placed_in_fours(t) or (1,))
        }
        return frozenset(
            loaded | {t.memory for t in fitting} - {t.memory for t in self.group.stores if t not in fitting}
        )

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
        kind = self._array_element(tensor, self.vectors)
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
        kind = self._array_element(tensor, self.vectors)
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
            return max(4, tensor.dtype.bits // 2)
        return 4 if self.lanes(tensor.dtype) > 1 or tensor.dtype is DType.BOOL else tensor.dtype.bits // 8

    def names(self, tensor: Tensor) -> list[str]:
        """The names of a tensor's bindings."""
        windows = self.placement.windows[tensor]
        return [f"{self.bindings[tensor]}_{k}" for k in range(len(windows))] if windows else [self.bindings[tensor]]

    def lanes(self, dtype: DType) -> int:
        return elements_per_word(dtype, self.target)

    # ---- stores

    def store(self, tensor: Tensor, at: Position, value: str) -> str:
        """The statement that stores an element of a type that has words of its own."""
        index = self._place(tensor, at).number
        stored = f"f16({value})" if self._element(tensor.dtype) == "f16" else value
        return self.set_word(self.bindings[tensor.memory], index, stored)

    def _place(self, tensor: Tensor, at: Position) -> Position:
        """Where in memory a stored element is."""
        there = at if tensor.place is None else at.through(tensor.place)
        assert there is not None, f"four elements of {tensor!r} are not neighbours in memory"
        return there

    def store_word(self, tensor: Tensor, word: str, value: str) -> str:
        """The statement that stores a word of narrow elements, by its number in the tensor."""
        if tensor.place is not None and tensor.place.offset != 0:
            begin = quotient(tensor.place.offset, self.lanes(tensor.dtype))
            assert begin is not None  # a part has words of its own (`passes/place.py`)
            word = f"{word} + {self.dim(begin)}"
        return self.set_word(self.bindings[tensor.memory], word, value)

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
                stores.append(self.store(target, position, value.text))
        return self._storing(f"{name}_put", extents, write, 1, [*scope.lines, *stores])

    def put4(self, name: str, write: Write) -> str:
        """`fn <name>_put4(coordinates..., value)`, four elements along the last coordinate, which is a multiple of 4."""
        tensor = write.tensor
        extents = split_groups(tensor.shape, write.groups)
        coordinates = LETTERS[: len(extents)]
        *outer, last = coordinates
        if not write.in_fours:
            inside = f"if ({last} + e < {self.dim(product(extents[-1]))})"
            call = f"{name}_put({', '.join([*outer, f'{last} + e'])}, value[e]);"
            lines = [f"for (var e = 0u; e < 4u; e++) {{ {inside} {{ {call} }} }}"]
            return self._storing(f"{name}_put4", extents, write, 4, lines)
        position = Position(self.access.scope(), coordinates, extents, 4)
        position.scope.known[tensor, position] = Value("value", tensor.dtype.compute or "", 4)
        stores = [x for t in self.group.stores if self._follows(t, tensor) for x in self.store4(t, position)]
        return self._storing(f"{name}_put4", extents, write, 4, [*position.scope.lines, *stores])

    def _storing(self, name: str, extents: Extents, write: Write, width: int, lines: list[str]) -> str:
        kind = self.scalars.type(write.tensor.dtype.compute or "", width)
        parameters = ", ".join([*(f"{c}: u32" for c in LETTERS[: len(extents)]), f"value: {kind}"])
        return f"fn {name}({parameters}) {{\n" + "\n".join(f"  {x}" for x in lines) + "\n}"

    def inner(self, name: str, inner: Inner) -> str:
        """`fn <name>(coordinates..., value)`: what the maps in the middle of a Call make of a value."""
        extents = split_groups(inner.source.shape, inner.groups)
        position = Position(self.access.scope(), LETTERS[: len(extents)], extents)
        kind = inner.source.dtype.compute or ""
        position.scope.known[inner.source, position] = Value("value", kind)
        result = self.access.element(View.of(inner.result), position)
        lines = "\n".join(f"  {x}" for x in [*position.scope.lines, f"return {result.text};"])
        parameters = ", ".join([*(f"{c}: u32" for c in LETTERS[: len(extents)]), f"value: {self.scalars.type(kind)}"])
        return f"fn {name}({parameters}) -> {self.scalars.type(result.kind)} {{\n{lines}\n}}"

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
            if tensor in self._maps:
                following = {v.tensor for v in self._maps[tensor].reads} - seen
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
            if write.vector:
                access.functions[f"{name}_put4"] = self.put4(name, write)
            if not write.in_fours:
                access.functions[f"{name}_put"] = self.put(name, write)
            if name in call.carried:
                access.functions[f"{name}_at"] = self.carried(name, write)
        for name, inner in call.inner.items():
            access.functions[name] = self.inner(name, inner)
        for name, function in call.functions.items():
            access.functions[name] = self.function(name, function)
        texts = []
        for variant in call.variants:
            template = prelude.template(variant.template or call.template)
            own = marks | {n: self.dim(d) for n, d in variant.parameters}
            own |= {n: constant(c) for n, c in variant.constants}
            own["WG"] = f"{variant.workgroup_size}u"
            main = self.main(variant.workgroup_size, variant.workgroups)
            text = substitute(unroll(template, call.constants | dict(variant.constants)), own)
            texts.append(self._text(variant.guard, variant.workgroups, f"{text}\n{main}"))
        return texts

    def _text(self, guard: Dim, workgroups: Dim, code: str) -> _Text:
        return _Text(guard, workgroups, code, self.access.functions, self.vectors)

    def function(self, name: str, function: Function) -> str:
        names = {n: Value(n, kind) for n, kind in function.parameters}
        text = to_wgsl(function.expression, names, {}, self.scalars, function.result).text
        parameters = ", ".join(f"{n}: {self.scalars.type(kind)}" for n, kind in function.parameters)
        return f"fn {name}({parameters}) -> {self.scalars.type(function.result)} {{ return {text}; }}"

    # ---- kernels of maps

    def maps(self) -> list[_Text]:
        """The variants of a kernel without a Call: four elements at a time where their number allows it, and one by one."""
        size = self.group.stores[0].size
        texts = []
        across = turned(self.group.stores, self._maps, self._loads) if maps_in_fours(self.target) else None
        if across and not self.placement.part and all(self.lanes(t.dtype) == 1 for t in self.group.stores):
            guard = product(less_equal(TILE, d) for d in (across.long, across.last.extent))
            if guard != 0:
                self._renew(frozenset())
                texts.append(self._turned_text(guard, across))
            if guard == 1:
                return texts
        found = self._fours() if maps_in_fours(self.target) else None
        if found is not None:
            vectors, fours = found
            guard = product(equal(mod(d, 4), 0) for d in fours)
            for shape in map_shapes(size, 4, self.placement.part, self.target):
                self._renew(vectors, fours)
                texts.append(self._fours_text(guard, shape))
        if not texts or texts[-1].guard != 1:
            pack = max(self.lanes(t.dtype) for t in self.group.stores)
            for shape in map_shapes(size, pack, self.placement.part, self.target):
                self._renew(frozenset())
                texts.append(self._single_text(pack, shape))
        return texts

    def _fours(self) -> tuple[frozenset[Tensor], frozenset[Dim]] | None:
        """The tensors that are read or stored four elements at a time, and what must be multiples of 4 for it, besides what
        always is. None when the kernel does better one by one."""
        stores, maps = self.group.stores, self._maps.values()
        size = stores[0].size
        if any(self.lanes(t.dtype) > 4 for t in stores) or any(n.iterations != 0 for n in maps):
            return None
        fours: dict[Dim, None] = {size: None}
        alone: set[Tensor] = set()  # memory that is stored one by one
        for tensor in stores:
            needs = _placed_in_fours(tensor)
            if not self._has_vectors(tensor) or needs is None or any(isinstance(d, int) and d % 4 for d in needs):
                if self.lanes(tensor.dtype) > 1:
                    return None
                alone.add(tensor.memory)
            else:
                fours |= dict.fromkeys(needs)
        vectors = {t.memory for t in stores} - alone
        for view in (view for node in maps for view in node.reads if not view.tensor.is_literal):
            needs = view.fours
            if needs is None or any(isinstance(d, int) and d % 4 for d in needs):
                continue
            fours |= dict.fromkeys(needs)
            together = view.factors and view.factors[-1].stride == 1
            if together and view.tensor in self._loads and self._has_vectors(view.tensor):
                fours[view.tensor.size] = None
                vectors.add(view.tensor)
        assumed = frozenset(d for d in fours if quotient(d, 4) is None)
        if any(isinstance(d, int) for d in assumed) or len(assumed) > MOST_ASSUMED or not vectors:
            return None
        return frozenset(vectors), assumed

    def _has_vectors(self, tensor: Tensor) -> bool:
        """Whether four elements in memory are one word, or a vector that WGSL has."""
        return tensor.dtype.compute not in WIDE and self.lanes(tensor.dtype) in (1, 2, 4)

    def _fours_text(self, guard: Dim, shape: MapShape) -> _Text:
        """Each invocation makes four consecutive elements, then those as far on as a workgroup makes in one step."""
        stored = self.group.stores
        size = stored[0].size
        position = Position(self.access.scope(), ("i",), (stored[0].shape,), 4)
        stores = [line for tensor in stored for line in self.store4(tensor, position)]
        body = [f"if (i >= {self.dim(size)}) {{ return; }}", *position.scope.lines, *stores]
        self.access.functions["four"] = "fn four(i: u32) {\n" + "\n".join(f"  {x}" for x in body) + "\n}"
        step = shape.workgroup * 4
        begin = f"{self.dim(REPETITION * self.placement.part)} + " if self.placement.part else ""
        lines = [f"let i = {begin}w * {step * shape.steps}u + lane * 4u;"]
        lines += [f"four(i + {k * step}u);" if k else "four(i);" for k in range(shape.steps)]
        return self._map_text(product([guard, shape.guard]), shape, step, lines)

    def _turned_text(self, guard: Dim, across: Turned) -> _Text:
        """Each workgroup loads a tile along its rows, and makes and stores the elements of it along its columns."""
        view, factors, access, dim = across.view, across.factors, self.access, self.dim
        position = Position(access.scope(), ("i",), (self.group.stores[0].shape,))
        kind = view.dtype.compute or ""
        position.scope.known[view.tensor, position.show(view, "place")] = Value("staged", kind)
        stores = []
        for tensor in self.group.stores:
            value = access.element(View.of(tensor), position).text
            stores.append(self.store(tensor, position, value))
        loaded = access.loaded(self.bind(view.tensor), view.tensor, "place")
        along, last = dim(across.long), dim(across.last.extent)
        lines = [
            f"let tiles = {dim(ceildiv(across.last.extent, TILE))};",
            f"let rows = {dim(ceildiv(across.long, TILE))};",
            f"let column = w % tiles * {TILE}u;",
            f"let row = w / tiles % rows * {TILE}u;",
            "var rest = w / (tiles * rows);",
            f"var begin = {dim(view.offset)};",
            "var into = 0u;",
        ]
        for k in reversed(across.outer):
            extent, stride, below = dim(factors[k].extent), dim(factors[k].stride), dim(across.below(k))
            lines += [f"begin += rest % {extent} * {stride};", f"into += rest % {extent} * {below};"]
            lines.append(f"rest /= {extent};")
        rows = f"for (var r = lane / {TILE}u; r < {TILE}u; r += {ROWS}u) {{"
        lines += [
            f"let c = lane % {TILE}u;",
            rows,
            f"  if (row + c < {along} && column + r < {last}) {{",
            f"    let place = begin + row + c + (column + r) * {dim(across.last.stride)};",
            f"    tile[r * {TILE + 1}u + c] = {loaded};",
            "  }",
            "}",
            "workgroupBarrier();",
            rows,
            f"  if (row + r < {along} && column + c < {last}) {{",
            f"    let i = into + (row + r) * {dim(across.below(across.along))} + column + c;",
            f"    let staged = tile[c * {TILE + 1}u + r];",
            *(f"    {x}" for x in [*position.scope.lines, *stores]),
            "  }",
            "}",
        ]
        memory = f"var<workgroup> tile: array<{self.scalars.type(kind)}, {TILE * (TILE + 1)}>;"
        kernel = "fn kernel(w: u32, lane: u32) {\n" + "\n".join(f"  {x}" for x in lines) + "\n}"
        main = self.main(WORKGROUP, across.workgroups)
        return self._text(guard, across.workgroups, f"{memory}\n{kernel}\n{main}")

    def _single_text(self, pack: int, shape: MapShape) -> _Text:
        """Each invocation makes `pack` consecutive elements, whole words of every output, as often as `shape` says."""
        stored = self.group.stores
        size = stored[0].size
        position = Position(self.access.scope(), ("i",), (stored[0].shape,))
        stores: list[str] = []
        words: list[tuple[Tensor, str, int]] = []
        for tensor in stored:
            value = self.access.element(View.of(tensor), position).text
            count = self.lanes(tensor.dtype)
            if count == 1:
                stores.append(self.store(tensor, position, value))
            else:
                word = f"word{len(words)}"
                words.append((tensor, word, count))
                shift = f"((e % {count}u) * {32 // count}u)"
                stores.append(f"{word}[e / {count}u] |= {storage.pack(value, tensor.dtype)} << {shift};")
        lines = [*position.scope.lines, *stores]
        part, step = self.placement.part, shape.workgroup * pack
        begin = f"{self.dim(REPETITION * part)} + " if part else ""
        name = "i" if pack == 1 else "first"
        if pack == 1:
            body = [f"if (i >= {self.dim(size)}) {{ return; }}", *lines]
        else:
            body = [f"if (first >= {self.dim(size)}) {{ return; }}"]
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
                    body.append(f"{guard}{{ {self.store_word(tensor, f'first / {count}u + {k}u', f'{word}[{k}u]')} }}")
        lane = "lane" if pack == 1 else f"lane * {pack}u"
        start = f"let {name} = {begin}w * {step * shape.steps}u + {lane}"
        if shape.steps == 1:
            return self._map_text(shape.guard, shape, step, [f"{start};", *body])
        loop = [f"for (var s = 0u; s < {shape.steps}u; s++) {{", f"  {start} + s * {step}u;"]
        return self._map_text(shape.guard, shape, step, [*loop, *(f"  {x}" for x in body), "}"])

    def _map_text(self, guard: Dim, shape: MapShape, step: int, lines: list[str]) -> _Text:
        kernel = "fn kernel(w: u32, lane: u32) {\n" + "\n".join(f"  {x}" for x in lines) + "\n}"
        groups = ceildiv(self.placement.part or self.group.stores[0].size, step * shape.steps)
        return self._text(guard, groups, f"{kernel}\n{self.main(shape.workgroup, groups)}")

    def store4(self, tensor: Tensor, position: Position) -> list[str]:
        """The statements that store the four elements at a position of four."""
        if tensor.memory not in self.vectors:
            elements = [self.access.element(View.of(tensor), lane).text for lane in position.lanes()]
            return [self.store(tensor, lane, text) for lane, text in zip(position.lanes(), elements, strict=True)]
        value = self.scalars.spread(self.access.element(View.of(tensor), position))
        if self.lanes(tensor.dtype) > 1:
            text = storage.pack4(position.scope.let("v", value.text), tensor.dtype)
        else:
            text = f"vec4<f16>({value.text})" if tensor.dtype is DType.FLOAT16 else value.text
        return [self.set_word(self.bindings[tensor.memory], f"{self._place(tensor, position).number} >> 2u", text)]

    # ---- the whole

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

    def module(self, body: str, uniforms: int, vectors: frozenset[Tensor]) -> str:
        """The whole text: features, bindings, the block of `uniforms` dims, and the body."""
        head = ["enable f16;"] if any(self._element(t.dtype) == "f16" for t in self.bindings) else []
        names = [(tensor, name) for tensor in self.bindings for name in self.names(tensor)]
        for k, (tensor, name) in enumerate(names):
            mode = "read" if tensor in self._loads else "read_write"
            head.append(
                f"@group(0) @binding({k}) var<storage, {mode}> {name}: array<{self._array_element(tensor, vectors)}>;"
            )
        if uniforms:
            members = ", ".join(f"d{k}: u32" for k in range(uniforms))
            head.append(f"struct Dims {{ {members} }}\n@group(0) @binding({len(names)}) var<uniform> dims: Dims;")
        return re.sub(r"[ \t]+\n", "\n", "\n".join([*head, body, ""]))

    def _array_element(self, tensor: Tensor, vectors: frozenset[Tensor]) -> str:
        element = self._element(tensor.dtype)
        width = 4 // self.lanes(tensor.dtype) if tensor in vectors else 1
        return f"vec{width}<{element}>" if width > 1 else element

    def _element(self, dtype: DType) -> str:
        if self.lanes(dtype) > 1:
            return "u32"
        return "f16" if dtype is DType.FLOAT16 else self.scalars.type(dtype.compute or "")

    def source(self) -> Source:
        anchor, pairs = self.group.anchor, self.scalars.pairs
        variants = self.call(anchor) if anchor is not None else self.maps()
        bodies, uniforms = self.uniforms.numbered(
            [f"{prelude.needed(v.code, pairs, v.functions)}\n{v.code}" for v in variants]
        )
        unused = [
            repr(t) for t in self.bindings for name in self.names(t) if not any(f"{name}[" in body for body in bodies)
        ]
        if unused:
            raise AssertionError(f"the kernel of {', '.join(self.group.origin)} binds {', '.join(unused)} for nothing")
        return Source(
            [
                (v.guard, self.module(body, len(uniforms), v.vectors), v.workgroups)
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
            any(bits in text for bits in INFINITIES for v in variants for text in (*v.functions.values(), v.code)),
        )


def _placed_in_fours(tensor: Tensor) -> tuple[Dim, ...] | None:
    """What must be multiples of 4 so that every four elements of a stored tensor are four in memory; None where they never
    are."""
    if tensor.place is None:
        return (0,)
    factors = tensor.place.factors
    return tensor.place.fours if factors and factors[-1].stride == 1 else None


def generate(group: Group, target: Target) -> Source:
    """WGSL for a fused group. Bindings and uniforms are the same for all its variants, and as many as fusion counted."""
    return _Writer(group, target).source()
