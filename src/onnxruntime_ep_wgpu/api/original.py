"""Keeps the ONNX model beside its export, as a fallback for pages that cannot run the export.

In: the model's file and the path of the export. Out: one file with all weights. Invariant: its name is the one that pages search
for: `model.onnx` for `model.onnx.wgpu` and `model.wgpu`. An export named `model.onnx` itself, as in the folders of transformers.js,
has `model.original.onnx`.
"""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import OptionError, PlaceTakenError
from ..writing import atomic_folder, copy_file, write_file

_MOST = (1 << 31) - 1  # limit of a protobuf message in bytes


def original_of(place: Path) -> Path:
    """Returns the path of the ONNX model of an export."""
    if place.suffix != ".wgpu":
        return place.with_name(f"{place.stem}.original.onnx")
    inner = Path(place.stem)
    return place.with_name(inner.name if inner.suffix in (".onnx", ".ort") else f"{inner.name}.onnx")


@contextmanager
def kept(source: Path, place: Path) -> Iterator[Path]:
    """Yields the file that becomes the ONNX model of the export `place` when the block ends.

    It is `source` itself if that already has this path. Raises PlaceTakenError if another file has this path, ModelError,
    WriteError, and OptionError for a model too large for one file.
    """
    target = original_of(place)
    if target.exists() and target.samefile(source):
        yield source
        return

    def check(there: Path) -> None:
        if not (there.is_file() and filecmp.cmp(there, made, shallow=False)):
            raise PlaceTakenError(f"{target}, the place for the ONNX model, exists already and is another file")

    with atomic_folder(target, check) as temporary:
        made = temporary / target.name
        _write(source, made)
        if os.path.lexists(target):
            check(target)
        yield made


def _write(source: Path, target: Path) -> None:
    import onnx

    from .external_data import external_tensors, take_in

    if source.suffix == ".ort":
        copy_file(source, target)
        return
    model = onnx.load(str(source), load_external_data=False)
    if not external_tensors(model, source):
        copy_file(source, target)
        return
    take_in(model, source, _MOST)
    size = model.ByteSize()
    if size > _MOST:
        raise OptionError(
            f"{source} and its weights have {size} bytes, one ONNX file takes {_MOST}: export without the ONNX model"
        )
    write_file(target, model.SerializeToString())
