"""Which algorithm, tile and grid a kernel has: `parameters`, with `products` and `attention` (what can be chosen; `base`: what they
have in common), `shipped` (what is chosen by default), `choose` (variants for sizes and a Target). `docs/tuning.md` is the user's
view."""

from .attention import AttentionForm, FlashParts, FlashRows, FlashTile
from .choose import (
    WIDEST_HEAD,
    MapShape,
    across_parts,
    across_variants,
    depthwise,
    direct_convolutions,
    expert_rows,
    flash_splits,
    flash_variants,
    map_shapes,
    maps_in_fours,
    matmul_variants,
    product_parts,
    row_variants,
    written_out,
)
from .parameters import (
    Depthwise,
    DirectConvolution,
    Grid,
    Parts,
    ProductParts,
    RegisterConvolution,
    Rows,
    RowsAcross,
    Vectors,
    parameters_of,
    use,
)
from .products import DirectProduct, PackedRows, RegisterProduct, RowProduct, Tile
from .shipped import GPU, SOFTWARE, SWIFTSHADER, check_choices

__all__ = [
    "GPU", "SOFTWARE", "SWIFTSHADER", "WIDEST_HEAD", "AttentionForm", "Depthwise", "DirectConvolution", "DirectProduct",
    "FlashParts", "FlashRows", "FlashTile", "Grid", "MapShape", "PackedRows", "Parts", "ProductParts",
    "RegisterConvolution", "RegisterProduct", "RowProduct", "Rows", "RowsAcross", "Tile", "Vectors", "across_parts",
    "across_variants", "check_choices", "depthwise", "direct_convolutions", "expert_rows", "flash_splits", "flash_variants",
    "map_shapes", "maps_in_fours", "matmul_variants", "parameters_of", "product_parts", "row_variants", "use",
    "written_out",
]  # fmt: skip
