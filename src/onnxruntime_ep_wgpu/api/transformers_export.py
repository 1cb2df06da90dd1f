"""Exports a model folder of transformers.js: the same folder with each ONNX model as an export in one file.

In: a folder with `config.json`, tokenizer or processor files, and `onnx/*.onnx`, in the layout of Optimum and the Hub. Out: a
folder for `from_pretrained` of transformers.js, from a local path, with `onnxruntime-web/webgpu` mapped to this package.
Invariants: model names stay, because transformers.js derives them from its `dtype`. The folder appears completely or not at
all."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from ..errors import OptionError, ProgramError
from ..records import dataclass
from ..writing import atomic_folder, copy_file, errors_about, refuse_existing, write_file
from .folder_files import fields_inside, file_inside
from .overwriting import check_place, is_folder_of_exports
from .web_export import CHUNK_BYTES, Exported, export

_CONFIG = "config.json"
# Suffixes of model names for each `dtype` of transformers.js.
SUFFIXES = {
    "fp32": "", "fp16": "_fp16", "int8": "_int8", "uint8": "_uint8", "q8": "_quantized", "q4": "_q4", "q2": "_q2", "q1": "_q1",
    "q4f16": "_q4f16", "q2f16": "_q2f16", "q1f16": "_q1f16", "bnb4": "_bnb4",
}  # fmt: skip
# Weights for other frameworks, which browsers do not read.
FOREIGN = frozenset({".safetensors", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".ot", ".gguf", ".onnx", ".onnx_data"})


@dataclass(frozen=True)
class ExportedFolder:
    """The result: `models` in the order of their names, and the names of the other files in `copied`."""

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
    """Exports the models in `folder/onnx`, or only those of some `dtypes` ("fp32", "q8", ...).

    `output` is the new folder, by default `folder.wgpu`. Its configuration states the available dtype of each model, for pages
    that do not choose one. `with_onnx` keeps the models beside their exports as `NAME.original.onnx`, for pages without WebGPU.
    `overwrite` replaces an earlier export. `overrides` and `chunk_bytes` are as in `export`.

    Raises UnsupportedError with the model and the nodes that WebGPU cannot run. Raises ModelError for a configuration with a
    field of the wrong type, and for a link out of the folder. Raises OptionError, ProgramError, WriteError and PlaceTakenError
    too."""
    source = Path(folder)
    chosen = _models(source, dtypes)
    place = Path(output) if output is not None else source.resolve().with_name(f"{source.resolve().name}.wgpu")
    check = is_folder_of_exports([it.name for it in _copied(source)]) if overwrite else refuse_existing
    check_place(place, check)
    with atomic_folder(place, check) as temporary:
        partial = temporary / place.name
        with errors_about(place):
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
    """Returns the dtype with the longest matching suffix: `decoder_model_merged_q4f16.onnx` is "q4f16"."""
    return max((it for it in SUFFIXES.items() if model.stem.endswith(it[1])), key=lambda it: len(it[1]))[0]


def _first_dtypes(models: list[Path]) -> dict[str, str]:
    """Returns for each model name, without its dtype's suffix, the first available dtype in the order of SUFFIXES."""
    found: dict[str, str] = {}
    for dtype in SUFFIXES:
        for it in models:
            if _dtype(it) == dtype:
                found.setdefault(it.stem.removesuffix(SUFFIXES[dtype]), dtype)
    return found


def _copied(source: Path) -> list[Path]:
    """Returns the files to copy."""
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
    """Adapts the configuration. Weights are inside the exports, so external data is switched off.

    Also sets the default dtype, because transformers.js otherwise requests q8, which the folder may lack."""
    config = fields_inside(source, _CONFIG)
    assert config is not None
    ours = config.object("transformers.js_config")
    devices = ours.object("device_config")
    for it in (ours, *map(devices.object, devices.values)):
        it.values.pop("use_external_data_format", None)
    ours.values.setdefault("dtype", dict(dtypes))
    config.values["transformers.js_config"] = ours.values
    write_file(place, json.dumps(config.values, indent=2, ensure_ascii=False) + "\n")
