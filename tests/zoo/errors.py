"""What a builder raises."""

from __future__ import annotations


class MissingWeightsError(RuntimeError):
    """The package that holds a model's weights is not installed; the message is the command that installs it."""
