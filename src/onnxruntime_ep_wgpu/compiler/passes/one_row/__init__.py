"""Products and attention of one row, as a token of a decoder has: kernels for that size alone, each in place of several that wait
for each other.

In: groups in running order, finished. Out: the same, and beside some products the kernel that runs when they have one row; what it
stands for does not run then. A dispatch that waits for another one costs more than it does in so small a model, so

- products of one operand with as many columns are one kernel: gate and up, whose results meet in its epilogue, keys and values;
- a root mean square between products is in these: the one before stores its rows times the gain, and sums of squares of every
  four elements, and those behind multiply their sums by what follows from the latter.

For more rows everything stays as it is: products are bound by arithmetic there, and their tiles want their operands as they are.
Invariant: a group is replaced only where its kernel fits into the target's bindings, and all that it stored is stored.

`find` decides about products, and says why not; `product` and `norms` say what a kernel is made of, `assembled` makes it. `appends`
does all of this for attention; `dependencies` has which group waits for which.
"""

from .appends import append_within
from .find import of_one_row

__all__ = ["append_within", "of_one_row"]
