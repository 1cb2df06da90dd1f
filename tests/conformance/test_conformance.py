"""Every case of the ONNX backend node suite that is in scope runs on WebGPU, or says why not, and is right."""

from __future__ import annotations

import pytest

from . import cases, scope
from .conftest import Outcomes
from .worker import Setup

RIGHT = ("right", "random")
NATIVE, PAIR = Setup(int64="native"), Setup(int64="pair")


def _cases() -> list[object]:
    """The first case of every operator is in `make test`, with each way to calculate 64-bit integers."""
    chosen = [case for case in cases.index().values() if scope.in_scope(case)]
    wide = [case for case in chosen if scope.wide(case)]
    found, seen = [], set()
    for setup, part in ((NATIVE, chosen), (PAIR, wide)):
        for case in part:
            marks = [pytest.mark.exhaustive] if (setup, case.operator) in seen else []
            seen.add((setup, case.operator))
            found.append(
                pytest.param(setup, case.name, id=f"{case.name.removeprefix('test_')}-{setup.int64}", marks=marks)
            )
    return found


@pytest.mark.every_case
@pytest.mark.parametrize(("setup", "case"), _cases())
def test_case(setup: Setup, case: str, outcomes: Outcomes) -> None:
    row = outcomes.row(setup, case)
    if row["status"] == "refused":
        pytest.skip(f"onnxruntime refuses the model: {row['detail']}")
    if row["cpu"]:
        assert row["reasons"], f"on the CPU without a reason: {row['cpu']}"
        assert not scope.unaccepted(row["reasons"])
    if not row["gpu"] and row["status"] not in RIGHT:
        pytest.skip(f"the CPU provider's own result: {row['detail']}")
    if case in scope.DISPUTED:
        assert row["status"] == "wrong", f"right now; take it off the list ({scope.DISPUTED[case]})"
    else:
        assert row["status"] in RIGHT, row["detail"]
