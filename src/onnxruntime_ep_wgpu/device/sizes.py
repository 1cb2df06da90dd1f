"""Sizes that memory is had in: the one scheme for buffers, intermediate values and device addresses.

Invariants: a size class is at most an eighth larger than what is asked for, or 255 bytes; asking for a size class gives
just it, so that what one layer has rounded no other one rounds again.
"""

from __future__ import annotations

# Tensors lie at multiples of it; it is also WebGPU's default offset alignment.
GRAIN = 256
CLASSES = 8  # per power of two


def size_class(nbytes: int) -> int:
    """`nbytes` rounded up so that a similar size finds the same memory: eight classes per power of two, 256 bytes at least."""
    step = max(GRAIN, 1 << (max(nbytes, 1) - 1).bit_length() >> CLASSES.bit_length())
    return max(1, -(-nbytes // step)) * step


def padded(nbytes: int) -> int:
    """What a buffer for just `nbytes` has: a multiple of 16 bytes, at least 16; kernels load four words at once."""
    return max(16, (nbytes + 15) & ~15)
