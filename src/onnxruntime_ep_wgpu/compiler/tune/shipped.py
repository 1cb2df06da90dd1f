"""The choices of the package, tried after those of a Target. Each table ends with a choice for every shape.

They are for any GPU. Ranges of workgroups are rounds of an H200 or H100, which have 132 units. Figures are from these GPUs where a
comment states it. A kernel is tried before another one if its first choice comes first. Software adapters have their own table,
which also limits loops to what their drivers support. There the choices of users are ignored.

Sizes in comments: a product is m x k x n, for an m x k matrix times a k x n matrix. Its weights are k x n, and tiles are m x n.
Attention is heads x queries x keys, and the size of a head may follow.
"""

from __future__ import annotations

from ...program.dtypes import DType
from ...program.tuning import Bound, Choices
from .attention import AttentionForm, FlashRows, FlashTile, SplitKeys
from .base import parameters_of, use
from .convolutions import ChannelsLast, Depthwise, DepthwiseLast, DirectConvolution, GroupedLast, RegisterConvolution
from .flash_matrices import FlashMatrices
from .maps import Grid, Vectors
from .matrices import ByteTile, MatrixTile
from .products import DirectProduct, DotTile, PackedRows, RegisterProduct, RowProduct, SplitK, Tile
from .rows import ColumnSplits, Rows, RowsAcross
from .squeeze import GatedRows, SqueezeExcite

_K_256 = Bound("k", 256)  # with a shorter k, most of a workgroup's shares would be idle
_K_1024 = Bound("k", 1024)
_N_4096 = Bound("n", 4096, None, known=True)
_AS_IS = Bound("transposed", None, 0)
_NARROW = (Bound("bits", None, 8), _AS_IS)
_TO_16_BITS = Bound("bits", None, 16)
_M_1 = Bound("m", None, 1)
_WORDS, _PLAIN = Bound("packed", 1), Bound("packed", None, 0)
_N_65 = Bound("n", 65)
_ONCE, _TWICE, _THRICE = (112, 132), (216, 264), (370, 396)  # workgroups of an H200: 1, 2 or 3 rounds
_EXACTLY = {1: (), 2: (Bound("m", None, 2, known=True),), 4: ()}
_M_17, _K_TO_64 = Bound("m", 17), Bound("k", None, 64, known=True)


def _known(least: int, most: int) -> Bound:
    """The number of workgroups where all sizes are known. With sizes of a run, each further tile is one more pipeline."""
    return Bound("workgroups", least, most, known=True)


# Matrix units. Less workgroup memory is worth more than a second buffer, so all tiles have one buffer.
#
# Speed on an H200 (Dawn, 2026-11-28, f16, medians of dispatches in a row). Earlier tiles, mostly with a k of 32, in brackets.
#     4096 x 4096 x 4096: 291 TFLOP/s (255).
#     4096 x 3072 x 768: 280 (215).
#     1536 x 768 x 3072: 236 (214).
#     1024 x 1024 x 1024: 138 (128).
# If the number of tiles matches one or two rounds of its 132 units, no unit idles.
#     4096 x 768 x 2304: 256 (222).
#     1576 x 768 x 3072: 221 (146).
#     512 x 768 x 3072: 157 (135).
#     12544 x 512 x 128: 121 (86).
#     784 x 512 x 2048: 117 (89).
# On an H100 32 x 2048 x 8192 takes 16 us, and 64 x 2048 x 2048 takes 9.8 us. With weights of 4 bits, 1024 x 2048 x 8192 takes
# 0.142 ms (0.79 without units). 64 x 2048 x 8192 takes 0.020 (0.110).
_MATRICES = (
    use(MatrixTile(32, 32, 128, 2, 2), Bound("m", 17, 64), _PLAIN),
    *(
        use(MatrixTile(*tile), _M_17, _PLAIN, Bound("filled", 90), workgroups, *more)
        for tile, workgroups, more in (
            ((192, 192, 48, 2, 4), _known(240, 264), (_K_256,)),
            ((128, 256, 48, 2, 4), Bound("workgroups", 500), (_K_256,)),
            ((128, 256, 32, 2, 4), Bound("workgroups", 500), ()),
            ((192, 128, 64, 4, 2), _known(240, 264), ()),
            ((128, 192, 64, 2, 4), Bound("workgroups", *_ONCE), ()),
            ((192, 192, 48, 2, 4), _known(*_ONCE), (_K_256,)),
            ((160, 256, 48, 2, 4), _known(*_ONCE), (_K_256,)),
            ((128, 128, 64, 2, 4), Bound("workgroups", *_ONCE), (Bound("k", 512),)),
            ((128, 128, 64, 2, 4), Bound("workgroups", 225, 264), (_K_1024,)),
            ((128, 128, 32, 2, 2), Bound("workgroups", 500, 528), (_K_1024,)),
            ((96, 192, 32, 1, 4), Bound("workgroups", 240, 264), ()),
            ((128, 128, 32, 2, 2), Bound("workgroups", 225, 264), ()),
            ((96, 128, 64, 2, 4), _known(*_ONCE), ()),
            ((80, 128, 64, 1, 4), _known(*_ONCE), ()),
            ((128, 96, 64, 4, 2), _known(*_ONCE), ()),
            ((64, 128, 64, 2, 4), _known(96, 132), (Bound("k", 512),)),
        )
    ),
    use(MatrixTile(128, 128, 32, 2, 2), _M_17, _N_65, Bound("workgroups", 512)),
    use(MatrixTile(64, 128, 32, 1, 2), _M_17, _N_65, Bound("workgroups", 300)),
    # The channels of large images. 50176 x 256 x 64: 103 TFLOP/s (81 with the next ones).
    use(MatrixTile(128, 64, 32, 2, 1), _M_17, Bound("n", None, 64), Bound("workgroups", 370)),
    use(MatrixTile(64, 64, 32, 2, 2), _M_17, Bound("n", None, 64), Bound("workgroups", 264)),
    use(MatrixTile(64, 64, 64, 2, 2), _M_17),
    use(MatrixTile(64, 64, 32, 2, 2), _M_17),  # fits 16 KiB of workgroup memory
    # For bytes an H100 reaches 463 to 470 TOP/s with 4096 x 4096 x 4096 (31 without units). With 4096 x 768 x 3072 it reaches 290
    # (30). With equal work per step, 128 columns are 1.2 to 1.4 times as fast as 64, unless k has no more. On an H200 products with
    # the sizes of ResNet-50's convolutions reach these TOP/s, with the choices below in brackets: 283 for 12544 x 1152 x 128
    # (226), 212 for 50176 x 576 x 64 (152), 142 for 3136 x 256 x 1024 (120), 224 for 3136 x 2304 x 256 (204).
    use(ByteTile(32, 32, 128, 1, 2), Bound("m", 17, 64)),
    use(ByteTile(128, 64, 64, 4, 1), _M_17, Bound("n", 49, 64), Bound("workgroups", 370)),
    use(ByteTile(96, 128, 128, 2, 4), _M_17, Bound("filled", 90), _known(*_ONCE), _K_256),
    use(ByteTile(96, 128, 64, 2, 2), _M_17, Bound("filled", 90), _known(240, 264), Bound("k", None, 256)),
    use(ByteTile(64, 128, 128, 2, 4), _M_17, Bound("filled", 90), _known(96, 132), _K_1024),
    use(ByteTile(128, 128, 64, 2, 4), _M_17, _N_65, _K_TO_64, Bound("workgroups", 132)),
    use(ByteTile(128, 128, 128, 2, 4), _M_17, _N_65, Bound("workgroups", 70)),
    use(ByteTile(64, 128, 128, 1, 4), _M_17, _N_65, Bound("workgroups", 96)),
    use(ByteTile(64, 64, 64, 2, 2), _M_17, _K_TO_64),
    use(ByteTile(64, 64, 128, 2, 2), _M_17),
    use(ByteTile(64, 64, 64, 2, 2), _M_17),  # fits 16 KiB of workgroup memory
)

# Attention on an H100 (driver 580, f16), by heads x queries x keys x elements. Without units in brackets.
#     16 x 2048 x 2048 x 64: 0.113 ms (0.587; 0.171 with tiles of 64 queries).
#     32 x 4096 x 4096 x 64, causal: 0.436 ms (2.98; 0.489).
#     96 x 197 x 197 x 64: 0.024 ms (0.092; 0.026 with tiles of 128).
#     384 x 128 x 128 x 64: 0.027 ms (0.079; 0.031).
#     32 x 1024 x 1024 x 64, causal: 0.053 ms (0.299; 0.059).
#     32 x 1024 x 1024 x 128: 0.120 ms (0.535).
# Tiles of 64 keys, or of fewer queries per subgroup, are slower, except where few workgroups leave a GPU idle. Separate tiles for
# keys and values, both in flight, need fewer barriers. They are slower too: 0.149 and 0.176 ms for the first and the last of
# these.
_FLASH_MATRICES = tuple(
    use(FlashMatrices(*it), *(bounds or (Bound("rows", 17),)))
    for it, bounds in (
        ((128, 32, 4, 64), (Bound("rows", 1024), Bound("keys", 1536), Bound("workgroups", 200))),
        ((64, 32, 4, 64), (Bound("rows", 17), Bound("workgroups", 128))),
        ((32, 64, 2, 64), ()),
        ((64, 32, 4, 128), ()),
        ((64, 32, 4, 256), ()),
        ((32, 32, 2, 64), ()),  # fits 16 KiB of workgroup memory
        ((32, 16, 2, 128), ()),
        ((16, 16, 1, 256), ()),
    )
)

# An invocation unpacks packed weights one word at a time, so that neighbours read neighbours, also of the other operand. A column
# is shared by as many invocations as it has words, so that a short column is read at once. If columns alone occupy an H200, fewer
# invocations share one: 30 us for 1 x 2048 x 32768 with weights of 4 bits instead of 39.
_PACKED = (
    # One row rounded to 8 bits. Every invocation rounds its run again. Times include the 5.5 us of timestamps; without rounding
    # in brackets. Gate and up of 2048 x 8192 in one kernel take 14.0 us (18.3), 8192 x 2048 takes 10.9 (13.7). 2048 x 2048 takes
    # 7.7 (8.4), 2048 x 32768 takes 21.7 (26.4).
    use(PackedRows(1, 32, 1, 1, 1, dots=1), Bound("n", 16384, None, known=True), Bound("words", None, 256)),
    use(PackedRows(1, 128, 1, 1, 1, dots=1), Bound("n", 8192, None, known=True), Bound("words", 128, 256)),
    *(
        use(PackedRows(1, parts, 1, 1, 1, dots=1), Bound("words", parts if parts > 32 else None))
        for parts in (256, 128, 64, 32)
    ),
    use(PackedRows(1, 32, 1, 1, 1), Bound("n", 8192, None, known=True), Bound("words", None, 256)),
    *(
        use(
            PackedRows(rows, parts, 1, steps, 1), *_EXACTLY[rows], Bound("words", parts * steps if parts > 32 else None)
        )
        for rows, steps in ((1, 1), (2, 2), (4, 1))
        for parts in (256, 128, 64, 32)
    ),
    # More rows are processed eight at a time, which read the weights from a cache again. With weights of 4 bits, 8 x 2048 x 8192
    # takes 23 us (tiles: 76). 32 x 8192 x 2048 takes 68 (84), and 64 x 8192 x 2048 takes 122 (178).
    use(PackedRows(8, 64, 1, 1, 1, tiles=4), Bound("words", 512)),
    use(PackedRows(8, 32, 1, 1, 1, tiles=16), Bound("n", None, 4095, known=True)),
    use(PackedRows(8, 32, 1, 1, 1, tiles=8)),
)

# A product of few rows is bound by reading the other operand. Neighbours should load at least 32 bytes together, and there should
# be some hundred workgroups of many invocations.
#
# With bench/rows.py on an H200, one row by 4096 x 11008 takes 88 us in f32 and 33 in f16 (128 and 50 with 256 invocations each).
# By 8192 x 2048 in f16 it takes 14 (24), and transposed 12 (24). For halves more rows are loaded at a time: two products of 2048
# x 8192 in one kernel take 28.5 us (30.6), 2048 x 32768 takes 41 (51).
_ROWS = tuple(
    use(RowProduct(rows, columns4, steps, threads), *_EXACTLY[rows], _K_256, *bounds)
    for rows in (1, 2, 4)
    for columns4, steps, threads, bounds in (
        (4, 1, 256, (Bound("transposed", 1), _N_4096)),
        (1, 1, 256, (Bound("transposed", 1),)),
        (16, 2, 512, (*_NARROW, _N_4096)),
        (8, 1, 512, _NARROW),
        (16, 2, 512, (_TO_16_BITS, Bound("n", 16384, None, known=True))),
        (8, 4, 512, (_TO_16_BITS, _N_4096)),
        (8, 2, 512, (_N_4096,)),
        # Few workgroups, of more invocations: in a decoder of f16 one row by 8192 x 2048 takes 17.9 us (18.9), and by 2048 x 3072
        # 10.8 (11.4).
        (8, 2, 1024, (_TO_16_BITS, _M_1, Bound("n", 2304, None, known=True))),
        (4, 2, 1024, (_TO_16_BITS, _M_1, Bound("k", 4096, None, known=True))),
        (4, 2, 512, ()),
        # for adapters with at most 256 invocations, like the next ones
        (16, 2, 256, (_AS_IS, Bound("n", 8192, None, known=True))),
        (16, 2, 256, _NARROW),
        (8, 2, 256, ()),
    )
)

GPU: Choices = (
    *_MATRICES,
    *_PACKED,
    *_ROWS,
    # Many rounded rows. 1024 x 8192 x 2048 with weights of 4 bits takes 0.49 ms. Tiles of 128 x 128 take 0.52, tiles of 64 x 64
    # take 0.64, and without rounding it takes 0.79. 1024 x 2048 x 3072 takes 0.21 ms (0.27, 0.215, 0.33).
    use(DotTile(64, 128, 8, 8), Bound("workgroups", 96)),
    use(DotTile(64, 64, 8, 4), Bound("workgroups", 96)),
    # The largest tiles come first, each if there are enough workgroups to occupy the GPU. The smallest one serves the rest.
    # Measured with bench/kernels.py on an H200: 47 TFLOP/s for 4096 x 4096 x 4096, 33 for 1024 (22 with tiles of 64 x 64). 1576 x
    # 768 x 3072 reaches 38 (27). 48 x 1536 x 384 has four times the speed of a 32 x 32 tile without slices.
    #
    # If the number of the largest tiles matches what its 132 units run at once, or in two rounds, no unit idles. 512 x 2048 x
    # 8192 in f16 takes 0.40 ms (0.48 with the next tile). 1024 x 8192 x 2048 takes 0.82 (0.90), and 1576 x 768 x 2304 takes 0.145
    # (0.154).
    #
    # Packed weights are loaded in whole words, which these tiles share evenly. With weights of 4 bits, 1024 x 2048 x 8192 and
    # 1024 x 8192 x 2048 take 0.82 ms (0.84 and 0.90 with the third tile). 4096 x 2048 x 8192 takes 3.2 ms (in f16: 3.1).
    *(use(Tile(128, 128, 32, 8, 8, 1, unrolled=32), _WORDS, Bound("workgroups", *it)) for it in (_ONCE, (216, None))),
    use(Tile(128, 64, 16, 8, 8, 1, unrolled=16), _WORDS, Bound("workgroups", 256)),
    use(Tile(64, 128, 16, 8, 8, 1, unrolled=16), _WORDS, Bound("workgroups", 120)),
    # Few tiles with a short k, such as 1 x 1 convolutions of small images, use twice as many workgroups. ShuffleNet v2, batch 16,
    # takes 0.78 ms (0.84), RegNetY-1.6GF, batch 8, takes 2.63 (2.70), MobileNet v3, batch 16, takes 1.14 (1.17).
    use(
        Tile(32, 64, 16, 4, 8, 2, unrolled=16),
        _PLAIN,
        Bound("k", None, 1024, known=True),
        Bound("workgroups", 192, 500),
    ),
    *(
        use(Tile(128, 128, 8, 8, 8, 1, unrolled=8), _PLAIN, _N_65, Bound("workgroups", *it))
        for it in (_ONCE, _TWICE, (512, None))
    ),
    use(Tile(64, 64, 16, 8, 8, 2, unrolled=16), _PLAIN, _N_65, Bound("workgroups", *_THRICE)),
    use(Tile(64, 128, 8, 8, 8, 1, unrolled=8), _PLAIN, _N_65, Bound("workgroups", 256)),
    # Few columns, such as the channels of large images: 106 us for 50176 x 576 x 64 (112).
    use(Tile(64, 64, 8, 8, 8, 1, unrolled=8), _PLAIN, Bound("n", 33, 64), Bound("workgroups", 512)),
    # With a short k, more invocations with fewer sums each hide the loads of a residual. MobileNet v3, batch 16, takes 1.09 ms
    # (1.20), ShuffleNet v2 takes 0.75 (0.83), RegNetY-1.6GF, batch 8, takes 2.75 (2.82).
    use(Tile(64, 64, 16, 4, 4, 1, unrolled=16), _PLAIN, Bound("k", None, 255, known=True), Bound("workgroups", 96)),
    use(Tile(64, 64, 16, 8, 8, 2, unrolled=16), Bound("workgroups", 96)),
    use(Tile(32, 64, 16, 4, 4, 2), Bound("workgroups", 96)),
    use(Tile(16, 32, 16, 4, 4, 8)),
    use(Tile(16, 32, 16, 4, 4, 4)),  # fits 16 KiB of workgroup memory
    # Products with few tiles leave most of a large GPU idle. On an H200, split into parts: 0.21 ms for 1576 x 3072 x 768 (0.32).
    # ResNet-50, batch 16, takes 6.1 ms (7.4), GPT-2 with 512 tokens 5.3 (6.5); with 1500 tiles 5.9 and 5.7. The extra writes are
    # small compared to what a GPU with its own memory reads. Other GPUs have fewer units to occupy.
    #
    # A product with matching tiles is not split: 0.064 ms for 512 x 768 x 3072 (0.073), 0.098 for 12544 x 1152 x 128 (0.105). 512
    # x 768 x 768 takes 8 us of an H100's matrix units at once and 13 in parts. For bytes, 784 x 4608 x 512 takes 27 us at once
    # and 37 in two parts.
    use(SplitK(1, 1), Bound("matrices", 2)),
    use(SplitK(1, 1), Bound("matrices", 1), Bound("tiles", 132)),
    use(SplitK(264, 1536), Bound("matrices", 1)),
    use(SplitK(1, 1), Bound("discrete", 1), Bound("tiles", *_THRICE)),
    use(SplitK(1100, 256), Bound("discrete", 1)),
    use(SplitK(96, 512)),
    # An H200 sums 8192 x 8192 f32 over the first axis in 1.57 ms with a workgroup per row, which loads a cache line for each
    # element. It runs 270,000 invocations at once.
    use(RowsAcross(1, 256), Bound("rows", 1 << 13)),
    # Shorter rows, such as images of 14 x 14, are as fast in one dispatch as in two: RegNetY takes 2.9 ms instead of 3.0.
    use(ColumnSplits(1 << 18, 64), Bound("elements", 1 << 18, known=True), Bound("columns", 256, known=True)),
    # One invocation per short row, one workgroup per long one. Few long rows, such as the logits of a token, use the largest
    # workgroups, since a GPU would otherwise wait for loads.
    use(Rows(1, 64), Bound("columns", None, 32)),
    use(Rows(1024, 1), Bound("columns", 4096), Bound("rows", None, 64)),
    use(Rows(1024, 1), Bound("columns", 16384), Bound("rows", None, 132)),
    use(Rows(256, 1), Bound("columns", 2048)),
    use(Rows(64, 1)),
    # Workgroups with little work make a GPU bound by launching them. An H200 computes 8192 x 8192 f32 at 0.79 TB/s with 64
    # elements per workgroup, 2.97 with 1024, 3.85 with 2048 in two steps. Small tensors need as many workgroups as possible.
    use(Grid(256, 2, 8), Bound("size", 1 << 22)),
    use(Grid(256), Bound("size", 1 << 18, known=True)),
    use(Grid(64)),
    use(Vectors(4)),
    # ResNet-50, batch 16, on an H200: 4.8 ms, and 6.0 with channels first.
    use(ChannelsLast(1), Bound("discrete", 1)),
    use(Depthwise(64, 0)),
    use(DepthwiseLast(64)),
    # RegNetY-1.6GF, batch 8, on an H200: 2.8 ms, and 3.1 as products with channels first.
    use(GroupedLast(64, 4)),
    # Each workgroup reads the weights from a cache; the workgroups of a row read its image. On an H200 RegNetY-1.6GF, batch 8,
    # takes 2.29 ms with 2 workgroups per image (2.52 as reductions and products). With all blocks fused it takes 2.33 with 1,
    # 2.29 with 2 and 2.25 with 4. EfficientNet-B0, batch 16, takes 1.59 (1.88).
    *(
        use(
            SqueezeExcite(fused, threads, splits),
            Bound("rows", None, rows),
            Bound("weights", None, 1 << 17),
            *((Bound("image", None, 1 << 17, known=True),) if fused == 3 else ()),
        )
        for threads in (1024, 256)  # for adapters with at most 256 invocations
        for splits, rows in ((4, 8), (2, 256))
        for fused in (3, 2)
    ),
    # 2.35 and 1.67 ms with a separate kernel that scales the image.
    use(GatedRows(1), Bound("n", None, 512)),
    # Without fusion, attention needs memory and four times the scores in traffic. On an H200, driver 580.159.04, heads of 128 in
    # f32 (32 x 1024 x 1024) take 0.56 ms, like the fused kernel. Heads of 64 (16 x 2048 x 2048) take 0.77, where the fused one
    # takes 0.59.
    use(AttentionForm(1)),
    # Attention. Few rows have little work per key, and need as many workgroups as can load concurrently. The map that combines
    # the parts takes as long for 64 of them as the attention itself: with 8 heads of 4,000 keys 26 us (32).
    use(SplitKeys(256, 8, 128, 256), Bound("rows", None, 8), Bound("batch", None, 15)),
    use(SplitKeys(512, 8, 64), Bound("rows", None, 8)),
    use(SplitKeys(512, 8, 1024)),
    use(FlashRows(1, 256, 512), Bound("splits", None, 1)),
    use(FlashRows(2, 256, 512), Bound("splits", None, 1), Bound("per", 2)),
    use(FlashRows(4, 256, 512), Bound("splits", None, 1), Bound("per", 3)),
    use(FlashRows(8, 256, 512), Bound("splits", None, 1)),
    use(FlashRows(1, 256)),
    use(FlashRows(2, 256), Bound("per", 2)),
    use(FlashRows(4, 256), Bound("per", 3)),
    use(FlashRows(8, 256)),
    use(FlashRows(8, 128)),  # fits 16 KiB of workgroup memory
    use(FlashRows(4, 256)),
    # Matrix units.
    *_FLASH_MATRICES,
    # Tiles for narrow heads come first. For each width, those that need more workgroups come first, and those that fit 16 KiB of
    # workgroup memory last. Wider heads have fewer queries per tile.
    use(FlashTile(8, 16, 2, 1, 1, 1, 16, 32), Bound("workgroups", 256)),
    use(FlashTile(8, 8, 1, 1, 1, 2, 8, 16), Bound("workgroups", 96)),
    use(FlashTile(8, 2, 1, 1, 1, 4, 16, 32)),
    use(FlashTile(8, 8, 1, 1, 1, 2, 8, 16)),
    # Heads of 64 on an H200. 16 x 2048 x 2048 takes 0.96 ms, and 1.47 with the 128 invocations below. 12 x 512 x 512 takes 0.073
    # (0.097 with the second tile), 384 x 128 x 128 takes 0.122 (0.205).
    use(FlashTile(16, 16, 2, 1, 1, 1, 16, 32), Bound("workgroups", 224)),
    # GPT-2 in halves, 512 tokens: 4.5 ms instead of 4.6.
    use(FlashTile(16, 4, 1, 1, 1, 1, 16, 32), Bound("workgroups", 256, 512), dtype=DType.FLOAT16),
    use(FlashTile(16, 16, 1, 1, 1, 1, 32, 64), Bound("workgroups", 64)),
    use(FlashTile(16, 8, 2, 1, 1, 1, 16, 32), Bound("workgroups", 256)),
    use(FlashTile(16, 8, 1, 1, 1, 1, 8, 16), Bound("workgroups", 96)),
    use(FlashTile(16, 2, 1, 1, 1, 4, 16, 16)),
    use(FlashTile(16, 8, 1, 1, 1, 1, 8, 16)),
    use(FlashTile(8, 16, 2, 1, 3, 1, 16, 16), Bound("workgroups", 256)),
    use(FlashTile(8, 8, 1, 1, 3, 2, 8, 8), Bound("workgroups", 96)),
    use(FlashTile(8, 2, 1, 1, 3, 4, 16, 8)),
    use(FlashTile(8, 8, 1, 1, 3, 2, 8, 8)),
    # Heads of 128: 0.95 ms instead of 1.64 (32 x 1024 x 1024).
    use(FlashTile(16, 16, 2, 1, 2, 1, 16, 16), Bound("workgroups", 192)),
    use(FlashTile(16, 16, 1, 1, 2, 1, 32, 32), Bound("workgroups", 96)),
    use(FlashTile(16, 8, 2, 1, 2, 1, 16, 16), Bound("workgroups", 256)),
    use(FlashTile(16, 8, 1, 1, 2, 1, 8, 8), Bound("workgroups", 96)),
    use(FlashTile(16, 2, 1, 1, 2, 4, 16, 8)),
    use(FlashTile(16, 8, 1, 1, 2, 1, 8, 8)),
    use(FlashTile(16, 8, 2, 1, 3, 1, 16, 8), Bound("workgroups", 256)),
    use(FlashTile(16, 8, 1, 1, 3, 1, 8, 8), Bound("workgroups", 96)),
    use(FlashTile(16, 2, 1, 1, 3, 4, 16, 4)),
    use(FlashTile(16, 8, 1, 1, 3, 1, 8, 8)),
    use(FlashTile(16, 16, 1, 1, 4, 1, 16, 8), Bound("workgroups", 256)),
    use(FlashTile(16, 8, 1, 1, 4, 1, 8, 4), Bound("workgroups", 96)),
    use(FlashTile(16, 2, 1, 1, 4, 4, 16, 4)),
    use(FlashTile(16, 8, 1, 1, 4, 1, 8, 4)),
)

SOFTWARE: Choices = (
    # One invocation per four columns: reusing the parameters of blocks is worth most there, and no reduction is needed.
    use(PackedRows(1, 1, 16, 1, 4)),
    use(PackedRows(4, 1, 16, 1, 4)),
    # On lavapipe loads cost more than arithmetic, and workgroup memory is no faster than the cache. So operands are read
    # directly: 16 GFLOP/s on two cores, where the best tile in workgroup memory reached 7 (45 x 384 x 1536, Mesa 22.3).
    use(DirectProduct(4), Bound("m", None, 4)),
    use(DirectProduct(8)),
    # One invocation per row is fastest once there are enough rows for the lanes of both cores.
    use(Rows(1, 16), Bound("columns", None, 4096), Bound("rows", 32)),
    use(Rows(1024, 1), Bound("columns", 1 << 20)),
    use(Rows(256, 1), Bound("columns", 65536)),
    use(Rows(64, 1)),
    # It forms its own vectors, from neighbouring invocations.
    use(Grid(64)),
    use(Vectors(1)),
    use(DirectConvolution(2), Bound("pixels", None, 128)),
    use(DirectConvolution(8)),
    # Values that are uniform in a workgroup, such as the weights of its plane, are loaded once.
    use(Depthwise(8, 1)),
    use(DepthwiseLast(8)),
    # Attention with scores that no buffer can hold.
    use(AttentionForm(1)),  # used only if scores cannot be stored
    *(use(FlashTile(8, 2, 1, 1, values4, 1, 8, 16), Bound("rows", None, 8)) for values4 in (1, 2, 4, 8)),
    use(FlashTile(8, 8, 1, 1, 1, 1, 8, 16)),
    use(FlashTile(8, 8, 1, 1, 2, 1, 8, 16)),
    use(FlashTile(8, 8, 1, 1, 4, 1, 8, 8)),
    use(FlashTile(8, 8, 1, 1, 8, 1, 8, 4)),
)

# A Target for browsers without a GPU tries these first: SwiftShader loads one element at a time, and takes a second to compile a
# barrier. Its vectors are four invocations. 64 x 384 x 1536 takes 48 ms of a CPU with 8 x 8 sums. It takes 39 with 16 x 8, which
# compile twice as long, 67 with 8 x 4, and 185 in `matmul_direct`. The last choices serve nearly every run. They are compiled
# while weights are loading (`web/src/executable.ts`).
SWIFTSHADER: Choices = (
    use(PackedRows(1, 1, 16, 1, 4)),
    use(PackedRows(4, 1, 16, 1, 4)),
    use(RegisterProduct(2, 8, 4), Bound("m", None, 2)),
    use(RegisterProduct(8, 8, 4)),
    use(RegisterConvolution(8, 8, 4)),
    use(Rows(256, 1), Bound("columns", 8193)),
    use(Rows(1, 4)),
)


def check_choices(choices: Choices) -> None:
    """Raises ValueError for the first choice that a target cannot have."""
    for choice in choices:
        parameters_of(choice)
        if choice.kernel not in {it.kernel for it in GPU}:
            raise ValueError(f"{choice}: {choice.kernel!r} is for software adapters, which cannot be tuned")
