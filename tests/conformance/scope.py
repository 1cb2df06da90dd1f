"""Which cases must run on WebGPU: operators and element types in scope, and the exceptions with their reasons."""

from __future__ import annotations

from .cases import Info

OPERATORS = {
    "pointwise": """
        Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike
        Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity
        IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round
        Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor""",
    "reduction": """
        LogSoftmax ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
        ReduceSumSquare Softmax""",
    "normalisation": "BatchNormalization LayerNormalization",
    "product": "Conv ConvTranspose Gemm MatMul",
    "pooling": "AveragePool GlobalAveragePool GlobalMaxPool MaxPool",
    "layout": "Concat Expand Flatten Gather Pad Reshape Resize Slice Split Squeeze Transpose Unsqueeze",
    "shape": "Constant ConstantOfShape Range Shape Size",
}
IN_SCOPE = frozenset(op for family in OPERATORS.values() for op in family.split())

TYPES = frozenset(
    ["float", "float16", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
)
"""Element types that WebGPU kernels calculate with."""

ON_CPU: dict[str, str] = {}
"""Cases in scope whose nodes, some or all, are left to the CPU: name and reason."""

DISPUTED = {
    "test_resize_downsample_scales_linear_align_corners": "onnxruntime aligns the corners of whole pixels, so do we",
    "test_resize_downsample_scales_cubic_align_corners": "onnxruntime aligns the corners of whole pixels, so do we",
}
"""Cases whose result onnxruntime's CPU provider does not give either: name and what it does."""


def in_scope(case: Info) -> bool:
    """Every operator of the graph and every type of its inputs and outputs is in scope."""
    return IN_SCOPE.issuperset(case.nodes) and TYPES.issuperset(case.types)


def wide(case: Info) -> bool:
    """Whether the case has 64-bit integers, which are calculated in two ways."""
    return not {"int64", "uint64"}.isdisjoint(case.types)
