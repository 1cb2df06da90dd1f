"""Size classes of memory: one scheme for buffers, intermediate values and device addresses.

Invariants: a size class exceeds the requested size by at most an eighth, or by 255 bytes. The class of a size class is the same
size, so a size that one layer has rounded stays unchanged in the others.
"""

from __future__ import annotations

# The alignment of tensors, and WebGPU's default offset alignment.
GRAIN = 256
CLASSES = 8  # per power of two


def size_class(nbytes: int) -> int:
    """Rounds `nbytes` up so that similar sizes share memory: eight classes per power of two, at least 256 bytes."""
    step = max(GRAIN, 1 << (max(nbytes, 1) - 1).bit_length() >> CLASSES.bit_length())
    return max(1, -(-nbytes // step)) * step


def padded(nbytes: int) -> int:
    """The size of a buffer for exactly `nbytes`: a multiple of 16 bytes, at least 16, because kernels load four words at once."""
    return max(16, (nbytes + 15) & ~15)
