"""Element access: turns (view, position) into WGSL, through memory or through the maps fused into the kernel.

A tensor in memory is loaded at the position that its view shows. A tensor of a fused map is computed from its operands at that
position, once per position and function. A kernel never loads a tensor that it computes: such a load raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...program.dtypes import DType
from ..dims import Dim, product
from ..ir import Map, Read, Tensor, View, packed_run, split_groups
from ..ir.expression import names_in
from ..ir.kinds import WIDE
from ..ir.signed_bytes import PADDING, bytes_of, windows_of
from .expression import in_body, to_wgsl
from .packed_runs import PackedRun, numbers, packed_run_of
from .position import FunctionScope, Position
from .scalar import Scalars
from .storage import signed_bytes, unpack, unpack4
from .uniforms import UniformBlock
from .value import TypedValue

LETTERS = tuple("abcdefgh")  # names of an accessor's coordinates


class Accessors:
    """Generates element accesses for one kernel. `functions` has the functions they need, text by name.

    - `bind` returns the name of the buffer of a tensor that the kernel loads.
    - `uniforms` returns the text of a dim.
    - `lanes` returns how many elements of a type share a word.
    - `word` returns the text of a buffer's word at an index.
    - `vectors` are bound as arrays of four elements, `eights` as arrays of 16 bytes.
    - `fours` are dims that are multiples of 4 in this kernel.
    """

    def __init__(
        self,
        scalars: Scalars,
        maps: Mapping[Tensor, Map],
        bind: Callable[[Tensor], str],
        uniforms: UniformBlock,
        lanes: Callable[[DType], int],
        word: Callable[[str, str], str],
        vectors: frozenset[Tensor] = frozenset(),
        fours: frozenset[Dim] = frozenset(),
        eights: frozenset[Tensor] = frozenset(),
    ) -> None:
        self.scalars, self.maps, self.bind, self.uniforms, self.dim = scalars, maps, bind, uniforms, uniforms.text
        self.lanes, self.word, self.vectors, self.fours, self.eights = lanes, word, vectors, fours, eights
        self.functions: dict[str, str] = {}
        self._of_maps: dict[tuple[Map, int], str] = {}

    def scope(self) -> FunctionScope:
        return FunctionScope(self.uniforms, self.fours)

    # ---- reading

    def element(self, view: View, position: Position) -> TypedValue:
        """Returns the element that `view` shows at a position, with the compute type of its tensor.

        At a position of four elements it returns all of them, or one that is the same for all. 64-bit integers must be requested
        one by one.
        """
        tensor = view.tensor
        if tensor.is_literal:
            return self._literal(tensor)
        at = position.through(view)
        if at is None:
            return self._combined([self._at(tensor, lane) for lane in position.lanes(view)])
        if at.width == 4 and not self._has_vectors(tensor, at):
            four = self._combined([self._at(tensor, lane) for lane in at.lanes()])
            at.scope.known[tensor, at] = replace(four, text=at.scope.let("v", four.text))
        return self._at(tensor, at)

    def _at(self, tensor: Tensor, at: Position) -> TypedValue:
        """Returns the element of a tensor at a position in this tensor."""
        known, kind = at.scope.known, tensor.dtype.compute or ""
        if (tensor, at) in known:
            return known[tensor, at]
        if at.part_of and (four := known.get((tensor, at.part_of[0]))):
            return TypedValue(f"{four.text}.{'xyzw'[at.part_of[1]]}", kind) if four.width == 4 else four
        if tensor in self.maps:
            value = self._computed(self.maps[tensor], at)
        elif at.width == 4:
            value = TypedValue(self.loaded4(self.bind(tensor), tensor, at), kind, 4)
        else:
            value = TypedValue(self.loaded(self.bind(tensor), tensor, at.number), kind)
        known[tensor, at] = TypedValue(at.scope.let("v", value.text), kind, value.width)
        return known[tensor, at]

    def _has_vectors(self, tensor: Tensor, at: Position) -> bool:
        """Returns whether four neighbours of a tensor are one value: loaded together, or computed by operations that have
        vectors."""
        if (tensor, at) in at.scope.known:
            return True
        if tensor not in self.maps:
            return tensor in self.vectors
        node = self.maps[tensor]
        kinds = {tensor.dtype.compute, *(view.dtype.compute for view in node.reads)}
        return node.is_pointwise and not kinds & set(WIDE) and not names_in(node.expression) & set(WIDE)

    def _combined(self, elements: Sequence[TypedValue]) -> TypedValue:
        kind = elements[0].kind
        if all(element == elements[0] for element in elements):
            return elements[0]
        return TypedValue(f"{self.scalars.type(kind, 4)}({', '.join(e.text for e in elements)})", kind, 4)

    def _literal(self, tensor: Tensor) -> TypedValue:
        """Returns a weight of one element as a constant.

        If layers share the kernel, a float that differs between layers is a uniform with its bits.
        """
        value = np.asarray(tensor.data.numpy() if hasattr(tensor.data, "numpy") else tensor.data).reshape(-1)[0]
        kind = tensor.dtype.compute or ""
        if self.uniforms.shared and kind == "f32" and np.isfinite(number := np.float32(value)):
            return TypedValue(f"bitcast<f32>({self.dim(int(number.view(np.uint32)))})", kind)
        return self.scalars.literal(value.item(), kind)

    def _computed(self, node: Map, at: Position) -> TypedValue:
        if node.is_pointwise:
            value = self._pointwise(node, at)
            return value if node.expression == "x" else _as_narrow(value, node.output.dtype)
        coordinates = ", ".join(at.coordinates(split_groups(node.output.shape, node.groups)))
        value = TypedValue(f"{self._function(node)}({coordinates})", node.output.dtype.compute or "")
        return _as_narrow(value, node.output.dtype)

    def _pointwise(self, node: Map, at: Position) -> TypedValue:
        mentioned = names_in(node.expression)
        operands = {n: self.element(read.view, at) for n, read in node.operands.items() if n in mentioned}
        operands |= {n: TypedValue(f"i32({self.dim(d)})", "i32") for n, d in node.parameters.items()}
        return to_wgsl(node.expression, operands, node.constants, self.scalars, node.output.dtype.compute or "")

    def _function(self, node: Map, width: int = 1) -> str:
        """Returns the name of the function for a map with a body, or of its variant for four `neighbours` or for sixteen
        bytes."""
        if (node, width) not in self._of_maps:
            name = self._of_maps[node, width] = f"map{len(self._of_maps)}"
            parameters = ", ".join(f"{c}: u32" for c in node.coordinates)
            lines = self._body(node, name, width).split("\n")
            result = "vec4<u32>" if width == 16 else self._type(node.output, width)
            self.functions[name] = fn(name, parameters, lines, result)
        return self._of_maps[node, width]

    def _body(self, node: Map, prefix: str, width: int) -> str:
        """Returns a map's body with accessors in its slots, and with constants and dims. Declares the accessors of its
        operands."""
        padding = node.constants.get(PADDING, "")
        lanes = 4 if width == 4 else 1
        marks = {"out_t": self._type(node.output, lanes)}
        marks["padding"] = f"{marks['out_t']}({padding})"
        if width == 16:  # four words, as in memory
            view = bytes_of(node.reads[0].tensor)
            flip = 0x80 if view is not None and view.dtype is DType.UINT8 else 0
            marks["padding"] = f"vec4<u32>({((int(padding) & 0xFF) ^ flip) * 0x01010101}u)"
        accessors = {name: f"{prefix}_{name}" for name in node.operands}
        for name, read in node.operands.items():
            self.accessor(accessors[name], read)
            if width == 4:
                self.vector_accessor(accessors[name], read)
                accessors[name] += "4"
            elif width == 16:
                self.vector_accessor(accessors[name], read)
                self.sixteen_accessor(accessors[name], read)
                accessors[name] += "16_words"
            marks[f"{name}_t"] = self._type(read.view.tensor, lanes)
        marks |= {n: self.dim(d) for n, d in node.parameters.items()}
        marks |= {n: constant(c) for n, c in node.constants.items()}
        marks |= {n: in_body(it, self.scalars) for n, it in node.functions.items()}
        return substitute(node.body.text(accessors.__getitem__), marks)

    def _type(self, tensor: Tensor, width: int = 1) -> str:
        return self.scalars.type(tensor.dtype.compute or "", width)

    # ---- memory

    def loaded(self, buffer: str, tensor: Tensor, index: str) -> str:
        """Returns the element at a flat index of memory, in its compute type. Narrow types are parts of 32-bit words."""
        dtype = tensor.dtype
        count = self.lanes(dtype)
        if tensor in self.vectors and count == 1:
            return f"{dtype.compute}({self.word(buffer, f'({index}) >> 2u')}[({index}) & 3u])"
        if tensor in self.vectors and count == 2:
            word = f"{self.word(buffer, f'({index}) >> 2u')}[(({index}) >> 1u) & 1u]"
            return unpack(word, f"(({index}) & 1u)", dtype)
        if count > 1:
            return unpack(self.word(buffer, f"({index}) / {count}u"), f"(({index}) % {count}u)", dtype)
        loaded = self.word(buffer, index)
        return f"f32({loaded})" if dtype is DType.FLOAT16 else loaded

    def loaded4(self, buffer: str, tensor: Tensor, at: Position) -> str:
        """Returns the four elements at a position of four of a tensor in `vectors`, as a vec4 of their compute type."""
        dtype, per_word = tensor.dtype, self.lanes(tensor.dtype)
        if per_word > 4:  # a part of a word
            word = self.word(buffer, f"{at.number} / {per_word}u")
            shift = f"({at.number} % {per_word}u) * {dtype.bits}u"
            return unpack4(at.scope.let("w", f"{word} >> ({shift})"), dtype)
        word = self.word(buffer, f"{at.number} >> 2u")
        if per_word > 1:
            return unpack4(at.scope.let("w", word), dtype)
        return f"vec4<f32>({word})" if dtype is DType.FLOAT16 else word

    # ---- accessors

    def accessor(self, name: str, read: Read) -> None:
        """Declares `fn <name>(a, b, ...)`, the element of an operand at coordinates over the groups of the read."""
        position = self._position(read)
        value = self.element(read.view, position)
        lines = [*position.scope.lines, f"return {value.text};"]
        self.functions[name] = fn(name, _parameters(read), lines, self._type(read.view.tensor))

    def vector_accessor(self, name: str, read: Read) -> None:
        """Declares `fn <name>4(a, b, ...)`, four neighbours along the last coordinate, which is a multiple of 4.

        Without vector loads it consists of four scalar reads, each clamped to the last coordinate's range.
        """
        vector = f"vec4<{self._type(read.view.tensor)}>"
        position = self._position(read)
        if (tensor := read.view.tensor) in self.vectors and read.loads_vectors:
            at = self._position_in_tensor(position, read.view)
            result = f"{vector}({self.loaded4(self.bind(tensor), tensor, at)})"
        elif (node := self.maps.get(read.view.tensor)) and node.neighbours and read.loads_vectors:
            places = self._position_in_tensor(position, read.view).coordinates(
                split_groups(node.output.shape, node.groups)
            )
            result = f"{self._function(node, 4)}({', '.join(places)})"
        elif self._calculates_vectors(read):
            position = self._position(read, 4)
            result = self.scalars.spread(self.element(read.view, position)).text
        else:
            *outer, last = LETTERS[: len(read.groups)]
            top = self.dim(product(read.extents[-1]) - 1)
            calls = [f"{name}({', '.join([*outer, f'min({last} + {k}u, {top})'])})" for k in range(4)]
            result = f"{vector}({', '.join(calls)})"
        lines = [*position.scope.lines, f"return {result};"]
        self.functions[f"{name}4"] = fn(f"{name}4", _parameters(read), lines, vector)
        self._split_accessor(name, read, vector)

    def _split_accessor(self, name: str, read: Read, vector: str) -> None:
        """Declares `<name>4_words(a, b, ...)` and `<name>4_of(words)`, the two steps of `<name>4`.

        A value that is loaded early then stays in its memory format, which takes fewer registers. The compiler waits for the load
        where the value is used.
        """
        tensor, position = read.view.tensor, self._position(read)
        if tensor in self.vectors and read.loads_vectors and (per_word := self.lanes(tensor.dtype)) <= 2:
            at = self._position_in_tensor(position, read.view)
            loaded = self.word(self.bind(tensor), f"{at.number} >> 2u")
            kind = "vec2<u32>" if per_word == 2 else "vec4<f16>" if tensor.dtype is DType.FLOAT16 else vector
            value = unpack4("it", tensor.dtype) if per_word == 2 else f"{vector}(it)"
        else:
            loaded = f"{name}4({', '.join(LETTERS[: len(read.groups)])})"
            kind, value = vector, "it"
        self._words(f"{name}4", read, position, kind, loaded, vector, value)

    def eight_accessor(self, name: str, read: Read) -> None:
        """Declares `<name>8_words(a, b, ...)` and `<name>8_of(words)`. Requires `vector_accessor` first.

        The first loads eight neighbours along the last coordinate, which is a multiple of 8. The second converts them to halves,
        two in each of four words.
        """
        tensor, position = read.view.tensor, self._position(read)
        if tensor in self.eights:
            at = self._position_in_tensor(position, read.view)
            loaded, kind, value = self.word(self.bind(tensor), f"{at.number} >> 3u"), "vec4<u32>", "it"
        else:
            fours = self._fours(f"{name}4_words", read, 2)
            loaded, kind = f"array({fours})", f"array<{name}4_words_t, 2>"
            value = f"eight_halves({name}4_of(it[0]), {name}4_of(it[1]))"
        self._words(f"{name}8", read, position, kind, loaded, "vec4<u32>", value)

    def sixteen_accessor(self, name: str, read: Read) -> None:
        """Declares `<name>16_words` and `<name>16_of`, for sixteen neighbours that are signed bytes. Requires `vector_accessor`
        first.

        The last coordinate is a multiple of 16.
        """
        position, view = self._position(read), bytes_of(read.view.tensor)
        sign = _sign(view)
        windows = windows_of(read.view.tensor)
        image = bytes_of(windows.reads[0].tensor) if windows is not None else None
        if view is not None and view.tensor in self.eights:
            at = self._position_in_tensor(position, read.view)
            loaded = self.word(self.bind(view.tensor), f"{at.number} >> 4u")
        elif windows is not None and image is not None and image.tensor in self.eights:
            at = self._position_in_tensor(position, read.view)
            places = at.coordinates(split_groups(windows.output.shape, windows.groups))
            loaded, sign = f"{self._function(windows, 16)}({', '.join(places)})", _sign(image)
        else:
            loaded = f"vec4<u32>({self._fours(f'{name}4_bytes', read, 4)})"
            if view is not None and view.tensor in self.vectors and read.loads_vectors:
                four = self._position(read)
                word = self.word(self.bind(view.tensor), f"{self._position_in_tensor(four, read.view).number} >> 2u")
                lines = [*four.scope.lines, f"return {word};"]
            else:
                sign = ""
                lines = [f"return pack4xI8({name}4({', '.join(LETTERS[: len(read.groups)])}));"]
            self.functions[f"{name}4_bytes"] = fn(f"{name}4_bytes", _parameters(read), lines, "u32")
        self._words(f"{name}16", read, position, "vec4<u32>", loaded, "vec4<u32>", f"it{sign}")

    def _fours(self, name: str, read: Read, count: int) -> str:
        """Returns calls of an accessor of four neighbours for `count` consecutive fours, clamped to the last coordinate's
        range."""
        *outer, last = LETTERS[: len(read.groups)]
        top = self.dim((product(read.extents[-1]) - 1) // 4 * 4)
        places = [f"min({last} + {4 * k}u, {top})" if k else last for k in range(count)]
        return ", ".join(f"{name}({', '.join([*outer, it])})" for it in places)

    def _words(
        self, name: str, read: Read, position: Position, kind: str, loaded: str, result: str, value: str
    ) -> None:
        """Declares `<name>_words(a, b, ...)`, which returns `loaded` with type `kind`, and `<name>_of(it)`, which returns
        `value`."""
        words = f"{name}_words"
        self.functions[f"{words}_t"] = f"alias {words}_t = {kind};"
        self.functions[words] = fn(words, _parameters(read), [*position.scope.lines, f"return {loaded};"], f"{words}_t")
        self.functions[f"{name}_of"] = fn(f"{name}_of", f"it: {words}_t", [f"return {value};"], result)

    def _calculates_vectors(self, read: Read) -> bool:
        """Returns whether an operand is a map that can be computed four elements at a time.

        Such a map reads narrow integers, several of which share a word: weights that become real numbers, or bytes minus their
        zero point. Or it reads floats that it loads four at a time.
        """
        node = self.maps.get(read.view.tensor)
        if node is None or not (node.inline and node.is_pointwise and read.loads_vectors):
            return False
        tensors = [it.tensor for it in node.reads if not it.tensor.is_literal]
        if any(it.dtype.bits <= 8 and it in self.vectors for it in tensors):
            return True
        return node.output.dtype.compute == "f32" and all(it in self.vectors for it in tensors)

    # ---- runs

    def run_accessor(self, name: str, read: Read, *, bytewise: bool = False) -> None:
        """Declares `fn <name>(a, b, ...)`, a `struct` of vec4s `v` and a factor `scale`: the elements b to b + run - 1.

        A map of packed weights loads whole words, and its parameters once. `scale` is the common factor of all elements. The
        access is also available in two steps, `<name>_of(<name>_words(a, b, ...))`, since words take fewer registers than their
        elements. With `bytewise`, `<name>_bytes_of(words)` returns the elements as words `v` of signed bytes: integers minus
        their zero point.
        """
        count, kind = read.run // 4, self._type(read.view.tensor)
        node = self.maps.get(read.view.tensor)
        position = self._position(read)
        scope = position.scope
        self.functions[f"{name}_t"] = f"struct {name}_t {{ scale: {kind}, v: array<vec4<{kind}>, {count}> }}"
        packed: PackedRun | None = None
        if node is not None and packed_run(read):
            packed = packed_run_of(
                node, self._position_in_tensor(position, read.view), read.run, self.scalars, self.element, self._word_of
            )
            words, loaded = f"{name}_words_t", packed.loaded
            self.functions[words] = f"struct {words} {{ {packed.members} }}"
            lines, texts = numbers(packed, self.scalars)
            lines.append(f"return {name}_t({packed.factor}, array({', '.join(texts)}));")
        else:
            *outer, last = LETTERS[: len(read.groups)]
            top = self.dim((product(read.extents[-1]) - 1) // 4 * 4)
            places = [f"min({last} + {4 * k}u, {top})" for k in range(count)]
            texts = [f"{name.removesuffix('_run')}_at4({', '.join([*outer, p])})" for p in places]
            words, loaded, lines = f"{name}_t", f"{kind}(1), array({', '.join(texts)})", ["return it;"]
        names, parameters = ", ".join(LETTERS[: len(read.groups)]), _parameters(read)
        load = [*scope.lines, f"return {words}({loaded});"]
        self.functions[f"{name}_words"] = fn(f"{name}_words", parameters, load, words)
        self.functions[f"{name}_of"] = fn(f"{name}_of", f"it: {words}", lines, f"{name}_t")
        self.functions[name] = fn(name, parameters, [f"return {name}_of({name}_words({names}));"], f"{name}_t")
        if bytewise:
            assert packed is not None and packed.zero is not None, "as the kernel was chosen for"
            texts, factor = signed_bytes(packed.words, packed.dtype, packed.zero)
            result = f"{name}_bytes_t"
            self.functions[result] = f"struct {result} {{ scale: f32, v: array<u32, {count}> }}"
            made = [f"return {result}({packed.factor} * {factor!r}, array({', '.join(texts)}));"]
            self.functions[f"{name}_bytes_of"] = fn(f"{name}_bytes_of", f"it: {words}", made, result)

    def _word_of(self, tensor: Tensor, index: str) -> str:
        return self.word(self.bind(tensor), index)

    def _position_in_tensor(self, position: Position, view: View) -> Position:
        at = position.through(view)
        assert at is not None  # holds for every position of one element
        return at

    def _position(self, read: Read, width: int = 1) -> Position:
        return Position(self.scope(), LETTERS[: len(read.groups)], read.extents, width)


def _sign(view: View | None) -> str:
    """Returns the operation that makes four words of unsigned bytes signed."""
    return " ^ vec4<u32>(0x80808080u)" if view is not None and view.dtype is DType.UINT8 else ""


def coordinates(groups: Sequence[int]) -> list[str]:
    """Returns the parameters of an accessor over these groups of axes."""
    return [f"{c}: u32" for c in LETTERS[: len(groups)]]


def _parameters(read: Read) -> str:
    return ", ".join(coordinates(read.groups))


def fn(name: str, parameters: str, lines: Sequence[str], result: str = "") -> str:
    """Returns a WGSL function with these lines of statements."""
    body = "\n".join(f"  {line}" for line in lines)
    return f"fn {name}({parameters}){f' -> {result}' if result else ''} {{\n{body}\n}}"


def constant(value: float | int | str | bool) -> str:
    """Returns a constant of a body as WGSL text. Strings are text already (a function or type name)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}u" if value >= 0 else f"{value}i"
    if isinstance(value, str):
        return value
    return repr(float(value)) if abs(value) < 3.4e38 else Scalars("native").literal(value, "f32").text


def substitute(text: str, marks: Mapping[str, str]) -> str:
    """Replaces `$name` by its text. An unknown name is a bug in a kernel and raises KeyError."""
    return re.sub(r"\$(\w+)", lambda m: marks[m[1]], text)


def _as_narrow(value: TypedValue, dtype: DType) -> TypedValue:
    """Returns a value computed in 32 bits as the narrow integer it represents, so that fused operators see the stored value."""
    if not dtype.is_integer or dtype.bits >= 32:
        return value
    return TypedValue(f"extractBits({value.text}, 0u, {dtype.bits}u)", value.kind, value.width)
