"""Kernels for products and attention of one row, such as one token of a decoder. Each replaces several dependent dispatches.

In: groups in running order, finished. Out: the same groups, and before some products a kernel that runs if they have one
row; the replaced groups do not run then. In a product this small, waiting for another dispatch costs more than the arithmetic.
Therefore:

- Products of the same operand with equal numbers of columns become one kernel. Examples are gate and up, which meet in the
  epilogue, and keys and values.
- A root mean square between products becomes part of them. The product before it stores its rows times the gain, and sums of
  squares of every four elements. The products after it scale their sums with a factor computed from these.

For more rows nothing changes: arithmetic bounds such products, and their tiles need unmodified operands.

Invariant: a group is replaced only if its kernel fits into the target's bindings and stores all results of the group.

- `find`: selects products, and records the reason where none can be replaced.
- `product` and `norms`: the parts of a kernel.
- `assembled`: assembles the kernel.
- `appends`: does all of this for attention.
- `dependencies`: the data dependencies between groups.
"""

from .appends import append_within
from .find import add_one_row_kernels

__all__ = ["add_one_row_kernels", "append_within"]
