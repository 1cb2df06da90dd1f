"""The text of a kernel without a Call.

Such a kernel computes four elements at a time if their number allows it, otherwise one by one. If it reads across rows, it uses a
tile in workgroup memory.

In: the `Writer` of a group of maps. Out: the texts of its variants, the last of which serves every size.
"""

from __future__ import annotations

from ..dims import Dim, ceildiv, equal, less_equal, mod, product, quotient
from ..ir import REPETITION, Tensor, View
from ..templates.files import template
from ..templates.preprocess import preprocess
from ..tune import map_shapes, maps_in_fours
from ..tune.maps import MapShape
from . import storage
from .accessor import constant, fn, substitute
from .position import Position
from .transposed import ROWS, TILE, WORKGROUP, TransposedRead, transposed_read
from .value import TypedValue
from .writer import VariantText, Writer, place_vector_requirements

MOST_ASSUMED = 6  # multiples of 4 that a variant requires; each is checked for every set of sizes


def map_texts(w: Writer) -> list[VariantText]:
    """Returns the variants of a kernel without a Call: four elements at a time if their number allows it, and one by one."""
    size = w.group.stores[0].size
    texts = []
    across = transposed_read(w.group.stores, w.fused, w.loads) if maps_in_fours(w.target) else None
    if across and not w.placement.part and all(w.lanes(t.dtype) == 1 for t in w.group.stores):
        guard = product(less_equal(TILE, d) for d in (across.long, across.last.extent))
        if guard != 0:
            w.renew(frozenset())
            texts.append(_transposed_text(w, guard, across))
        if guard == 1:
            return texts
    found = _fours(w) if maps_in_fours(w.target) else None
    if found is not None:
        vectors, fours = found
        guard = product(equal(mod(d, 4), 0) for d in fours)
        for shape in map_shapes(size, 4, w.placement.part, w.target):
            w.renew(vectors, fours)
            texts.append(_fours_text(w, guard, shape))
    if not texts or texts[-1].guard != 1:
        pack = max(w.lanes(t.dtype) for t in w.group.stores)
        for shape in map_shapes(size, pack, w.placement.part, w.target):
            w.renew(frozenset())
            texts.append(_single_text(w, pack, shape))
    return texts


def _fours(w: Writer) -> tuple[frozenset[Tensor], frozenset[Dim]] | None:
    """Returns the tensors that are read or stored four elements at a time, and the dims that must be multiples of 4 for it.

    Dims that always are multiples of 4 are omitted. Returns None if the kernel is better one by one.
    """
    stores, maps = w.group.stores, w.fused.values()
    size = stores[0].size
    if any(w.lanes(t.dtype) > 4 for t in stores) or any(n.iterations != 0 for n in maps):
        return None
    fours: dict[Dim, None] = {size: None}
    alone: set[Tensor] = set()  # memory that is stored one element at a time
    for tensor in stores:
        needs = place_vector_requirements(tensor)
        if not w.has_vectors(tensor) or needs is None or any(isinstance(d, int) and d % 4 for d in needs):
            if w.lanes(tensor.dtype) > 1:
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
        contiguous = view.factors and view.factors[-1].stride == 1
        if contiguous and view.tensor in w.loads and w.has_vectors(view.tensor):
            fours[view.tensor.size] = None
            vectors.add(view.tensor)
    assumed = frozenset(d for d in fours if quotient(d, 4) is None)
    if any(isinstance(d, int) for d in assumed) or len(assumed) > MOST_ASSUMED or not vectors:
        return None
    return frozenset(vectors), assumed


def _fours_text(w: Writer, guard: Dim, shape: MapShape) -> VariantText:
    """Each invocation computes four consecutive elements per step. Steps are one workgroup apart."""
    stored = w.group.stores
    size = stored[0].size
    position = Position(w.access.scope(), ("i",), (stored[0].shape,), 4)
    stores = [line for tensor in stored for line in w.store4(tensor, position)]
    body = [f"if (i >= {w.dim(size)}) {{ return; }}", *position.scope.lines, *stores]
    w.access.functions["four"] = fn("four", "i: u32", body)
    step = shape.workgroup * 4
    begin = f"{w.dim(REPETITION * w.placement.part)} + " if w.placement.part else ""
    lines = [f"let i = {begin}w * {step * shape.steps}u + lane * 4u;"]
    lines += [f"four(i + {k * step}u);" if k else "four(i);" for k in range(shape.steps)]
    return _map_text(w, product([guard, shape.guard]), shape, step, lines)


def _transposed_text(w: Writer, guard: Dim, across: TransposedRead) -> VariantText:
    """Each workgroup loads a tile along its rows, and computes and stores its elements along its columns."""
    view, factors, access, dim = across.view, across.factors, w.access, w.dim
    kind, element = view.dtype.compute or "", w.scalars.type(view.dtype.compute or "")
    position = Position(access.scope(), ("i",), (w.group.stores[0].shape,))
    position.scope.known[view.tensor, position.show(view, "place")] = TypedValue("staged", kind)
    stores = [w.store(tensor, position, access.element(View.of(tensor), position).text) for tensor in w.group.stores]
    value = access.loaded(w.bind(view.tensor), view.tensor, "place")
    access.functions["loaded"] = fn("loaded", "place: u32", [f"return {value};"], element)
    access.functions["made"] = fn("made", f"i: u32, place: u32, staged: {element}", [*position.scope.lines, *stores])
    marks = {
        "element": element,
        "TILE": constant(TILE),
        "ROWS": constant(ROWS),
        "tiles": dim(ceildiv(across.last.extent, TILE)),
        "rows": dim(ceildiv(across.long, TILE)),
        "begin": w.uniforms.begin(view.offset) if view.offset != 0 else "0u",
        "along": dim(across.long),
        "along_below": dim(across.below(across.along)),
        "last": dim(across.last.extent),
        "last_stride": dim(across.last.stride),
    }
    for n, k in enumerate(across.outer):
        marks[f"extent{n}"], marks[f"stride{n}"] = dim(factors[k].extent), dim(factors[k].stride)
        marks[f"below{n}"] = dim(across.below(k))
    kernel = substitute(preprocess(template("transposed"), {"OUTER": len(across.outer)}), marks)
    return w.text(guard, across.workgroups, f"{kernel}\n{w.main(WORKGROUP, across.workgroups)}")


def _single_text(w: Writer, pack: int, shape: MapShape) -> VariantText:
    """Each invocation computes `pack` consecutive elements per step, whole words of every output. `shape` has the number of
    steps."""
    stored = w.group.stores
    size = stored[0].size
    position = Position(w.access.scope(), ("i",), (stored[0].shape,))
    stores: list[str] = []
    words: list[tuple[Tensor, str, int]] = []
    for tensor in stored:
        value = w.access.element(View.of(tensor), position).text
        count = w.lanes(tensor.dtype)
        if count == 1:
            stores.append(w.store(tensor, position, value))
        else:
            word = f"word{len(words)}"
            words.append((tensor, word, count))
            shift = f"((e % {count}u) * {32 // count}u)"
            stores.append(f"{word}[e / {count}u] |= {storage.pack(value, tensor.dtype)} << {shift};")
    lines = [*position.scope.lines, *stores]
    part, step = w.placement.part, shape.workgroup * pack
    begin = f"{w.dim(REPETITION * part)} + " if part else ""
    name = "i" if pack == 1 else "first"
    if pack == 1:
        body = [f"if (i >= {w.dim(size)}) {{ return; }}", *lines]
    else:
        body = [f"if (first >= {w.dim(size)}) {{ return; }}"]
        body += [f"var {word} = array<u32, {pack // count}>();" for _, word, count in words]
        body += [
            f"for (var e = 0u; e < {pack}u; e++) {{",
            "  let i = first + e;",
            f"  if (i >= {w.dim(size)}) {{ break; }}",
        ]
        body += [f"  {line}" for line in lines] + ["}"]
        for tensor, word, count in words:
            for k in range(pack // count):
                guard = f"if (first + {k * count}u < {w.dim(size)}) " if k else ""
                body.append(f"{guard}{{ {w.store_word(tensor, f'first / {count}u + {k}u', f'{word}[{k}u]')} }}")
    lane = "lane" if pack == 1 else f"lane * {pack}u"
    start = f"let {name} = {begin}w * {step * shape.steps}u + {lane}"
    if shape.steps == 1:
        return _map_text(w, shape.guard, shape, step, [f"{start};", *body])
    loop = [f"for (var s = 0u; s < {shape.steps}u; s++) {{", f"  {start} + s * {step}u;"]
    return _map_text(w, shape.guard, shape, step, [*loop, *(f"  {x}" for x in body), "}"])


def _map_text(w: Writer, guard: Dim, shape: MapShape, step: int, lines: list[str]) -> VariantText:
    kernel = fn("kernel", "w: u32, lane: u32", lines)
    groups = ceildiv(w.placement.part or w.group.stores[0].size, step * shape.steps)
    return w.text(guard, groups, f"{kernel}\n{w.main(shape.workgroup, groups)}")
