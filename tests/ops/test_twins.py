"""Operators of com.microsoft that ONNX has under the same name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from onnxruntime_ep_wgpu.compiler.lower.ops import registry

from .compare import check, random

X = random(4, 5)
CASES: dict[str, list[tuple[list[np.ndarray], dict[str, Any]]]] = {
    "Pad": [
        ([X, np.array([1, 0, 0, 2]), np.array([7], np.float32)], {}),
        ([X, np.array([[1, 0, 0, 2]])], {}),
        ([X, np.array([1, 0, 0, 2])], {"mode": "reflect"}),
        ([X, np.array([-1, 0, 0, 2])], {"mode": "edge"}),
    ],
    "GatherND": [([X, np.array([[1], [-1]])], {}), ([X, np.array([[1, 4], [-1, 0]])], {})],
    "GridSample": [([random(1, 2, 4, 5), np.tanh(random(1, 3, 2, 2))], {"mode": "bicubic", "align_corners": 1})],
    "Range": [([np.array(1.5, np.float32), np.array(7, np.float32)], {"constants": [0, 1]})],
    "Trilu": [([X, np.array(1)], {}), ([X], {"upper": 0})],
}


@pytest.mark.parametrize("op", CASES)
def test_an_operator_that_onnx_has_too(op: str) -> None:
    for arrays, how in CASES[op]:
        check(op, *arrays, domain=registry.MICROSOFT, **({"constants": [1]} if op == "Pad" else {}) | how)


def test_every_such_operator_of_the_cpu_provider_is_declared() -> None:
    found = {it.name for it in get_all_operator_schema() if it.domain == registry.MICROSOFT}
    ours = {name for domain, name in registry._OPERATORS if not domain}
    undeclared = {it for it in found & ours if registry.find(it, registry.MICROSOFT, 1) is None}
    assert undeclared == {"Unique"}  # its size depends on data
