"""Every pointwise operator is within its bound of the truth in f64, over all magnitudes, and keeps the sign of zeros.

`python -m bench.numbers` measures the same with a hundred times as many inputs; docs/numbers.md says what the bounds are.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from bench import fits, numbers
from onnxruntime_ep_wgpu.compiler.templates.files import template
from tests import support

POINTS = 1 << 15


@pytest.mark.costly
@pytest.mark.parametrize("operator", numbers.OPERATORS, ids=lambda o: o.label)
def test_errors_are_bounded(operator: numbers.Operator) -> None:
    found = numbers.row(operator, numbers.measured(), POINTS)
    assert found["ok"], found


def test_the_measure_sees_errors() -> None:
    """One unit is one unit, an infinity is not a number, and what overflows counts from the largest number."""
    one = np.float32([1, 1 + 2**-23, np.inf, np.nan, 3.4028235e38, np.inf, 1e-45])
    truth = np.float64([1, 1, 1, 1, 2.0**128, 2.0**128 * 0.99999999, 0])
    off = numbers.errors(one, truth)
    np.testing.assert_allclose(off[[0, 1, 4, 6]], [0, 1, 1, 1], rtol=1e-6)
    assert off[2] > 1e20
    assert np.isinf(off[3])
    assert off[5] < 1


@pytest.mark.costly
def test_large_angles_are_reduced_exactly() -> None:
    """Numbers that are closer to a multiple of a quarter turn than any near them, and the largest."""
    x = np.float32([16367173 * 2.0**72, 11 * 2.0**20 / 7, 1e5, 99999.99, 1e22, 3.4028235e38, 2.0**127, 13176795.0])
    for op, truth in (("Sin", np.sin), ("Cos", np.cos), ("Tan", np.tan)):
        node = helper.make_node(op, ["x"], ["y"])
        got = support.run_model(support.make_model([node], {"x": (np.float32, ["n"])}), x)[0]
        assert numbers.errors(got, truth(x.astype(np.float64))).max() <= 4, op


def test_the_document_shows_what_was_measured() -> None:
    text = numbers.DOCUMENT.read_text()
    assert text == numbers.with_table(text, numbers.document()), "run python -m bench.numbers --document"


@pytest.mark.parametrize("name", ["exp", "log2"])
def test_coefficients_come_from_the_fits(name: str) -> None:
    coefficients, error = fits.fit(fits.FITS[name])
    assert error < 1
    text = template("prelude/functions")
    missing = [c for c in coefficients if f"{c:.9g}f" not in text]
    assert not missing
