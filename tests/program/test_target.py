"""What a Target says of matrix units: to Programs in files, and to adapters that are asked whether they run them."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Any

import pytest

from onnxruntime_ep_wgpu.program.reading import target_of
from onnxruntime_ep_wgpu.program.target import SUBGROUP_MATRIX, WEB_BASELINE, MatrixUnit, lack

UNIT = MatrixUnit(16, 16, 16, "f16", "f32", 32)
WITH = replace(WEB_BASELINE, features=frozenset({SUBGROUP_MATRIX}), matrices=(UNIT, replace(UNIT, n=8)))


def test_matrix_units_are_compared_as_a_set() -> None:
    assert lack(WITH, replace(WITH, matrices=WITH.matrices[::-1])) is None
    assert lack(WEB_BASELINE, WITH) is None
    assert lack(WITH, replace(WITH, matrices=())) == f"needs matrices of {UNIT}, which this adapter lacks"
    other = (UNIT, replace(UNIT, n=8, result="f16"))
    assert (
        lack(WITH, replace(WITH, matrices=other)) == f"needs matrices of {WITH.matrices[1]}, which this adapter lacks"
    )


def test_a_file_has_them_only_where_there_are_some() -> None:
    assert "matrices" not in WEB_BASELINE.as_json()
    assert target_of(WEB_BASELINE.as_json()) == WEB_BASELINE
    assert WITH.as_json()["matrices"][0] == [16, 16, 16, "f16", "f32", 32]
    assert target_of(WITH.as_json()) == WITH


def test_what_only_chooses_texts_does_not_change_how_graphs_are_lowered() -> None:
    assert replace(WITH, features=frozenset()).lowered == WITH.lowered != WEB_BASELINE.lowered


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, 0), (0, 257), (1, -8), (2, 16.0), (2, True), (5, 24), (5, 0), (5, "32"), (3, "f32"), (3, None), (3, ["f16"]),
     (4, "i32"), (4, {}), (4, "f64")],
)  # fmt: skip
def test_what_is_no_matrix_unit_is_refused(place: int, value: Any) -> None:
    row: list[Any] = list(astuple(UNIT))
    row[place] = value
    with pytest.raises(ValueError, match="matrix unit"):
        target_of({**WITH.as_json(), "matrices": [row]})


@pytest.mark.parametrize("found", [None, 1, {}, [1], [[]], [[16, 16, 16, "f16", "f32"]], [[16] * 7]])
def test_what_is_no_list_of_them_is_refused(found: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        target_of({**WITH.as_json(), "matrices": found})
