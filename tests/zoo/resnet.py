"""ResNet-50's layout at half its width, BatchNormalization nodes kept, seeded random weights, a dynamic batch.

The statistics of the BatchNormalization nodes are those of random images, taken from one run of the same graph in
training mode on the CPU: with invented statistics the activations would grow or vanish over 53 layers.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from .graph import GraphBuilder

WIDTH, BLOCKS, CLASSES, SIZE = 32, (3, 4, 6, 3), 1000, 224
Statistics = dict[str, np.ndarray]


def build() -> onnx.ModelProto:
    """Input `image` (batch, 3, 224, 224), output `logits` (batch, 1000), both float32."""
    return _network(_calibrate())


def _calibrate() -> Statistics:
    """Mean and variance in front of every BatchNormalization, of four random images of 96 by 96."""
    model = _network(None)
    names = [o for n in model.graph.node if n.op_type == "BatchNormalization" for o in n.output[1:]]
    del model.graph.output[:]
    model.graph.output.extend(helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in names)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    images = np.random.default_rng(2).uniform(-1, 1, (4, 3, 96, 96)).astype(np.float32)
    return dict(zip(names, session.run(names, {"image": images}), strict=True))


def _network(statistics: Statistics | None) -> onnx.ModelProto:
    """The network; without statistics its BatchNormalization nodes are in training mode and give them as outputs."""
    rng = np.random.default_rng(1)
    size: int | str = SIZE if statistics else "size"
    g = GraphBuilder("resnet_f32")

    def uniform(low: float, high: float, *shape: int) -> np.ndarray:
        return rng.uniform(low, high, shape).astype(np.float32)

    def conv(x: str, name: str, channels: tuple[int, int], kernel: int, stride: int) -> str:
        fan_in = channels[0] * kernel * kernel
        bound = 1 / math.sqrt(fan_in)
        return g.op(
            "Conv",
            x,
            g.weight(f"{name}.weight", uniform(-bound, bound, channels[1], channels[0], kernel, kernel)),
            g.weight(f"{name}.bias", np.zeros(channels[1], np.float32)),
            out=name,
            auto_pad="NOTSET",
            dilations=[1, 1],
            group=1,
            kernel_shape=[kernel, kernel],
            pads=[kernel // 2] * 4,
            strides=[stride, stride],
        )

    def batch_norm(x: str, name: str, channels: int) -> str:
        gain = g.weight(f"{name}.weight", uniform(0.6, 1.2, channels))
        bias = g.weight(f"{name}.bias", uniform(-0.2, 0.2, channels))
        mean, variance = f"{name}.mean", f"{name}.variance"
        if statistics:
            known = g.weight(mean, statistics[mean]), g.weight(variance, statistics[variance])
            return g.op("BatchNormalization", x, gain, bias, *known, out=name, epsilon=1e-5, momentum=1.0)
        start = (
            g.weight(mean + ".start", np.zeros(channels, np.float32)),
            g.weight(variance + ".start", np.ones(channels, np.float32)),
        )
        g.op("BatchNormalization", x, gain, bias, *start, out=name, epsilon=1e-5, momentum=0.0, training_mode=1)
        g.nodes[-1].output.extend([mean, variance])
        return name

    def unit(x: str, name: str, channels: tuple[int, int], kernel: int, stride: int, relu: bool = True) -> str:
        x = batch_norm(conv(x, f"{name}.conv", channels, kernel, stride), f"{name}.norm", channels[1])
        return g.op("Relu", x, out=f"{name}.relu") if relu else x

    image = g.input("image", np.float32, ["batch", 3, size, size])
    batch = g.op("Squeeze", g.op("Shape", image, start=0, end=1))
    x = unit(image, "stem", (3, WIDTH), 7, 2)
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
    channels = WIDTH
    for stage, count in enumerate(BLOCKS):
        middle = WIDTH << stage
        for block in range(count):
            name, stride = f"stage{stage}.block{block}", 2 if stage and not block else 1
            y = unit(x, f"{name}.0", (channels, middle), 1, 1)
            y = unit(y, f"{name}.1", (middle, middle), 3, stride)
            y = unit(y, f"{name}.2", (middle, 4 * middle), 1, 1, relu=False)
            if stride != 1 or channels != 4 * middle:
                x = unit(x, f"{name}.skip", (channels, 4 * middle), 1, stride, relu=False)
            x = g.op("Relu", g.op("Add", y, x, out=f"{name}.sum"), out=name)
            channels = 4 * middle

    x = g.op("ReduceMean", x, g.const([-1, -2]), keepdims=1, noop_with_empty_axes=0)
    batch = g.op("Reshape", batch, g.op("Constant", value_ints=[-1]), allowzero=0)
    shape = g.op("Concat", batch, g.op("Constant", value_ints=[channels]), axis=0)
    bound = 1 / math.sqrt(channels)
    head = g.weight("head.weight", uniform(-bound, bound, CLASSES, channels))
    bias = g.weight("head.bias", uniform(-bound, bound, CLASSES))
    x = g.op("Reshape", x, shape, allowzero=1)
    g.op("Gemm", x, head, bias, out="logits", alpha=1.0, beta=1.0, transA=0, transB=1)
    g.output("logits", np.float32, ["batch", CLASSES])
    return g.build()
