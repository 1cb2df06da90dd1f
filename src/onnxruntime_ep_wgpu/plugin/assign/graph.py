"""Reads a graph from ONNX Runtime.

In: an OrtGraph, from GetCapability (a model, or the body of a control-flow node) or Compile (one fused group). Out: a
`ShownGraph` with the same values, types, attributes and opsets; `node.handle` is the OrtNode. A node without a name gets one.
Initializers are views of ONNX Runtime's memory, never copies, and are valid as long as the OrtGraph. `in_files` has their
places in files, by address.
Invariants: the attribute of a body has no value (each body is a separate OrtGraph), and the outer values that the body reads
are in `implicit_inputs`. A value of an enclosing graph is an input here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._ort import ffi
from ...errors import ModelError, cut
from ...program.dtypes import element_count
from ...runtime.weight_sources import FilePlace
from ..abi import NULL, Ort, OrtError, address, file_text, text
from ..memory.descriptors import ONNX_BITS, ONNX_CODES
from .external import ExternalData
from .shown import STRING, Constant, Extent, ShownAttribute, ShownGraph, ShownNode, ShownValue

if TYPE_CHECKING:
    from collections.abc import Callable

# OrtOpAttrType, by number.
_INT, _INTS, _FLOAT, _FLOATS, _STRING, _STRINGS, _GRAPH, _TENSOR = range(1, 9)


def read(ort: Ort, graph: Any) -> ShownGraph:
    """Returns the graph, with nodes in topological order. Raises OrtError if a call of ONNX Runtime fails."""
    return _Reader(ort).graph(graph)


def read_parent(ort: Ort, graph: Any) -> ShownNode | None:
    """Returns the node that has this graph as a body, with its values but outside any graph; None for a main graph."""
    parent = ort.get(ort.api.Graph_GetParentNode, graph, "const OrtNode *")
    return _Reader(ort).node(parent) if parent else None


def read_bodies(ort: Ort, node: ShownNode) -> dict[str, ShownGraph]:
    """Returns the bodies of a node, by attribute."""
    count = ort.get(ort.api.Node_GetNumSubgraphs, node.handle, "size_t")
    graphs, names = ffi.new("const OrtGraph *[]", max(1, count)), ffi.new("const char *[]", max(1, count))
    ort.check_status(ort.api.Node_GetSubgraphs(node.handle, graphs, count, names))
    return {text(names[k]): read(ort, graphs[k]) for k in range(count)}


def fused_names(ort: Ort, node: Any) -> tuple[list[str], list[str]]:
    """Returns the names of the inputs and outputs of a group's OrtNode; "" for an omitted one."""
    api = ort.api
    ends = (api.Node_GetNumInputs, api.Node_GetInputs), (api.Node_GetNumOutputs, api.Node_GetOutputs)
    inputs, outputs = (_names_of(ort, ort.list(*end, node, "const OrtValueInfo *")) for end in ends)
    return inputs, outputs


def optional_inputs(ort: Ort, graph: Any) -> set[str]:
    """Returns the inputs of an OrtGraph with a default value in the model, which a run may replace."""
    infos = ort.list(ort.api.Graph_GetNumInputs, ort.api.Graph_GetInputs, graph, "const OrtValueInfo *")
    return {*_names_of(ort, [it for it in infos if ort.get(ort.api.ValueInfo_IsOptionalGraphInput, it, "bool")])}


def _names_of(ort: Ort, infos: Iterable[Any]) -> list[str]:
    return [text(ort.get(ort.api.GetValueInfoName, it, "const char *")) if it else "" for it in infos]


def onnx_code(code: int) -> int:
    """Converts ONNX Runtime's number of an element type to ONNX's."""
    return ONNX_CODES.get(code, code)


class _Reader:
    """Reads one graph, and finds values by name."""

    def __init__(self, ort: Ort) -> None:
        self.ort, self.api = ort, ort.api
        self._values: dict[str, ShownValue] = {}
        self._seen: dict[Any, ShownValue | None] = {}  # by OrtValueInfo, which every reader of a value has
        self._infos: dict[str, Any] = {}
        self._in_files: dict[int, FilePlace] = {}
        # Reused by the many calls with one result.
        self._text = ffi.new("const char **")
        self._size = ffi.new("size_t *")
        self._int = ffi.new("int *")

    def graph(self, graph: Any) -> ShownGraph:
        api, every = self.api, self.ort.list
        # ONNX Runtime returns NULL for an input with the name "". No node can read it.
        infos = every(api.Graph_GetNumInputs, api.Graph_GetInputs, graph, "const OrtValueInfo *")
        given = [self._value(info) for info in infos if info]
        infos = every(api.Graph_GetNumInitializers, api.Graph_GetInitializers, graph, "const OrtValueInfo *")
        for info in infos:
            if info:
                self._value(info)
        handles = every(api.Graph_GetNumNodes, api.Graph_GetNodes, graph, "const OrtNode *")
        nodes = [self.node(handle) for handle in handles]
        infos = every(api.Graph_GetNumOutputs, api.Graph_GetOutputs, graph, "const OrtValueInfo *")
        if not all(infos):
            where = f"output {infos.index(NULL)} of the graph {cut(self._string(api.Graph_GetName, graph))}"
            raise ModelError(f"{where} has no name; give it the name of an output of a node")
        outputs = [self._value(info) for info in infos]
        _name(nodes)
        external = ExternalData(self.ort, file_text(self.ort.get(api.Graph_GetModelPath, graph, "const ORTCHAR_T *")))
        free = [value for value in self._values.values() if value.maker is None]
        constants = [value for value in free if self._constant(value, external)]
        known = {id(value) for value in constants}
        inputs = list(dict.fromkeys([*given, *free]))
        return ShownGraph(
            self._string(api.Graph_GetName, graph),
            [value for value in inputs if id(value) not in known],
            outputs,
            nodes,
            # ONNX Runtime lists the initializers of a fused graph in a different order in each process.
            {value.name: value for value in sorted(constants, key=lambda it: it.name)},
            self._opsets(graph),
            self._in_files,
        )

    def _string(self, function: Callable[..., Any], obj: Any) -> str:
        if not obj:
            raise OrtError("ONNX Runtime passed NULL instead of an object with a name")
        self.ort.check_status(function(obj, self._text))
        return text(self._text[0])

    def _opsets(self, graph: Any) -> dict[str, int]:
        count = self.ort.get(self.api.Graph_GetNumOperatorSets, graph, "size_t")
        domains, versions = ffi.new("const char *[]", max(1, count)), ffi.new("int64_t[]", max(1, count))
        self.ort.check_status(self.api.Graph_GetOperatorSets(graph, domains, versions, count))
        return {text(domains[i]): int(versions[i]) for i in range(count)}

    def _optional(self, info: Any) -> ShownValue | None:
        """Returns the value of an input or output; None for an omitted one."""
        if info in self._seen:
            return self._seen[info]
        name = self._string(self.api.GetValueInfoName, info) if info else ""
        found = self._seen[info] = self._named(name, info) if name else None
        return found

    def _value(self, info: Any) -> ShownValue:
        return self._named(self._string(self.api.GetValueInfoName, info), info)

    def _named(self, name: str, info: Any) -> ShownValue:
        value = self._values.get(name)
        if value is None:
            value = self._values[name] = ShownValue(name, *self._type(info))
            self._infos[name] = info
        return value

    def _type(self, info: Any) -> tuple[int | None, tuple[Extent, ...] | None]:
        """Returns the element type, None if the value is not a tensor, and the shape, None if the rank is unknown."""
        api, check_status = self.api, self.ort.check_status
        tensor = None
        kind = self.ort.get(api.GetValueInfoTypeInfo, info, "const OrtTypeInfo *")
        if kind:
            tensor = self.ort.get(api.CastTypeInfoToTensorInfo, kind, "const OrtTensorTypeAndShapeInfo *")
        if not tensor:
            return None, None
        check_status(api.GetTensorElementType(tensor, self._int))
        code = onnx_code(self._int[0])
        if not api.TensorTypeAndShape_HasShape(tensor):
            return code, None
        check_status(api.GetDimensionsCount(tensor, self._size))
        rank = self._size[0]
        if not rank:
            return code, ()
        sizes, names = ffi.new("int64_t[]", rank), ffi.new("const char *[]", rank)
        check_status(api.GetDimensions(tensor, sizes, rank))
        dims: list[Extent] = list(ffi.unpack(sizes, rank))
        if any(isinstance(size, int) and size < 0 for size in dims):
            check_status(api.GetSymbolicDimensions(tensor, names, rank))
            dims = [
                size if isinstance(size, int) and size >= 0 else text(names[i]) or None for i, size in enumerate(dims)
            ]
        return code, tuple(dims)

    def node(self, handle: Any) -> ShownNode:
        api, every = self.api, self.ort.list
        self.ort.check_status(api.Node_GetSinceVersion(handle, self._int))
        since = self._int[0]
        inputs = every(api.Node_GetNumInputs, api.Node_GetInputs, handle, "const OrtValueInfo *")
        outputs = every(api.Node_GetNumOutputs, api.Node_GetOutputs, handle, "const OrtValueInfo *")
        node = ShownNode(
            self._string(api.Node_GetDomain, handle),
            self._string(api.Node_GetOperatorType, handle),
            since,
            self._string(api.Node_GetName, handle),
            [self._optional(info) for info in inputs],
            # An omitted output still needs its own value.
            [self._optional(info) or ShownValue("") for info in outputs],
            [
                self._attribute(it)
                for it in every(api.Node_GetNumAttributes, api.Node_GetAttributes, handle, "const OrtOpAttr *")
            ],
            handle=handle,
        )
        for value in node.outputs:
            value.maker = node
        infos = every(api.Node_GetNumImplicitInputs, api.Node_GetImplicitInputs, handle, "const OrtValueInfo *")
        node.implicit_inputs = [self._value(info) for info in infos if info]
        return node

    def _attribute(self, handle: Any) -> ShownAttribute:
        api = self.api
        name = self._string(api.OpAttr_GetName, handle)
        status = api.OpAttr_GetType(handle, self._int)
        if status:  # a kind that the C API cannot read, such as a body
            api.ReleaseStatus(status)
            # The C API cannot read a type either. Only Optional has such an attribute.
            return ShownAttribute(name, "type" if name == "type" else "graph")
        kind = self._int[0]
        if kind == _INT:
            number = ffi.new("int64_t *")
            self.ort.check_status(api.ReadOpAttr(handle, kind, number, 8, self._size))
            return ShownAttribute(name, "int", int(number[0]))
        if kind == _FLOAT:
            real = ffi.new("float *")
            self.ort.check_status(api.ReadOpAttr(handle, kind, real, 4, self._size))
            return ShownAttribute(name, "float", float(real[0]))
        if kind == _TENSOR:
            return ShownAttribute(name, "tensor", self._attribute_tensor(handle))
        if kind == _GRAPH:
            return ShownAttribute(name, "graph")
        data = self._attribute_bytes(handle, kind)
        if kind == _STRING:
            return ShownAttribute(name, "string", data.decode("utf-8", "surrogateescape"))
        if kind == _STRINGS:
            return ShownAttribute(name, "strings", data.decode("utf-8", "surrogateescape").split("\0")[:-1])
        if kind == _INTS:
            return ShownAttribute(name, "ints", np.frombuffer(data, np.int64))
        return ShownAttribute(name, "floats", np.frombuffer(data, np.float32))

    def _attribute_bytes(self, handle: Any, kind: int) -> bytes:
        # With a length of 0, ReadOpAttr fails and returns the number of bytes that it needs.
        status = self.api.ReadOpAttr(handle, kind, ffi.NULL, 0, self._size)
        if status:
            self.api.ReleaseStatus(status)
        size = self._size[0]
        if not size:
            return b""
        data = ffi.new("char[]", size)
        self.ort.check_status(self.api.ReadOpAttr(handle, kind, data, size, self._size))
        return bytes(ffi.buffer(data, size))

    def _attribute_tensor(self, handle: Any) -> Constant:
        value = self.ort.get(self.api.OpAttr_GetTensorAttributeAsOrtValue, handle, "OrtValue *")
        try:
            # Unlike an initializer, this value is released here, so its elements are copied.
            return self._tensor(value, None, copy=True)
        finally:
            self.api.ReleaseValue(value)

    def _constant(self, value: ShownValue, external: ExternalData) -> bool:
        """Whether a value is a constant initializer. If so, sets its `constant`."""
        info = self._infos[value.name]
        if not self.ort.get(self.api.ValueInfo_IsConstantInitializer, info, "bool"):
            return False
        place = external.of(info)
        try:
            data = self.ort.get(self.api.ValueInfo_GetInitializerValue, info, "const OrtValue *")
        except OrtError:
            # An initializer of the enclosing graph. ONNX Runtime looks up its place in the file in this graph.
            if place is None or value.code is None or value.shape is None:
                raise
            value.constant = self._mapped(value.name, place, value.code, _fixed(value))
            return True
        if not data:
            return False
        if value.code is not None and value.code != STRING:
            value.constant = self._tensor(data, place)
            value.shape = value.constant.shape  # ONNX Runtime can return a scalar initializer without a shape
        return True

    def _mapped(self, name: str, place: FilePlace, code: int, shape: tuple[int, ...]) -> Constant:
        """Returns an initializer as a mapping of its file. Raises ModelError if its place does not fit file or shape."""
        span, bits = place.span, _bits(code)
        where = f"the model places the initializer {cut(name)} at byte {span.offset} of {span.path}"
        try:
            raw = np.asarray(span.map())
        except (OSError, ValueError) as error:
            raise ModelError(f"{where}, with {span.nbytes} bytes: {error}") from error
        try:
            wanted = -(-element_count(shape) * bits // 8)
        except ValueError as error:
            raise ModelError(f"{where}, with {len(raw)} bytes; its shape {cut(list(shape))} has {error}") from error
        if len(raw) != wanted:
            raise ModelError(f"{where}, with {len(raw)} bytes; its shape {cut(list(shape))} needs {wanted}")
        self._in_files[raw.ctypes.data] = place
        return Constant(code, bits, shape, raw)

    def _tensor(self, value: Any, place: FilePlace | None, copy: bool = False) -> Constant:
        dims, data = ffi.new("const int64_t **"), ffi.new("const void **")
        self.ort.check_status(self.api.GetTensorElementTypeAndShapeDataReference(value, self._int, dims, self._size))
        shape = tuple(ffi.unpack(dims[0], self._size[0])) if self._size[0] else ()
        code = onnx_code(self._int[0])
        if code == STRING:
            return Constant(code, 0, shape, np.empty(0, np.uint8))
        self.ort.check_status(self.api.GetTensorData(value, data))
        if place is not None:
            self._in_files[address(data[0])] = place
        count = int(np.prod(shape, dtype=np.int64))
        nbytes = -(-count * _bits(code) // 8)
        raw = np.frombuffer(ffi.buffer(data[0], nbytes), np.uint8) if nbytes else np.empty(0, np.uint8)
        return Constant(code, _bits(code), shape, raw.copy() if copy else raw)


def _bits(code: int) -> int:
    """Returns the bits of an element, by the ONNX code of its type. Raises ModelError for a type without a size."""
    if code not in ONNX_BITS:
        raise ModelError(f"the graph has a constant of the element type {code}, which has no size")
    return ONNX_BITS[code]


def _fixed(value: ShownValue) -> tuple[int, ...]:
    return tuple(extent for extent in value.shape or () if isinstance(extent, int))


def _name(nodes: Iterable[ShownNode]) -> None:
    """Gives every node a unique name. ONNX allows empty and equal names, but reports and options need unique ones."""
    seen: set[str] = set()
    for index, node in enumerate(nodes):
        name = node.name or f"{node.op_type}_{index}"
        while name in seen:
            name = f"{name}_{index}"
        seen.add(name)
        node.name = name
