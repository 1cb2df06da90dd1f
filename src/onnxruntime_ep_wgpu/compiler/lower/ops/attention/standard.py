"""ONNX's Attention, from version 23 on: masks, windows and lengths of keys. Caches are copied."""

from __future__ import annotations

from collections.abc import Sequence

from .....errors import UnsupportedError
from .....program.dtypes import DType
from ....dims import Dim
from ...builder import Builder, Operand
from ..attend import VisibleKeys
from ..choices import Flag
from ..index import INDICES, index32
from ..registry import BOOLS, FLOATS, op
from .cache import extended
from .core import Direct, attend, heads_of, merged, scale_of


@op("Attention", types=FLOATS, mask=FLOATS | BOOLS, lengths=INDICES, ranks={"q": (3, 4), "mask": (1, 2, 3, 4)})
def attention(
    b: Builder,
    q: Operand,
    k: Operand,
    v: Operand,
    mask: Operand | None = None,
    past_key: Operand | None = None,
    past_value: Operand | None = None,
    lengths: Operand | None = None,
    *,
    is_causal: Flag = 0,
    kv_num_heads: int = 0,
    left_window_size: int = -1,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float = 0.0,
    softcap: float = 0.0,
    softmax_precision: int = 1,
    outputs: int = 1,
) -> list[Operand]:
    """Takes queries (batch, heads, queries, size) or (batch, queries, heads * size), and keys and values likewise.

    Results: output, present keys, present values, and the scores at the stage that `qk_matmul_output_mode` selects. A query
    that sees no key gets zeros. The softmax is in f32, which every `softmax_precision` allows.
    """
    query, key, value = heads_of(b, q, q_num_heads), heads_of(b, k, kv_num_heads), heads_of(b, v, kv_num_heads)
    past: Dim = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        key, value = extended(b, past_key, key), extended(b, past_value, value)
    left, right = left_window_size, 0 if is_causal else right_window_size
    masked = mask is not None or lengths is not None or left >= 0 or right >= 0
    found = attend(
        b,
        query,
        key,
        value,
        scale=scale_of(b, query.shape[3], scale),
        softcap=softcap,
        hide=(lambda scores: _masked(b, scores, mask, lengths, past, left, right)) if masked else None,
        direct=_direct(b, value, mask, lengths, past, left, right) if outputs <= 3 else None,
    )
    results = [merged(b, found.y) if q.rank == 3 else found.y, key, value]
    if outputs > 3:
        if not 0 <= qk_matmul_output_mode <= 3:
            raise UnsupportedError(f"attribute qk_matmul_output_mode={qk_matmul_output_mode} is not 0 to 3")
        stage = (found.scores, found.capped, found.hidden, found.weights)[qk_matmul_output_mode]
        assert stage is not None
        results.append(b.cast(stage, q.dtype))
    return results[:outputs]


def _direct(
    b: Builder, value: Operand, mask: Operand | None, lengths: Operand | None, past: Dim, left: int, right: int
) -> Direct | None:
    """Returns the equivalent of `_masked` for an attention kernel; None if there are both a past and an end of valid keys."""
    if lengths is not None and past != 0:
        return None
    visible = VisibleKeys(
        starts=past if lengths is None else None,
        ends=None if lengths is None else index32(b, lengths),
        left=left if left >= 0 else None,
        right=right if right >= 0 else None,
    )
    change = (lambda scores: _masked(b, scores, mask, None, past, -1, -1)) if mask is not None else None
    return Direct(value, visible, change)


def _masked(
    b: Builder,
    scores: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    past: Dim,
    left: int,
    right: int,
) -> Operand:
    """Returns scores plus the mask, with minus infinity where a query may not see a key.

    Query i is at position i + offset among the keys: after the past, or at the end of the valid ones.
    """
    total = scores.shape[3]
    if mask is not None and mask.shape[-1] == total and lengths is None and left < 0 and right < 0:
        expression = "where(m, x, -infinity)" if mask.dtype is DType.BOOL else "x + m"
        return b.pointwise(expression, {"x": scores, "m": mask}, DType.FLOAT32, scores.shape)
    shape: list[Dim] = [1, 1, *scores.shape[2:]]
    operands: dict[str, tuple[Operand, Sequence[int]]] = {}
    parameters = {"past": past}
    if lengths is not None:
        operands["lengths"] = (index32(b, lengths), (1,))
        parameters |= {"queries": scores.shape[2], "total": total}
        shape[0] = scores.shape[0]
    if mask is not None:
        mask = b.reshape(mask, (*(1,) * (4 - mask.rank), *mask.shape))
        for axis in (0, 1):
            shape[axis] = scores.shape[axis] if mask.shape[axis] != 1 else shape[axis]
        known = mask.shape[3] if mask.shape[3] != 1 else total  # a shorter mask hides the keys past its end
        operands["mask"] = (b.expand(mask, (*shape[:3], known)), (1, 1, 1, 1))
        parameters["known"] = known
    bias = b.map(
        "attention_bias",
        DType.FLOAT32,
        tuple(shape),
        ("batch", "head", "i", "j"),
        (1, 1, 1, 1),
        operands,
        parameters=parameters,
        cost=8,
        LEFT=max(left, -1),
        RIGHT=max(right, -1),
        MASK="none" if mask is None else "bool" if mask.dtype is DType.BOOL else "number",
    )
    return b.pointwise("x + m", {"x": scores, "m": bias}, DType.FLOAT32, scores.shape)
