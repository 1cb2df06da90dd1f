"""The models of a benchmark and their inputs.

In: names of the zoo, .onnx files, folders of them. Out: `Model`s, as data that can be sent to another process, and their
inputs.

- In a folder, NAME.npz beside NAME.onnx has the inputs as arrays with names `in:<input>`.
- Several inputs of one model are FOLDER_<anything>.npz beside FOLDER/model.onnx.
- Without such a file, inputs are made up: floats in -1..1 and integers 0 or 1. Dynamic dims have the given size for their name,
  or a usual size (`tools/_sizes.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onnxruntime_ep_wgpu.tools._sizes import sizes

INPUT = "in:"
FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
Feeds = dict[str, np.ndarray]


@dataclass(frozen=True)
class Model:
    """A model. `path` is empty for a model of the zoo, which is built on first use."""

    name: str
    path: str = ""
    inputs: str = ""
    variation: int = 0
    dims: dict[str, int] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        return asdict(self)

    def file(self) -> Path:
        """Returns the model's file. Raises the errors of building a model of the zoo."""
        return Path(self.path) if self.path else _zoo().load(self.name).path

    def feeds(self) -> Feeds:
        if self.inputs:
            with np.load(self.inputs) as stored:
                return {name.removeprefix(INPUT): stored[name] for name in stored.files if name.startswith(INPUT)}
        if self.path:
            return _made_up(Path(self.path), self.dims)
        inputs: Feeds = _zoo().load(self.name).inputs(self.variation)
        return inputs


def zoo_names() -> tuple[str, ...]:
    """Returns all models of the zoo, those of full size last."""
    return (*_zoo().NAMES, *_zoo().FULL)


def small() -> list[str]:
    """Returns every architecture of the zoo in the size of the tests."""
    return list(_zoo().NAMES)


def full() -> list[str]:
    """Returns every architecture of the zoo in its largest size, except the one for tests only."""
    largest = (f"{name}.full" if f"{name}.full" in _zoo().FULL else name for name in _zoo().NAMES)
    return [name for name in largest if name != "tiny"]


def find(wanted: Sequence[str], variation: int = 0, dims: Mapping[str, int] | None = None) -> list[Model]:
    """Returns the models for names, files and folders. Raises FileNotFoundError for an entry that is none of these."""
    found: list[Model] = []
    for entry in wanted:
        path = Path(entry)
        if path.is_dir():
            here = list(_in_folder(path, dict(dims or {})))
            if not here:
                raise FileNotFoundError(f"the folder {entry} holds no .onnx file")
            found += here
        elif path.suffix == ".onnx":
            if not path.exists():
                raise FileNotFoundError(f"there is no file {entry}")
            found.append(_beside(path, dict(dims or {})))
        elif entry in zoo_names():
            found.append(Model(entry, variation=variation))
        else:
            raise FileNotFoundError(f"{entry!r} is no file, no folder and no model of {', '.join(zoo_names())}")
    return found


def _in_folder(folder: Path, dims: dict[str, int]) -> Iterator[Model]:
    for path in sorted(folder.glob("*.onnx")):
        yield _beside(path, dims)
    for inputs in sorted(folder.glob("*.npz")):
        parent = folder / inputs.stem.rsplit("_", 1)[0] / "model.onnx"
        if not inputs.with_suffix(".onnx").exists() and parent.exists():
            yield Model(inputs.stem, str(parent.resolve()), str(inputs.resolve()))


def _beside(path: Path, dims: dict[str, int]) -> Model:
    inputs = path.with_suffix(".npz")
    return Model(path.stem, str(path.resolve()), str(inputs.resolve()) if inputs.exists() else "", dims=dims)


def _made_up(path: Path, dims: dict[str, int]) -> Feeds:
    from tests import provider

    session = provider.open_session(path, "cpu")
    free = {dim for value in session.get_inputs() for dim in value.shape}
    given = {name: size for name, size in dims.items() if name in free}  # `dims` are for all models of a folder
    shapes = sizes({value.name: value.shape for value in session.get_inputs()}, given, {}).shapes
    rng = np.random.default_rng(0)
    feeds = {}
    for value in session.get_inputs():
        shape = shapes[value.name]
        if value.type in FLOATS:
            feeds[value.name] = rng.uniform(-1, 1, shape).astype(FLOATS[value.type])
        else:
            feeds[value.name] = rng.integers(0, 2, shape).astype(value.type.removeprefix("tensor(").removesuffix(")"))
    return feeds


def _zoo() -> Any:
    from tests import zoo

    return zoo
