"""A detector with and without NonMaxSuppression: `python -m bench.detector [--size 640] [--width 32]`.

Out: milliseconds of whole runs by this provider and by the CPU provider, with an image on the host and small results back. The
cases are the network alone, with boxes and scores reduced to one number each, and the network with NonMaxSuppression and the
remaining boxes. The network has the layers and sizes of a YOLOv5s: 25,200 boxes and 80 classes at 640 x 640. Its weights are
random, so the threshold is a quantile that leaves about as many boxes as a photograph does.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import onnxruntime_ep_wgpu as wgpu
from bench.data_sized import milliseconds
from onnxruntime_ep_wgpu.tools._output import show_table

F = np.float32
CLASSES, ANCHORS = 80, 3
KEPT = 2000  # pairs of a box and a class above the threshold
MOST, OVERLAP = 100, 0.45


class Network:
    """The nodes and weights of a graph that is built from its input."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._rng = np.random.default_rng(0)

    def add(self, op: str, inputs: list[str], **attributes: Any) -> str:
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def conv(self, x: str, channels: tuple[int, int], size: int = 1, stride: int = 1, plain: bool = False) -> str:
        """Adds a convolution with bias and, unless `plain`, SiLU."""
        below, above = channels
        scale = F((1 if plain else 1.5) / (below * size * size) ** 0.5)
        weight = self._rng.standard_normal((above, below, size, size)).astype(F) * scale
        attributes = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [size // 2] * 4}
        y = self.add("Conv", [x, self.constant(weight), self.constant(np.zeros(above, F))], **attributes)
        return y if plain else self.add("Mul", [y, self.add("Sigmoid", [y])])

    def block(self, x: str, channels: tuple[int, int], depth: int, residual: bool = True) -> str:
        """Adds a block in which half of the channels go through `depth` bottlenecks."""
        half = channels[1] // 2
        y, beside = self.conv(x, (channels[0], half)), self.conv(x, (channels[0], half))
        for _ in range(depth):
            inner = self.conv(self.conv(y, (half, half)), (half, half), 3)
            y = self.add("Add", [y, inner]) if residual else inner
        return self.conv(self.add("Concat", [y, beside], axis=1), (2 * half, channels[1]))


def network(size: int, width: int, suppressed: bool) -> onnx.ModelProto:
    net, w = Network(), width
    x = net.conv("image", (3, w), 3, 2)
    levels = []
    for below, depth in ((w, 1), (2 * w, 2), (4 * w, 3), (8 * w, 1)):
        x = net.block(net.conv(x, (below, 2 * below), 3, 2), (2 * below, 2 * below), depth)
        levels.append(x)
    _, fine, middle, coarse = levels
    twice = net.constant(np.array([1, 1, 2, 2], F))
    up = net.conv(coarse, (16 * w, 8 * w))
    joined = net.add("Concat", [net.add("Resize", [up, "", twice], mode="nearest"), middle], axis=1)
    middle = net.block(joined, (16 * w, 8 * w), 1, False)
    up = net.conv(middle, (8 * w, 4 * w))
    joined = net.add("Concat", [net.add("Resize", [up, "", twice], mode="nearest"), fine], axis=1)
    fine = net.block(joined, (8 * w, 4 * w), 1, False)
    rows = []
    for at, channels, stride in ((fine, 4 * w, 8), (middle, 8 * w, 16), (coarse, 16 * w, 32)):
        grid, each = size // stride, CLASSES + 4
        ones, zeros = (net.constant(np.full(channels, it, F)) for it in (1, 0))
        even = net.add("InstanceNormalization", [at, ones, zeros])  # replaces training: otherwise all scores are 0 or 1
        shown = net.conv(even, (channels, ANCHORS * each), plain=True)
        split = net.add("Reshape", [shown, net.constant(np.array([1, ANCHORS, each, grid * grid]))])
        turned = net.add("Transpose", [split], perm=[0, 1, 3, 2])
        rows.append(net.add("Reshape", [turned, net.constant(np.array([1, ANCHORS * grid * grid, each]))]))
    every = net.add("Sigmoid", [net.add("Concat", rows, axis=1)])
    count = sum(ANCHORS * (size // stride) ** 2 for stride in (8, 16, 32))
    slices = [net.constant(np.array([k])) for k in (0, 4, 4 + CLASSES, 2)]
    boxes = net.add("Slice", [every, slices[0], slices[1], slices[3]])
    corner = net.constant(np.random.default_rng(1).random((1, count, 4)).astype(F) * F(size))
    boxes = net.add("Add", [net.add("Mul", [boxes, net.constant(np.array([0, 0, 60, 60], F))]), _twice(net, corner)])
    scores = net.add("Transpose", [net.add("Slice", [every, slices[1], slices[2], slices[3]])], perm=[0, 2, 1])
    inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, size, size])]
    if suppressed:
        inputs.append(helper.make_tensor_value_info("least", TensorProto.FLOAT, [1]))
        limits = [net.constant(np.array([MOST])), net.constant(np.array([OVERLAP], F)), "least"]
        chosen = net.add("NonMaxSuppression", [boxes, scores, *limits])
        place = net.add("Gather", [chosen, net.constant(np.array([0, 2]))], axis=1)
        outputs = [(net.add("GatherND", [boxes, place]), TensorProto.FLOAT), (chosen, TensorProto.INT64)]
    else:
        outputs = [(net.add("ReduceMax", [it], keepdims=0), TensorProto.FLOAT) for it in (boxes, scores)]
    made = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs]
    graph = helper.make_graph(net.nodes, "detector", inputs, made, net.weights)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])


def _twice(net: Network, corner: str) -> str:
    """Returns the first two of four numbers twice: a corner for both ends of a box."""
    return net.add("Gather", [corner, net.constant(np.array([0, 1, 0, 1]))], axis=2)


def threshold(image: np.ndarray, size: int, width: int) -> float:
    """Returns the score that KEPT pairs of a box and a class exceed."""
    model = network(size, width, False)
    scores = model.graph.node[-1].input[0]
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info(scores, TensorProto.FLOAT, None))
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = np.sort(session.run(None, {"image": image})[0].ravel())
    return float(found[-min(KEPT, found.size // 10)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=640, help="pixels of a side, a multiple of 32")
    parser.add_argument("--width", type=int, default=32, help="channels of the first layer")
    args = parser.parse_args()
    image = np.random.default_rng(2).random((1, 3, args.size, args.size)).astype(F)
    least = np.array([threshold(image, args.size, args.width)], F)
    rows, times = [], {}
    for name, suppressed in (("network", False), ("network and suppression", True)):
        text = network(args.size, args.width, suppressed).SerializeToString()
        feeds = {"image": image} | ({"least": least} if suppressed else {})
        ways = {
            "ours": wgpu.session(text),
            "CPU": ort.InferenceSession(text, providers=["CPUExecutionProvider"]),
        }
        found = {way: session.run(None, feeds) for way, session in ways.items()}
        for way, session in ways.items():
            times[name, way] = milliseconds(partial(session.run, None, feeds))
        boxes = "/".join(str(len(found[way][1])) for way in ways) if suppressed else "-"
        rows.append((name, *(f"{times[name, way]:.2f}" for way in ways), boxes))
    ratios = [times["network and suppression", way] / times["network", way] for way in ("ours", "CPU")]
    rows.append(("ratio", *(f"{it:.2f}" for it in ratios), "-"))
    show_table(("case", "ms", "CPU provider", "boxes, ours/CPU"), rows, wgpu.devices()[0].ep_metadata["name"])


if __name__ == "__main__":
    main()
