"""Graphs spelled as torch's exporter spells them, of any depth: every layer computes its shapes anew from the tensors it has.

`t5_encoder`, `t5_decoder`, `swin` and `detector` take a number of layers and give a model with dynamic dims throughout and
small random weights, made without torch. `inputs` gives feeds for one. They are about shapes: what lowering, planning and
the claim of a graph cost with depth, and whether the shapes that follow are right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
import onnx.numpy_helper

from .graph import GraphBuilder

WIDTH, HEADS, HEAD, BUCKETS = 16, 2, 8, 8
WINDOW, SHIFT = 7, 3
ANCHORS, CLASSES = 3, 4
LAST = 2**63 - 1
FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


class Export:
    """Short names for what an exporter writes for one expression of torch."""

    def __init__(self, name: str) -> None:
        self.g = GraphBuilder(name, opset=17, ir_version=9)
        self.random = np.random.default_rng(7)

    def op(self, op_type: str, *inputs: str, **attributes: object) -> str:
        return self.g.op(op_type, *inputs, **attributes)

    def weight(self, *shape: int) -> str:
        inward = shape[0] if len(shape) == 2 else math.prod(shape[1:])
        value = self.random.normal(0, max(inward, 1) ** -0.5, shape).astype(np.float32)
        return self.g.weight(f"weight.{len(self.g.weights)}", value)

    def size(self, x: str, axis: int) -> str:
        """x.size(axis), a scalar."""
        return self.op("Gather", self.op("Shape", x), self.g.const(axis), axis=0)

    def shape(self, *dims: str | int) -> str:
        """The list that a view or expand takes: scalars and constants."""
        parts = [self.g.const([d]) if isinstance(d, int) else self.op("Unsqueeze", d, self.g.const([0])) for d in dims]
        return self.op("Concat", *parts, axis=0)

    def view(self, x: str, *dims: str | int) -> str:
        return self.op("Reshape", x, self.shape(*dims))

    def cut(self, x: str, axis: int, start: str | int, end: str | int, step: int = 1) -> str:
        """x[..., start:end:step, ...]"""
        bounds = [
            self.g.const([b]) if isinstance(b, int) else self.op("Unsqueeze", b, self.g.const([0]))
            for b in (start, end)
        ]
        return self.op("Slice", x, *bounds, self.g.const([axis]), self.g.const([step]))

    def turned(self, x: str, *order: int) -> str:
        return self.op("Transpose", x, perm=list(order))

    def cast(self, x: str, to: int) -> str:
        return self.op("Cast", x, to=to)

    def expand(self, x: str, *dims: str | int) -> str:
        """x.expand(dims): -1 keeps an extent, which the exporter sorts out with Where and Equal."""
        wanted = self.shape(*dims)
        ones = self.op("ConstantOfShape", self.op("Shape", wanted), value=onnx.numpy_helper.from_array(np.array([1])))
        keeps = self.op("Equal", wanted, self.op("Mul", ones, self.g.const(-1)))
        return self.op("Expand", x, self.op("Where", keeps, ones, wanted))

    def linear(self, x: str, columns: int, out: int) -> str:
        return self.op("Add", self.op("MatMul", x, self.weight(columns, out)), self.weight(out))

    def rms(self, x: str) -> str:
        mean = self.op("ReduceMean", self.op("Pow", x, self.g.const(2.0)), axes=[-1], keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, self.g.const(1e-6)))
        return self.op("Mul", self.weight(WIDTH), self.op("Mul", x, self.op("Div", self.g.const(1.0), root)))

    def heads(self, x: str, batch: str) -> str:
        made = self.op("MatMul", x, self.weight(WIDTH, HEADS * HEAD))
        return self.turned(self.view(made, batch, -1, HEADS, HEAD), 0, 2, 1, 3)

    def attend(self, x: str, keys: str, values: str, bias: str | None, batch: str) -> str:
        scores = self.op("MatMul", self.heads(x, batch), self.turned(keys, 0, 1, 3, 2))
        scores = scores if bias is None else self.op("Add", scores, bias)
        merged = self.turned(self.op("MatMul", self.op("Softmax", scores, axis=-1), values), 0, 2, 1, 3)
        return self.op("MatMul", self.view(merged, batch, -1, HEADS * HEAD), self.weight(HEADS * HEAD, WIDTH))

    def build(self, *outputs: tuple[str, Sequence[int | str]]) -> onnx.ModelProto:
        for name, shape in outputs:
            self.g.output(self.op("Identity", name, out=f"out.{name}"), np.float32, shape)
        return self.g.build()


# ---- T5


def _bucket(e: Export, queries: str, keys: str, both_ways: bool) -> str:
    """Relative position buckets, (queries, keys) integers."""
    g, count = e.g, BUCKETS // 2 if both_ways else BUCKETS
    context = e.op("Unsqueeze", e.op("Range", g.const(0), queries, g.const(1)), g.const([1]))
    memory = e.op("Unsqueeze", e.op("Range", g.const(0), keys, g.const(1)), g.const([0]))
    relative = e.op("Sub", memory, context)
    if both_ways:
        later = e.op("Mul", e.cast(e.op("Greater", relative, g.const(0)), INT64), g.const(count))
        distance = e.op("Abs", relative)
    else:
        zeros = e.op("ConstantOfShape", e.op("Shape", relative), value=onnx.numpy_helper.from_array(np.array([0])))
        distance = e.op("Neg", e.op("Min", relative, zeros))
    exact = count // 2
    ratio = e.op("Div", e.cast(e.op("Max", distance, g.const(1)), FLOAT), g.const(float(exact)))
    steps = e.op("Mul", e.op("Div", e.op("Log", ratio), g.const(2.5)), g.const(float(count - exact)))
    far = e.op("Add", e.cast(steps, INT64), g.const(exact))
    most = e.op(
        "ConstantOfShape", e.op("Shape", far), value=onnx.numpy_helper.from_array(np.array([count - 1], np.int64))
    )
    bucket = e.op("Where", e.op("Less", distance, g.const(exact)), distance, e.op("Min", far, most))
    return e.op("Add", later, bucket) if both_ways else bucket


def _position_bias(e: Export, queries: str, keys: str, both_ways: bool) -> str:
    """(1, heads, queries, keys)"""
    table = e.op("Gather", e.weight(BUCKETS, HEADS), _bucket(e, queries, keys, both_ways), axis=0)
    return e.op("Unsqueeze", e.turned(table, 2, 0, 1), e.g.const([0]))


def _absent(e: Export, mask: str) -> str:
    """(batch, 1, 1, length): what hides the tokens that a mask of integers leaves out."""
    seen = e.cast(e.op("Unsqueeze", e.op("Unsqueeze", mask, e.g.const([1])), e.g.const([2])), FLOAT)
    return e.op("Mul", e.op("Sub", e.g.const(1.0), seen), e.g.const(-1e9))


def _words(e: Export, ids: str) -> str:
    flat = e.view(ids, -1, e.size(ids, 1))
    return e.op("Gather", e.weight(32, WIDTH), flat)


def _feed(e: Export, x: str) -> str:
    inner = e.op("Relu", e.op("MatMul", e.rms(x), e.weight(WIDTH, 2 * WIDTH)))
    return e.op("Add", x, e.op("MatMul", inner, e.weight(2 * WIDTH, WIDTH)))


def t5_encoder(layers: int) -> onnx.ModelProto:
    e = Export("t5_encoder")
    ids = e.g.input("input_ids", np.int64, ["batch", "sequence"])
    mask = e.g.input("attention_mask", np.int64, ["batch", "sequence"])
    x = _words(e, ids)
    length = e.size(x, 1)
    bias = e.op("Add", _position_bias(e, length, length, True), _absent(e, mask))
    for _ in range(layers):
        normed = e.rms(x)
        batch = e.size(normed, 0)
        attended = e.attend(normed, e.heads(normed, batch), e.heads(normed, batch), bias, batch)
        x = _feed(e, e.op("Add", x, attended))
    return e.build((e.rms(x), ["b", "s", WIDTH]))


def t5_decoder(layers: int) -> onnx.ModelProto:
    e = Export("t5_decoder")
    g = e.g
    ids = g.input("input_ids", np.int64, ["batch", "new"])
    hidden = g.input("encoder_hidden_states", np.float32, ["batch", "source", WIDTH])
    mask = g.input("encoder_attention_mask", np.int64, ["batch", "source"])
    past = [
        g.input(f"past.{k}.{part}", np.float32, ["batch", HEADS, "past", HEAD]) for k in range(layers) for part in "kv"
    ]
    x = _words(e, ids)
    outputs: list[tuple[str, Sequence[int | str]]] = []
    # All lengths come from tensors: the bias is made for all tokens and cut to the new ones, as many as the input has.
    new, before = e.size(x, 1), e.size(past[0], 2)
    whole = e.op("Add", new, before)
    bias = e.cut(_position_bias(e, whole, whole, False), 2, e.op("Neg", new), LAST)
    places = e.op("Range", g.const(0), whole, g.const(1))
    square = e.expand(e.op("Unsqueeze", places, g.const([0, 1])), e.size(ids, 0), whole, -1)
    causal = e.op("LessOrEqual", square, e.op("Unsqueeze", places, g.const([0, 2])))
    hides = e.op("Mul", e.op("Sub", g.const(1.0), e.cast(causal, FLOAT)), g.const(-1e9))
    bias = e.op("Add", bias, e.cut(e.op("Unsqueeze", hides, g.const([1])), 2, e.op("Neg", e.size(ids, 1)), LAST))
    absent = _absent(e, mask)
    for k in range(layers):
        normed = e.rms(x)
        batch = e.size(normed, 0)
        own = [e.op("Concat", past[2 * k + n], e.heads(normed, batch), axis=2) for n in range(2)]
        outputs += [(it, ["b", HEADS, f"total.{it}", HEAD]) for it in own]
        x = e.op("Add", x, e.attend(normed, *own, bias, batch))
        normed = e.rms(x)
        batch = e.size(normed, 0)
        x = e.op("Add", x, e.attend(normed, e.heads(hidden, batch), e.heads(hidden, batch), absent, batch))
        x = _feed(e, x)
    return e.build((e.rms(x), ["b", "n", WIDTH]), *outputs)


# ---- Swin


def _padded(e: Export, x: str, multiple: int) -> tuple[str, str, str]:
    """x of shape (batch, height, width, channels), its height and width, padded below and right to a multiple."""
    g = e.g
    height, width = e.size(x, 1), e.size(x, 2)
    short = [
        e.op("Mod", e.op("Sub", g.const(multiple), e.op("Mod", d, g.const(multiple))), g.const(multiple))
        for d in (height, width)
    ]
    return e.op("Pad", x, e.shape(0, 0, 0, 0, 0, *short, 0)), height, width


def _rolled(e: Export, x: str, shift: int) -> str:
    for axis in (1, 2):
        x = e.op("Concat", e.cut(x, axis, shift, LAST), e.cut(x, axis, 0, shift), axis=axis)
    return x


def _windows(e: Export, x: str, channels: int) -> str:
    """(batch * windows, WINDOW * WINDOW, channels)"""
    rows, columns = (e.op("Div", e.size(x, axis), e.g.const(WINDOW)) for axis in (1, 2))
    cut = e.view(x, e.size(x, 0), rows, WINDOW, columns, WINDOW, channels)
    return e.view(e.turned(cut, 0, 1, 3, 2, 4, 5), -1, WINDOW * WINDOW, channels)


def _together(e: Export, windows: str, like: str, channels: int) -> str:
    height, width = e.size(like, 1), e.size(like, 2)
    rows, columns = (e.op("Div", d, e.g.const(WINDOW)) for d in (height, width))
    batch = e.op("Div", e.size(windows, 0), e.op("Mul", rows, columns))
    cut = e.view(windows, batch, rows, columns, WINDOW, WINDOW, -1)
    return e.view(e.turned(cut, 0, 1, 3, 2, 4, 5), batch, height, width, channels)


def _block(e: Export, x: str, shift: int) -> str:
    g = e.g
    padded, height, width = _padded(e, x, WINDOW)
    moved = _rolled(e, padded, shift) if shift else padded
    windows = _windows(e, moved, WIDTH)
    batch = e.size(windows, 0)
    attended = e.attend(windows, e.heads(windows, batch), e.heads(windows, batch), None, batch)
    back = _together(e, attended, moved, WIDTH)
    back = _rolled(e, back, -shift) if shift else back
    x = e.op("Add", x, e.cut(e.cut(back, 1, 0, height), 2, 0, width))
    inner = e.op("Mul", (up := e.linear(x, WIDTH, 2 * WIDTH)), e.op("Sigmoid", up))
    flat = e.view(e.linear(inner, 2 * WIDTH, WIDTH), e.size(x, 0), e.op("Mul", e.size(x, 1), e.size(x, 2)), WIDTH)
    norm = e.op("Add", flat, e.op("ReduceMean", flat, axes=[-1], keepdims=1))
    return e.op("Add", x, e.op("Reshape", norm, g.op("Shape", x)))


def swin(layers: int) -> onnx.ModelProto:
    """Pairs of a plain and a shifted block; every eighth layer merges four neighbours into one while there are some."""
    e = Export("swin")
    image = e.g.input("image", np.float32, ["batch", 3, "height", "width"])
    x = e.turned(e.op("Conv", image, e.weight(WIDTH, 3, 4, 4), strides=[4, 4], kernel_shape=[4, 4]), 0, 2, 3, 1)
    for k in range(layers):
        x = _block(e, x, SHIFT if k % 2 else 0)
        if k % 8 == 7 and k < 24:
            even, _, _ = _padded(e, x, 2)
            parts = [e.cut(e.cut(even, 1, r, LAST, 2), 2, c, LAST, 2) for c in (0, 1) for r in (0, 1)]
            x = e.linear(e.op("Concat", *parts, axis=-1), 4 * WIDTH, WIDTH)
    return e.build((x, ["b", "h", "w", WIDTH]))


# ---- detector


def _conv(e: Export, x: str, out: int = WIDTH, stride: int = 1, kernel: int = 3) -> str:
    channels = 3 if x == "image" else WIDTH
    pad = kernel // 2
    return e.op(
        "Relu",
        e.op(
            "Conv",
            x,
            e.weight(out, channels, kernel, kernel),
            strides=[stride] * 2,
            kernel_shape=[kernel] * 2,
            pads=[pad] * 4,
        ),
    )


def _resized(e: Export, x: str, like: str) -> str:
    shape = e.op("Concat", e.cut(e.op("Shape", x), 0, 0, 2), e.cut(e.op("Shape", like), 0, 2, 4), axis=0)
    return e.op(
        "Resize", x, "", "", shape, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )


def _anchors(e: Export, level: str, stride: int) -> str:
    """(height * width * anchors, 2): the places that the cells of a level look at."""
    height, width = e.size(level, 2), e.size(level, 3)
    rows = e.cast(e.op("Range", e.g.const(0), height, e.g.const(1)), FLOAT)
    columns = e.cast(e.op("Range", e.g.const(0), width, e.g.const(1)), FLOAT)
    y = e.expand(e.view(rows, height, 1), height, width)
    x = e.expand(e.view(columns, 1, width), height, width)
    grid = e.op("Concat", *(e.op("Unsqueeze", it, e.g.const([-1])) for it in (x, y)), axis=-1)
    grid = e.op("Mul", e.op("Add", grid, e.g.const(0.5)), e.g.const(float(stride)))
    several = e.expand(e.op("Unsqueeze", grid, e.g.const([2])), -1, -1, ANCHORS, -1)
    return e.view(several, -1, 2)


def detector(layers: int) -> onnx.ModelProto:
    """Three levels, `layers` rounds of a pyramid down and up between them, and a head per level."""
    e = Export("detector")
    image = e.g.input("image", np.float32, ["batch", 3, "height", "width"])
    levels = [_conv(e, _conv(e, image, stride=2), stride=2)]
    for _ in range(2):
        levels.append(_conv(e, levels[-1], stride=2))
    for _ in range(layers):
        for k in (1, 0):
            levels[k] = _conv(e, e.op("Add", levels[k], _resized(e, levels[k + 1], levels[k])), kernel=1)
        for k in (1, 2):
            lower = e.op("MaxPool", levels[k - 1], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
            levels[k] = _conv(e, e.op("Add", levels[k], _resized(e, lower, levels[k])), kernel=1)
    found, places = [], []
    for k, level in enumerate(levels):
        made = _conv(e, level, ANCHORS * (CLASSES + 4), kernel=1)
        split = e.view(made, e.size(made, 0), ANCHORS, CLASSES + 4, e.size(made, 2), e.size(made, 3))
        found.append(e.view(e.turned(split, 0, 3, 4, 1, 2), e.size(made, 0), -1, CLASSES + 4))
        places.append(_anchors(e, level, 4 << k))
    every = e.op("Concat", *found, axis=1)
    centre = e.op("Add", e.cut(every, 2, 0, 2), e.op("Unsqueeze", e.op("Concat", *places, axis=0), e.g.const([0])))
    boxes = e.op(
        "Concat", centre, e.op("Tanh", e.cut(every, 2, 2, 4)), e.op("Sigmoid", e.cut(every, 2, 4, LAST)), axis=2
    )
    return e.build((boxes, ["b", "n", CLASSES + 4]))


# ---- all of them

EXPORTS = {"t5_encoder": t5_encoder, "t5_decoder": t5_decoder, "swin": swin, "detector": detector}


def inputs(name: str, layers: int, *sizes: int) -> dict[str, np.ndarray]:
    """Feeds: sizes are (batch, sequence) for t5_encoder, (batch, new, past, source) for t5_decoder, else (batch, height,
    width)."""
    random = np.random.default_rng(sum(sizes))
    if name in ("swin", "detector"):
        batch, height, width = sizes
        return {"image": random.normal(size=(batch, 3, height, width)).astype(np.float32)}
    batch, length = sizes[:2]
    feeds = {"input_ids": random.integers(0, 32, (batch, length))}
    if name == "t5_encoder":
        return feeds | {"attention_mask": (random.random((batch, length)) < 0.8).astype(np.int64)}
    _, _, past, source = sizes
    feeds["encoder_hidden_states"] = random.normal(size=(batch, source, WIDTH)).astype(np.float32)
    feeds["encoder_attention_mask"] = (random.random((batch, source)) < 0.8).astype(np.int64)
    for k in range(layers):
        for part in "kv":
            feeds[f"past.{k}.{part}"] = random.normal(size=(batch, HEADS, past, HEAD)).astype(np.float32)
    return feeds
