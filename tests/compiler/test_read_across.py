"""Maps of GPUs that read tensors across their rows go through a tile in workgroup memory: the same numbers, whatever else is read
alike, in another order, or as it lies."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from onnx.helper import make_node as node

from tests import targets
from tests.support import Runner, compile_model, make_model

ORDERS = list(permutations(range(3)))


way = targets.each(targets.Way("gpu"))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize("seed", range(12))
def test_a_sum_of_tensors_in_random_orders(seed: int, dtype: Any) -> None:
    """Some in one order, as the branches of a residual are, and each added to the sum of those before it or multiplied by it."""
    random = np.random.default_rng(seed)
    shape = tuple(int(n) for n in random.integers(9, 70, 3))
    common = ORDERS[int(random.integers(1, len(ORDERS)))]
    orders = [common, common, *(ORDERS[int(k)] for k in random.integers(0, len(ORDERS), 3))]
    random.shuffle(orders)
    nodes, arrays, total, last = [], {}, None, ""
    for k, order in enumerate(orders):
        inner = tuple(shape[order.index(axis)] for axis in range(3))
        arrays[f"x{k}"] = array = random.integers(-3, 4, inner).astype(dtype)
        nodes.append(node("Transpose", [f"x{k}"], [f"t{k}"], perm=order))
        turned = array.transpose(order)
        if total is None:
            total, last = turned, f"t{k}"
            continue
        kind, follow = (("Add", np.add), ("Mul", np.multiply))[int(random.integers(2))]
        nodes.append(node(kind, [last, f"t{k}"], [f"y{k}"]))
        total, last = follow(total, turned), f"y{k}"
    program = compile_model(make_model(nodes, {n: (dtype, list(a.shape)) for n, a in arrays.items()}))
    np.testing.assert_array_equal(Runner(program)(*arrays.values())[-1], total)
