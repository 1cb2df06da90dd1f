"""Models for tests and benchmarks, made here without torch: `load(name)` gives a file and inputs for it.

NAMES run on a software adapter in seconds; `NAME.full`, of FULL, is the same architecture in the size that benchmarks
compare. Files: graph (writes ONNX node by node), transformer and layers (parts), one file per architecture: tiny, minilm,
resnet, vit, whisper, unet, t5, recurrent, detector, ocr; quantised makes further ones of these, and exports has graphs of
any depth. Models are written once into a cache folder, `.cache/models` of the repository, under a name that holds the hash
of the builders, so that a changed builder is never confused with an old file. Same seeds, same files.
"""

from __future__ import annotations

import hashlib
import importlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import MissingWeightsError

if TYPE_CHECKING:
    import onnx

CACHE = Path(__file__).parents[2] / ".cache" / "models"
Inputs = dict[str, np.ndarray]

__all__ = ["CACHE", "FULL", "NAMES", "Case", "MissingWeightsError", "is_slow", "load"]


@dataclass(frozen=True)
class Case:
    """A model file and inputs of at least three shapes: `inputs(i)` for i in `range(variations)`, the same each time.

    Every variation has a batch or a size of its own; higher indices repeat the shapes with other values.
    """

    name: str
    path: Path
    variations: int
    inputs: Callable[[int], Inputs]


def load(name: str) -> Case:
    """One of NAMES or FULL; builds the file if it is not cached. Raises MissingWeightsError, saying what to install."""
    short, full = name.removesuffix(".full"), name.endswith(".full")
    entry = _ENTRIES[short]
    shapes = entry.full if full else entry.shapes

    def inputs(index: int) -> Inputs:
        seed = zlib.crc32(f"{short}/{index}".encode())
        return entry.inputs(*shapes[index % len(shapes)], rng=np.random.default_rng(seed))

    return Case(name, entry.path(name, full), len(shapes), inputs)


def is_slow(name: str) -> bool:
    """Whether the model takes many seconds on a software adapter; known without building it."""
    return name.endswith(".full") or _ENTRIES[name].slow


# ---- files

Locate = Callable[[str, bool], Path]


def _built(module: str, function: str = "build", **arguments: Any) -> Locate:
    """A model of one size."""
    return lambda name, _full: _cached(name, lambda: _call(module, function, **arguments))


def _sized(module: str, function: str = "build", **arguments: Any) -> Locate:
    """A model of the module's size SMALL or FULL."""

    def path(name: str, full: bool) -> Path:
        return _cached(name, lambda: _call(module, function, "FULL" if full else "SMALL", **arguments))

    return path


def _call(module: str, function: str, size: str = "", **arguments: Any) -> onnx.ModelProto:
    # Imported when it is needed: some take weights or tools from other packages.
    builder = importlib.import_module(f".{module}", __package__)
    made: onnx.ModelProto = getattr(builder, function)(*([getattr(builder, size)] if size else []), **arguments)
    return made


def _cached(name: str, build: Callable[[], onnx.ModelProto]) -> Path:
    from .graph import save

    sources = b"".join(f.read_bytes() for f in sorted(Path(__file__).parent.glob("*.py")))
    path = CACHE / f"{name}-{hashlib.sha256(sources).hexdigest()[:8]}.onnx"
    if not path.exists():
        save(build(), path)
        for old in CACHE.glob(f"{name}-*.onnx"):
            if old != path:
                old.unlink(missing_ok=True)
    return path


def _wheel(name: str, _full: bool) -> Path:
    from . import ocr

    return ocr.model_path(name)


# ---- inputs


def _uniform(name: str) -> Callable[..., Inputs]:
    def inputs(*shape: int, rng: np.random.Generator) -> Inputs:
        return {name: rng.uniform(-1, 1, shape).astype(np.float32)}

    return inputs


def _halves(inputs: Callable[..., Inputs]) -> Callable[..., Inputs]:
    """The same values as float16, where they are float32."""

    def halved(*shape: int, rng: np.random.Generator) -> Inputs:
        made = inputs(*shape, rng=rng)
        return {k: v.astype(np.float16) if v.dtype == np.float32 else v for k, v in made.items()}

    return halved


def _of(module: str) -> Callable[..., Inputs]:
    """The inputs that a module makes."""

    def inputs(*shape: int, rng: np.random.Generator) -> Inputs:
        made: Inputs = importlib.import_module(f".{module}", __package__).inputs(*shape, rng=rng)
        return made

    return inputs


@dataclass(frozen=True)
class _Entry:
    """`shapes` are arguments of `inputs`, one tuple per variation; `full` those of the model's full size, if it has one."""

    path: Locate
    inputs: Callable[..., Inputs]
    shapes: tuple[tuple[int, ...], ...]
    full: tuple[tuple[int, ...], ...] = ()
    slow: bool = False


_IMAGES = ((1, 3, 64, 64), (2, 3, 64, 64), (3, 3, 64, 64))
_FULL_IMAGES = ((1, 3, 224, 224), (2, 3, 224, 224), (3, 3, 224, 224))
_QUANTISED_IMAGES = ((1, 3, 96, 96), (2, 3, 96, 96), (3, 3, 96, 96))
_SENTENCES = ((3, 16), (1, 7), (2, 33), (4, 24))
_LATENTS = ((1, 16, 16, 7, 24), (2, 8, 12, 7, 24), (1, 12, 20, 7, 24))
_FULL_LATENTS = ((1, 32, 32, 77, 128), (2, 16, 32, 77, 128), (2, 32, 32, 77, 128))
_ENTRIES: dict[str, _Entry] = {
    "tiny": _Entry(_built("tiny"), _uniform("x"), ((1, 3, 16, 16), (2, 3, 20, 12), (3, 3, 9, 31), (1, 3, 24, 40))),
    "minilm": _Entry(_built("minilm"), _of("minilm"), _SENTENCES),
    "minilm_f16": _Entry(_sized("minilm", half=True), _of("minilm"), _SENTENCES, _SENTENCES),
    "minilm_dynquant": _Entry(_sized("quantised", "dynamic"), _of("minilm"), _SENTENCES, _SENTENCES),
    "resnet_f32": _Entry(_sized("resnet"), _uniform("image"), _IMAGES, _FULL_IMAGES),
    "resnet_folded": _Entry(_sized("resnet", folded=True), _uniform("image"), _IMAGES, _FULL_IMAGES),
    "resnet_f16": _Entry(
        _sized("resnet", folded=True, half=True), _halves(_uniform("image")), _IMAGES, _FULL_IMAGES
    ),
    "cnn_int8_qdq": _Entry(_built("quantised", "cnn", qdq=True), _uniform("image"), _QUANTISED_IMAGES),
    "cnn_int8_qoperator": _Entry(_built("quantised", "cnn", qdq=False), _uniform("image"), _QUANTISED_IMAGES),
    "vit_f32": _Entry(_sized("vit"), _uniform("image"), _IMAGES, _FULL_IMAGES),
    "vit_f16": _Entry(_sized("vit", half=True), _halves(_uniform("image")), _IMAGES, _FULL_IMAGES),
    "vit_opset24": _Entry(_sized("vit", operator=True), _uniform("image"), _IMAGES, _FULL_IMAGES),
    "whisper_encoder": _Entry(
        _sized("whisper"), _uniform("mel"), ((1, 20, 60), (2, 20, 34), (1, 20, 110)),
        ((1, 80, 400), (2, 80, 130), (1, 80, 3000)),
    ),
    "unet": _Entry(_sized("unet"), _of("unet"), _LATENTS, _FULL_LATENTS),
    "unet_f16": _Entry(_sized("unet", half=True), _halves(_of("unet")), _LATENTS, _FULL_LATENTS),
    "t5_decoder_step": _Entry(_built("t5"), _of("t5"), ((2, 5, 11), (1, 9, 4), (3, 17, 7))),
    "lstm_gru": _Entry(_built("recurrent"), _of("recurrent"), ((23, 3), (7, 1), (12, 4))),
    "detector_nms": _Entry(_built("detector"), _uniform("image"), ((1, 3, 160, 224), (1, 3, 96, 128), (1, 3, 128, 96))),
    "ocr_det": _Entry(_wheel, _of("ocr"), ((1, 3, 96, 160), (2, 3, 64, 96), (1, 3, 160, 320)), slow=True),
    "ocr_cls": _Entry(_wheel, _of("ocr"), ((2, 3, 48, 192), (1, 3, 48, 192), (6, 3, 48, 192))),
    "ocr_rec": _Entry(_wheel, _of("ocr"), ((1, 3, 48, 160), (2, 3, 48, 96), (1, 3, 48, 320)), slow=True),
}  # fmt: skip
NAMES = tuple(_ENTRIES)
FULL = tuple(f"{name}.full" for name, entry in _ENTRIES.items() if entry.full)
