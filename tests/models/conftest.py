"""Every model runs twice: with the adapter's own Target, and with that of a GPU, which has other kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import targets

WAYS = (targets.OWN, targets.Way("gpu", "pair"))


@pytest.fixture(autouse=True, params=WAYS, ids=lambda way: way.target)
def way(request: pytest.FixtureRequest) -> Iterator[targets.Way]:
    with targets.using(request.param):
        yield request.param
