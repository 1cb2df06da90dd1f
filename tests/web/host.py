"""Models of one node that the web runtime runs without a GPU, with random inputs and what they give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_type_proto, make_value_info

REAL, WHOLE = TensorProto.FLOAT, TensorProto.INT64
Arrays = dict[str, np.ndarray]


def _model(node: onnx.NodeProto, opset: int, inputs: Arrays) -> onnx.ModelProto:
    """Of unknown shapes."""
    ports = [
        make_value_info(name, make_tensor_type_proto(REAL if inputs[name].dtype == np.float32 else WHOLE, None))
        for name in node.input
        if name
    ]
    outputs = [
        make_value_info(name, make_tensor_type_proto(WHOLE if name == "i" else REAL, None)) for name in node.output
    ]
    graph = make_graph([node], "host", ports, outputs)
    return make_model(graph, opset_imports=[make_opsetid("", opset)], ir_version=10)


def cases(rng: np.random.Generator) -> Iterator[tuple[onnx.ModelProto, Arrays, Arrays]]:
    for node, opset, inputs in _nodes(rng):
        model = _model(node, opset, inputs)
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        outputs = session.run(None, inputs)
        if node.op_type == "DFT":  # the CPU provider's own error is larger than that of a transform in doubles
            x = inputs["x"].astype(np.float64)
            spectrum = np.fft.fft(x[..., 0] + (1j * x[..., 1] if x.shape[-1] == 2 else 0), axis=1)[
                :, : outputs[0].shape[1]
            ]
            outputs = [np.stack([spectrum.real, spectrum.imag], -1).astype(np.float32)]
        yield model, inputs, dict(zip(node.output, outputs, strict=True))


def _nodes(rng: np.random.Generator) -> Iterator[tuple[onnx.NodeProto, int, Arrays]]:
    def real(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    def whole(*numbers: Any) -> np.ndarray:
        return np.array(numbers, np.int64)

    for _ in range(6):
        shape = tuple(int(it) for it in rng.integers(1, 7, rng.integers(1, 5)))
        axis = int(rng.integers(-len(shape), len(shape)))
        # Equal ones, too.
        x = rng.integers(-3, 4, shape).astype(np.float32)
        k, largest = int(rng.integers(0, shape[axis] + 1)), int(rng.integers(0, 2))
        yield make_node("TopK", ["x", "k"], ["v", "i"], axis=axis, largest=largest), 21, {"x": x, "k": whole(k)}
        starts, ends = (rng.integers(-8, 9, len(shape)) for _ in range(2))
        steps = rng.choice([-2, -1, 1, 3], len(shape))
        axes = rng.permutation(len(shape))
        given = {"x": x, "s": starts, "e": ends, "a": axes, "t": steps}
        yield make_node("Slice", ["x", "s", "e", "a", "t"], ["y"]), 13, given
        n = int(rng.integers(1, 40))
        signal = real(2, n, 3, int(rng.integers(1, 3)))
        for onesided in (0, int(signal.shape[-1] == 1)):
            yield (
                make_node("DFT", ["x", "", "a"], ["y"], onesided=onesided),
                20,
                {"x": signal, "a": np.array(1, np.int64)},
            )
        window = rng.uniform(0, 1, int(rng.integers(2, 20))).astype(np.float32)
        given = {"s": real(2, 50, 1), "j": np.array(rng.integers(1, 9)), "w": window, "l": np.array(window.size)}
        yield make_node("STFT", ["s", "j", "w", "l"], ["o"], onesided=1), 17, given
        for mode in ("nearest", "linear", "cubic"):
            image = real(1, 2, *(int(it) for it in rng.integers(1, 9, 2)))
            sizes = whole(1, 2, *rng.integers(1, 12, 2))
            yield make_node("Resize", ["x", "", "", "s"], ["y"], mode=mode), 20, {"x": image, "s": sizes}
    pairs = (
        ((3, 4), (4, 5)),
        ((4,), (4,)),
        ((2, 3, 4), (4,)),
        ((4,), (2, 4, 5)),
        ((2, 1, 3, 4), (5, 4, 2)),
        ((1, 4), (3, 4, 1)),
    )
    for a, b in pairs:
        yield make_node("MatMul", ["a", "b"], ["c"]), 20, {"a": real(*a), "b": real(*b)}
