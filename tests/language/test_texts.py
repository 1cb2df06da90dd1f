"""Random decoders and texts: texts.py in a process of its own, which loses devices that other tests use."""

from __future__ import annotations

import sys

import pytest

from tests import patience


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(0, 80, 20))
def test_texts_of_random_decoders_are_those_of_the_cpu_provider(seed: int) -> None:
    done = patience.run([sys.executable, "-m", "tests.language.texts", str(seed), "20"], env=patience.here())
    assert done.returncode == 0, done.stdout + done.stderr
