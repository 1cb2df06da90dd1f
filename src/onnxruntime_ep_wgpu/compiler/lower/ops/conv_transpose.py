"""ConvTranspose: each input element adds a window to the output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from ....errors import UnsupportedError
from ...dims import Dim, equal, floordiv, maximum
from ..builder import Builder, Operand
from .conv import kernel_of
from .matmul import matrix_product
from .registry import FLOATS, op
from .window import ConvTransposeAttributes, Window, check_lengths, constants, loops_of, parameters, steps


@op("ConvTranspose", types=FLOATS)
def conv_transpose(
    b: Builder, x: Operand, w: Operand, bias: Operand | None = None, **attributes: Unpack[ConvTransposeAttributes]
) -> Operand:
    """x (batch, channels, *inputs), w (channels, features / group, *kernel) -> (batch, features, *outputs).

    A matrix product computes the contribution of each input position to each tap. A map then sums, per output element, the
    taps that reach it. If windows do not overlap (stride equal to the kernel, no padding), a view of the product is enough.
    """
    if x.rank < 3:
        raise UnsupportedError("a convolution without spatial axes is not supported")
    if w.rank != x.rank:
        raise UnsupportedError(f"weights {w} and the input {x} have different ranks")
    (w, kernel), rank, group = kernel_of(b, w, attributes), x.rank - 2, attributes.get("group", 1)
    b.require(equal(x.shape[1], w.shape[0]), "{} does not have the {} channels of the weights", x, w.shape[0])
    win = _transposed(x.shape[2:], kernel, attributes)
    batch, per_group, channels = x.shape[0], w.shape[1], floordiv(w.shape[0], group)
    features = per_group * group
    source = b.reshape(x, (batch, group, channels, *x.shape[2:]))
    weights = b.reshape(w, (group, channels, per_group, *kernel))
    weights = b.permute(weights, (0, 2, *range(3, 3 + rank), 1))
    weights = b.expand(b.reshape(weights, (1, *weights.shape)), (batch, *weights.shape))
    shape = (batch, group, per_group, *kernel, *x.shape[2:])
    product_ = matrix_product(b, weights, (2, 1 + rank, 1), source, (2, 1, rank), shape, (2, 1 + rank, rank), x.dtype)
    columns = b.reshape(product_, (batch, features, *kernel, *x.shape[2:]))
    result = summed(b, columns, win)
    if bias is None:
        return result
    if bias.rank != 1:
        raise UnsupportedError(f"a bias {bias} is not one number for each feature")
    return b.pointwise(
        "x + bias", {"x": result, "bias": b.reshape(bias, (features, *(1,) * rank))}, x.dtype, result.shape
    )


def _transposed(inputs: Sequence[Dim], kernel: tuple[int, ...], attributes: ConvTransposeAttributes) -> Window:
    """Returns the windows of the convolution that is transposed. Its outputs are the `inputs` here, and its inputs are the
    results here."""
    rank, (strides, dilations) = len(inputs), steps(attributes, len(inputs))
    pads, auto_pad = attributes.get("pads"), attributes.get("auto_pad", "NOTSET")
    extra, wanted = attributes.get("output_padding"), attributes.get("output_shape")
    check_lengths(attributes, kernel, rank)
    for name, given in (("output_padding", extra), ("output_shape", wanted)):
        if given and len(given) != rank:
            raise UnsupportedError(f"{name} {list(given)} must have {rank} elements")
    begins, ends, outputs = [], [], []  # type: list[Dim], list[Dim], list[Dim]
    for k, extent in enumerate(inputs):
        more = extra[k] if extra else 0
        full = (extent - 1) * strides[k] + (kernel[k] - 1) * dilations[k] + 1 + more
        if wanted or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            target = wanted[len(wanted) - rank + k] if wanted else extent * strides[k]
            total = maximum(full - target, 0)
            # ONNX: the odd pad goes to the beginning, except with SAME_UPPER.
            begin = floordiv(total + (auto_pad != "SAME_UPPER"), 2)
            begins.append(begin)
            ends.append(total - begin)
            outputs.append(target)
        else:
            begins.append(pads[k] if pads and auto_pad == "NOTSET" else 0)
            ends.append(pads[rank + k] if pads and auto_pad == "NOTSET" else 0)
            outputs.append(full - begins[k] - ends[k])
    return Window(kernel, strides, dilations, tuple(outputs), tuple(begins), tuple(ends), tuple(inputs))


def summed(b: Builder, columns: Operand, win: Window) -> Operand:
    """Sums columns (batch, channels, *kernel, *positions) where the taps of different positions overlap."""
    exact = all(i == o * s for i, o, s in zip(win.inputs, win.outputs, win.strides, strict=True))
    if win.kernel == win.strides and not win.is_padded and exact and all(d == 1 for d in win.dilations):
        order = [0, 1]
        for k in range(win.rank):
            order += [2 + win.rank + k, 2 + k]
        return b.reshape(b.permute(columns, order), (*columns.shape[:2], *win.inputs))
    shape = (*columns.shape[:2], *win.inputs)
    return b.map(
        "col2im",
        columns.dtype,
        shape,
        ("image", "channel", *(f"at{k}" for k in range(win.rank))),
        (1,) * len(shape),
        {"columns": (columns, (1,) * columns.rank)},
        parameters=parameters(win),
        cost=24,
        reuse=True,
        iterations=loops_of(win.kernel),
        **constants(win),
    )
