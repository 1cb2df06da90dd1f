"""The files beside a model that its weights lie in: are they there, and long enough, and where are they really?

In: an ONNX model. Out: an error that names the weight, the file and the bytes, before anything reads them; a model whose weights
lie in no links.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ModelError

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir


def follow_links(model: onnx.ModelProto, source: Path) -> Path:
    """The folder that the weights of a model lie in, which was read from `source`; the model then has their real names.

    Readers refuse a link that leads out of the folder, which could be to anything. ONNX Runtime takes a file all the same that lies
    beside the real file of the model, as in the cache of Hugging Face, where names are links to files of one other folder. Where
    a file lies elsewhere, and where there are no links, nothing is changed.
    """
    folder, links, found = source.resolve().parent, source.is_symlink(), []
    for tensor in tensors_of(model.graph):
        for entry in tensor.external_data:
            if entry.key == "location":
                named = source.parent / entry.value
                links, file = links or named.is_symlink(), named.resolve()
                if not file.is_file() or not file.is_relative_to(folder):
                    return source.parent
                found.append((entry, file))
    if not links:
        return source.parent
    for entry, file in found:
        entry.value = file.relative_to(folder).as_posix()
    return folder


def tensors_of(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """All that a graph holds itself, in its bodies too."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for body in (attribute.g, *attribute.graphs):
                yield from tensors_of(body)


def check_external_data(source: Path, model: ir.Model | None = None) -> None:
    """Raises ModelError when a file that `source` keeps weights in is missing or too short. `model` is what was read of it.

    What is no ONNX model says nothing of such files.
    """
    import onnx_ir as ir

    if model is None:
        try:
            model = ir.load(source)
        except Exception:
            return
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if not isinstance(tensor, ir.ExternalTensor):
            continue
        path = Path(tensor.path)
        if not path.is_file():
            raise ModelError(
                f"{source} keeps its weights in {path}, which is not there ({value.name!r} is the first): put the file"
                " beside the model, under that name"
            )
        start = tensor.offset or 0
        end = start + (tensor.nbytes if tensor.length is None else max(tensor.length, tensor.nbytes))
        if path.stat().st_size < end:
            raise ModelError(
                f"{path} has {path.stat().st_size} bytes, and the weight {value.name!r} of {source} is the bytes {start} to"
                f" {end} of it: the file is cut off or another model's; fetch it again"
            )
