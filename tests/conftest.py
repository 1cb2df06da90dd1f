"""What all tests share. `make test` leaves out what is marked `exhaustive`; `make test-all` runs everything."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "exhaustive: takes minutes and adds little; only in `make test-all`")
