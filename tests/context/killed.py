"""One process that compiles a model again and again, each time in a child of its own that is ended by SIGKILL.

    python -m tests.context.killed FOLDER NUMBER...

The child of the folder `k` in it ends before it opens, renames or removes something there for the `k`th time. Out: JSON, the signal
that ended each child, or 0.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.writing.worker import stopped

from .compiling import compiled_beside, wide


def killed(folder: Path, number: int) -> int:
    """The signal that ends a child, which compiles a model."""
    folder.mkdir()
    child = os.fork()
    if child == 0:
        stopped("killed", number, folder)
        compiled_beside(folder, wide())
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)


if __name__ == "__main__":
    place, *numbers = sys.argv[1:]
    print(json.dumps([killed(Path(place) / it, int(it)) for it in numbers]))
