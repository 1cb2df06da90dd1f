"""External data: the files beside a model that contain its weights.

In: an ONNX model and its path. Out: an error that names the weight, the file and the bytes, before anything reads the file; or
a model with the real paths of its weights. Checked: whether the files may be read, exist, and are long enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ModelError
from ..program.dtypes import element_count
from ..runtime.external_path import ExternalPlace, external_place

if TYPE_CHECKING:
    import onnx

_REMEDY = "copy all files of the model, or export it again"


def external_tensors(model: onnx.ModelProto, source: Path) -> list[tuple[onnx.TensorProto, ExternalPlace, bool]]:
    """Returns all tensors of a model with external data: (tensor, place, is initializer).

    Raises ModelError for a path that may not be read."""
    return [
        (tensor, external_place(source, tensor.name, {it.key: it.value for it in tensor.external_data}), initializer)
        for tensor, initializer in _tensors_of(model)
        if tensor.data_location == tensor.EXTERNAL
    ]


def with_real_paths(model: onnx.ModelProto, source: Path) -> None:
    """Gives each external initializer the absolute path that was checked, and loads all other external tensors into the model.

    Readers need this, because they resolve relative paths only in some graphs. Raises ModelError."""
    take_in(model, source)
    for tensor, place, _ in external_tensors(model, source):
        _relocate(tensor, str(place.path))


def take_in(model: onnx.ModelProto, source: Path, most: int = 0) -> None:
    """Loads external attribute tensors into the model, and external initializers of at most `most` bytes. Raises ModelError."""
    for tensor, place, initializer in external_tensors(model, source):
        nbytes = _nbytes(tensor, source)
        if initializer and nbytes > most:
            continue
        try:
            with open(place.path, "rb") as file:
                file.seek(place.offset)
                tensor.raw_data = file.read(nbytes)
        except OSError as error:
            raise ModelError(
                f"{place.path}, in which {source} keeps {tensor.name!r}, cannot be read: {error}"
            ) from error
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")


def follow_links(model: onnx.ModelProto, source: Path) -> Path:
    """Returns the folder of a model's weights, and replaces links in the model, read from `source`, by the real file names.

    Readers refuse links that lead out of the folder, as such a link may lead to any file. ONNX Runtime accepts a file in the
    folder of the model's real file. Hugging Face's cache uses this: its names are links to files in one other folder. Without
    links, nothing changes. Raises ModelError for a file that may not be read.
    """
    folder, found = source.resolve().parent, external_tensors(model, source)
    named = [source.parent / _location(tensor) for tensor, _, _ in found]
    if not (source.is_symlink() or any(it.is_symlink() for it in named)):
        return source.parent
    if not all(place.path.is_file() and place.path.is_relative_to(folder) for _, place, _ in found):
        return source.parent
    for tensor, place, _ in found:
        _relocate(tensor, place.path.relative_to(folder).as_posix())
    return folder


def _tensors_of(model: onnx.ModelProto) -> Iterator[tuple[onnx.TensorProto, bool]]:
    """Yields every tensor of the model, including bodies and functions, and whether it is an initializer."""
    yield from _tensors_of_graph(model.graph)
    for function in model.functions:
        yield from _tensors_of_nodes(function.node)


def _tensors_of_graph(graph: onnx.GraphProto) -> Iterator[tuple[onnx.TensorProto, bool]]:
    yield from ((it, True) for it in graph.initializer)
    yield from ((it, False) for sparse in graph.sparse_initializer for it in (sparse.values, sparse.indices))
    yield from _tensors_of_nodes(graph.node)


def _tensors_of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[tuple[onnx.TensorProto, bool]]:
    for node in nodes:
        for attribute in node.attribute:
            sparse = (attribute.sparse_tensor, *attribute.sparse_tensors)
            parts = (part for it in sparse for part in (it.values, it.indices))
            yield from ((it, False) for it in (attribute.t, *attribute.tensors, *parts))
            for body in (attribute.g, *attribute.graphs):
                yield from _tensors_of_graph(body)


def check_external_data(source: Path, model: onnx.ModelProto | None = None) -> None:
    """Raises ModelError if an external file of `source` may not be read, is missing or is too short, or if its entry is
    invalid.

    `model` is the parsed content of `source`, if the caller has it. A file that is not an ONNX model passes.
    """
    if model is None:
        import onnx

        try:
            model = onnx.load(source, load_external_data=False)
        except Exception:
            return
    sizes: dict[Path, int] = {}
    for tensor, place, _ in external_tensors(model, source):
        path, nbytes = place.path, _nbytes(tensor, source)
        if path not in sizes:
            sizes[path] = path.stat().st_size if path.is_file() else -1
        start, end = place.offset, place.offset + nbytes
        shown = source.parent / _location(tensor)
        if sizes[path] < 0:
            raise ModelError(
                f"{source} keeps its weights in {shown}, which is missing ({tensor.name!r} is the first): put the file"
                " beside the model, under that name"
            )
        if sizes[path] < end:
            raise ModelError(
                f"{shown} has {sizes[path]} bytes, and the weight {tensor.name!r} of {source} has the bytes {start} to"
                f" {end}: the file is truncated or belongs to another model; fetch it again"
            )
        if place.length not in (None, nbytes):
            raise ModelError(
                f"{source}: the weight {tensor.name!r} has {place.length} bytes in {shown}, but its type and shape need"
                f" {nbytes}: {_REMEDY}"
            )


def data_problem(model: str | bytes) -> ModelError | None:
    """Returns the error for a model that ONNX Runtime cannot open; None if its external data are not the reason."""
    if isinstance(model, str):
        try:
            check_external_data(Path(model))
        except ModelError as found:
            return found
    return None


def _nbytes(tensor: onnx.TensorProto, source: Path) -> int:
    import onnx_ir as ir

    try:
        bits = element_count(tensor.dims) * ir.DataType(tensor.data_type).bitwidth
        return int(-(-bits // 8))
    except (ValueError, TypeError) as error:
        raise ModelError(
            f"{source}: the weight {tensor.name!r} has an invalid type or shape ({error}): {_REMEDY}"
        ) from error


def _location(tensor: onnx.TensorProto) -> str:
    """Returns the external file's path. Readers use the last `location` entry, so this does too."""
    found: str = [it.value for it in tensor.external_data if it.key == "location"][-1]
    return found


def _relocate(tensor: onnx.TensorProto, location: str) -> None:
    kept = [(it.key, it.value) for it in tensor.external_data if it.key != "location"]
    del tensor.external_data[:]
    for key, value in [("location", location), *kept]:
        tensor.external_data.add(key=key, value=value)
