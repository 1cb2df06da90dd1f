"""The operators, by family: the docstring of a family's file states what its operators share.

`registry` is the table. `host` implements the same operators on small integers that are known before a run. It is tried
first.

ONNX operators:

* elements and shapes: `pointwise`, `shape`, `parts`, `filled`, `indexing`, `scatter`, `data_sized`, `sequences`, `ngrams`,
* reductions: `reduction`, `scan` (running totals), `selection`,
* neural networks: `normalise`, `batch_norm`, `softmax`, `gemm`, `attention/`, `algebra`, `recurrent`,
* images and signals: `conv`, `conv_transpose`, `conv_deformed`, `pool`, `resize`, `sample`, `fourier`,
* quantisation: `quantize`, `quantized_product`, `quantized_pointwise`,
* random numbers: `random`.

ONNX Runtime operators: `optimised`, `optimised_norms`, `experts`, `linear_attention`, `gates`, `gram_hashes`, and for weights
of 2 to 8 bits `blocks`, `blocks_lookup` and `blocks_beside`.

`ai.onnx.ml` operators: `features`, `linear_models`, `support_vectors`, `trees` (`tree_nodes` validates them, `tree_scores`
evaluates them). `learnt_scores` converts their scores to results.

Shared by families:

* `choices`: attributes with a few valid values,
* `named_axes`, `activations`,
* `index`: indices from tensors,
* `window`: sliding windows,
* `chunked_rows`: long or many rows,
* `sorting` and `scatter_along`: along an axis,
* `attend`: attention as a kernel,
* `matmul` (products of matrices) and `byte_products` (of bytes minus their zero points).

Algorithms of one operator: `fourier_rows`, `conv_bytes`, `conv_direct`, `conv_groups`, `conv_rows`, `depthwise`. They share
`plane` (windows over two axes, as kernels use them) and `blocks_last` (blocks of a channels-last image).
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
