"""The polynomials of `wgsl/prelude/float.wgsl`: `python -m bench.fits` prints coefficients and their errors.

    python -m bench.fits            all fits
    python -m bench.fits exp atan   some

Each fit is the minimax polynomial of a smooth remainder, such as `(exp(r) - 1 - r) / r^2`. Its weight makes errors relative to
the whole function's value. The method is weighted least squares with Lawson's iteration in f64. Coefficients are rounded to f32
one at a time, lowest order first, and the others are fitted again. Out: coefficients, lowest order first, and the largest error
relative to the function in units of 2^-24.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
POINTS, ROUNDS = 4000, 60


@dataclass(frozen=True)
class Fit:
    """A fit of `remainder` on [low, high] by a polynomial of a degree. `part` is the factor from its error to the relative
    error."""

    low: float
    high: float
    degree: int
    remainder: Callable[[Array], Array]
    part: Callable[[Array], Array]


def by_series(
    series: Callable[[Array], Array], direct: Callable[[Array], Array], below: float
) -> Callable[[Array], Array]:
    """Returns `direct`, replaced near 0, where it loses all digits, by the first terms of the series."""
    return lambda x: np.where(np.abs(x) < below, series(x), direct(np.where(np.abs(x) < below, below, x)))


def odd(function: Callable[[Array], Array], terms: tuple[float, ...]) -> Callable[[Array], Array]:
    """Returns (function(x) / x - 1) / x^2 as a function of s = x^2. `terms` are its power series."""
    return by_series(
        lambda s: np.polynomial.polynomial.polyval(s, terms),
        lambda s: (function(np.sqrt(s)) / np.sqrt(s) - 1) / s,
        1e-4,
    )


def normal_tail(v: Array) -> Array:
    """Returns P(X > x) exp(x^2 / 2) (x + 2) for a normal X, where v = (x - 2) / (x + 2)."""
    x = 2 * (1 + v) / (1 - v)
    return np.array([_mills(max(float(at), 0.0)) for at in x]) * (x + 2)


def _mills(x: float) -> float:
    if x < 5:
        return 0.5 * math.erfc(x / math.sqrt(2)) * math.exp(x * x / 2)
    value = 0.0
    for k in range(200, 0, -1):  # Laplace's continued fraction
        value = k / (x + value)
    return 1 / (math.sqrt(2 * math.pi) * (x + value))


TWO_LOG2_E = 2 / math.log(2)
_atanh = odd(np.arctanh, (1 / 3, 1 / 5, 1 / 7, 1 / 9))

FITS = {
    # exp(r) = 1 + r + r^2 q(r), r within half of ln 2
    "exp": Fit(-0.34658, 0.34658, 4,
               by_series(lambda r: 0.5 + r / 6 + r * r / 24 + r**3 / 120, lambda r: (np.expm1(r) - r) / r**2, 1e-3),
               lambda r: r**2 / np.exp(r)),
    # log(1 + f) = f - f^2 / 2 + f^3 q(f)
    "log": Fit(math.sqrt(0.5) - 1, math.sqrt(2) - 1, 7,
               by_series(lambda f: 1 / 3 - f / 4 + f * f / 5 - f**3 / 6 + f**4 / 7,
                         lambda f: (np.log1p(f) - f + f * f / 2) / f**3, 2e-3),
               lambda f: f**3 / np.log1p(np.where(f == 0, 1e-9, f))),
    # 2 / ln 2 atanh(s) = 2 / ln 2 s + s^3 q(s^2), of which log2 in pow is made
    "log2": Fit(0, (3 - 2 * math.sqrt(2)) ** 2 * 1.01, 3, lambda s: TWO_LOG2_E * _atanh(s), lambda s: s / TWO_LOG2_E),
    # atan(x) = x + x^3 q(x^2), x up to 1
    "atan": Fit(0, 1, 8, odd(np.arctan, (-1 / 3, 1 / 5, -1 / 7)), lambda s: s * np.sqrt(s) / np.arctan(np.sqrt(s + 1e-30))),
    # tan(x) = x + x^3 q(x^2), an eighth of a turn around 0
    "tan": Fit(0, 0.6172, 5, odd(np.tan, (1 / 3, 2 / 15, 17 / 315, 62 / 2835)),
               lambda s: s * np.sqrt(s) / np.tan(np.sqrt(s + 1e-30))),
    # tanh(x) = x + x^3 q(x^2), x up to 0.6
    "tanh": Fit(0, 0.36, 4, odd(np.tanh, (-1 / 3, 2 / 15, -17 / 315, 62 / 2835)), lambda s: s),
    # sinh(x) = x + x^3 q(x^2), x up to 1
    "sinh": Fit(0, 1, 3, odd(np.sinh, (1 / 6, 1 / 120, 1 / 5040)), lambda s: s),
    # P(X > x) = exp(-x^2 / 2) p(v) / (x + 2), v = (x - 2) / (x + 2), x up to 13.2
    "normal": Fit(-1, 11.2 / 15.2, 10, normal_tail, lambda v: 1 / normal_tail(v)),
}  # fmt: skip


def fit(what: Fit) -> tuple[Array, float]:
    """Returns the coefficients, which are f32 numbers, lowest order first, and the largest error."""
    angle = np.pi * (np.arange(POINTS) + 0.5) / POINTS
    x = (what.low + what.high) / 2 - (what.high - what.low) / 2 * np.cos(angle)
    target, part = what.remainder(x), np.abs(what.part(x))
    powers = np.vander(x, what.degree + 1, increasing=True)
    found: list[float] = []
    for _ in range(what.degree + 1):
        left = target - powers[:, : len(found)] @ np.array(found)
        found.append(float(np.float32(_minimax(powers[:, len(found) :], left, part)[0])))
    coefficients = np.array(found)
    return coefficients, float(np.max(np.abs(powers @ coefficients - target) * part)) * 2**24


def _minimax(powers: Array, target: Array, part: Array) -> Array:
    scale = np.abs(powers).max(axis=0)
    weights = np.ones(len(target))
    best, least = np.zeros(powers.shape[1]), math.inf
    for _ in range(ROUNDS):
        w = np.sqrt(weights) * part
        solution = np.linalg.lstsq(powers / scale * w[:, None], target * w, rcond=None)[0] / scale
        error = np.abs(powers @ solution - target) * part
        if error.max() < least:
            best, least = solution, error.max()
        weights *= error / max(error.mean(), 1e-300)
        weights /= weights.mean()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.fits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[*FITS, []], metavar="FIT", help=f"of {', '.join(FITS)} (all)")
    for name in parser.parse_args().names or FITS:
        coefficients, error = fit(FITS[name])
        print(f"{name:8} {error:5.2f} of 2^-24:", ", ".join(f"{c:.9g}" for c in coefficients))


if __name__ == "__main__":
    main()
