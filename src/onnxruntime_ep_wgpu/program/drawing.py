"""Operators that draw random numbers: no two of their runs, and no two of their nodes, have the same results."""

from __future__ import annotations

DRAWING = frozenset(
    {
        *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        "Dropout",  # in training
    }
)
