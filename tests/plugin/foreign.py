"""A node of each operator of `ai.onnx.ml` that makes tensors, and of each of `com.microsoft` that runs on the CPU alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

ML, MS = "ai.onnx.ml", "com.microsoft"
_DICE = np.random.default_rng(7)


@dataclass(frozen=True)
class Foreign:
    """A node. Inputs are arrays; dicts stand for maps, None for one that is left out. `variant` names one of several of an
    operator."""

    op_type: str
    inputs: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = MS
    variant: str = ""
    fixed: bool = False  # the first extents of operands are numbers too, because ONNX Runtime looks at them

    def __str__(self) -> str:
        return "-".join(filter(None, (self.op_type, self.variant)))

    @property
    def feeds(self) -> dict[str, Any]:
        return {f"x{k}": it for k, it in enumerate(self.inputs) if it is not None}

    def node(self) -> onnx.NodeProto:
        inputs = ["" if it is None else f"x{k}" for k, it in enumerate(self.inputs)]
        outputs = [f"v{k}" for k in range(self.outputs)]
        return helper.make_node(self.op_type, inputs, outputs, "foreign", domain=self.domain, **self.attributes)

    def input_types(self) -> list[onnx.ValueInfoProto]:
        """Of tensors the rank alone is declared, and with it the extents that a kernel looks at."""
        return [
            helper.make_value_info(name, _type("" if self.fixed else name, value)) for name, value in self.feeds.items()
        ]


def _type(name: str, value: Any) -> onnx.TypeProto:
    if isinstance(value, dict):
        code = TensorProto.INT64 if isinstance(next(iter(value)), int) else TensorProto.STRING
        return helper.make_map_type_proto(code, helper.make_tensor_type_proto(TensorProto.FLOAT, ()))
    shape = [f"{name}_{axis}" if name and axis == 0 and size > 1 else size for axis, size in enumerate(value.shape)]
    return helper.make_tensor_type_proto(_code(value), shape)


def _code(value: np.ndarray) -> int:
    return TensorProto.STRING if value.dtype.kind in "OU" else helper.np_dtype_to_tensor_dtype(value.dtype)


def f(*shape: int) -> np.ndarray:
    return _DICE.uniform(0.1, 1, shape).astype(np.float32)


def i(*values: Any, dtype: Any = np.int64) -> np.ndarray:
    return np.array(values, dtype)


TEXTS = np.array([["a", "b"], ["b", "a"]], object)
TREE: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [1, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}
LEAVES = {"treeids": [0, 0], "nodeids": [1, 2], "ids": [0, 1], "weights": [0.25, 0.75]}
SUPPORT: dict[str, Any] = {
    "kernel_type": "LINEAR",
    "kernel_params": [0.0, 0.0, 3.0],
    "coefficients": [1.0, -1.0, 0.5, 0.25],
}


def tree(kind: str, **more: Any) -> dict[str, Any]:
    return TREE | {f"{kind}_{name}": value for name, value in LEAVES.items()} | more


def _ml(op_type: str, *inputs: Any, outputs: int = 1, variant: str = "", **attributes: Any) -> Foreign:
    return Foreign(op_type, inputs, attributes, outputs, ML, variant)


def _tensor(dtype: int, values: list[Any]) -> onnx.TensorProto:
    return helper.make_tensor("t", dtype, [len(values)], values)


SPLITS = {
    "nodes_splits": _tensor(TensorProto.FLOAT, [0.5]),
    "nodes_modes": _tensor(TensorProto.UINT8, [0]),
    "leaf_weights": _tensor(TensorProto.FLOAT, [0.25, 0.75]),
}
LEARNT = [
    _ml("ArrayFeatureExtractor", f(3, 4), i(0, 2)),
    _ml("ArrayFeatureExtractor", f(4), i(0, 2), variant="row"),
    _ml("ArrayFeatureExtractor", f(2, 3, 4), i(1), variant="cube"),
    _ml("Binarizer", f(3, 4), threshold=0.5),
    _ml("CastMap", {0: 1.0, 1: 2.0}),
    _ml("CastMap", {0: 1.0, 2: 5.0}, cast_to="TO_INT64", map_form="SPARSE", max_map=4, variant="sparse"),
    _ml("CategoryMapper", TEXTS, cats_strings=["a", "b"], cats_int64s=[3, 4]),
    _ml("DictVectorizer", {"a": 1.0, "b": 2.0}, string_vocabulary=["a", "b", "c"]),
    _ml("DictVectorizer", {1: 1.5, 3: 2.0}, int64_vocabulary=[1, 2, 3], variant="numbers"),
    _ml("FeatureVectorizer", f(3, 2), f(3, 4), inputdimensions=[2, 4]),
    _ml("FeatureVectorizer", f(2), f(4), inputdimensions=[2, 4], variant="row"),
    _ml("Imputer", f(3, 2), imputed_value_floats=[0.5, 0.25], replaced_value_float=0.0),
    _ml("Imputer", i([1, 0], [0, 2]), imputed_value_int64s=[7], replaced_value_int64=0, variant="int64"),
    _ml("LabelEncoder", TEXTS, keys_strings=["a", "b"], values_floats=[0.5, 2.0]),
    _ml("LabelEncoder", f(2, 2, 1), keys_floats=[0.5], values_int64s=[2], variant="int64"),
    _ml("LinearClassifier", f(3, 2), coefficients=[0.5] * 6, intercepts=[0.0] * 3, classlabels_ints=[0, 1, 2], outputs=2),
    _ml("LinearClassifier", f(2), coefficients=[0.5] * 2, intercepts=[0.0], classlabels_ints=[0, 1], outputs=2, variant="row"),
    _ml("LinearClassifier", f(3, 2), coefficients=[0.5] * 4, intercepts=[0.0] * 2, classlabels_strings=["a", "b"],
        outputs=2, variant="texts"),
    _ml("LinearRegressor", f(3, 4), coefficients=[0.5] * 8, targets=2),
    _ml("LinearRegressor", f(4), coefficients=[0.5] * 4, variant="row"),
    _ml("Normalizer", f(3, 4), norm="L2"),
    _ml("Normalizer", f(4), norm="MAX", variant="row"),
    _ml("OneHotEncoder", i(1, 2, 3), cats_int64s=[1, 2, 3]),
    _ml("OneHotEncoder", TEXTS, cats_strings=["a", "b"], variant="texts"),
    _ml("SVMClassifier", f(3, 2), support_vectors=[0.5, 1.0, 0.25, 2.0], vectors_per_class=[1, 1], rho=[0.1],
        classlabels_ints=[0, 1], outputs=2, **(SUPPORT | {"coefficients": [1.0, -1.0]})),
    _ml("SVMRegressor", f(3, 2), support_vectors=[0.5] * 8, n_supports=4, rho=[0.5], **SUPPORT),
    _ml("SVMRegressor", f(2), support_vectors=[0.5] * 8, n_supports=4, rho=[0.5], variant="row", **SUPPORT),
    _ml("Scaler", f(3, 4), offset=[0.5], scale=[2.0]),
    _ml("Scaler", f(4), offset=[0.5], scale=[2.0], variant="row"),
    _ml("Scaler", i([1, 2], [3, 4]), offset=[0.5], scale=[2.0], variant="int64"),
    _ml("TreeEnsemble", f(3, 4), n_targets=2, nodes_featureids=[1], nodes_truenodeids=[0], nodes_falsenodeids=[1],
        nodes_trueleafs=[1], nodes_falseleafs=[1], tree_roots=[0], leaf_targetids=[0, 1], **SPLITS),
    _ml("TreeEnsembleClassifier", f(3, 4), classlabels_int64s=[0, 1, 2], outputs=2, **tree("class")),
    _ml("TreeEnsembleClassifier", f(3, 4), classlabels_strings=["a", "b"], outputs=2, variant="texts", **tree("class")),
    _ml("TreeEnsembleRegressor", f(3, 4), n_targets=2, **tree("target")),
]  # fmt: skip


def _ms(
    op_type: str, *inputs: Any, outputs: int = 1, variant: str = "", fixed: bool = False, **attributes: Any
) -> Foreign:
    return Foreign(op_type, inputs, attributes, outputs, MS, variant, fixed)


def u8(*shape: int) -> np.ndarray:
    return _DICE.integers(0, 255, shape).astype(np.uint8)


def scalar(value: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(value, dtype)


STEPS, BATCH, SIZE, HIDDEN = 3, 2, 4, 5
ZERO = u8(1).reshape(())
CONTRIB = [
    _ms("AttnLSTM", f(STEPS, BATCH, SIZE), f(1, 4 * HIDDEN, SIZE + 6), f(1, 4 * HIDDEN, HIDDEN), *[None] * 5,
        f(1, HIDDEN, 6), f(1, 7, 6), f(1, 6), f(BATCH, 8, 7), i(8, 8, dtype=np.int32), f(1, HIDDEN + 7, 6),
        hidden_size=HIDDEN, outputs=3),
    _ms("BifurcationDetector", i(2, 3, 4), i(1, 2), scalar(0, np.int64), i(3, 4, 5, 6), outputs=2),
    _ms("BranchwiseRMSNorm", f(2, 3, 4), f(4)),
    _ms("CDist", f(3, 4), f(5, 4), metric="euclidean"),
    _ms("ConvTransposeWithDynamicPads", f(1, 2, 4, 4), f(2, 3, 3, 3), i(0, 0, 0, 0)),
    _ms("CropAndResize", f(1, 2, 5, 5), f(3, 4), i(0, 0, 0, dtype=np.int32), i(2, 3, dtype=np.int32)),
    _ms("DynamicQuantizeLSTM", f(STEPS, BATCH, SIZE), u8(1, SIZE, 4 * HIDDEN), u8(1, HIDDEN, 4 * HIDDEN), *[None] * 5,
        f(1), u8(1), f(1), u8(1), hidden_size=HIDDEN, outputs=3),
    _ms("DynamicTimeWarping", f(4, 5)),
    _ms("ExpandDims", f(3, 4), scalar(1, np.int32)),
    _ms("GatedDeltaNet", f(4, 2, 8), f(4, 2, 8), f(4, 2, 8), i(0, 4, dtype=np.int32), f(4, 2), f(4, 2), f(1, 2, 8, 8), outputs=2),
    _ms("GatherND", f(3, 4, 5), i([0, 1], [2, 3])),
    _ms("GridSample", f(1, 2, 4, 4), f(1, 3, 5, 2)),
    _ms("HyperConnectionPostMix", f(2, 3, 4), f(2, 4), f(2, 3)),
    _ms("HyperConnectionPreMix", f(2, 3, 4), f(2, 3)),
    _ms("Inverse", np.eye(4, dtype=np.float32)[None] * 2),
    _ms("MatMulInteger16", i([1, 2], [3, 4], dtype=np.int16), i([1, 2], [3, 4], dtype=np.int16)),
    _ms("MaxpoolWithMask", f(1, 2, 4, 4), np.ones((1, 2, 4, 4), np.int32), kernel_shape=[2, 2], strides=[2, 2]),
    _ms("MoEGroupRouter", f(3, 8), f(8), n_group=2, topk_group=1, group_topk=2, top_k=2),
    _ms("MurmurHash3", i(1, 2, 3), seed=1),
    _ms("MurmurHash3", i(1, 2, 3), positive=0, variant="signed"),
    _ms("NGramRepeatBlock", i([1, 2, 1, 2]), f(1, 6), ngram_size=2),
    _ms("Pad", f(3, 4), i(1, 0, 0, 2)),
    _ms("QAttention", u8(1, 3, 8), u8(8, 24), f(24), scalar(0.1), scalar(0.1), None, ZERO, ZERO,
        num_heads=2, fixed=True),
    _ms("QEmbedLayerNormalization", i([1, 2], dtype=np.int32), i([0, 1], dtype=np.int32), u8(5, 4), u8(6, 4), u8(2, 4), u8(4),
        u8(4), None, *[scalar(0.1)] * 5, *[ZERO] * 5, outputs=2, fixed=True),
    _ms("QLinearSoftmax", u8(3, 4), scalar(0.1), ZERO, scalar(0.01), ZERO, axis=-1, opset=13),
    _ms("Range", scalar(0), scalar(5), scalar(1)),
    _ms("SampleOp", f(3, 4)),
    _ms("ScaledSiLU", f(3, 4), alpha=0.5),
    _ms("TransposeMatMul", f(3, 4), f(5, 4), transB=1),
    _ms("Trilu", f(2, 3, 3)),
    _ms("UnfoldTensor", f(2, 8), dim=-1, size=4, step=2),
    _ms("Unique", f(5), outputs=3),
    _ms("VarlenCausalConvWithState", f(4, 3), f(3, 1, 2), i(0, 4, dtype=np.int32), None, f(1, 3, 1), outputs=2),
    _ms("WordConvEmbedding", i([1, 2, 3, 4], [1, 1, 0, 2], dtype=np.int32), f(6, 1, 2, 3), f(6), f(9, 3), conv_window_size=2,
        embedding_size=6, char_embedding_size=3),
]  # fmt: skip
DECODES = "it runs here whole, compiled by itself"
NOT_HERE = {
    "BeamSearch": DECODES,
    "GreedySearch": DECODES,
    "Sampling": DECODES,
    "WhisperBeamSearch": DECODES,
    "SparseAttention": "it writes its presents where its pasts are",
    "Tokenizer": "it makes texts alone",
    "SparseToDenseMatMul": "it takes a sparse tensor",
    "MatMulFpQ4": "its weights are packed by a function of ONNX Runtime",
    "GatherPacked": "as MatMulFpQ4",
    "VarlenNGramHashMapping": "its results are as those of NGramHashMapping, which runs here",
}
"""Operators of `com.microsoft` on the CPU without a node above, and why."""
