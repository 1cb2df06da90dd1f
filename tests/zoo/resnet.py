"""ResNet-50's layout at half its width, or a small one, seeded random weights, a dynamic batch.

The statistics of the BatchNormalization nodes are those of random images, taken from one run of the same graph in
training mode on the CPU: with invented statistics the activations would grow or vanish over 53 layers. Folded, they are
part of the convolutions' weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from .graph import GraphBuilder

EPSILON = 1e-5
Statistics = dict[str, np.ndarray]


@dataclass(frozen=True)
class Size:
    """`blocks` per stage; `image` is height and width in pixels."""

    width: int
    blocks: tuple[int, ...]
    classes: int
    image: int


FULL = Size(32, (3, 4, 6, 3), 1000, 224)
SMALL = Size(8, (1, 2, 1, 1), 40, 64)
QUANTISED = Size(16, (1, 1, 1, 1), 100, 96)


def build(size: Size = SMALL, folded: bool = False, half: bool = False) -> onnx.ModelProto:
    """Input `image` (batch, 3, image, image), output `logits` (batch, classes)."""
    return _Network(size, _calibrate(size), folded, half).build()


def _calibrate(size: Size) -> Statistics:
    """Mean and variance in front of every BatchNormalization, of four random images of at most 96 by 96."""
    model = _Network(size, None, False, False).build()
    names = [o for n in model.graph.node if n.op_type == "BatchNormalization" for o in n.output[1:]]
    del model.graph.output[:]
    model.graph.output.extend(helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in names)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    side = min(96, size.image)
    images = np.random.default_rng(2).uniform(-1, 1, (4, 3, side, side)).astype(np.float32)
    return dict(zip(names, session.run(names, {"image": images}), strict=True))


class _Network:
    """Without statistics the BatchNormalization nodes are in training mode and give them as outputs."""

    def __init__(self, size: Size, statistics: Statistics | None, folded: bool, half: bool) -> None:
        self.size, self.statistics, self.folded = size, statistics, folded
        self.rng = np.random.default_rng(1)
        self.g = GraphBuilder("resnet", half=half)

    def build(self) -> onnx.ModelProto:
        g, size = self.g, self.size
        side: int | str = size.image if self.statistics else "size"
        image = g.input("image", np.float32, ["batch", 3, side, side])
        x = self._unit(image, "stem", (3, size.width), 7, 2)
        x = g.op(
            "MaxPool",
            x,
            auto_pad="NOTSET",
            ceil_mode=0,
            dilations=[1, 1],
            kernel_shape=[3, 3],
            pads=[1, 1, 1, 1],
            storage_order=0,
            strides=[2, 2],
        )
        channels = size.width
        for stage, count in enumerate(size.blocks):
            middle = size.width << stage
            for block in range(count):
                name, stride = f"stage{stage}.block{block}", 2 if stage and not block else 1
                y = self._unit(x, f"{name}.0", (channels, middle), 1, 1)
                y = self._unit(y, f"{name}.1", (middle, middle), 3, stride)
                y = self._unit(y, f"{name}.2", (middle, 4 * middle), 1, 1, relu=False)
                if stride != 1 or channels != 4 * middle:
                    x = self._unit(x, f"{name}.skip", (channels, 4 * middle), 1, stride, relu=False)
                x = g.op("Relu", g.op("Add", y, x, out=f"{name}.sum"), out=name)
                channels = 4 * middle

        x = g.op("ReduceMean", x, g.const([-1, -2]), keepdims=1, noop_with_empty_axes=0)
        if self.folded:  # the exporter optimises what it folds
            shape = g.const([-1, channels])
        else:
            batch = g.op("Squeeze", g.op("Shape", image, start=0, end=1))
            batch = g.op("Reshape", batch, g.op("Constant", value_ints=[-1]), allowzero=0)
            shape = g.op("Concat", batch, g.op("Constant", value_ints=[channels]), axis=0)
        bound = 1 / math.sqrt(channels)
        head = g.weight("head.weight", self._uniform(-bound, bound, size.classes, channels))
        bias = g.weight("head.bias", self._uniform(-bound, bound, size.classes))
        x = g.op("Reshape", x, shape, allowzero=1)
        g.op("Gemm", x, head, bias, out="logits", alpha=1.0, beta=1.0, transA=0, transB=1)
        g.output("logits", np.float32, ["batch", size.classes])
        return g.build()

    def _uniform(self, low: float, high: float, *shape: int) -> np.ndarray:
        return self.rng.uniform(low, high, shape).astype(np.float32)

    def _unit(self, x: str, name: str, channels: tuple[int, int], kernel: int, stride: int, relu: bool = True) -> str:
        """Convolution, normalisation and Relu."""
        bound = 1 / math.sqrt(channels[0] * kernel * kernel)
        weight = self._uniform(-bound, bound, channels[1], channels[0], kernel, kernel)
        gain, bias = self._uniform(0.6, 1.2, channels[1]), self._uniform(-0.2, 0.2, channels[1])
        if self.folded and self.statistics:
            mean, variance = (self.statistics[f"{name}.norm.{kind}"] for kind in ("mean", "variance"))
            scale = gain / np.sqrt(variance + EPSILON)
            x = self._conv(x, name, weight * scale[:, None, None, None], bias - mean * scale, kernel, stride)
        else:
            x = self._conv(x, name, weight, np.zeros(channels[1], np.float32), kernel, stride)
            x = self._batch_norm(x, f"{name}.norm", gain, bias)
        return self.g.op("Relu", x, out=f"{name}.relu") if relu else x

    def _conv(self, x: str, name: str, weight: np.ndarray, bias: np.ndarray, kernel: int, stride: int) -> str:
        g = self.g
        return g.op(
            "Conv",
            x,
            g.weight(f"{name}.conv.weight", weight),
            g.weight(f"{name}.conv.bias", bias),
            out=f"{name}.conv",
            auto_pad="NOTSET",
            dilations=[1, 1],
            group=1,
            kernel_shape=[kernel, kernel],
            pads=[kernel // 2] * 4,
            strides=[stride, stride],
        )

    def _batch_norm(self, x: str, name: str, gain: np.ndarray, bias: np.ndarray) -> str:
        g, channels = self.g, len(gain)
        given = g.weight(f"{name}.weight", gain), g.weight(f"{name}.bias", bias)
        mean, variance = f"{name}.mean", f"{name}.variance"
        if self.statistics:
            known = g.weight(mean, self.statistics[mean]), g.weight(variance, self.statistics[variance])
            return g.op("BatchNormalization", x, *given, *known, out=name, epsilon=EPSILON, momentum=1.0)
        start = (
            g.weight(mean + ".start", np.zeros(channels, np.float32)),
            g.weight(variance + ".start", np.ones(channels, np.float32)),
        )
        outs = (name, mean, variance)
        return g.ops(
            "BatchNormalization", x, *given, *start, outs=outs, epsilon=EPSILON, momentum=0.0, training_mode=1
        )[0]
