"""A session in the page. In: an exported model, as URL or bytes, and inputs. Out: results. Methods are named as in
onnxruntime's InferenceSession. Those that wait for the GPU are coroutines, because a page must not block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InputError, WgpuEpError
from . import tensors
from .library import library


@dataclass(frozen=True)
class NodeArg:
    """An input or output. `type` is the name in onnxruntime-common; names in `shape` are free dimensions."""

    name: str
    type: str
    shape: tuple[int | str, ...]


class InferenceSession:
    """A session, created by `create`."""

    def __init__(self, js: Any, module: Any, session: Any) -> None:
        self._js, self._module, self._session = js, module, session

    @classmethod
    async def create(cls, model: str | bytes, **options: Any) -> InferenceSession:
        """Creates a session. `model` is the URL of an exported model, or the bytes of a single-file export.

        `options` are those of onnxruntime-web's sessions, such as `freeDimensionOverrides={"batch": 1}`. Raises WgpuEpError
        with the library's reason."""
        import js
        from pyodide.ffi import to_js

        module = await library()
        source: Any = model
        if isinstance(model, bytes):
            source = js.Uint8Array.new(len(model))
            source.assign(memoryview(model))
        given = to_js({"executionProviders": ["webgpu"], **options}, dict_converter=js.Object.fromEntries)
        return cls(js, module, await _awaited(module.InferenceSession.create(source, given)))

    def get_inputs(self) -> list[NodeArg]:
        return [_node_arg(it) for it in self._session.inputMetadata]

    def get_outputs(self) -> list[NodeArg]:
        return [_node_arg(it) for it in self._session.outputMetadata]

    async def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any]) -> list[Any]:
        """Returns results in the order of `output_names`, by default all: numpy arrays, or Tensors without numpy."""
        names = [it.name for it in self.get_outputs()] if output_names is None else list(output_names)
        feeds = self._js.Object.new()
        for name, value in input_feed.items():
            setattr(feeds, name, tensors.to_js(self._js, self._module, tensors.as_tensor(name, value)))
        results = await _awaited(self._session.run(feeds, self._js.Array.of(*names)))
        return [tensors.as_array(tensors.from_js(self._js, getattr(results, name))) for name in names]

    async def release(self) -> None:
        await _awaited(self._session.release())


def _node_arg(metadata: Any) -> NodeArg:
    shape = tuple(it if isinstance(it, str) else int(it) for it in metadata.shape)
    return NodeArg(str(metadata.name), str(metadata.type), shape)


async def _awaited(promise: Any) -> Any:
    """Awaits a promise. Raises the library's error as the error class of the same name in this package."""
    from pyodide.ffi import JsException

    try:
        return await promise
    except JsException as error:
        from .. import errors

        found = getattr(errors, str(error.name), None)
        made = found if isinstance(found, type) and issubclass(found, WgpuEpError) else InputError
        raise made(str(error.message)) from error
