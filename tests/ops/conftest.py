"""The node suite's cases run in batches, as in `tests/conformance`."""

from tests.conformance.conftest import outcomes, pytest_collection_finish

__all__ = ["outcomes", "pytest_collection_finish"]
