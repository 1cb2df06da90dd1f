"""What each operator computes, by family: the file of a family says what its operators share.

`host` holds the same operators on small integers known before anything runs. `registry` is the table.
"""

from __future__ import annotations

from importlib import import_module

FAMILIES = (
    "pointwise",
    "shape",
    "indexing",
    "scatter",
    "reduction",
    "order",
    "normalise",
    "matmul",
    "attention",
    "algebra",
    "conv",
    "pool",
    "resize",
    "sample",
    "quantize",
    "quantized_product",
    "quantized_pointwise",
    "recurrent",
    "optimised",
    "optimised_norms",
    "blocks",
    "blocks_lookup",
    "experts",
    "linear_attention",
)


def load() -> None:
    """Imports every family, which fills the registry."""
    for family in FAMILIES:
        import_module(f"{__name__}.{family}")
