"""The text of a Call: its template, with accessors for operands, results and fused maps.

In: a Call and the `Writer` of its group. Out: the texts of its variants, which share all functions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ...program.dtypes import DType
from ..dims import product, quotient
from ..ir import Call, Function, Inner, Read, Shape, Tensor, Variant, View, Write, split_groups
from ..ir.signed_bytes import bytes_of, sources
from ..templates.files import template as template_text
from ..templates.preprocess import declared, preprocess
from .accessor import LETTERS, constant, coordinates, fn, substitute
from .expression import to_wgsl
from .position import Position
from .value import TypedValue
from .writer import VariantText, Writer, place_vector_requirements


def call_texts(w: Writer, call: Call) -> list[VariantText]:
    """Returns the texts of a Call's variants. Those with subgroup matrices share functions, and so do all others."""
    texts: dict[Variant, VariantText] = {}
    for eights in (False, True):
        variants = [it for it in call.variants if it.by_matrices is eights]
        if variants:
            if eights:
                results = {n: replace(it, vector=it.vector or it.by_matrices) for n, it in call.results.items()}
                call = replace(call, results=results)
            w.renew(_vectors_of_call(w, call), eights=_eights_of_call(w, call) if eights else frozenset())
            texts |= zip(variants, _texts(w, call, variants, eights), strict=True)
    return [texts[it] for it in call.variants]


def _texts(w: Writer, call: Call, variants: Sequence[Variant], eights: bool) -> list[VariantText]:
    """Returns the texts of variants that share their functions. `eights`: they load 16 bytes at a time."""
    access = w.access
    bytewise = any(dict(it.constants).get("DOTS") for it in variants)
    marks = {n: w.dim(d) for n, d in call.parameters.items()}
    for name, read in call.operands.items():
        marks[f"{name}_t"] = w.scalars.type(read.view.dtype.compute or "")
        access.accessor(f"{name}_at", read)
        if read.vector:
            access.vector_accessor(f"{name}_at", read)
            if eights and read.view.tensor.dtype is DType.INT32:
                access.sixteen_accessor(f"{name}_at", read)
            elif eights:
                access.eight_accessor(f"{name}_at", read)
        if read.run:
            access.run_accessor(f"{name}_run", read, bytewise=bytewise)
    for name, write in call.results.items():
        marks[f"{name}_t"] = w.scalars.type(write.tensor.dtype.compute or "")
        if write.vector:
            access.functions[f"{name}_put4"] = _put4(w, name, write)
        if write.largest:
            access.functions[f"{name}_max"] = _max(w, name, write)
        elif not write.in_fours:
            access.functions[f"{name}_put"] = _put(w, name, write)
        if name in call.loop_carried:
            access.functions[f"{name}_at"] = _carried(w, name, write)
    for name, inner in call.inner.items():
        access.functions[name] = _inner(w, name, inner)
    for name, function in call.functions.items():
        marks[f"{name}_t"] = w.scalars.type(function.result)
        access.functions[name] = _function(w, name, function)
    types = {name: text for name, text in marks.items() if name.endswith("_t")}
    texts = []
    for variant in variants:
        given = call.constants | dict(variant.constants)
        template, constants = declared(template_text(variant.template or call.template), given, call.names)
        own = {n: constant(c) for n, c in constants.items()} | marks | {n: w.dim(d) for n, d in variant.parameters}
        own["WG"] = f"{variant.workgroup_size}u"
        chosen = {
            **types,
            **constants,
            "SUBGROUPS": w.subgroups,
            "INVOCATIONS": variant.workgroup_size,
            "COMPONENT_STORES": w.component_stores,
            "MATRIX_UNITS": w.matrix_units,
            "BROWSER": w.browser,
        }
        text = substitute(preprocess(template, chosen), own)
        if w.subgroups:
            text = re.sub(rf"\blanes_(sum|max)\(lane, {variant.workgroup_size}u, ", r"workgroup_\1(lane, ", text)
        needs_subgroups = (
            "group_" in text and re.search(r"\b(workgroup|subgroup)_(?!matrix_)\w", text) is not None
        )  # a cheap test before the slow search
        main = w.main(variant.workgroup_size, variant.workgroups, needs_subgroups)
        texts.append(w.text(variant.guard, variant.workgroups, f"{text}\n{main}"))
    return texts


def _vectors_of_call(w: Writer, call: Call) -> frozenset[Tensor]:
    """Returns the tensors that a call reads and writes four elements at a time."""
    loaded = {
        r.view.tensor
        for r in call.operands.values()
        if r.vector
        and r.loads_vectors
        and r.view.tensor in w.loads
        and w.lanes(r.view.dtype) == 1
        and r.view.dtype.compute in ("f32", "i32", "u32")
    }
    loaded |= {
        t
        for r in call.operands.values()
        if r.vector
        for t in _packed_vectors(w, r.view.tensor) | _neighbour_vectors(w, r) | _scaled_vectors(w, r)
    }
    written = [tensor for it in call.results.values() if it.in_fours for tensor in (it.tensor, *it.also)]
    behind = [node for node in w.fused.values() if any(w.follows(node.output, it) for it in written)]
    read = [view for node in behind for view in node.reads]
    # Also tensors read by maps of other operands, such as a residual in bytes.
    operand_maps = [w.fused[view.tensor] for view in read if view.tensor in w.fused]
    read += [view for node in operand_maps if node.is_pointwise for view in node.reads]
    loaded |= {v.tensor for v in read if v.tensor in w.loads and _shows_fours(w, v)}
    stored = {t for t in w.group.stores if any(w.follows(t, it) for it in written)}
    fitting = {
        t
        for t in stored
        if w.has_vectors(t) and all(quotient(d, 4) is not None for d in place_vector_requirements(t) or (1,))
    }
    return frozenset(loaded | {t.memory for t in fitting} - {t.memory for t in w.group.stores if t not in fitting})


def _eights_of_call(w: Writer, call: Call) -> frozenset[Tensor]:
    """Returns the tensors of halves or bytes that a call reads 16 bytes at a time, and that nothing else in its kernel reads."""
    found = {
        it.view.tensor: it.vector and it.loads_together(8)
        for it in call.operands.values()
        if it.view.tensor.dtype is DType.FLOAT16
    }
    for read in call.operands.values():
        for tensor, contiguous in sources(read):
            found[tensor] = found.get(tensor, True) and read.vector and contiguous
    of_bytes = {tensor for tensor in w.fused if bytes_of(tensor) is not None}
    others = {view.tensor for tensor, node in w.fused.items() if tensor not in of_bytes for view in node.reads}
    stored = {it.memory for it in w.group.stores}
    loaded = {tensor for tensor, contiguous in found.items() if contiguous and tensor in w.loads} - others - stored
    return frozenset(it for it in loaded if not w.placement.ranges[it])


def _packed_vectors(w: Writer, tensor: Tensor) -> set[Tensor]:
    """Returns what an inlined map of narrow integers reads four elements at a time.

    These are the integers, as parts of words, and their scales if four neighbours have one each.
    """
    node = w.fused.get(tensor)
    if node is None or not node.is_pointwise:
        return set()
    views = [view for view in node.reads if view.tensor in w.loads]
    narrow = {v.tensor for v in views if v.dtype.is_integer and w.lanes(v.dtype) >= 4}
    return narrow | {v.tensor for v in views if narrow and _shows_fours(w, v)}


def _neighbour_vectors(w: Writer, read: Read) -> set[Tensor]:
    """Returns what an inlined map reads as four `neighbours` at a time."""
    node = w.fused.get(read.view.tensor)
    if node is None or not node.neighbours or not read.loads_vectors:
        return set()
    reads = [it for it in node.operands.values() if it.loads_vectors and it.view.tensor in w.loads]
    return {it.view.tensor for it in reads if w.lanes(it.view.dtype) == 1 and it.view.dtype.compute == "f32"}


def _scaled_vectors(w: Writer, read: Read) -> set[Tensor]:
    """Returns what an inlined map of floats reads four elements at a time, if that is possible for all of its operands."""
    node = w.fused.get(read.view.tensor)
    if node is None or not (node.inline and node.is_pointwise and read.loads_vectors):
        return set()
    views = [view for view in node.reads if not view.tensor.is_literal]
    fours = all(view.tensor in w.loads and _shows_fours(w, view) for view in views)
    return {view.tensor for view in views} if fours and node.output.dtype.compute == "f32" else set()


def _shows_fours(w: Writer, view: View) -> bool:
    """Returns whether every four elements of a view are known to be four neighbours in memory, as a WGSL vector or as one
    word."""
    contiguous = view.factors and view.factors[-1].stride == 1 and w.lanes(view.dtype) in (1, 4)
    needs = view.fours if contiguous and view.dtype.compute in ("f32", "i32", "u32") else None
    return needs is not None and all(quotient(d, 4) is not None for d in (*needs, view.tensor.size))


def _put(w: Writer, name: str, write: Write) -> str:
    """Returns `fn <name>_put(coordinates..., value)`: the fused maps after a Call's result, then the stores."""
    tensor = write.tensor
    position = _position(w, tensor.shape, write.groups)
    scope = position.scope
    _register_values(write, position)
    stores = []
    for target in w.group.stores:
        if any(w.follows(target, it) for it in (tensor, *write.also)):
            value = w.access.element(View.of(target), position)
            stores.append(w.store(target, position, value.text))
    return _store_function(w, f"{name}_put", write, 1, [*scope.lines, *stores])


def _max(w: Writer, name: str, write: Write) -> str:
    """Returns `fn <name>_max(coordinates..., value)`: keeps the largest of all values for an element."""
    position = _position(w, write.tensor.shape, write.groups)
    index = w.place(write.tensor, position).number
    stored = w.raise_word(w.bindings[write.tensor.memory], index, "value")
    return _store_function(w, f"{name}_max", write, 1, [*position.scope.lines, stored])


def _put4(w: Writer, name: str, write: Write) -> str:
    """Returns `fn <name>_put4(coordinates..., value)`, four elements along the last coordinate, which is a multiple of 4."""
    tensor = write.tensor
    if not write.in_fours:
        extents = split_groups(tensor.shape, write.groups)
        *outer, last = LETTERS[: len(extents)]
        inside = f"if ({last} + e < {w.dim(product(extents[-1]))})"
        values = [f"{value}[e]" for value in _values(write)]
        call = f"{name}_put({', '.join([*outer, f'{last} + e', *values])});"
        lines = [f"for (var e = 0u; e < 4u; e++) {{ {inside} {{ {call} }} }}"]
        return _store_function(w, f"{name}_put4", write, 4, lines)
    position = _position(w, tensor.shape, write.groups, 4)
    _register_values(write, position)
    followed = [t for t in w.group.stores if any(w.follows(t, it) for it in (tensor, *write.also))]
    stores = [x for t in followed for x in w.store4(t, position)]
    if write.squares:
        source, squares = write.squares
        value = w.scalars.spread(w.access.element(View.of(source), position))
        four = position.scope.let("v", value.text)
        stores.append(w.set_word(w.bindings[squares], f"{position.number} >> 2u", f"dot({four}, {four})"))
    return _store_function(w, f"{name}_put4", write, 4, [*position.scope.lines, *stores])


def _values(write: Write) -> list[str]:
    """Returns the parameters of a store accessor that are elements: of the result, and of the tensors stored with it."""
    return ["value", *(f"value{k}" for k in range(1, 1 + len(write.also)))]


def _register_values(write: Write, position: Position) -> None:
    """Registers the parameters of a store accessor as known elements."""
    for name, tensor in zip(_values(write), (write.tensor, *write.also), strict=True):
        position.scope.known[tensor, position] = TypedValue(name, tensor.dtype.compute or "", position.width)


def _store_function(w: Writer, name: str, write: Write, width: int, lines: list[str]) -> str:
    tensors = (write.tensor, *write.also)
    kinds = [w.scalars.type(it.dtype.compute or "", width) for it in tensors]
    values = [f"{value}: {kind}" for value, kind in zip(_values(write), kinds, strict=True)]
    parameters = ", ".join([*coordinates(write.groups), *values])
    return fn(name, parameters, lines)


def _position(w: Writer, shape: Shape, groups: tuple[int, ...], width: int = 1) -> Position:
    """Returns the position of the parameters of an accessor over these groups of axes."""
    extents = split_groups(shape, groups)
    return Position(w.access.scope(), LETTERS[: len(extents)], extents, width)


def _inner(w: Writer, name: str, inner: Inner) -> str:
    """Returns `fn <name>(coordinates..., value)`: applies the inner maps of a Call to a value."""
    position = _position(w, inner.source.shape, inner.groups)
    kind = inner.source.dtype.compute or ""
    position.scope.known[inner.source, position] = TypedValue("value", kind)
    result = w.access.element(View.of(inner.result), position)
    parameters = ", ".join([*coordinates(inner.groups), f"value: {w.scalars.type(kind)}"])
    return fn(name, parameters, [*position.scope.lines, f"return {result.text};"], w.scalars.type(result.kind))


def _carried(w: Writer, name: str, write: Write) -> str:
    """Returns `fn <name>_at(coordinates...)`: a value that the Call stored before, in this dispatch or the previous one."""
    position = _position(w, write.tensor.shape, write.groups)
    value = w.access.loaded(w.bindings[write.tensor], write.tensor, position.number)
    kind = w.scalars.type(write.tensor.dtype.compute or "")
    parameters = ", ".join(coordinates(write.groups))
    return fn(f"{name}_at", parameters, [*position.scope.lines, f"return {value};"], kind)


def _function(w: Writer, name: str, function: Function) -> str:
    names = {n: TypedValue(n, kind) for n, kind in function.parameters}
    text = to_wgsl(function.expression, names, {}, w.scalars, function.result).text
    parameters = ", ".join(f"{n}: {w.scalars.type(kind)}" for n, kind in function.parameters)
    return fn(name, parameters, [f"return {text};"], w.scalars.type(function.result))
