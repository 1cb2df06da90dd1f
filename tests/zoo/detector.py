"""An object detector without anchors: three levels, boxes decoded to corners, the best ones kept by NonMaxSuppression.

The tail is what detectors are exported with: TopK, GatherElements, Gather, NonMaxSuppression, GatherND and NonZero, whose
results have as many rows as things are found. Seeded random weights; height and width are multiples of 32.
"""

from __future__ import annotations

import numpy as np
import onnx

from .graph import GraphBuilder
from .layers import Layers

WIDTH, CLASSES, CANDIDATES = 24, 8, 60
OVERLAP, SCORE, STRONG = 0.5, 0.55, 0.7


def build() -> onnx.ModelProto:
    """Input `image` (1, 3, height, width); outputs `boxes` (found, 4) in pixels, `scores` (found), `classes` (found), and
    `strong` (2, strong_count), places of candidates with a high score."""
    return _Detector().build()


class _Detector:
    def __init__(self) -> None:
        self.g = GraphBuilder("detector_nms")
        self.layers = Layers(self.g, 5)

    def build(self) -> onnx.ModelProto:
        g, layers = self.g, self.layers
        x = g.input("image", np.float32, [1, 3, "height", "width"])
        for i in range(3):
            x = self._unit(x, 3 if i == 0 else WIDTH, f"stem{i}")
        features = [x]
        for i in range(2):
            features.append(self._unit(features[-1], WIDTH, f"down{i}"))
        top = layers.conv(features[2], (WIDTH, WIDTH), 1, "lateral2")
        levels = [top]
        for i in (1, 0):
            lateral = layers.conv(features[i], (WIDTH, WIDTH), 1, f"lateral{i}")
            sizes = g.op("Concat", g.const([1, WIDTH]), g.op("Shape", lateral, start=2), axis=0)
            larger = g.op("Resize", top, "", "", sizes, mode="nearest", nearest_mode="floor",
                          coordinate_transformation_mode="asymmetric")  # fmt: skip
            top = g.op("Add", lateral, larger, out=f"level{i}")
            levels.insert(0, top)
        decoded = [self._decode(level, 8 << i, f"head{i}") for i, level in enumerate(levels)]
        boxes = g.op("Concat", *(box for box, _ in decoded), axis=1, out="all_boxes")
        scores = g.op("Concat", *(score for _, score in decoded), axis=2, out="all_scores")
        self._select(boxes, scores)
        return g.build()

    def _unit(self, x: str, width: int, name: str) -> str:
        """Convolution, normalisation and HardSwish, at half the size."""
        g, layers = self.g, self.layers
        x = layers.conv(x, (width, WIDTH), 3, f"{name}.conv", stride=2)
        ones = (
            layers.normal(WIDTH, centre=c, deviation=d) for c, d in ((1.0, 0.1), (0.0, 0.1), (0.0, 0.05), (0.15, 0.01))
        )
        kinds = ("gain", "bias", "mean", "variance")
        parameters = [g.weight(f"{name}.{kind}", value) for kind, value in zip(kinds, ones, strict=True)]
        return g.op("HardSwish", g.op("BatchNormalization", x, *parameters, epsilon=1e-5, momentum=0.9), out=name)

    def _decode(self, x: str, stride: int, name: str) -> tuple[str, str]:
        """Corners (1, places, 4) of a box per place, and scores (1, classes, places)."""
        g, layers = self.g, self.layers
        shape = g.op("Shape", x, start=2)
        centres = []
        for axis, unsqueezed in ((3, 0), (2, 1)):
            size = g.op("Squeeze", g.op("Shape", x, start=axis, end=axis + 1))
            steps = g.op("Range", g.const(0.0), g.op("Cast", size, to=onnx.TensorProto.FLOAT), g.const(1.0))
            steps = g.op("Mul", g.op("Add", steps, g.const(0.5)), g.const(float(stride)))
            spread = g.op("Expand", g.op("Unsqueeze", steps, g.const([unsqueezed])), shape)
            centres.append(g.op("Unsqueeze", spread, g.const([-1])))
        grid = g.op("Reshape", g.op("Concat", *centres, axis=-1), g.const([1, -1, 2]), allowzero=1)
        offsets = g.op("Reshape", layers.conv(x, (WIDTH, 4), 3, f"{name}.box"), g.const([1, 4, -1]), allowzero=1)
        offsets = g.op("Transpose", offsets, perm=[0, 2, 1])
        extent = g.op("Slice", offsets, g.const([2]), g.const([4]), g.const([2]), g.const([1]))
        half = g.op("Mul", g.op("Mul", g.op("Softplus", extent), g.const(float(stride))), g.const(2.0))
        shift = g.op("Slice", offsets, g.const([0]), g.const([2]), g.const([2]), g.const([1]))
        centre = g.op("Add", grid, g.op("Mul", shift, g.const(float(stride))))
        box = g.op("Concat", g.op("Sub", centre, half), g.op("Add", centre, half), axis=-1, out=f"{name}.corners")
        logits = layers.conv(x, (WIDTH, CLASSES), 3, f"{name}.class", gain=4.0)
        score = g.op("Sigmoid", g.op("Reshape", logits, g.const([1, CLASSES, -1]), allowzero=1), out=f"{name}.score")
        return box, score

    def _select(self, boxes: str, scores: str) -> None:
        g = self.g
        best = g.op("ReduceMax", scores, g.const([1]), keepdims=0)
        values, places = g.ops("TopK", best, g.const([CANDIDATES]), outs=("top", "places"), axis=1)
        columns = g.op("Expand", g.op("Unsqueeze", places, g.const([2])), g.const([1, 1, 4]))
        candidates = g.op("GatherElements", boxes, columns, axis=1, out="candidates")
        rated = g.op("Gather", scores, g.op("Squeeze", places, g.const([0])), axis=2, out="rated")
        limits = (g.const([20]), g.const([OVERLAP]), g.const([SCORE]))
        selected = g.op("NonMaxSuppression", candidates, rated, *limits, out="selected")

        def column(index: int) -> str:
            return g.op("Squeeze", g.op("Gather", selected, g.const([index]), axis=1), g.const([1]))

        g.op("Gather", g.op("Squeeze", candidates, g.const([0])), column(2), axis=0, out="boxes")
        g.op("GatherND", rated, selected, out="scores")
        g.op("Identity", column(1), out="classes")
        g.op("NonZero", g.op("Greater", values, g.const(STRONG)), out="strong")
        g.output("boxes", np.float32, ["found", 4])
        g.output("scores", np.float32, ["found"])
        g.output("classes", np.int64, ["found"])
        g.output("strong", np.int64, [2, "strong_count"])
