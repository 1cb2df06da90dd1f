"""Element access: from (view, index) to WGSL, through memory or through the maps fused into the kernel.

An `Index` addresses an element of a logical shape by coordinates, each counting over a group of consecutive axes. A
tensor in memory is loaded at the flat index its view computes; a tensor of a fused map is computed from its operands at
that index, once per index and scope.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..dims import Dim, product
from ..dtypes import DType
from ..lowered import Map, Read, split_groups
from ..view import Factor, Storage, Tensor, View, coalesce
from .expression import to_wgsl
from .scalar import Scalars
from .storage import unpack


@dataclass(frozen=True)
class Index:
    """`coordinates[k]` is a WGSL u32 expression, the row-major index over the axes with `extents[k]`."""

    coordinates: tuple[str, ...]
    extents: tuple[tuple[Dim, ...], ...]


@dataclass
class Scope:
    """Straight-line statements of one function and the elements already computed in it."""

    lines: list[str] = field(default_factory=list)
    known: dict[tuple[int, tuple[str, ...]], str] = field(default_factory=dict)


class Accessors:
    """Generates element accesses for one kernel and collects what it binds and the functions it declares."""

    def __init__(
        self,
        scalars: Scalars,
        maps: dict[Tensor, Map],
        bind: Callable[[Tensor, bool], str],
        dim: Callable[[Dim], str],
        lanes: Callable[[DType], int],
        vectors: frozenset[Tensor] = frozenset(),
    ) -> None:
        self.vectors = vectors  # tensors bound as arrays of vec4
        self.scalars, self.maps, self.bind, self.dim = scalars, maps, bind, dim
        self.lanes = lanes  # how many elements of a type share a word
        self.functions: list[str] = []
        self._names = 0

    def fresh(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    # ---- reading

    def element(self, view: View, index: Index, scope: Scope) -> str:
        """WGSL for the element of `view` at `index`, of the compute type of its tensor."""
        tensor = view.tensor
        if view.is_whole:
            at = index if _same_shape(index, tensor.shape) else self._flat(index, tensor.shape, scope)
            found = scope.known.get((id(tensor), at.coordinates))
            if found is None and len(at.coordinates) > 1:
                found = scope.known.get((id(tensor), self._flat(at, tensor.shape, scope).coordinates))
            if found is not None:
                return found
            if tensor in self.maps:
                return self._compute(tensor, at, scope)
        literal = self._literal(tensor)
        if literal is not None:
            return literal
        address = self._address(view, index)
        if tensor in self.maps:
            name = self.fresh("i")
            scope.lines.append(f"let {name} = {address};")
            return self._compute(tensor, Index((name,), (tensor.shape,)), scope)
        key = (id(tensor), ("@", address))
        if key not in scope.known:
            name = self.fresh("v")
            scope.lines.append(f"let {name} = {self.load(tensor, address)};")
            scope.known[key] = name
        return scope.known[key]

    def _flat(self, index: Index, shape: tuple[Dim, ...], scope: Scope) -> Index:
        text = index.coordinates[0]
        for coordinate, extents in zip(index.coordinates[1:], index.extents[1:], strict=True):
            text = f"({text} * {self.dim(product(extents))} + {coordinate})"
        return Index((text,), (shape,))

    def _literal(self, tensor: Tensor) -> str | None:
        """A weight of one element is part of the text, which saves a binding."""
        if tensor.storage is not Storage.WEIGHT or tensor.size != 1 or tensor.dtype.compute is None:
            return None
        value = np.asarray(tensor.data.numpy() if hasattr(tensor.data, "numpy") else tensor.data).reshape(-1)[0]
        return self.scalars.literal(value.item(), tensor.dtype.compute)

    def _compute(self, tensor: Tensor, index: Index, scope: Scope) -> str:
        key = (id(tensor), index.coordinates)
        if key in scope.known:
            return scope.known[key]
        node = self.maps[tensor]
        text = self._pointwise(node, index, scope) if node.is_pointwise else self._indexed(node, index, scope)
        if node.is_pointwise and node.expression != "x":
            text = _wrapped(text, node.output.dtype)
        name = self.fresh("v")
        scope.lines.append(f"let {name} = {text};")
        scope.known[key] = name
        return name

    def _pointwise(self, node: Map, index: Index, scope: Scope) -> str:
        names = {}
        for name, read in node.operands.items():
            kind = read.view.dtype.compute
            assert kind is not None and node.output.dtype.compute is not None
            names[name] = (self.element(read.view, index, scope), kind)
        return to_wgsl(node.expression, names, node.constants, self.scalars, node.output.dtype.compute or "")

    def _indexed(self, node: Map, index: Index, scope: Scope) -> str:
        function = self.fresh("map")
        body = self.fill(node.body, node, function)
        kind = self.scalars.type(node.output.dtype.compute or "")
        parameters = ", ".join(f"{c}: u32" for c in node.coordinates)
        self.functions.append(f"fn {function}({parameters}) -> {kind} {{\n{body}\n}}")
        return f"{function}({', '.join(self._regroup(index, split_groups(node.output.shape, node.groups), scope))})"

    def _regroup(self, index: Index, extents: Sequence[tuple[Dim, ...]], scope: Scope) -> list[str]:
        """The coordinates of `index` over other groups of the same shape."""
        if index.extents == tuple(extents):
            return list(index.coordinates)
        flat = self._flat(index, (), scope).coordinates[0]
        sizes = [product(e) for e in extents]
        if len(sizes) <= 1:
            return [flat][: len(sizes)]
        name = self.fresh("i")
        scope.lines.append(f"let {name} = {flat};")
        return [self._digit(name, sizes, k) for k in range(len(sizes))]

    def _digit(self, index: str, extents: Sequence[Dim], k: int) -> str:
        """Digit k of `index` in the mixed radix of `extents`, outermost first."""
        below = product(extents[k + 1 :])
        text = index if below == 1 else f"({index} / {self.dim(below)})"
        return text if k == 0 else f"({text} % {self.dim(extents[k])})"

    def _address(self, view: View, index: Index) -> str:
        """The flat index into the tensor's memory."""
        parts = [] if view.offset == 0 else [self.dim(view.offset)]
        at = 0
        axes = view.axes if _same_shape(index, view.shape) else None
        if axes is None:
            raise ValueError(f"an index over {index.extents} cannot address a view of shape {view.shape}")
        for coordinate, extents in zip(index.coordinates, index.extents, strict=True):
            factors = coalesce([f for axis in axes[at : at + len(extents)] for f in axis])
            at += len(extents)
            parts.extend(self._terms(coordinate, factors))
        return " + ".join(parts) or "0u"

    def _terms(self, coordinate: str, factors: list[Factor]) -> list[str]:
        extents = [f.extent for f in factors]
        out = []
        for k, f in enumerate(factors):
            if f.stride != 0:
                digit = self._digit(coordinate, extents, k)
                out.append(digit if f.stride == 1 else f"{digit} * {self.dim(f.stride)}")
        return out

    # ---- memory

    def load(self, tensor: Tensor, index: str) -> str:
        """The element at a flat index of memory, as its compute type. Narrow types are parts of 32-bit words."""
        name, dtype = self.bind(tensor, False), tensor.dtype
        if tensor in self.vectors:
            return f"{dtype.compute}({name}[({index}) >> 2u][({index}) & 3u])"
        count = self.lanes(dtype)
        if count > 1:
            return unpack(f"{name}[({index}) / {count}u]", f"(({index}) % {count}u)", dtype)
        return f"f32({name}[{index}])" if dtype is DType.FLOAT16 else f"{name}[{index}]"

    # ---- bodies

    def accessor(self, name: str, read: Read) -> None:
        """Declares `fn <name>(a, b, ...)`, the element of an operand at coordinates over the groups of the read."""
        scope = Scope()
        coordinates = tuple("abcdefgh"[: len(read.groups)])
        value = self.element(read.view, Index(coordinates, read.extents), scope)
        kind = self.scalars.type(read.view.dtype.compute or "")
        parameters = ", ".join(f"{c}: u32" for c in coordinates)
        lines = "\n".join(f"  {line}" for line in [*scope.lines, f"return {value};"])
        self.functions.append(f"fn {name}({parameters}) -> {kind} {{\n{lines}\n}}")

    def vector_accessor(self, name: str, read: Read) -> None:
        """Declares `fn <name>4(a, b, ...)`, four neighbours along the last coordinate, which is a multiple of 4.

        Without vector loads it is made of four scalar reads, each kept inside the last coordinate's range.
        """
        coordinates = tuple("abcdefgh"[: len(read.groups)])
        parameters = ", ".join(f"{c}: u32" for c in coordinates)
        vector = f"vec4<{self.scalars.type(read.view.dtype.compute or '')}>"
        if read.view.tensor in self.vectors and read.loads_vectors:
            address = self._address(read.view, Index(coordinates, read.extents))
            body = f"return {vector}({self.bind(read.view.tensor, False)}[({address}) >> 2u]);"
        elif self._from_words(read):
            scope = Scope()
            address = self._address(read.view, Index(coordinates, read.extents))
            parts = self._four(self.maps[read.view.tensor], address, scope)
            body = "\n  ".join([*scope.lines, f"return {vector}({', '.join(parts)});"])
        else:
            *outer, last = coordinates
            top = self.dim(product(read.extents[-1]) - 1)
            parts = [f"{name}({', '.join([*outer, f'min({last} + {k}u, {top})'])})" for k in range(4)]
            body = f"return {vector}({', '.join(parts)});"
        self.functions.append(f"fn {name}4({parameters}) -> {vector} {{\n  {body}\n}}")

    def _from_words(self, read: Read) -> bool:
        """True when an operand is a map of bytes, four of which are a word: a narrow integer less its zero point."""
        node = self.maps.get(read.view.tensor)
        if node is None or not (node.inline and node.is_pointwise and read.loads_vectors):
            return False
        return any(self._is_byte(r.view) for r in node.operands.values())

    def _is_byte(self, view: View) -> bool:
        bytes_in_memory = view.dtype in (DType.INT8, DType.UINT8) and view.tensor not in self.maps
        return bytes_in_memory and view.is_whole and self._literal(view.tensor) is None

    def _four(self, node: Map, address: str, scope: Scope) -> list[str]:
        """The elements of a map at `address`, a multiple of 4, and the next three; their bytes are loaded once."""
        scope.lines.append(f"let i = {address};")
        places = [f"(i + {k}u)" for k in range(4)]
        for read in node.operands.values():
            if self._is_byte(read.view):
                word, tensor = self.fresh("w"), read.view.tensor
                load = f"{self.bind(tensor, False)}[i >> 2u]"
                scope.lines.append(f"let {word} = {f'bitcast<i32>({load})' if tensor.dtype is DType.INT8 else load};")
                for k, place in enumerate(places):
                    scope.known[id(tensor), (place,)] = f"extractBits({word}, {8 * k}u, 8u)"
        shape = (node.output.shape,)
        return [self._compute(node.output, Index((place,), shape), scope) for place in places]

    def fill(self, text: str, node: Map, prefix: str) -> str:
        """A map's body with its operands' accessors declared and renamed, and constants and dims in place."""
        for name, read in node.operands.items():
            self.accessor(f"{prefix}_{name}", read)
            text = re.sub(rf"\b{name}_at\(", f"{prefix}_{name}(", text)
        out = node.output.dtype.compute or ""
        marks = {
            "out_t": self.scalars.type(out),
            **{f"{n}_t": self.scalars.type(r.view.dtype.compute or "") for n, r in node.operands.items()},
        }
        marks |= {n: self.dim(d) for n, d in node.parameters.items()}
        marks |= {n: constant(c) for n, c in node.constants.items()}
        return substitute(text, marks)


def constant(value: float | int | str | bool) -> str:
    """A constant of a body as WGSL text; strings are text already (a function or type name)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}u" if value >= 0 else f"{value}i"
    if isinstance(value, str):
        return value
    return repr(float(value)) if abs(value) < 3.4e38 else Scalars("native").literal(value, "f32")


def substitute(text: str, marks: dict[str, str]) -> str:
    """Replaces `$name` by its text; an unknown name is a mistake in a kernel and raises KeyError."""
    return re.sub(r"\$(\w+)", lambda m: marks[m[1]], text)


def _wrapped(text: str, dtype: DType) -> str:
    """A value calculated in 32 bits as the narrow integer it stands for, so that fused operators see what was stored."""
    return f"extractBits({text}, 0u, {dtype.bits}u)" if dtype.is_integer and dtype.bits < 32 else text


def _same_shape(index: Index, shape: tuple[Dim, ...]) -> bool:
    return tuple(d for extents in index.extents for d in extents) == tuple(shape)
