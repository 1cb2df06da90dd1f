"""Depthwise convolution: every output channel sees one input channel, so elements are used by neighbours, not channels.

An invocation computes a small block of neighbouring outputs and loads each input element of its block once. The loads and
the products are written out, because positions within the block are known here and a loop over them is not unrolled by
every shader compiler.
"""

from __future__ import annotations

from .. import tune
from ..builder import Builder, Operand
from ..dims import Dim, ceildiv, product
from ..ir import Read, Variant
from .window import Window

LARGEST = 64  # taps; a larger kernel makes too much text


def fits(win: Window) -> bool:
    return win.rank <= 2 and win.taps <= LARGEST


def depthwise_convolution(b: Builder, x: Operand, w: Operand, win: Window) -> Operand:
    """x (batch, channels, *inputs) with w (channels * n, 1, *kernel) to (batch, channels * n, *outputs), in the type of sums."""
    plane = _Plane(win)
    batch, features = x.shape[0], w.shape[0]
    image = b.reshape(x, (*x.shape[:2], *plane.inputs))
    weights = b.reshape(w, (features, win.taps))
    rows, columns = _block(win)
    stored = x.dtype.accumulated
    strips = ceildiv(plane.outputs[1], columns)
    items = strips * ceildiv(plane.outputs[0], rows)
    shape = (batch, features, *win.outputs)
    chosen = tune.depthwise(b.target)
    size = chosen.workgroup
    groups = (
        product((batch, features, ceildiv(items, size)))
        if chosen.shared
        else ceildiv(product((batch, features, items)), size)
    )
    (y,) = b.call(
        "depthwise",
        {"x": Read(image.view, (1, 1, 1, 1), reuse=True), "w": Read(weights.view, (1, 1), reuse=True)},
        {"y": (stored, shape, (1, 1, win.rank))},
        (Variant(groups, size),),
        parameters={
            "strips": strips,
            "items": items,
            "tiles": ceildiv(items, size),
            "planes": batch * features,
            "features": features,
            "channels": x.shape[1],
            "height": plane.inputs[0],
            "width": plane.inputs[1],
            "out_height": plane.outputs[0],
            "out_width": plane.outputs[1],
            "pad_y": plane.begins[0],
            "pad_x": plane.begins[1],
        },
        flops=2 * product(shape) * win.taps,
        ROWS=rows,
        COLUMNS=columns,
        STRIDE_Y=plane.strides[0],
        STRIDE_X=plane.strides[1],
        SHARED=bool(chosen.shared),
        SUMS="\n".join(f"  {line}" for line in _sums(plane, rows, columns, stored.compute or "")),
        STORES="\n".join(f"  {line}" for line in _stores(rows, columns)),
    )
    return y


class _Plane:
    """A window over two axes; a single axis is the second, under a first one of extent 1."""

    def __init__(self, win: Window) -> None:
        first = 2 - win.rank
        ones: tuple[int, ...] = (1,) * first
        zeros: tuple[int, ...] = (0,) * first
        self.kernel, self.strides, self.dilations = ones + win.kernel, ones + win.strides, ones + win.dilations
        self.inputs: tuple[Dim, ...] = (*ones, *win.inputs)
        self.outputs: tuple[Dim, ...] = (*ones, *win.outputs)
        self.begins: tuple[Dim, ...] = (*zeros, *win.begins)


def _block(win: Window) -> tuple[int, int]:
    """Rows and columns of outputs per invocation."""
    return (1, 4) if win.rank == 1 else (2, 4)


def _sums(plane: _Plane, rows: int, columns: int, kind: str) -> list[str]:
    """Statements that leave the outputs of the block in `s<row>_<column>`."""
    (kh, kw), (sy, sx), (dy, dx) = plane.kernel, plane.strides, plane.dilations
    lines = [f"let w{t} = w_at(feature, {t}u);" for t in range(kh * kw)]
    lines += [f"var s{r}_{c} = {kind}();" for r in range(rows) for c in range(columns)]
    across = sorted({c * sx + k * dx for c in range(columns) for k in range(kw)})
    for x in across:
        lines.append(f"let x{x} = left + {x}u;")
    for y in sorted({r * sy + k * dy for r in range(rows) for k in range(kh)}):
        lines.append(f"let y{y} = top + {y}u;")
        lines.append(f"let inside{y} = y{y} < height;")
        for x in across:
            lines.append(f"let v{y}_{x} = pixel(image, channel, y{y}, x{x}, inside{y} && x{x} < width);")
        for r in range(rows):
            k = (y - r * sy) // dy
            if (y - r * sy) % dy or not 0 <= k < kh:
                continue
            for c in range(columns):
                terms = " + ".join(f"v{y}_{c * sx + t * dx} * w{k * kw + t}" for t in range(kw))
                lines.append(f"s{r}_{c} += {terms};")
    return lines


def _stores(rows: int, columns: int) -> list[str]:
    lines = []
    for r in range(rows):
        for c in range(columns):
            lines.append(f"store(image, feature, row + {r}u, column + {c}u, s{r}_{c});")
    return lines
