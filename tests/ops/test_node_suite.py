"""The whole ONNX backend node suite through the compiler alone: every case is right or is refused for a reason listed here.

`tests/conformance` runs the cases in scope through ONNX Runtime and the plugin.
"""

from __future__ import annotations

import re

import pytest

from tests import targets
from tests.conformance import cases, scope
from tests.conformance.conftest import Outcomes
from tests.conformance.worker import Setup

SETUPS = tuple(Setup("compiler", way.target, way.int64) for way in targets.EVERY_PAIR)

# What a kernel cannot do, or should not.
REFUSED = {
    "types without a kernel": r"tensors of type \w+ are not supported|(of|element) type (float64|string|\d+)|string",
    "sequences and optional values": r"is not a tensor|is a sequence|the rank of .* is unknown|the type of .* is unknown",
    "control flow": r"control flow runs on the CPU",
    "sizes that depend on data": r"so the shape (of the result )?depends on data",
    "random numbers": r"dropout in training mode|attribute ratio=",
    "training": r"batch normalisation in training mode",
    "values that models hold as initializers": r"which this kernel does not support|is not a constant|must be known before",
    "no kernel": r"no kernel for [\w.]+$",
}


def _cases() -> list[object]:
    chosen = [case for case in cases.index().values() if scope.TYPES.issuperset(case.types)]
    return [
        pytest.param(setup, case.name, id=f"{case.name.removeprefix('test_')}-{setup.target}-{setup.int64}")
        for setup in SETUPS
        for case in chosen
        if setup.int64 == "native" or scope.wide(case)
    ]


@pytest.fixture(autouse=True)
def way() -> None:
    """Each case's setup says what it runs with."""


@pytest.mark.exhaustive
@pytest.mark.parametrize(("setup", "case"), _cases())
def test_case(setup: Setup, case: str, outcomes: Outcomes) -> None:
    row = outcomes.row(setup, case)
    if row["status"] == "refused":
        reason = next((name for name, pattern in REFUSED.items() if re.search(pattern, row["detail"])), None)
        assert reason is not None, row["detail"]
        operators = set(cases.index()[case].nodes)
        assert reason != "no kernel" or not operators <= scope.IN_SCOPE, row["detail"]
        pytest.skip(f"{reason}: {row['detail']}")
    if case in scope.DISPUTED:
        assert row["status"] == "wrong", f"right now; take it off the list ({scope.DISPUTED[case]})"
    else:
        assert row["status"] in ("right", "random"), row["detail"]
