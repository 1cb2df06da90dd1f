"""Chooses the algorithm, tile and grid of each kernel.

The possible choices are one class per kernel, in `products`, `matrices`, `convolutions`, `attention`, `flash_matrices`,
`squeeze`, `rows` and `maps`. `base` has their common parts and the table of all classes. `shipped` has the default choices.
`variants` makes variants for sizes and a Target. `docs/tuning.md` is the user's view.

A new class needs a choice in `shipped`, and graphs in `api/tuning_classes.py` with which `wgpu-ep tune` measures it.
"""

from . import attention, convolutions, flash_matrices, maps, matrices, products, rows, squeeze
from .base import KERNELS, parameters_of, use
from .shipped import GPU, SOFTWARE, SWIFTSHADER, check_choices
from .variants import (
    WIDEST_HEAD,
    across_variants,
    channels_last,
    column_splits,
    depthwise,
    depthwise_last,
    direct_convolutions,
    expert_rows,
    flash_splits,
    flash_variants,
    grouped_last,
    k_splits,
    map_shapes,
    maps_in_fours,
    matmul_variants,
    reason_not_to_fuse,
    record_kernels,
    row_variants,
    scales_rows,
    squeeze_excite,
)

__all__ = [
    "GPU",
    "KERNELS",
    "SOFTWARE",
    "SWIFTSHADER",
    "WIDEST_HEAD",
    "across_variants",
    "attention",
    "channels_last",
    "check_choices",
    "column_splits",
    "convolutions",
    "depthwise",
    "depthwise_last",
    "direct_convolutions",
    "expert_rows",
    "flash_matrices",
    "flash_splits",
    "flash_variants",
    "grouped_last",
    "k_splits",
    "map_shapes",
    "maps",
    "maps_in_fours",
    "matmul_variants",
    "matrices",
    "parameters_of",
    "products",
    "reason_not_to_fuse",
    "record_kernels",
    "row_variants",
    "rows",
    "scales_rows",
    "squeeze",
    "squeeze_excite",
    "use",
]
