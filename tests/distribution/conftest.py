"""What the tests of this folder share: the distributions of this tree, made once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .building import ROOT, run


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The source archive of this tree, and the wheel made from that archive."""
    out = tmp_path_factory.mktemp("dist")
    # Without isolation: the environment of the tests has the build requirements, and nothing is downloaded.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT)
    (archive,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return {"sdist": archive, "wheel": wheel}


@pytest.fixture(scope="session")
def portable(distributions: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as auditwheel makes it for other machines of this system."""
    if sys.platform != "linux":
        pytest.skip("auditwheel is for Linux")
    out = tmp_path_factory.mktemp("portable")
    run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", out, distributions["wheel"])
    (wheel,) = out.glob("*.whl")
    return wheel
