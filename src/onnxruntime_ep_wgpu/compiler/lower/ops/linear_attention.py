"""Linear attention, and the causal convolution before it, for models with a fixed-size state instead of a KV cache.

States are inputs and results, (batch, ...), or with `state_window` the last few of them, (window, batch, ...). Sums and
states are in float32 within a run.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import Dim, ceildiv, equal, floordiv, product
from ...ir import REPETITION, Read, Variant
from ..builder import Builder, Operand
from .choices import Flag
from .recurrent import MOST_GPU_ITERATIONS
from .registry import FLOATS, MICROSOFT, Ranks, at_least, op

RULES: dict[UpdateRule, tuple[bool, bool]] = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}
UpdateRule = Literal["linear", "gated", "delta", "gated_delta"]
RowActivation = Literal["none", "silu", "swish"]
MOST_SLOTS = 8
_SEQUENCE: dict[str, Ranks] = {"x": at_least(3), "weight": at_least(2), "bias": 1, "past_state": at_least(3)}
_HEADS: dict[str, Ranks] = {"query": 3, "key": 3, "value": 3, "past_state": (4, 5), "decay": 3, "beta": 3}


def _latest_state(b: Builder, past: Operand | None, window: int) -> Operand | None:
    """Returns the state to continue from: the last slot of a window."""
    if not 0 <= window <= MOST_SLOTS:
        raise UnsupportedError(f"state_window {window}: 0 to {MOST_SLOTS} are supported")
    if past is None or window == 0:
        return past
    b.require(equal(past.shape[0], window), f"past_state {{}} for a state_window of {window}", past)
    return b.reshape(b.slice(past, 0, window - 1, 1, 1), past.shape[1:])


@op("CausalConvWithState", since=27, types=FLOATS, ranks=_SEQUENCE)
@op(
    "CausalConvWithState",
    domain=MICROSOFT,
    types=FLOATS,
    fixed={  # attributes for onnxruntime's CUDA kernels
        "input_channel_offset": 0,
        "input_channels": 0,
        "state_channels_last": -1,
        "state_length": 0,
        "state_update_capacity": 0,
    },
    ranks=_SEQUENCE,
)
def causal_conv_with_state(
    b: Builder,
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    past_state: Operand | None = None,
    *,
    activation: RowActivation = "none",
    channels_last: Flag = 0,
    dilation: int = 1,
    ndim: int = 1,
    state_window: int = 0,
    outputs: int = 1,
) -> list[Operand]:
    """Convolves each channel with its own taps, the last of which is the present position. Also returns the end of the
    sequence, preceded by the past, as the state for the next call."""
    if ndim != 1:
        raise UnsupportedError(f"ndim {ndim}: sequences of one axis are supported")
    if x.rank != 3 and not channels_last:
        raise UnsupportedError(f"input {x} has rank {x.rank}, and (batch, channels, sequence) is needed")
    if dilation < 1:
        raise UnsupportedError(f"dilation {dilation} is less than 1")
    channels, taps = weight.shape[0], weight.shape[-1]
    taps = b.assume(taps, 4, "the number of taps")
    weight = b.assumed(weight, (*weight.shape[:-1], taps))
    # As (batch, sequence, channels), for either layout.
    own = product(x.shape[2:]) if channels_last else x.shape[1]
    b.require(equal(own, channels), "weight {} for the channels of {}", weight, x)
    b.require(equal(weight.size, channels * taps), "weight {} does not have the shape [channels, 1, taps]", weight)
    batch, tokens = x.shape[0], x.shape[1] if channels_last else x.shape[2]
    length = (taps - 1) * dilation

    def rows(o: Operand, extent: Dim) -> Operand:
        return b.reshape(o, (batch, extent, channels)) if channels_last else b.permute(o, (0, 2, 1))

    past = _latest_state(b, past_state, state_window)
    if past is not None:
        b.require(
            equal(past.size, batch * channels * length), f"past_state {{}} does not have {length} positions", past
        )
        past = rows(past, length)
    else:
        past = b.expand(b.constant(np.zeros((1, 1, 1), np.float32)), (batch, length, channels))
    names = ("n", "t", "c") if channels_last else ("n", "c", "t")
    operands: dict[str, tuple[Operand, tuple[int, ...]]] = {
        "x": (rows(x, tokens), (1, 1, 1)),
        "past": (past, (1, 1, 1)),
    }
    more = {"weight": (b.reshape(weight, (channels, taps)), (1, 1))} | (
        {"bias": (bias, (1,))} if bias is not None else {}
    )
    shape = (batch, tokens, channels) if channels_last else (batch, channels, tokens)
    y = b.map(
        "causal_conv",
        DType.FLOAT32,
        shape,
        names,
        (1, 1, 1),
        {**operands, **more},
        cost=4 * taps,
        reuse=True,
        iterations=taps,
        TAPS=taps,
        DILATION=dilation,
        LENGTH=length,
    )
    y = b.pointwise("x" if activation == "none" else "silu(x)", {"x": y}, x.dtype, cost=8)
    results = [b.reshape(y, x.shape)]
    if outputs > 1:
        results.append(_end_states(b, x, operands, names, batch, channels, length, tokens, max(1, state_window)))
        ends = (batch, length, *x.shape[2:]) if channels_last else (batch, channels, length)
        results[1] = b.reshape(results[1], (state_window, *ends) if state_window else ends)
    return results


def _end_states(
    b: Builder,
    x: Operand,
    operands: dict[str, tuple[Operand, tuple[int, ...]]],
    names: tuple[str, ...],
    batch: Dim,
    channels: Dim,
    length: int,
    tokens: Dim,
    slots: int,
) -> Operand:
    """Returns the last `length` positions of the sequence after each of the last tokens, with zeros before the first position."""
    extents = {"n": batch, "c": channels, "t": length}
    return b.map(
        "causal_state",
        x.dtype,
        (slots, *(extents[n] for n in names)),
        ("slot", *names),
        (1, 1, 1, 1),
        operands,
        parameters={"tokens": tokens},
        cost=4,
        SLOTS=slots,
        LENGTH=length,
    )


@op("LinearAttention", since=27, types=FLOATS, ranks=_HEADS)
@op("LinearAttention", domain=MICROSOFT, types=FLOATS, ranks=_HEADS)
def linear_attention(
    b: Builder,
    query: Operand,
    key: Operand,
    value: Operand,
    past_state: Operand | None = None,
    decay: Operand | None = None,
    beta: Operand | None = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    update_rule: UpdateRule = "gated_delta",
    scale: float = 0.0,
    chunk_size: int = 64,
    state_window: int = 0,
) -> list[Operand]:
    """Returns the result that queries (batch, tokens, heads * size) read from a state, which keys and values have updated up
    to their token, and the state after the last token."""
    gated, delta = RULES[update_rule]
    for name, operand, needed in (("decay", decay, gated), ("beta", beta, delta)):
        if needed and operand is None:
            raise UnsupportedError(f"update_rule {update_rule!r} without {name}")
    batch, tokens = query.shape[:2]
    if min(q_num_heads, kv_num_heads) < 1:
        raise UnsupportedError(
            f"{q_num_heads} heads of queries and {kv_num_heads} of keys: at least 1 of each is needed"
        )
    if max(q_num_heads, kv_num_heads) % min(q_num_heads, kv_num_heads):
        raise UnsupportedError(f"{q_num_heads} heads of queries and {kv_num_heads} of keys do not divide each other")
    for name, operand, count in (
        ("query", query, q_num_heads),
        ("key", key, kv_num_heads),
        ("value", value, kv_num_heads),
    ):
        b.require(equal(operand.shape[-1] % count, 0), f"{name} {{}} does not divide into {count} heads", operand)
    keys, values = (floordiv(o.shape[-1], kv_num_heads) for o in (key, value))
    keys = b.assume(keys, 128, "the size of a key")
    query = b.assumed(query, (*query.shape[:2], q_num_heads * keys))
    key = b.assumed(key, (*key.shape[:2], kv_num_heads * keys))
    b.require(
        equal(floordiv(query.shape[-1], q_num_heads), keys),
        "query {} and key {} differ in the size of a head",
        query,
        key,
    )

    def heads(o: Operand, count: int, size: Dim) -> Operand:
        return b.reshape(o, (batch, tokens, count, size))

    past = _latest_state(b, past_state, state_window)
    state_shape = (batch, kv_num_heads, keys, values)
    if past is None:
        past = b.expand(b.constant(np.zeros((1, 1, 1, 1), np.float32)), state_shape)
    for have, want in zip(past.shape, state_shape, strict=True):
        b.require(equal(have, want), "past_state {} for a state of {}", past, state_shape)
    operands = {
        "query": Read(heads(query, q_num_heads, keys).view, (1, 1, 1, 1), reuse=True),
        "key": Read(heads(key, kv_num_heads, keys).view, (1, 1, 1, 1), reuse=True),
        "value": Read(heads(value, kv_num_heads, values).view, (1, 1, 1, 1)),
        "past": Read(past.view, (1, 1, 1, 1)),
    }
    one = b.constant(np.zeros((1, 1, 1, 1), np.float32))
    gates = one if decay is None or not gated else heads(decay, kv_num_heads, floordiv(decay.shape[-1], kv_num_heads))
    operands["decay"] = Read(b.expand(gates, (batch, tokens, kv_num_heads, keys)).view, (1, 1, 1, 1), reuse=True)
    rates = b.reshape(one, (1, 1, 1)) if beta is None or not delta else beta
    operands["beta"] = Read(b.expand(rates, (batch, tokens, kv_num_heads)).view, (1, 1, 1))

    readers = max(1, q_num_heads // kv_num_heads)
    most = b.target.max_workgroup_storage // (4 * keys)
    if most < 1:
        raise UnsupportedError(f"a key of {keys} elements does not fit into {b.target.max_workgroup_storage} bytes")
    size = min(32, 1 << most.bit_length() - 1)
    iterations = keys * (3 + readers) + readers + 1
    b.bound_loop(2 * iterations + (2 + MOST_SLOTS) * keys, f"a token of {keys} elements")
    spent = (2 + MOST_SLOTS) * keys
    chunk = max(1, ((b.target.longest_loop or MOST_GPU_ITERATIONS) - spent) // iterations - 1)
    total = max(q_num_heads, kv_num_heads)
    y, state = b.call(
        "linear_attention",
        operands,
        {
            "y": (DType.FLOAT32, (batch, tokens, total, values), (1, 1, 1, 1)),
            "state": (DType.FLOAT32, (max(1, state_window), *state_shape), (1, 1, 1, 1, 1)),
        },
        (Variant(batch * kv_num_heads * ceildiv(values, size), size),),
        parameters={
            "tokens": tokens,
            "values": values,
            "heads": kv_num_heads,
            "chunk": chunk,
            "repetition": REPETITION,
        },
        flops=2 * product((batch, tokens, kv_num_heads, keys, values)) * (2 + readers),
        repeats=ceildiv(tokens, chunk),
        loop_carried=frozenset({"state"}),
        KEYS=keys,
        WINDOW=state_window,
        GATED=gated,
        DELTA=delta,
        READERS=readers,
        SHARED=max(1, kv_num_heads // q_num_heads),
        SCALE=float(scale) or 1 / math.sqrt(keys),
    )
    y = b.pointwise("x", {"x": b.reshape(y, (batch, tokens, total * values))}, query.dtype)
    kind = past_state.dtype if past_state is not None else query.dtype
    return [y, b.pointwise("x", {"x": b.reshape(state, ((state_window,) if state_window else ()) + state_shape)}, kind)]
