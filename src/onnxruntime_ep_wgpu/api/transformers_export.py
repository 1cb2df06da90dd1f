"""A model folder of transformers.js, exported: the same folder with each ONNX model as our single file.

In: a folder with `config.json`, tokenizer or processor files and `onnx/*.onnx`, as Optimum and the Hub have them. Out: a folder
that transformers.js loads with `from_pretrained` from a local path once `onnxruntime-web/webgpu` is mapped to our package.
Invariants: names of models stay, because transformers.js makes them of its `dtype`; the folder appears whole or not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from ..errors import OptionError, ProgramError
from ..records import dataclass
from ..writing import appearing, copy_file, naming, taken, write_file
from .folder_files import fields_inside, file_inside
from .overwriting import check_place, is_folder_of_exports
from .web_export import CHUNK_BYTES, Exported, export

_CONFIG = "config.json"
# What transformers.js appends to the names of models for its option `dtype`.
SUFFIXES = {
    "fp32": "", "fp16": "_fp16", "int8": "_int8", "uint8": "_uint8", "q8": "_quantized", "q4": "_q4", "q2": "_q2", "q1": "_q1",
    "q4f16": "_q4f16", "q2f16": "_q2f16", "q1f16": "_q1f16", "bnb4": "_bnb4",
}  # fmt: skip
# Weights for other frameworks, which nothing in a browser reads.
FOREIGN = frozenset({".safetensors", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".ot", ".gguf", ".onnx", ".onnx_data"})


@dataclass(frozen=True)
class ExportedFolder:
    """What was written: its models, in the order of their names, and how many files went along unchanged or adapted."""

    path: Path
    models: tuple[Exported, ...]
    copied: tuple[str, ...]


def export_transformers(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    dtypes: Collection[str] | None = None,
    overrides: Mapping[str, int] | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    with_onnx: bool = False,
    overwrite: bool = False,
) -> ExportedFolder:
    """Exports every model in `folder/onnx`, or those of some `dtypes` ("fp32", "q8", ...), to `output`, `folder.wgpu` by default.

    The configuration then says which dtype there is of each model, for pages that do not. `with_onnx` keeps the models beside their
    exports, as `NAME.original.onnx`, for pages without WebGPU. `overwrite` replaces what was exported there before.

    Raises UnsupportedError with the model and the nodes that WebGPU cannot run. Raises ModelError for a configuration with a field
    of the wrong type, and for a link out of the folder. Raises OptionError, ProgramError, WriteError and PlaceTakenError too.
    """
    source = Path(folder)
    chosen = _models(source, dtypes)
    place = Path(output) if output is not None else source.resolve().with_name(f"{source.resolve().name}.wgpu")
    check = is_folder_of_exports([it.name for it in _copied(source)]) if overwrite else taken
    check_place(place, check)
    with appearing(place, check) as temporary:
        partial = temporary / place.name
        with naming(place):
            (partial / "onnx").mkdir(parents=True)
        made = [
            export(
                it, partial / "onnx" / it.name, overrides=overrides, single_file=True, chunk_bytes=chunk_bytes, with_onnx=with_onnx
            )
            for it in chosen
        ]  # fmt: skip
        copied = _copy(source, partial, _first_dtypes(chosen))
    models = tuple(replace(it, path=place / "onnx" / it.path.name) for it in made)
    return ExportedFolder(place, models, copied)


def _models(folder: Path, dtypes: Collection[str] | None) -> list[Path]:
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    if fields_inside(folder, _CONFIG) is None:
        raise ProgramError(f"{folder} is not a model of transformers.js: it has no config.json")
    for it in dtypes or ():
        if it not in SUFFIXES:
            raise OptionError(f"there is no dtype {it!r}; transformers.js has {', '.join(SUFFIXES)}")
    found = {path: _dtype(path) for path in sorted((folder / "onnx").glob("*.onnx"))}
    for path in found:
        file_inside(folder, f"onnx/{path.name}")
    chosen = [path for path, dtype in found.items() if dtypes is None or dtype in dtypes]
    if missing := sorted(set(dtypes or ()) - set(found.values())):
        has = ", ".join(sorted(set(found.values()))) or "none"
        raise OptionError(f"{folder / 'onnx'} has no model of dtype {', '.join(missing)}; it has {has}")
    if not chosen:
        raise ProgramError(f"{folder} is not a model of transformers.js: there is no {folder / 'onnx'}/*.onnx")
    return chosen


def _dtype(model: Path) -> str:
    """By the longest suffix: `decoder_model_merged_q4f16.onnx` is "q4f16"."""
    return max((it for it in SUFFIXES.items() if model.stem.endswith(it[1])), key=lambda it: len(it[1]))[0]


def _first_dtypes(models: list[Path]) -> dict[str, str]:
    """By the name of a model without that of its dtype, the first of SUFFIXES that there is of it."""
    found: dict[str, str] = {}
    for dtype in SUFFIXES:
        for it in models:
            if _dtype(it) == dtype:
                found.setdefault(it.stem.removesuffix(SUFFIXES[dtype]), dtype)
    return found


def _copied(source: Path) -> list[Path]:
    """The files that go along."""
    files = (it for it in sorted(source.iterdir()) if it.is_file())
    return [it for it in files if not it.name.startswith(".") and it.suffix not in FOREIGN]


def _copy(source: Path, place: Path, dtypes: Mapping[str, str]) -> tuple[str, ...]:
    copied = []
    for path in _copied(source):
        file_inside(source, path.name)
        if path.name == _CONFIG:
            _adapt(source, place / path.name, dtypes)
        else:
            copy_file(path, place / path.name)
        copied.append(path.name)
    return tuple(copied)


def _adapt(source: Path, place: Path, dtypes: Mapping[str, str]) -> None:
    """Weights are in the models, so nothing may be fetched beside them. Without a `device`, transformers.js asks for q8,
    which the folder may not have."""
    config = fields_inside(source, _CONFIG)
    assert config is not None
    ours = config.object("transformers.js_config")
    devices = ours.object("device_config")
    for it in (ours, *map(devices.object, devices.values)):
        it.values.pop("use_external_data_format", None)
    ours.values.setdefault("dtype", dict(dtypes))
    config.values["transformers.js_config"] = ours.values
    write_file(place, json.dumps(config.values, indent=2, ensure_ascii=False) + "\n")
