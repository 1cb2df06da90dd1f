"""Rules on the lowered graph, where every spelling of an algorithm has one form: views are gone; scales, masks and casts are
maps.

- `rule`: the type of a rule and of its result.
- `engine`: applies every rule to every call.
- `pattern`: expressions that match maps and row reductions.
- `spelled`: normalisations and softmax that are written out with reductions.
- `attention`: product, maps, softmax, product. One kernel without the matrix of scores.
- `squeeze_excite`: the average of an image and two small products after it. One kernel.
- `gated`: images that are scaled by a value computed from them. Products scale them on load.
- `visible_keys`: attention with a constant mask that depends only on positions. The kernel gets the positions.
- `band`: constants that depend only on positions.
- `extremes`: the extremes of rows and their indices. One kernel.
- `picked`: gathered rows and the norm after them. The norm gathers.
- `split_k`: products with few tiles, split along k.
- `operands`: the operands of matrix products.
- `between`: the maps between two calls, and other readers of their results.
"""

from .engine import rewrite as rewrite
