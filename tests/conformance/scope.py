"""Which cases must run on WebGPU: operators and element types in scope, and the accepted reasons for not doing so."""

from __future__ import annotations

from collections.abc import Iterable

from onnxruntime_ep_wgpu.compiler.lower import ops
from onnxruntime_ep_wgpu.compiler.lower.ops import registry

from .cases import Info

ops.load()

OPERATORS = {
    "pointwise": """
        Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike
        Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity
        IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round
        Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor""",
    "reduction": """
        LogSoftmax ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
        ReduceSumSquare Softmax""",
    "normalisation": """
        BatchNormalization GroupNormalization Hardmax InstanceNormalization LRN LayerNormalization LpNormalization
        MeanVarianceNormalization RMSNormalization""",
    "order": "ArgMax ArgMin TopK",
    "product": "Attention Conv ConvTranspose DeformConv Det Einsum Gemm MatMul RotaryEmbedding",
    "pooling": "AveragePool Col2Im GlobalAveragePool GlobalMaxPool MaxPool MaxUnpool",
    "sampling": "AffineGrid GridSample RoiAlign",
    "layout": """
        BitCast CenterCropPad Concat DepthToSpace Expand EyeLike Flatten Gather GatherElements GatherND OneHot Pad Reshape
        Resize ReverseSequence Scatter ScatterElements ScatterND Slice SpaceToDepth Split Squeeze TensorScatter Transpose
        Unsqueeze Upsample""",
    "learnt": "ArrayFeatureExtractor Binarizer TfIdfVectorizer TreeEnsemble",
    "quantised": """
        ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv QLinearMatMul QuantizeLinear""",
    "recurrent": "GRU LSTM RNN",
    "signal": "DFT MelWeightMatrix STFT",
    "random": "Bernoulli Dropout",
    "sizes that data decides": " ".join(registry.sized_by_data()),
    "shape": "Constant ConstantOfShape Range Shape Size",
}
IN_SCOPE = frozenset(op for family in OPERATORS.values() for op in family.split())

FLOATS = [
    "float",
    "float16",
    "bfloat16",
    "float4e2m1",
    "float8e4m3fn",
    "float8e4m3fnuz",
    "float8e5m2",
    "float8e5m2fnuz",
]
INTEGERS = ["int4", "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32", "uint64"]
TYPES = frozenset(["bool", *FLOATS, *INTEGERS])
"""Element types that WebGPU kernels read and write."""

CPU_REASONS = {
    "only views and casts": "nothing is calculated between two nodes that have one of the other reasons",
    "the rank of": "follows from what a node on the CPU makes",
    "only shape arithmetic": "a few integers from shapes, for nothing on WebGPU: cheaper where they are",
    "control flow runs on the CPU": "the Loop that a Range becomes where no provider has it",
    "type float64": "WebGPU has no 64-bit floats",
}
"""What the package may say for leaving a node of a case in scope to the CPU, and why that is accepted."""

FOLLOWS = "held by CPUExecutionProvider"
"""Said of nodes of function bodies whose neighbours have one of the reasons above."""


def unaccepted(reasons: Iterable[str]) -> list[str]:
    """The reasons that are not accepted. Reasons look like `Operator name: reason`."""
    given = list(reasons)
    bad = [r for r in given if FOLLOWS not in r and not any(text in r for text in CPU_REASONS)]
    return bad or (given if all(FOLLOWS in r for r in given) else [])


DISPUTED = {
    "test_resize_downsample_scales_linear_align_corners": "onnxruntime aligns the corners of whole pixels, so do we",
    "test_resize_downsample_scales_cubic_align_corners": "onnxruntime aligns the corners of whole pixels, so do we",
}
"""Cases whose result onnxruntime's CPU provider does not give either."""


def in_scope(case: Info) -> bool:
    """Every operator of the graph and every type of its inputs and outputs is in scope."""
    return IN_SCOPE.issuperset(case.nodes) and TYPES.issuperset(case.types)


def wide(case: Info) -> bool:
    """Whether the case has 64-bit integers, which are calculated in two ways."""
    return not {"int64", "uint64"}.isdisjoint(case.types)
