"""Views address the same elements as numpy does, through any sequence of transpose, reshape, slice and expand."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxruntime_ep_wgpu.compiler.dims import symbol
from onnxruntime_ep_wgpu.compiler.ir import Tensor, View, broadcast_shapes
from onnxruntime_ep_wgpu.program.dtypes import DType


def addresses(view: View) -> np.ndarray:
    """The flat index of every element of a view with static dims."""
    total = np.full((1,) * view.rank, view.offset, np.int64)
    for axis, factors in enumerate(view.axes):
        extent = view.shape[axis]
        digits, below = np.zeros(extent, np.int64), 1
        index = np.arange(extent)
        for factor in reversed(factors):
            digits += index // below % factor.extent * factor.stride
            below *= factor.extent
        total = total + digits.reshape([-1 if k == axis else 1 for k in range(view.rank)])
    return np.broadcast_to(total, view.shape)


def splits(draw, size: int) -> tuple[int, ...]:
    shape, rest = [], size
    while rest > 1 and len(shape) < 3:
        divisors = [d for d in range(1, rest + 1) if rest % d == 0]
        shape.append(draw(st.sampled_from(divisors)))
        rest //= shape[-1]
    return (*shape, rest)


@settings(max_examples=300)
@given(st.data())
def test_views_address_what_numpy_does(data):
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)))
    view = View.of(Tensor(DType.FLOAT32, shape))
    array = np.arange(int(np.prod(shape))).reshape(shape)
    for _ in range(data.draw(st.integers(1, 5))):
        step = data.draw(st.sampled_from(["permute", "reshape", "slice", "expand"]))
        if step == "permute":
            order = data.draw(st.permutations(range(view.rank)))
            view, array = view.permute(order), array.transpose(order)
        elif step == "reshape":
            wanted = splits(data.draw, array.size)
            other = view.reshape(wanted)
            if other is None:
                continue  # needs a copy; the builder makes one
            view, array = other, array.reshape(wanted)
        elif step == "slice":
            axis = data.draw(st.integers(0, view.rank - 1))
            extent = array.shape[axis]
            start = data.draw(st.integers(0, extent - 1))
            by = data.draw(st.sampled_from([1, 2, -1]))
            most = (extent - start + by - 1) // by if by > 0 else start + 1
            length = data.draw(st.integers(1, most))
            other = view.slice(axis, start, by, length)
            if other is None:
                continue
            index = [slice(None)] * view.rank
            stop = start + by * length
            index[axis] = slice(start, stop if stop >= 0 else None, by)
            view, array = other, array[tuple(index)]
        elif array.size < 500:
            wanted = (2, *(3 if d == 1 else d for d in array.shape))
            view, array = view.expand(wanted), np.broadcast_to(array, wanted)
        assert view.shape == array.shape
        np.testing.assert_array_equal(addresses(view), array)


def test_splitting_heads_and_swapping_axes_is_a_view_and_so_is_merging_them_again():
    batch, sequence = symbol("batch"), symbol("sequence")
    x = View.of(Tensor(DType.FLOAT32, (batch, sequence, 384)))
    heads = x.reshape((batch, sequence, 12, 32)).permute((0, 2, 1, 3))
    merged = heads.permute((0, 2, 1, 3)).reshape((batch, sequence, 384))
    assert merged is not None and merged.is_whole
    assert heads.reshape((batch * 12, sequence, 32)) is not None


def test_a_reshape_that_needs_a_copy_says_so():
    rows, columns = symbol("rows"), symbol("columns")
    transposed = View.of(Tensor(DType.FLOAT32, (rows, columns))).permute((1, 0))
    assert transposed.reshape((rows, columns)) is None


def test_operands_broadcast_as_in_numpy():
    n = symbol("n")
    assert broadcast_shapes((n, 1, 5), (3, 1)) == (n, 3, 5)
    assert broadcast_shapes((), (2,)) == (2,)
