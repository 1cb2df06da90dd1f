"""The zoo's models are what their names say: the operators an exporter writes, real weights, dynamic dims."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from . import NAMES, Case, MissingWeightsError, load

# What torch.onnx.export and onnxruntime's quantisation tools write for the same networks (torch 2.13, opset 20 or 24).
EXPORTED = {
    "minilm": "Shape 8 Gather 2 Add 56 Slice 19 LayerNormalization 13 Unsqueeze 2 Cast 2 Sub 1 Mul 14 MatMul 48 Concat 15 "
    "Reshape 36 Transpose 30 Softmax 6 Gelu 6 ReduceSum 2 Clip 2 Div 2 ReduceL2 1 Expand 1",
    "minilm_dynquant.full": "Shape 8 Gather 2 Unsqueeze 2 Concat 15 Slice 19 DequantizeLinear 2 Cast 38 ReduceSum 2 Sub 1 "
    "Add 56 Clip 2 Mul 86 LayerNormalization 13 DynamicQuantizeLinear 24 MatMulInteger 36 Reshape 36 Transpose 30 MatMul 12 "
    "Softmax 6 Gelu 6 Div 2 ReduceL2 1 Expand 1",
    "resnet_f32.full": "Shape 1 Squeeze 1 Conv 53 BatchNormalization 53 Relu 49 MaxPool 1 Add 16 ReduceMean 1 Constant 2 "
    "Reshape 2 Concat 1 Gemm 1",
    "resnet_folded.full": "Conv 53 Relu 49 MaxPool 1 Add 16 ReduceMean 1 Reshape 1 Gemm 1",
    "cnn_int8_qdq": "DequantizeLinear 61 QuantizeLinear 25 Conv 17 MaxPool 1 Add 4 ReduceMean 1 Reshape 1 Gemm 1",
    "cnn_int8_qoperator": "QuantizeLinear 2 QLinearConv 17 MaxPool 1 QLinearAdd 4 DequantizeLinear 2 ReduceMean 1 Reshape 1 "
    "QGemm 1",
    "vit_f32.full": "Shape 3 Conv 1 Reshape 13 Transpose 11 Concat 6 Expand 1 Add 17 LayerNormalization 5 MatMul 16 Slice 6 "
    "Mul 4 Softmax 2 Gelu 2 Gather 1 Gemm 1",
    "vit_opset24.full": "Shape 1 Conv 1 Reshape 9 Transpose 9 Concat 2 Expand 1 Add 17 LayerNormalization 5 MatMul 12 "
    "Attention 2 Gelu 2 Gather 1 Gemm 1",
    "whisper_encoder.full": "Shape 6 Conv 2 Gelu 6 Transpose 21 Slice 13 Add 33 LayerNormalization 9 MatMul 32 Concat 10 "
    "Reshape 24 Mul 8 Softmax 4",
    "t5_decoder_step": "Shape 1 Squeeze 1 Gather 2 Add 20 Range 1 Unsqueeze 4 Sub 2 Clip 3 Cast 3 Div 2 Log 1 Mul 19 Less 2 "
    "Where 2 Transpose 18 Pow 7 ReduceMean 7 Sqrt 7 Reciprocal 7 MatMul 27 Reshape 12 Concat 4 Softmax 4 Gelu 2",
}
HALF = [name for name in NAMES if name.endswith("_f16")]
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


@pytest.mark.costly
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


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("ocr")])
def test_values_neither_grow_nor_vanish(name: str) -> None:
    results = cpu(name).run(None, case(name).inputs(0))
    floats = [result.astype(np.float64) for result in results if result.dtype.kind == "f"]
    assert floats and all(0.02 < result.std() < 100 for result in floats)


@pytest.mark.parametrize("name", HALF)
def test_half_models_have_half_weights(name: str) -> None:
    weights = [it for it in onnx.load(case(name).path).graph.initializer if len(it.dims) > 1 and it.data_type != 7]
    half = [it for it in weights if it.data_type == onnx.TensorProto.FLOAT16]
    assert len(half) >= len(weights) - 1  # the frequencies of unet's time steps stay float32


def test_the_detector_finds_things_and_keeps_them_apart() -> None:
    for variation in range(case("detector_nms").variations):
        boxes, scores, classes, strong = cpu("detector_nms").run(None, case("detector_nms").inputs(variation))
        assert len(boxes) == len(scores) == len(classes) > 3
        assert strong.shape[1] > 0
