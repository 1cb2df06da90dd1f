"""LSTM, GRU and RNN: one matrix product for the inputs of all steps, then one kernel that computes the steps in sequence.

The kernel has a workgroup per direction and sequence, and keeps the state in workgroup memory. So the number of steps may be
unknown when a graph is compiled. A dispatch computes a limited number of steps, and passes the state to the next one.

Weights are (directions, gates * hidden, ...), as in ONNX. States are (directions, batch, hidden), and sequences (steps,
batch, ...); `layout` 1 swaps their first two axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ....records import dataclass
from ...dims import ceildiv, equal, product
from ...ir import REPETITION, Function, Read, Variant
from ..builder import Builder, Operand
from ..operand import fixed
from .activations import ACTIVATIONS
from .choices import Choices, Flag, Spelled
from .matmul import matrix_product
from .parts import concat
from .registry import FLOATS, op

INT32 = frozenset({DType.INT32})
MOST_GPU_ITERATIONS = 1 << 22  # of one invocation in one dispatch: a tenth of a second at 25 ns each

_ACTIVATIONS = (
    *("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh"),
    *("HardSigmoid", "Elu"),
)
_ANY_CASE, _AS_WRITTEN = Choices(_ACTIVATIONS, Spelled(any_case=True)), Choices(_ACTIVATIONS, Spelled())


def _expressions(
    names: Sequence[str], known: Choices, alphas: Sequence[float] | None, betas: Sequence[float] | None
) -> list[str]:
    """Returns the activations in order. Each takes the next alpha and beta if it has such a parameter."""
    given = {"alpha": iter(alphas or ()), "beta": iter(betas or ())}
    out = []
    for name in names:
        it = ACTIVATIONS[known.of("activations", name)]
        out.append(it.text({key: next(given[key], default) for key, default in it.parameters.items()}))
    return out


Direction = Literal["forward", "reverse", "bidirectional"]


class RecurrentAttributes(TypedDict, total=False):
    """Attributes of every recurrent operator. `hidden_size` is redundant: the weights determine the size of the state too."""

    activation_alpha: list[float] | None
    activation_beta: list[float] | None
    activations: list[str] | None
    clip: float | None
    direction: Direction
    hidden_size: int
    layout: Flag


def _functions(
    roles: Sequence[str],
    defaults: Sequence[str],
    attributes: RecurrentAttributes,
    known: Choices = _ANY_CASE,
) -> dict[str, Function]:
    """Returns the functions `roles` of the kernel, per direction, and `limited`, which clips its argument."""
    names, clip = attributes.get("activations"), attributes.get("clip")
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    wanted = len(roles) * directions  # RNN's default has two names, for any direction
    expressions = _expressions(
        (names or [*defaults] * directions)[:wanted],
        known,
        attributes.get("activation_alpha"),
        attributes.get("activation_beta"),
    )
    if len(expressions) != wanted:
        raise UnsupportedError(f"{len(expressions)} activations for {directions} directions with {len(roles)} each")
    if clip is not None and not clip > 0:
        raise UnsupportedError(f"attribute clip={clip} is not positive")
    limit = f"max(min(x, {float(clip)!r}), {-float(clip)!r})" if clip and math.isfinite(clip) else "x"
    out = {"limited": Function((("x", "f32"),), limit, "f32")}
    for k, role in enumerate(roles):
        one, *other = expressions[k :: len(roles)]
        text = f"where(direction < 1, {one}, {other[0]})" if other and other[0] != one else one
        out[role] = Function((("direction", "u32"), ("x", "f32")), text, "f32")
    return out


def _transposed(b: Builder, w: Operand, order: Sequence[int]) -> Operand:
    """Returns weights with permuted axes, contiguous in memory. Weights of the model are permuted during the upload."""
    laid = b.weights.contiguous(b.permute(w, order))
    if laid is not None:
        return laid
    constant = w.constant
    if constant is not None:
        return b.constant(np.ascontiguousarray(constant.transpose(order)))
    return b.copy(b.permute(w, order))


@dataclass(frozen=True)
class _Kernel:
    """The kernel of an operator.

    * `template`: its name.
    * `gates`: the number of gates; their weights are concatenated.
    * `floats`: floats of workgroup memory per unit.
    * `products`: loops over the state per step.
    """

    template: str
    gates: int
    floats: int
    products: int = 1


@dataclass(frozen=True)
class _Inputs:
    """The inputs of every recurrent operator: the sequence, the weights of the inputs and of the state, the length of each
    sequence, and the attributes."""

    x: Operand
    w: Operand
    r: Operand
    lengths: Operand | None
    attributes: RecurrentAttributes


def _layer(
    b: Builder,
    kernel: _Kernel,
    given: _Inputs,
    *,
    bias: Operand | None,
    states: dict[str, Operand | None],
    functions: dict[str, Function],
    more: dict[str, Operand],
    **constants: Any,
) -> list[Operand]:
    """Returns the results `y` (steps, directions, batch, hidden) and the last states.

    `bias` (directions, gates * hidden) is added to the inputs; `states` are the states before the first step; `more` are
    other operands of the kernel, (directions, n).
    """
    x, w, r, lengths = given.x, given.w, given.r, given.lengths
    gates, layout = kernel.gates, given.attributes.get("layout")
    hidden, directions = fixed("the size of the state", r.shape[-1], w.shape[0])
    if kernel.floats * hidden * 4 > b.target.max_workgroup_storage:
        raise UnsupportedError(f"a state of {hidden} elements does not fit into {b.target.max_workgroup_storage} bytes")
    b.require(equal(w.shape[1], gates * hidden), f"weights {{}} for {gates} gates of {hidden}", w)
    x = b.permute(x, (1, 0, 2)) if layout else x
    steps, batch = x.shape[:2]
    width = gates * hidden
    by_input = _transposed(b, w, (2, 0, 1))
    inputs = matrix_product(
        b, x, (0, 2, 1), by_input, (0, 1, 2), (steps, batch, directions, width), (0, 2, 2), DType.FLOAT32
    )
    if bias is not None:
        inputs = b.pointwise("x + bias", {"x": inputs, "bias": bias}, DType.FLOAT32, inputs.shape)
    shape = (directions, batch, hidden)
    zero, endless = b.constant(np.zeros((), np.float32)), b.constant(np.array(2**31 - 1, np.int32))
    operands = {
        "x": Read(inputs.view, (1, 1, 1, 1)),
        "r": Read(_transposed(b, r, (0, 2, 1)).view, (1, 1, 1), reuse=True),
        "lengths": Read(b.expand(lengths if lengths is not None else endless, (batch,)).view, (1,)),
    }
    for name, state in states.items():
        start = zero if state is None else b.permute(state, (1, 0, 2)) if layout else state
        operands[name] = Read(b.expand(start, shape).view, (1, 1, 1))
    operands |= {name: Read(o.view, (1, 1), reuse=True) for name, o in more.items()}
    size, chunk = _dispatch(b, hidden, kernel.products)
    four = (1, 1, 1, 1)
    y, state = b.call(
        kernel.template,
        operands,
        {
            "y": (DType.FLOAT32, (steps, directions, batch, hidden), four),
            "state": (DType.FLOAT32, (len(states), *shape), four),
        },
        (Variant(batch * directions, size),),
        parameters={"steps": steps, "batch": batch, "chunk": chunk, "repetition": REPETITION},
        functions=functions,
        flops=2 * product((steps, directions, batch, hidden)) * gates * hidden,
        repeats=ceildiv(steps, chunk),
        loop_carried=frozenset({"state"}),
        HIDDEN=hidden,
        REVERSE=int(given.attributes.get("direction") == "reverse"),
        **constants,
    )
    last = [b.reshape(b.slice(state, 0, k, 1, 1), shape) for k in range(len(states))]
    if layout:
        y, last = b.permute(y, (2, 0, 1, 3)), [b.permute(s, (1, 0, 2)) for s in last]
    return [b.cast(s, x.dtype) for s in (y, *last)]


def _dispatch(b: Builder, hidden: int, products: int) -> tuple[int, int]:
    """Returns the invocations per workgroup, and the steps per dispatch."""
    longest, most = b.target.longest_loop, b.target.max_invocations
    size = min(256, most, -(-hidden // 32) * 32) if longest is None else 64

    def iterations() -> int:  # of a step: 1 of the loop over steps, and those over units and the state
        return 1 + products * -(-hidden // size) * (hidden + 1)

    while longest is not None and iterations() > longest // 2 and 2 * size <= most:
        size *= 2
    b.bound_loop(2 * iterations(), f"a step of {hidden} units")
    # A graphics card should not be busy with one dispatch for seconds: operating systems treat that as a hang.
    return size, max(1, (longest or MOST_GPU_ITERATIONS) // iterations() - 1)


def _check_ranks(x: Operand, w: Operand, r: Operand, bias: Operand | None, *states: Operand | None) -> None:
    """Raises UnsupportedError if an operand has an unsupported rank, or if there are no units."""
    for operand in (x, w, r, *states):
        if operand is not None and operand.rank != 3:
            raise UnsupportedError(f"the sequence, its weights and states must have three axes, and one is {operand}")
    if bias is not None and bias.rank != 2:
        raise UnsupportedError(f"a bias must have two axes, and it is {bias}")
    if r.shape[-1] == 0:
        raise UnsupportedError(f"the recurrent weights {r} have no units")


def _bias(b: Builder, bias: Operand | None, gates: int, recurrent: Sequence[int]) -> Operand | None:
    """Returns (directions, gates * hidden): the biases of the inputs, plus those of the recurrent sums for gates with
    `recurrent` 1."""
    if bias is None:
        return None
    directions, width = bias.shape[0], bias.shape[1] // 2
    parts = b.reshape(bias, (directions, 2, gates, width // gates))
    own, other = (b.reshape(b.slice(parts, 1, k, 1, 1), (directions, gates, width // gates)) for k in (0, 1))
    mask = b.constant(np.array(recurrent, np.float32).reshape(gates, 1))
    total = b.pointwise("x + y * mask", {"x": own, "y": other, "mask": mask}, DType.FLOAT32, cost=2)
    return b.reshape(total, (directions, width))


@op("LSTM", types=FLOATS, lengths=INT32)
def lstm(
    b: Builder,
    x: Operand,
    w: Operand,
    r: Operand,
    bias: Operand | None = None,
    lengths: Operand | None = None,
    hidden: Operand | None = None,
    cell: Operand | None = None,
    peephole: Operand | None = None,
    *,
    input_forget: Flag = 0,
    **attributes: Unpack[RecurrentAttributes],
) -> list[Operand]:
    _check_ranks(x, w, r, bias, hidden, cell)
    functions = _functions(("gate", "candidate", "shown"), ("Sigmoid", "Tanh", "Tanh"), attributes)
    width = (w.shape[0], r.shape[-1] * 3)
    if peephole is not None and hidden is not None and cell is not None:
        # This saves one binding.
        both = concat(b, b.reshape(hidden, (1, *hidden.shape)), b.reshape(cell, (1, *cell.shape)))
        hidden, cell = (b.reshape(b.slice(both, 0, k, 1, 1), hidden.shape) for k in (0, 1))
    more = {"peephole": b.expand(peephole if peephole is not None else b.constant(np.zeros((), np.float32)), width)}
    total = _bias(b, bias, 4, (1, 1, 1, 1))
    given = _Inputs(x, w, r, lengths, attributes)
    states = {"hidden": hidden, "cell": cell}
    coupled = bool(input_forget)
    return _layer(
        b, _Kernel("lstm", 4, 3), given, bias=total, states=states, functions=functions, more=more, COUPLED=coupled
    )


@op("GRU", types=FLOATS, lengths=INT32)
def gru(
    b: Builder,
    x: Operand,
    w: Operand,
    r: Operand,
    bias: Operand | None = None,
    lengths: Operand | None = None,
    hidden: Operand | None = None,
    *,
    linear_before_reset: Flag = 0,
    **attributes: Unpack[RecurrentAttributes],
) -> list[Operand]:
    _check_ranks(x, w, r, bias, hidden)
    functions = _functions(("gate", "candidate"), ("Sigmoid", "Tanh"), attributes)
    inner = b.expand(b.constant(np.zeros((), np.float32)), (w.shape[0], r.shape[-1]))
    if bias is not None and linear_before_reset:
        inner = b.slice(bias, 1, r.shape[-1] * 5, 1, r.shape[-1])
    total = _bias(b, bias, 3, (1, 1, 0) if linear_before_reset else (1, 1, 1))
    given = _Inputs(x, w, r, lengths, attributes)
    return _layer(
        b,
        _Kernel("gru", 3, 3, products=2),
        given,
        bias=total,
        states={"hidden": hidden},
        functions=functions,
        more={"bias": inner},
        LINEAR_BEFORE_RESET=bool(linear_before_reset),
    )


@op("RNN", types=FLOATS, lengths=INT32)
def rnn(
    b: Builder,
    x: Operand,
    w: Operand,
    r: Operand,
    bias: Operand | None = None,
    lengths: Operand | None = None,
    hidden: Operand | None = None,
    **attributes: Unpack[RecurrentAttributes],
) -> list[Operand]:
    _check_ranks(x, w, r, bias, hidden)
    functions = _functions(("gate",), ("Tanh",), attributes, _AS_WRITTEN)
    total = _bias(b, bias, 1, (1,))
    given = _Inputs(x, w, r, lengths, attributes)
    return _layer(b, _Kernel("rnn", 1, 2), given, bias=total, states={"hidden": hidden}, functions=functions, more={})
