"""The EPContext node of a compiled model: makes one for a group, and reads one.

In: the bytes of a context, or a node. Out: an OrtNode, which ONNX Runtime takes over; the bytes, or an error. Invariants: the
attribute `source` identifies our nodes; the attribute `notes` has the digest of the bytes. A file of a context is in the folder
of the compiled model or below it.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ... import version
from ..._ort import ffi
from ...errors import ModelError, cut
from ...names import VENDOR
from ...runtime.external_path import file_beside
from ..abi import Ort
from ..assign.shown import ShownNode

DOMAIN, OPERATOR = "com.microsoft", "EPContext"
SUFFIX = ".wgpucontext"
_INT, _STRING = 1, 5  # OrtOpAttrType
_MOST_EMBEDDED = (1 << 31) - (64 << 20)  # bytes: the limit of protobuf, less some space for the rest of the model
_ADVICE = "compile the model again, or copy all of its files"


def is_context(node: ShownNode) -> bool:
    """Whether this package made it."""
    return (node.domain, node.op_type) == (DOMAIN, OPERATOR) and _attribute(node, "source", "") == VENDOR


def attributes_of(
    data: bytes | str, *, name: str, digest: str, adapter: str, model: str, embedded: bool
) -> dict[str, int | bytes]:
    """Returns the attributes of a node for the group `name`. `data`: the bytes of its context, or the name of their file.

    Raises ModelError for bytes that are too many for a model.
    """
    content = data.encode() if isinstance(data, str) else base64.b64encode(data)
    if len(content) > _MOST_EMBEDDED:
        raise ModelError(
            f"the context of {name!r} needs {len(content)} bytes in the model, more than the limit of {_MOST_EMBEDDED}:"
            " compile with"
            " ep.context_embed_mode=0, or into the folder of the model with the weights"
        )
    return {
        "main_context": 1,
        "embed_mode": int(embedded),
        "ep_cache_context": content,
        "ep_sdk_version": version.VERSION.encode(),
        "hardware_architecture": adapter.encode(),
        "onnx_model_filename": os.path.basename(model).encode("utf-8", "replace"),
        "partition_name": name.encode(),
        "source": VENDOR.encode(),
        "notes": digest.encode(),
    }


def placeholder_attributes() -> dict[str, int | bytes]:
    """Returns the attributes of a node for a group in a body. ONNX Runtime requires such a node, but does not write it."""
    return {"main_context": 0, "embed_mode": 1, "ep_cache_context": b"", "source": VENDOR.encode()}


def context_node(
    ort: Ort, name: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, int | bytes]
) -> Any:
    """Returns an OrtNode. The caller passes it to ONNX Runtime or releases it."""
    made = ffi.new("OrtOpAttr *[]", len(attributes))
    try:
        for place, (key, value) in enumerate(attributes.items()):
            data = ffi.new("int64_t *", value) if isinstance(value, int) else ffi.from_buffer(value)
            kind, length = (_INT, 1) if isinstance(value, int) else (_STRING, len(value))
            ort.check_status(ort.api.CreateOpAttr(ort.string(key), data, length, kind, made + place))
        texts = [[ffi.new("char[]", it.encode()) for it in them] for them in (inputs, outputs)]
        names = [ffi.new("const char *[]", them) for them in texts]
        node = ffi.new("OrtNode **")
        ort.check_status(
            ort.api.GetModelEditorApi().CreateNode(
                ort.string(OPERATOR),
                ort.string(DOMAIN),
                ffi.new("char[]", name.encode()),
                *(names[0], len(inputs), names[1], len(outputs)),
                *(made, len(attributes), node),
            )
        )
        return node[0]
    finally:
        for it in made:  # CreateNode takes over attributes, and sets their pointers to NULL
            if it:
                ort.api.ReleaseOpAttr(it)


def data_of(node: ShownNode, compiled: str) -> tuple[bytes, str]:
    """Returns the bytes of a node's context, and their expected digest.

    `compiled`: the path of the compiled model, "" for one in memory. Raises ModelError.
    """
    content, digest = _attribute(node, "ep_cache_context", ""), _attribute(node, "notes", "")
    raw = content.encode("utf-8", "surrogateescape")
    if _attribute(node, "embed_mode", 1) != 0:
        try:
            return base64.b64decode(raw, validate=True), digest
        except binascii.Error as error:
            raise ModelError(f"the context in the node {node.name!r} is damaged ({error}): {_ADVICE}") from error
    if not compiled:
        raise ModelError(
            f"the context of the node {node.name!r} is in {cut(content)}, and the compiled model is in memory: set"
            " ep.context_file_path to its path"
        )
    path = file_beside(Path(compiled), f"the context of {node.name!r}", content)
    try:
        return path.read_bytes(), digest
    except OSError as error:
        raise ModelError(
            f"{compiled}: the context of {node.name!r} is in {cut(content)}, which cannot be read"
            f" ({error.strerror or error}): {_ADVICE}"
        ) from error


def original_model_name(node: ShownNode) -> str:
    """Returns the file name of the original model; "" if it had none."""
    return str(_attribute(node, "onnx_model_filename", ""))


def _attribute(node: ShownNode, name: str, default: Any) -> Any:
    """Returns the value of an attribute if it has the type of `default`, otherwise `default`."""
    found = next((it.value for it in node.attributes if it.name == name), default)
    return found if type(found) is type(default) else default
