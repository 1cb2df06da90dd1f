"""Operators that draw random numbers. Their results differ between runs and between nodes."""

from __future__ import annotations

DRAWING = frozenset(
    {
        *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        "Dropout",  # in training
    }
)
