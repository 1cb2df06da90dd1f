"""Results of operators of ONNX Runtime's domain `com.microsoft` that do not run here, as patterns of shapes (see `pattern`).

ONNX Runtime infers most of them if it knows their operands. Lowered operators need no pattern, since lowering determines their
results.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from .value_info import ValueInfo

_LSTM = "sbi->sdb{hidden_size} db{hidden_size} db{hidden_size}"

PATTERNS = {
    "AttnLSTM": _LSTM,
    "BeamSearch": "b...->brm:INT32 br:5 sbkv:5",
    "BiasSoftmax": "...->...",
    "BifurcationDetector": "->n ()",
    "BranchwiseRMSNorm": "...->...",
    "CDist": "ac,bc->ab",
    "ConvTransposeWithDynamicPads": "nc...->nk~",
    "CropAndResize": "bchw,nr->ncyx",
    "DynamicQuantizeLSTM": _LSTM,
    "DynamicTimeWarping": "->2k:INT32",
    "ExpandDims": "...->~k",
    "GatherPacked": ",...->...{K}:@packed",
    "GreedySearch": "b...->bm:INT32",
    "GridSample": "nchw,nyxt->ncyx",
    "HyperConnectionPostMix": "...->...",
    "Inverse": "...->...",
    "MatMulFpQ4": "mk->mn",
    "MaxpoolWithMask": "nc...->nc~",
    "MoEGroupRouter": "->te te:1 te:1",
    "MurmurHash3": "...->...:@hash",
    "NGramRepeatBlock": ",bv->bv:1",
    "Pad": "...->~",
    "QAttention": "bsi->bsh:3 pbnkd:3",
    "QEmbedLayerNormalization": "bs->bsh:FLOAT b:INT32",
    "QLinearSoftmax": "...->...",
    "Range": "->n",
    "SampleOp": "...->...",
    "Sampling": "b...->bm:INT32",
    "ScaledSiLU": "...->...",
    "SparseAttention": "bsh->bso bnkd:3 bnkd:4",
    "SparseToDenseMatMul": "->mn:1",
    "Tokenizer": "...->...k",
    "Trilu": "...->...",
    "UnfoldTensor": "...->~k",
    "Unique": "n->u u:INT64 u:INT64",
    "VarlenCausalConvWithState": "tc,,,,bcs->tc bcs:4 buc",
    "WhisperBeamSearch": "b...->brm:INT32 br:5 sbkv:5",
    "WordConvEmbedding": "...w->...k:1",
}


def _hash(node: ir.Node, _operands: Sequence[ValueInfo]) -> ir.DataType:
    positive = node.attributes.get("positive")
    return ir.DataType.INT32 if positive is not None and not positive.as_int() else ir.DataType.UINT32


def _packed(node: ir.Node, _operands: Sequence[ValueInfo]) -> ir.DataType | None:
    output = node.attributes.get("output_dtype")
    return None if output is None else ir.DataType(output.as_int())


TYPES = {"hash": _hash, "packed": _packed}
