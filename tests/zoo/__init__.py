"""Real models for tests and benchmarks, made here without torch: `load(name)` gives a file and inputs for it.

Files: graph (writes ONNX node by node), transformer (parts), minilm, vit, resnet, ocr, tiny (one model each). Models
are written once into a cache folder, `.cache/models` of the repository, under a name that holds the hash of the
builders, so that a changed builder is never confused with an old file. Same seeds, same files.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .errors import MissingWeightsError

CACHE = Path(__file__).parents[2] / ".cache" / "models"
Inputs = dict[str, np.ndarray]

__all__ = ["CACHE", "NAMES", "Case", "MissingWeightsError", "load"]


@dataclass(frozen=True)
class Case:
    """A model file and inputs of at least three shapes: `inputs(i)` for i in `range(variations)`, the same each time.

    Every variation has a batch or a size of its own; higher indices repeat the shapes with other values.
    """

    name: str
    path: Path
    variations: int
    inputs: Callable[[int], Inputs]
    slow: bool
    """Takes many seconds on a software adapter."""


def load(name: str) -> Case:
    """One of NAMES; builds the file if it is not cached. Raises MissingWeightsError, saying what to install."""
    entry = _ENTRIES[name]

    def inputs(index: int) -> Inputs:
        seed = zlib.crc32(f"{name}/{index}".encode())
        shape = entry.shapes[index % len(entry.shapes)]
        return entry.inputs(*shape, rng=np.random.default_rng(seed))

    return Case(name, entry.path(name), len(entry.shapes), inputs, entry.slow)


def _cached(name: str) -> Path:
    from . import minilm, resnet, tiny, vit
    from .graph import save

    builders = {"minilm": minilm.build, "resnet_f32": resnet.build, "vit_f32": vit.build, "tiny": tiny.build}
    sources = b"".join(f.read_bytes() for f in sorted(Path(__file__).parent.glob("*.py")))
    path = CACHE / f"{name}-{hashlib.sha256(sources).hexdigest()[:8]}.onnx"
    if not path.exists():
        save(builders[name](), path)
        for old in CACHE.glob(f"{name}-*.onnx"):
            if old != path:
                old.unlink(missing_ok=True)
    return path


def _wheel(name: str) -> Path:
    from . import ocr

    return ocr.model_path(name)


def _tokens(batch: int, sequence: int, rng: np.random.Generator) -> Inputs:
    from . import minilm

    return minilm.inputs(batch, sequence, rng)


def _writing(batch: int, channels: int, height: int, width: int, rng: np.random.Generator) -> Inputs:
    from . import ocr

    return ocr.writing(batch, channels, height, width, rng)


def _uniform(name: str) -> Callable[..., Inputs]:
    def inputs(*shape: int, rng: np.random.Generator) -> Inputs:
        return {name: rng.uniform(-1, 1, shape).astype(np.float32)}

    return inputs


@dataclass(frozen=True)
class _Entry:
    path: Callable[[str], Path]
    inputs: Callable[..., Inputs]
    shapes: tuple[tuple[int, ...], ...]
    slow: bool = False


_IMAGES = ((1, 3, 224, 224), (2, 3, 224, 224), (3, 3, 224, 224))
_ENTRIES: dict[str, _Entry] = {
    "tiny": _Entry(_cached, _uniform("x"), ((1, 3, 16, 16), (2, 3, 20, 12), (3, 3, 9, 31), (1, 3, 24, 40))),
    "minilm": _Entry(_cached, _tokens, ((3, 16), (1, 7), (2, 33), (4, 24))),
    "resnet_f32": _Entry(_cached, _uniform("image"), _IMAGES, slow=True),
    "vit_f32": _Entry(_cached, _uniform("image"), _IMAGES, slow=True),
    "ocr_det": _Entry(_wheel, _writing, ((1, 3, 96, 160), (2, 3, 64, 96), (1, 3, 160, 320)), slow=True),
    "ocr_cls": _Entry(_wheel, _writing, ((2, 3, 48, 192), (1, 3, 48, 192), (6, 3, 48, 192))),
    "ocr_rec": _Entry(_wheel, _writing, ((1, 3, 48, 160), (2, 3, 48, 96), (1, 3, 48, 320)), slow=True),
}
NAMES = tuple(_ENTRIES)


def is_slow(name: str) -> bool:
    """Whether the model takes many seconds on a software adapter; known without building it."""
    return _ENTRIES[name].slow
