"""Normalisations with preceding additions (residuals, biases, embeddings), as in ONNX Runtime's extended optimisations and in
exported language and diffusion models.

Each is lowered to a sum and a normalisation. Sums are maps, which fusion moves into the producers of their operands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import Dim, equal, less_equal
from ..builder import Builder, Operand
from .activations import activated
from .choices import Flag
from .indexing import gather
from .named_axes import axis_of
from .normalise import channel_groups, check_groups, layer_normalization, normalised
from .reduction import reduce_axes
from .registry import FLOATS, MICROSOFT, at_least, op

IDS = frozenset({DType.INT32})
_ROWS = {"x": at_least(1), "skip": at_least(1)}


def _require_per_column(b: Builder, name: str, parameter: Operand | None, columns: Dim) -> Operand | None:
    """Requires that a parameter has one number per column of the normalised rows. Raises UnsupportedError, which names it,
    for another rank."""
    if parameter is not None:
        if parameter.rank != 1:
            raise UnsupportedError(f"{name} {parameter}: one number per column is needed, a shape of one axis")
        b.require(equal(parameter.shape[0], columns), f"{name} {{}} for rows of {{}} elements", parameter, columns)
    return parameter


def _summed(b: Builder, x: Operand, skip: Operand, bias: Operand | None) -> Operand:
    """Returns x + skip + bias in the shape of x. Leading axes of skip may be missing or 1."""
    if skip.rank > x.rank:
        raise UnsupportedError(f"skip {skip} has more axes than the input {x}")
    for have, want in zip(skip.shape, x.shape[x.rank - skip.rank :], strict=True):
        if have != 1:
            b.require(equal(have, want), "skip {} for the input {}", skip, x)
    operands = {"x": x, "y": skip} | ({"bias": bias} if bias is not None else {})
    return b.pointwise(" + ".join(operands), operands, x.dtype, x.shape)


@op("SkipLayerNormalization", domain=MICROSOFT, types=FLOATS, rows=("x", "skip"), ranks=_ROWS)
def skip_layer_normalization(
    b: Builder,
    x: Operand,
    skip: Operand,
    gamma: Operand,
    beta: Operand | None = None,
    bias: Operand | None = None,
    *,
    epsilon: float = 1e-12,
    wanted: Sequence[bool] = (True,),
) -> list[Operand | None]:
    """Normalises x + skip + bias. The results are layer_norm, mean, inverse deviation, and the sum."""
    return _after_skip(b, x, skip, gamma, beta, bias, epsilon, wanted, {1: "mean", 2: "inverse"})


@op("SkipSimplifiedLayerNormalization", domain=MICROSOFT, types=FLOATS, rows=("x", "skip"), ranks=_ROWS)
def skip_rms_normalization(
    b: Builder,
    x: Operand,
    skip: Operand,
    gamma: Operand,
    bias: Operand | None = None,
    *,
    epsilon: float = 1e-12,
    wanted: Sequence[bool] = (True,),
) -> list[Operand | None]:
    """Normalises x + skip + bias. The first result is rms_norm, the third its inverse root, the fourth the sum; there is no
    mean."""
    return _after_skip(b, x, skip, gamma, None, bias, epsilon, wanted, {2: "inverse"})


def _after_skip(
    b: Builder,
    x: Operand,
    skip: Operand,
    gamma: Operand,
    beta: Operand | None,
    bias: Operand | None,
    epsilon: float,
    wanted: Sequence[bool],
    statistics: Mapping[int, str],
) -> list[Operand | None]:
    """Returns the normalised sum, the requested `statistics` (names of `normalised`, by result), and the sum."""
    for name, parameter in (("gamma", gamma), ("beta", beta), ("bias", bias)):
        _require_per_column(b, name, parameter, x.shape[-1])
    summed = _summed(b, x, skip, bias)
    asked = [k for k in statistics if k < len(wanted) and wanted[k]]
    y, *rest = normalised(
        b,
        summed,
        1,
        epsilon,
        gain=gamma,
        bias=beta,
        centred="mean" in statistics.values(),
        statistics=tuple(statistics[k] for k in asked),
    )
    results: list[Operand | None] = [b.cast(y, x.dtype), None, None, summed]
    for k, result in zip(asked, rest, strict=True):
        results[k] = result
    return results[: len(wanted)]


@op("SimplifiedLayerNormalization", types=FLOATS, rows=("x",))
def simplified_layer_normalization(
    b: Builder,
    x: Operand,
    scale: Operand,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int = 1,
) -> list[Operand]:
    """Returns x divided by the root of its mean square over the axes from `axis` on, in the type of the scale, and the
    inverse root."""
    if stash_type != DType.FLOAT32.code:
        raise UnsupportedError(f"stash_type {stash_type}: statistics are of ONNX element type 1, float32")
    count = x.rank - axis_of(axis, x.rank)
    y, *inverse = normalised(
        b, x, count, epsilon, gain=scale, centred=False, statistics=("inverse",) if outputs > 1 else ()
    )
    return [b.cast(y, scale.dtype), *inverse]


@op(
    "EmbedLayerNormalization",
    domain=MICROSOFT,
    types=FLOATS,
    input_ids=IDS,
    segment_ids=IDS,
    mask=IDS,
    position_ids=IDS,
    ranks={"input_ids": 2, "segment_ids": 2, "position_ids": 2, "mask": 2, "word_embedding": 2},
)
def embed_layer_normalization(
    b: Builder,
    input_ids: Operand,
    segment_ids: Operand | None,
    word_embedding: Operand,
    position_embedding: Operand,
    segment_embedding: Operand | None,
    gamma: Operand,
    beta: Operand,
    mask: Operand | None = None,
    position_ids: Operand | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: Flag = 0,
    outputs: int = 1,
) -> list[Operand]:
    """Returns three results:

    * layer_norm of the sum of word, position and segment embeddings, (batch, sequence, hidden),
    * the number of ones per row of the mask, 0 without a mask,
    * the sum.
    """
    batch, length = input_ids.shape
    hidden = word_embedding.shape[-1]
    tables = {"word": word_embedding, "position": position_embedding, "segment": segment_embedding}
    for name, table in tables.items():
        if table is not None:
            if table.rank != 2:
                raise UnsupportedError(f"{name}_embedding {table}: a table of two axes is needed")
            b.require(equal(table.shape[1], hidden), f"{name}_embedding {{}} for a hidden size of {{}}", table, hidden)
    for name, parameter in (("gamma", gamma), ("beta", beta)):
        _require_per_column(b, name, parameter, hidden)
    if (segment_ids is None) != (segment_embedding is None):
        given, missing = ("segment_ids", "segment_embedding") if segment_ids else ("segment_embedding", "segment_ids")
        raise UnsupportedError(f"{given} without {missing}")
    terms = {"word": gather(b, word_embedding, input_ids)}
    if position_ids is not None:
        terms["position"] = gather(b, position_embedding, position_ids)
    else:
        b.require(
            less_equal(length, position_embedding.shape[0]),
            "position_embedding {} for sequences of {}",
            position_embedding,
            length,
        )
        terms["position"] = b.slice(position_embedding, 0, 0, 1, length)
    if segment_embedding is not None and segment_ids is not None:
        terms["segment"] = gather(b, segment_embedding, segment_ids)
    summed = b.pointwise(" + ".join(terms), terms, word_embedding.dtype, (batch, length, hidden), cost=2)
    (y,) = layer_normalization(b, summed, gamma, beta, epsilon=epsilon)
    if mask is None:
        counted = b.expand(b.constant(np.zeros(1, np.int32)), (batch,))
    else:
        b.require(equal(mask.size, input_ids.size), "mask {} for input_ids {}", mask, input_ids)
        ones = b.pointwise("i32(x == 1)", {"x": mask}, DType.INT32)
        counted = reduce_axes(b, "ReduceSum", ones, [1], keepdims=False, wraps=True)
    return [y, counted, summed][:outputs]


@op("GroupNorm", domain=MICROSOFT, types=FLOATS, ranks={"x": at_least(3)})
def group_norm(
    b: Builder,
    x: Operand,
    gamma: Operand,
    beta: Operand,
    *,
    activation: int,
    groups: int,
    channels_last: Flag = 1,
    epsilon: float = 1e-5,
) -> Operand:
    """Normalises each group of channels to mean 0 and variance 1, with scale and shift per channel. `activation` 1 then
    applies SiLU."""
    if activation not in (0, 1):
        raise UnsupportedError(f"activation {activation}: 0 is none and 1 is SiLU")
    if x.rank < 3:
        raise UnsupportedError(f"an image with batch and channels is needed, and {x} is given")
    order = [0, x.rank - 1, *range(1, x.rank - 1)]
    channels = x.shape[-1 if channels_last else 1]
    for name, parameter in (("gamma", gamma), ("beta", beta)):
        _require_per_column(b, name, parameter, channels)
    check_groups(b, channels, groups)
    y = channel_groups(b, b.permute(x, order) if channels_last else x, gamma, beta, groups, epsilon)
    if activation:
        y = activated(b, y, "Silu")
    return b.permute(y, np.argsort(order).tolist()) if channels_last else y


@op("SkipGroupNorm", domain=MICROSOFT, types=FLOATS, ranks={"x": at_least(3)})
def skip_group_norm(
    b: Builder,
    x: Operand,
    gamma: Operand,
    beta: Operand,
    skip: Operand,
    bias: Operand | None = None,
    *,
    activation: int,
    groups: int,
    channels_last: Flag = 1,
    epsilon: float = 1e-5,
    outputs: int = 1,
) -> list[Operand]:
    """Returns group_norm(x + skip + bias) and that sum. skip may be one number per image and channel."""
    where = x.rank - 1 if channels_last else 1

    def spread(p: Operand, first: tuple[Dim, ...]) -> Operand:
        return b.reshape(p, (*first, *(p.shape[-1] if k == where else 1 for k in range(1, x.rank))))

    if skip.rank == 2:
        skip = spread(skip, (skip.shape[0],))
    _require_per_column(b, "bias", bias, x.shape[where])
    summed = _summed(b, x, skip, None if bias is None else spread(bias, (1,)))
    y = group_norm(
        b, summed, gamma, beta, activation=activation, groups=groups, channels_last=channels_last, epsilon=epsilon
    )
    return [y, summed][:outputs]
