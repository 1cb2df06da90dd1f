"""Fixtures of the plugin's tests."""

from __future__ import annotations

from fakes import fake

__all__ = ["fake"]
