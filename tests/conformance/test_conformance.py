"""Every case of the ONNX backend node suite that is in scope runs on WebGPU and gives the suite's result."""

from __future__ import annotations

import pytest

from . import cases, scope
from .conftest import Outcomes
from .worker import Setup

NATIVE, PAIR = Setup(int64="native"), Setup(int64="pair")


def _cases() -> list[object]:
    chosen = [case for case in cases.index().values() if scope.in_scope(case)]
    wide = [case for case in chosen if scope.wide(case)]
    return [
        pytest.param(setup, case.name, id=f"{case.name.removeprefix('test_')}-{setup.int64}")
        for setup, part in ((NATIVE, chosen), (PAIR, wide))
        for case in part
    ]


@pytest.mark.parametrize(("setup", "case"), _cases())
def test_case(setup: Setup, case: str, outcomes: Outcomes) -> None:
    row = outcomes.row(setup, case)
    if row["status"] == "refused":
        pytest.skip(f"onnxruntime refuses the model: {row['detail']}")
    if case in scope.DISPUTED:
        assert row["status"] == "wrong", f"right now; take it off the list ({scope.DISPUTED[case]})"
    else:
        assert row["status"] in ("right", "random"), row["detail"]
    if case in scope.ON_CPU:
        assert row["cpu"], f"runs on WebGPU now; take it off the list ({scope.ON_CPU[case]})"
    else:
        assert not row["cpu"], f"on the CPU: {row['cpu']}; reasons: {row['reasons']}"
