"""Rules on the lowered graph, where an algorithm has one spelling: views have vanished, scale, mask and cast are maps.

rule            what a rule is, and what it answers
engine          asks every rule about every call, and puts replacements in place
pattern         what graphs spell with maps and reductions of rows, written as an expression
spelled         normalisations and softmax that are written out with reductions
attention       product, maps, softmax, product: one kernel without the matrix of scores
squeeze_excite  the average of an image and two small products behind it: one kernel
gated           images that are scaled by what is made of them: products scale them where they load them
visible_keys    attention whose mask is a constant that says positions: the kernel gets these
band            constants that say positions
extremes        the best of rows and their places
picked          norms of rows that are picked for them
split_k         products of few tiles, cut along k
operands        the operands of matrix products
between         what lies between two calls: the maps, and the other readers of their results
"""

from .engine import rewrite as rewrite
