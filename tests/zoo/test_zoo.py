"""The zoo's models are what their names say: the operators an exporter writes, real weights, dynamic dims."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from . import NAMES, Case, MissingWeightsError, load

# What torch.onnx.export writes for the same networks (torch 2.13, opset 20).
EXPORTED = {
    "minilm": "Shape 8 Gather 2 Add 56 Slice 19 LayerNormalization 13 Unsqueeze 2 Cast 2 Sub 1 Mul 14 MatMul 48 Concat 15 "
    "Reshape 36 Transpose 30 Softmax 6 Gelu 6 ReduceSum 2 Clip 2 Div 2 ReduceL2 1 Expand 1",
    "resnet_f32": "Shape 1 Squeeze 1 Conv 53 BatchNormalization 53 Relu 49 MaxPool 1 Add 16 ReduceMean 1 Constant 2 "
    "Reshape 2 Concat 1 Gemm 1",
    "vit_f32": "Shape 3 Conv 1 Reshape 13 Transpose 11 Concat 6 Expand 1 Add 17 LayerNormalization 5 MatMul 16 Slice 6 "
    "Mul 4 Softmax 2 Gelu 2 Gather 1 Gemm 1",
}
# Token ids of three sentences: the second is a paraphrase of the first ("A man is eating food.", "Someone is having a
# meal of pasta in the kitchen."), the third is about a graphics driver.
SENTENCES = (
    (101, 1037, 2158, 2003, 5983, 2833, 1012, 102),
    (101, 2619, 2003, 2383, 1037, 7954, 1997, 24857, 1999, 1996, 3829, 1012, 102),
    (101, 1996, 2047, 14246, 2226, 4062, 7695, 1996, 2083, 18780, 1997, 8185, 24856, 1012, 102),
)


def case(name: str) -> Case:
    try:
        return load(name)
    except MissingWeightsError as missing:
        pytest.skip(str(missing))


def cpu(name: str) -> ort.InferenceSession:
    return ort.InferenceSession(str(case(name).path), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", EXPORTED)
def test_operators_are_those_of_the_exported_network(name: str) -> None:
    words = EXPORTED[name].split()
    wanted = {op: int(count) for op, count in zip(words[::2], words[1::2], strict=True)}
    graph = onnx.load(case(name).path).graph
    assert Counter(node.op_type for node in graph.node) == wanted


@pytest.mark.parametrize("name", NAMES)
def test_inputs_have_three_shapes_or_more_and_repeat_exactly(name: str) -> None:
    shapes = [tuple(v.shape for v in case(name).inputs(i).values()) for i in range(case(name).variations)]
    assert len(set(shapes)) == len(shapes) >= 3
    first, again = case(name).inputs(0), case(name).inputs(0)
    assert all(np.array_equal(first[key], again[key]) for key in first)


def test_minilm_has_the_real_weights() -> None:
    width = max(map(len, SENTENCES))
    ids = np.array([line + (0,) * (width - len(line)) for line in SENTENCES], np.int64)
    feeds = {"input_ids": ids, "attention_mask": np.sign(ids), "token_type_ids": np.zeros_like(ids)}
    (embedding,) = cpu("minilm").run(None, feeds)
    similarity = embedding @ embedding.T
    assert np.allclose(np.diag(similarity), 1, atol=1e-5)
    assert similarity[0, 1] > similarity[0, 2] + 0.2


def test_the_text_detector_sees_the_writing() -> None:
    (map_of_text,) = cpu("ocr_det").run(None, case("ocr_det").inputs(0))
    assert 0.05 < (map_of_text > 0.3).mean() < 0.6


def test_resnet_activations_neither_grow_nor_vanish() -> None:
    (logits,) = cpu("resnet_f32").run(None, case("resnet_f32").inputs(0))
    assert 0.1 < logits.std() < 10
