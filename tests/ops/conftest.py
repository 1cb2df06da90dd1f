"""Every test runs twice: with the adapter's own Target, and with that of a GPU, which has other kernels.

The node suite's cases run in batches, as in `tests/conformance`.
"""

from __future__ import annotations

from tests import targets
from tests.conformance.conftest import outcomes, pytest_collection_finish

__all__ = ["outcomes", "pytest_collection_finish"]

# A test that asks for native integers or pairs by itself gets them; so all four combinations occur.
WAYS = (targets.OWN, targets.Way("gpu", "pair"))


way = targets.each(*WAYS)
