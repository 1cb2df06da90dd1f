"""PagedAttention: tokens of several sequences without padding. Their keys and values are in the pages of one cache.

Each token is treated as a sequence with one query. Its keys are the rows in the pages of its sequence, which the attention
kernel reads in place. Their number follows from its position. So one case covers prompts and single tokens, and the host
reads no length. In return, each token of a prompt loads its keys separately.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from .....errors import UnsupportedError
from .....program.dtypes import DType
from .....records import dataclass
from ....dims import Dim, equal, less_equal, product
from ...builder import Builder, Operand
from ..attend import VisibleKeys
from ..choices import Flag, Spelled
from ..normalise import rms_normalization
from ..registry import FLOATS, MICROSOFT, op
from .cache import stored_in_pages
from .core import Direct, attend, scale_of
from .masks import ONES, PLACE
from .quantised_cache import FLOAT8, QuantisedBy, quantised
from .rotary import STEPS_FIRST, AngleRows, rotated

NUMBERS = frozenset({DType.INT32})
_LABELS = {DType.FLOAT16: "float16", DType.BFLOAT16: "bfloat16", DType.INT8: "int8", FLOAT8: "float8e4m3fn"}
CacheType = Annotated[
    Literal["", "float16", "bfloat16", "int8", "float8e4m3fn", "int4", "float4e2m1"], Spelled(any_case=False)
]
Layout = Annotated[Literal["SEPARATE", "LATENT"], Spelled(any_case=False)]


@dataclass(frozen=True)
class Tokens:
    """Facts about tokens, i32.

    * `sequence`: per token, its sequence.
    * `position`: per token, its position there; -1 if its sequence does not fit into its pages.
    * `ends`: per token, the number of keys of its sequence.
    * `rows`: per sequence and position, the row of the cache; -1 if there is no page.
    """

    sequence: Operand
    position: Operand
    ends: Operand
    rows: Operand


@op(
    "PagedAttention",
    domain=MICROSOFT,
    types=FLOATS,
    key_cache=FLOATS | frozenset({DType.INT8, DType.UINT8, FLOAT8}),
    value_cache=FLOATS | frozenset({DType.INT8, DType.UINT8, FLOAT8}),
    begins=NUMBERS,
    past=NUMBERS,
    pages=NUMBERS,
    slots=NUMBERS,
    bounds=NUMBERS,
    ranks={
        "query": 2,
        "key": 2,
        "value": 2,
        "key_cache": 4,
        "value_cache": 4,
        "begins": 1,
        "past": 1,
        "pages": 2,
        "cosines": 2,
        "sines": 2,
        "slots": 1,
    },
)
def paged_attention(
    b: Builder,
    query: Operand,
    key: Operand | None,
    value: Operand | None,
    key_cache: Operand,
    value_cache: Operand | None,
    begins: Operand,
    past: Operand,
    pages: Operand,
    cosines: Operand | None = None,
    sines: Operand | None = None,
    slots: Operand | None = None,
    sink: Operand | None = None,
    query_gain: Operand | None = None,
    key_gain: Operand | None = None,
    key_scale: Operand | None = None,
    value_scale: Operand | None = None,
    bounds: Operand | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    do_rotary: Flag = 0,
    is_causal: Flag = 1,
    k_cache_dtype: CacheType = "",
    k_quant_type: QuantisedBy = "NONE",
    kv_cache_layout: Layout = "SEPARATE",
    local_window_size: int = -1,
    qk_norm_epsilon: float = 1e-6,
    rotary_interleaved: Flag = 0,
    rotary_offset: int = 0,
    scale: float = 0.0,
    softcap: float = 0.0,
    v_cache_dtype: CacheType = "",
    v_head_size: int = 0,
    v_quant_type: QuantisedBy = "NONE",
    outputs: int = 1,
) -> list[Operand]:
    """Shapes of the operands:

    * queries (tokens, heads * size), or queries, keys and values concatenated,
    * caches (pages, rows of a page, groups, size),
    * `begins` (batch + 1), `past` (batch), `pages` (batch, pages of a sequence), `slots` (tokens).

    `bounds` is ignored: it states how much memory other kernels need.

    A sequence with more rows than its pages hold stores nothing, and its results are zeros. The same holds for a token of no
    sequence.
    """
    latent = kv_cache_layout == "LATENT"
    if latent != (value_cache is None) or (latent and (value is not None or kv_num_heads != 1)):
        raise UnsupportedError("kv_cache_layout LATENT has one head of keys, and neither values nor a cache of these")
    if outputs < (2 if latent else 3):
        raise UnsupportedError(
            "without the outputs key_cache_out and value_cache_out the caches would be modified in place"
        )
    _check_type(key_cache, k_cache_dtype, "k_cache_dtype")
    if value_cache is not None:
        _check_type(value_cache, v_cache_dtype, "v_cache_dtype")
    if (value is None) != (key is None or latent) or (latent and key is None):
        raise UnsupportedError(
            "keys and values must be inputs, or follow the queries in one tensor; for a latent cache, keys must be an input"
        )
    sizes = key_cache.shape[3], (key_cache if value_cache is None else value_cache).shape[3]
    q, k, v = _projections(b, query, key, value, sizes, (num_heads, kv_num_heads))
    count, _, size = q.shape
    tokens = _tokens(b, begins, past, pages, count, key_cache)
    if query_gain is not None and key_gain is not None:
        q = rms_normalization(b, q, query_gain, epsilon=qk_norm_epsilon)
        k = rms_normalization(b, k, key_gain, epsilon=qk_norm_epsilon)
    if do_rotary:
        if cosines is None or sines is None:
            raise UnsupportedError("do_rotary needs cos_cache and sin_cache")
        q, k = (_rotated(b, x, cosines, sines, tokens, rotary_offset, bool(rotary_interleaved)) for x in (q, k))
    forms = [quantised(0, k_quant_type, key_scale, key_cache), quantised(0, v_quant_type, value_scale, value_cache)]
    news = [k] if v is None else [k, v]
    held = [key_cache] if value_cache is None else [key_cache, value_cache]
    stored = [
        b.reshape(form.stored(b, b.reshape(x, (*x.shape[:2], 1, x.shape[2]))), x.shape) if form else x
        for form, x in zip(forms, news, strict=False)
    ]
    caches = stored_in_pages(b, list(zip(stored, held, strict=True)), _slots(b, slots, tokens))

    def of_pages(cache: Operand, number: int, width: Dim) -> Operand:
        found = b.map(
            "let row = rows_at(u32(sequence_at(batch)), j); if (row < 0) { return $out_t(); } return x_at(u32(row), head, d);",
            cache.dtype,
            (count, cache.shape[2], tokens.rows.shape[1], width),
            ("batch", "head", "j", "d"),
            ONES,
            {"x": (cache, (2, 1, 1)), "rows": (tokens.rows, (1, 1)), "sequence": (tokens.sequence, (1,))},
            inline=True,
        )
        form = forms[number]
        return form.read(b, found, query.dtype) if form else found

    values = of_pages(caches[0], 0, v_head_size or size) if latent else of_pages(caches[1], 1, caches[1].shape[3])
    left = local_window_size - 1 if local_window_size >= 0 else None
    visible = VisibleKeys(starts=tokens.position, ends=tokens.ends, left=left, right=0 if is_causal else None)

    def mapped(scores: Operand) -> Operand:
        return b.pointwise(
            "where(m, x, -infinity)", {"x": scores, "m": _in_page(b, tokens)}, DType.FLOAT32, scores.shape
        )

    def hide(scores: Operand) -> Operand:
        seen = _visible_in_page(b, tokens, bool(is_causal), local_window_size)
        return b.pointwise("where(m, x, -infinity)", {"x": scores, "m": seen}, DType.FLOAT32, scores.shape)

    found = attend(
        b,
        b.reshape(q, (count, num_heads, 1, size)),
        of_pages(caches[0], 0, size),
        values,
        scale=scale_of(b, size, scale),
        softcap=softcap,
        hide=hide,
        sink=sink,
        direct=Direct(values, visible, mapped),
    )
    y = b.reshape(found.y, (count, num_heads * found.y.shape[3]))
    return [y, *caches][:outputs]


def _check_type(cache: Operand, declared: str, name: str) -> None:
    held = _LABELS.get(cache.dtype, cache.dtype.label)
    if cache.dtype is DType.UINT8 or declared not in ("", held):
        raise UnsupportedError(
            f"a cache of {held} with {name}={declared!r}: numbers of 4 bits in pages are not supported"
        )


def _projections(
    b: Builder,
    query: Operand,
    key: Operand | None,
    value: Operand | None,
    sizes: tuple[Dim, Dim],
    counts: tuple[int, int],
) -> tuple[Operand, Operand, Operand | None]:
    """Returns queries, keys and values, each as (tokens, heads, size); values are None if there are keys alone. `sizes` are
    the row sizes of keys and of values, `counts` the numbers of query and key heads."""

    def split_heads(x: Operand, heads: int, size: Dim) -> Operand:
        b.require(equal(x.shape[1], heads * size), "columns of {} for {} heads of {} elements", x, heads, size)
        return b.reshape(b.assumed(x, (x.shape[0], heads * size)), (x.shape[0], heads, size))

    (heads, groups), (size, value_size) = counts, sizes
    if key is not None:
        values = None if value is None else split_heads(value, groups, value_size)
        return split_heads(query, heads, size), split_heads(key, groups, size), values
    whole = split_heads(query, heads + 2 * groups, size)
    q, k, v = (
        b.slice(whole, 1, start, 1, count) for start, count in ((0, heads), (heads, groups), (heads + groups, groups))
    )
    return q, k, v


def _tokens(b: Builder, begins: Operand, past: Operand, pages: Operand, count: Dim, cache: Operand) -> Tokens:
    batch, block = past.shape[0], cache.shape[1]
    b.require(equal(begins.shape[0], batch + 1), "cumulative_sequence_length {} for {} sequences", begins, batch)
    b.require(equal(pages.shape[0], batch), "block_table {} for {} sequences", pages, batch)
    b.require(less_equal(1, product(cache.shape[:2])), "a cache {} without rows", cache)
    ends, starts = b.slice(begins, 0, 1, 1, batch), b.slice(begins, 0, 0, 1, batch)
    most = pages.shape[1] * block
    rows = b.map(
        "let page = pages_at(s, j / $block); if (page < 0 || page >= i32($count)) { return -1i; }"
        " return page * i32($block) + i32(j % $block);",
        DType.INT32,
        (batch, most),
        ("s", "j"),
        (1, 1),
        {"pages": (pages, (1, 1))},
        parameters={"block": block, "count": cache.shape[0]},
    )
    sequence = b.map(
        "first_above", DType.INT32, (count,), ("k",), (1,), {"totals": (ends, (1,))}, parameters={"columns": batch}
    )
    own = {"past": (past, (1,)), "starts": (starts, (1,)), "ends": (ends, (1,)), "sequence": (sequence, (1,))}
    position, last = (
        b.map(
            "token_position",
            DType.INT32,
            (count,),
            ("t",),
            (1,),
            own,
            parameters={"batch": batch, "most": most},
            LAST=last,
        )
        for last in (False, True)
    )
    known = b.pointwise("min(s, batch - 1)", {"s": sequence}, DType.INT32, parameters={"batch": batch})
    return Tokens(known, position, last, rows)


def _slots(b: Builder, slots: Operand | None, tokens: Tokens) -> Operand:
    """Returns per token the row of the cache that its keys and values are stored in; negative for none."""
    if slots is not None:
        return b.pointwise("where(p < 0, -1, s)", {"p": tokens.position, "s": slots}, DType.INT32)
    return b.map(
        "let p = position_at(t); if (p < 0) { return -1i; } return rows_at(u32(sequence_at(t)), u32(p));",
        DType.INT32,
        tokens.position.shape,
        ("t",),
        (1,),
        {"position": (tokens.position, (1,)), "rows": (tokens.rows, (1, 1)), "sequence": (tokens.sequence, (1,))},
    )


def _rotated(
    b: Builder, x: Operand, cosines: Operand, sines: Operand, tokens: Tokens, offset: int, interleaved: bool
) -> Operand:
    """Returns x (tokens, heads, size) with the elements from `offset` on rotated by the positions of the tokens."""
    count, heads, size = x.shape
    part = b.slice(x, 2, offset, 1, size - offset) if offset else x
    turned = rotated(
        b,
        b.reshape(part, (count, 1, heads, size - offset)),
        STEPS_FIRST,
        cosines,
        sines,
        AngleRows(first=tokens.position),
        size=2 * cosines.shape[1],
        interleaved=interleaved,
    )
    turned = b.reshape(turned, (count, heads, size - offset))
    return b.join([b.slice(x, 2, 0, 1, offset), turned], 2, x.shape) if offset else turned


def _per_key(b: Builder, tokens: Tokens, body: str, *more: str, **constants: Any) -> Operand:
    """Returns a boolean per key of each token. `body` reads the row of the key, and the fields `more` of the tokens."""
    read: dict[str, tuple[Operand, tuple[int, ...]]]
    read = {"rows": (tokens.rows, (1, 1)), "sequence": (tokens.sequence, (1,))}
    read |= {name: (getattr(tokens, name), (1,)) for name in more}
    shape = (tokens.sequence.shape[0], 1, 1, tokens.rows.shape[1])
    return b.map(body, DType.BOOL, shape, PLACE, ONES, read, inline=True, **constants)


def _in_page(b: Builder, tokens: Tokens) -> Operand:
    """Whether a key of a token is in a page."""
    return _per_key(b, tokens, "return rows_at(u32(sequence_at(batch)), j) >= 0;")


def _visible_in_page(b: Builder, tokens: Tokens, causal: bool, window: int) -> Operand:
    """Whether a token sees a key, as `VisibleKeys` defines it, and the key is in a page."""
    more = [name for name, needed in (("position", causal or window >= 0), ("ends", not causal)) if needed]
    return _per_key(b, tokens, "paged_key", *more, CAUSAL=causal, WINDOW=window)
