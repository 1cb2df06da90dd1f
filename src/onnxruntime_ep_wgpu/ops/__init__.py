"""What each operator computes, by family: pointwise, shape, indexing, reduction, normalise, matmul, conv, pool, resize,
quantize, quantized_product, quantized_pointwise, recurrent.

`host` holds the same operators on small integers known before anything runs. `registry` is the table.
"""

from __future__ import annotations

from importlib import import_module

FAMILIES = ("pointwise", "shape", "indexing", "reduction", "normalise", "matmul", "conv", "pool", "resize",
            "quantize", "quantized_product", "quantized_pointwise", "recurrent")  # fmt: skip


def load() -> None:
    """Imports every family, which fills the registry."""
    for family in FAMILIES:
        import_module(f"{__name__}.{family}")
