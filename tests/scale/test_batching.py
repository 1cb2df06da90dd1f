"""Requests are joined along a first axis that all inputs and outputs share; what has another one is named."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.scale.batching import BatchAxis

from .made_up import Session

TWO = [("ids", ["batch", "sequence"]), ("mask", ["batch", "sequence"])]
OUT = [("scores", ["batch", 3])]


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ([], OUT, "the model has no inputs"),
        (
            [("x", [4, 2])],
            OUT,
            r"input 'x' of shape \[4, 2\] cannot be batched: its first axis is not a symbolic dimension",
        ),
        ([("x", [None, 2])], OUT, r"input 'x' .* not a symbolic dimension"),
        ([*TWO, ("scale", [])], OUT, r"input 'scale' of shape \[\] cannot be batched"),
        (
            [*TWO, ("past", ["layers", "batch"])],
            OUT,
            "input 'past' .* begins with 'layers', and input 'ids' with 'batch'",
        ),
        (TWO, [*OUT, ("mean", [1])], r"output 'mean' of shape \[1\] cannot be batched"),
        (TWO, [("scores", ["sequence", 3])], "output 'scores' .* begins with 'sequence', and input 'ids' with 'batch'"),
    ],
)
def test_what_cannot_be_batched_is_named(inputs: Any, outputs: Any, message: str) -> None:
    with pytest.raises(webgpu_ep.BatchError, match=f"{message}.*; max_batch=1 runs each request alone"):
        BatchAxis(Session(inputs=inputs, outputs=outputs))


def test_outputs_that_no_request_gets_need_no_batch_axis() -> None:
    session = Session(inputs=TWO, outputs=[*OUT, ("mean", [1])])
    assert BatchAxis(session, ["scores"]).name == "batch"


def feeds(rows: int, length: int = 5, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"mask": np.ones((rows, length), bool), "ids": rng.integers(0, 99, (rows, length))}


@pytest.mark.parametrize("rows", [[1], [1, 1, 1], [3, 0, 2, 7], [0, 0]])
def test_what_is_joined_and_taken_apart_is_the_same(rows: list[int]) -> None:
    axis = BatchAxis(Session(inputs=TWO, outputs=[("ids", ["batch"]), ("mask", ["batch"])]))
    several = [axis.measure(feeds(count, seed=k))[0] for k, count in enumerate(rows)]
    joined = axis.join(several)
    assert {name: len(array) for name, array in joined.items()} == {"ids": sum(rows), "mask": sum(rows)}
    for got, wanted in zip(axis.split([joined["ids"], joined["mask"]], rows), several, strict=True):
        np.testing.assert_array_equal(got[0], wanted["ids"])
        np.testing.assert_array_equal(got[1], wanted["mask"])


def test_a_result_does_not_keep_the_memory_of_its_batch() -> None:
    axis = BatchAxis(Session(inputs=TWO, outputs=OUT))
    assert all(one.base is None for (one,) in axis.split([np.zeros((5, 3))], [2, 3]))


def test_requests_of_other_types_or_sizes_are_of_another_kind() -> None:
    axis = BatchAxis(Session())
    arrays = [
        np.zeros((3, 2), np.float32),
        np.zeros((3, 3), np.float32),
        np.zeros((3, 2), np.float64),
        np.zeros((3, 2), ml_dtypes.float8_e4m3fn),
        np.zeros((3, 2), ml_dtypes.float8_e5m2),
        np.zeros((3, 2, 1), np.float32),
    ]
    kinds = [axis.measure({"x": array})[1] for array in arrays]
    assert len(set(kinds)) == len(arrays)
    assert axis.measure({"x": np.ones((9, 2), np.float32)})[1:] == (kinds[0], 9)


@pytest.mark.parametrize(
    ("request_feeds", "message"),
    [
        ({"ids": np.zeros((1, 2))}, "lacks 'mask'; the inputs are 'ids', 'mask'"),
        (feeds(1) | {"token": 0}, "has 'token', which is not an input"),
        ({"ids": np.zeros((1, 2)), "masks": 0}, "lacks 'mask' and has 'masks', which is not an input"),
        (
            {"ids": np.zeros((1, 2)), "mask": np.zeros((2, 2))},
            "differ in the size of 'batch': 'ids' has 1, 'mask' has 2",
        ),
        ({"ids": np.zeros((1, 2)), "mask": 1}, r"input 'mask' is a scalar and has no axis 'batch'"),
    ],
)
def test_inputs_that_are_no_request_are_named(request_feeds: Any, message: str) -> None:
    with pytest.raises(webgpu_ep.InputError, match=message):
        BatchAxis(Session(inputs=TWO, outputs=OUT)).measure(request_feeds)


def test_an_output_without_all_rows_is_named() -> None:
    with pytest.raises(
        webgpu_ep.BatchError, match="output 'scores' has 4 rows for 5 of the inputs, although both begin"
    ):
        BatchAxis(Session(inputs=TWO, outputs=OUT)).split([np.zeros((4, 3))], [2, 3])
