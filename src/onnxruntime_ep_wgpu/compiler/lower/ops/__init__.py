"""What each operator computes, by family: the file of a family says what its operators share.

`registry` is the table; `host` holds the same operators on small integers known before anything runs, and is asked first.

Of ONNX: `pointwise`, `shape`, `parts`, `filled`, `indexing`, `scatter`, `reduction`, `scan` (running totals), `selection`,
`data_sized`, `ngrams`, `sequences`, `normalise`, `batch_norm`, `softmax`, `gemm`, `attention/`, `algebra`, `conv`,
`conv_transpose`, `conv_deformed`, `pool`, `resize`, `sample`, `fourier`, `quantize`, `quantized_product`, `quantized_pointwise`,
`recurrent`, `random`.
Of ONNX Runtime: `optimised`, `optimised_norms`, `blocks`, `blocks_lookup` and `blocks_beside` (weights of 2 to 8 bits), `experts`,
`linear_attention`, `gates`, `gram_hashes`.
Of `ai.onnx.ml`: `features`, `linear_models`, `support_vectors`, `trees` (`tree_nodes` checks them, `tree_scores` walks them), and
`learnt_scores`, what becomes of their scores.

What families share: `choices` (attributes of a few words), `named_axes`, `activations`, `index` (indices out of tensors), `window`
(sliding windows), `chunked_rows` (long or many rows), `sorting` and `scatter_along` (along an axis), `attend` (attention as a
kernel); algorithms of one operator: `fourier_rows`, `conv_bytes`, `conv_direct`, `conv_groups`, `conv_rows`, `depthwise`, and what
these share: `plane` (windows over two axes as kernels see them) and `blocks_last` (blocks of an image whose channels are last);
`matmul` (products of matrices) and `byte_products` (of bytes less their zero points).
"""

from __future__ import annotations

from importlib import import_module

FAMILIES = (
    "pointwise",
    "shape",
    "parts",
    "filled",
    "indexing",
    "scatter",
    "reduction",
    "scan",
    "selection",
    "data_sized",
    "ngrams",
    "sequences",
    "normalise",
    "batch_norm",
    "softmax",
    "gemm",
    "attention",
    "algebra",
    "conv",
    "conv_transpose",
    "conv_deformed",
    "pool",
    "resize",
    "sample",
    "fourier",
    "quantize",
    "quantized_product",
    "quantized_pointwise",
    "recurrent",
    "random",
    "optimised",
    "optimised_norms",
    "blocks",
    "blocks_lookup",
    "blocks_beside",
    "experts",
    "linear_attention",
    "gates",
    "gram_hashes",
    "features",
    "linear_models",
    "support_vectors",
    "trees",
)


def load() -> None:
    """Imports every family, which fills the registry."""
    for family in FAMILIES:
        import_module(f"{__name__}.{family}")
