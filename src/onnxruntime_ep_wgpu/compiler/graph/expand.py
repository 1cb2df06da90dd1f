"""The bodies of operators that ONNX defines as functions of other operators (48 of about 200)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
import onnx_ir as ir
from onnx import helper

from ...records import dataclass
from .schemas import schema_of


@dataclass(frozen=True)
class FunctionBody:
    """Nodes with their own values: `inputs` are the formal parameters, `outputs` the results, None for an omitted one."""

    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value | None, ...]
    nodes: tuple[ir.Node, ...]
    opsets: Mapping[str, int]


def function_body(node: ir.Node, domain: str, opset: int, input_types: list[int]) -> FunctionBody | None:
    """Returns the ONNX function body of a node with substituted attributes, or None if the operator has none.

    `input_types` are ONNX element type codes, 0 for an absent input; bodies may depend on them.
    """
    schema = schema_of(node.op_type, domain, opset)
    if schema is None:
        return None
    proto = _proto(node, domain, input_types, schema)
    if proto is None:
        return None
    results = list(proto.output)
    produced = {name for step in proto.node for name in step.output} | set(proto.input)
    del proto.output[:]
    proto.output.extend(name for name in results if name in produced)  # a body omits unused results
    function = ir.serde.deserialize_function(proto)
    given = {a.name: a for a in node.attributes.values()}
    for step in function:
        for name, attribute in list(step.attributes.items()):
            if isinstance(attribute, ir.Attr) and attribute.is_ref():
                value = given.get(attribute.ref_attr_name or "") or _default(schema, attribute.ref_attr_name or "")
                del step.attributes[name]
                if value is not None:
                    step.attributes[name] = ir.Attr(name, value.type, value.value)
    opsets = dict(function.opset_imports) or {"": opset}
    by_name = {v.name: v for v in function.outputs}
    return FunctionBody(tuple(function.inputs), tuple(by_name.get(name) for name in results), tuple(function), opsets)


def _proto(node: ir.Node, domain: str, input_types: list[int], schema: Any) -> onnx.FunctionProto | None:
    version = schema.since_version
    if schema.has_context_dependent_function:
        plain = helper.make_node(
            node.op_type,
            [v.name or f"i{k}" if v is not None else "" for k, v in enumerate(node.inputs)],
            [v.name or f"o{k}" for k, v in enumerate(node.outputs)],
            domain=domain,
        )
        plain.attribute.extend(ir.to_proto(a) for a in node.attributes.values())
        types = [helper.make_tensor_type_proto(t, None).SerializeToString() if t else b"" for t in input_types]
        versions = schema.context_dependent_function_opset_versions
        text = schema.get_context_dependent_function_with_opset_version(max(versions), plain.SerializeToString(), types)
    elif schema.has_function:
        text = schema.get_function_with_opset_version(max(schema.function_opset_versions))
    else:
        return None
    if not text:
        return None
    proto: onnx.FunctionProto = onnx.FunctionProto.FromString(
        text if isinstance(text, bytes) else text.SerializeToString()
    )
    if not proto.opset_import:
        proto.opset_import.append(helper.make_opsetid("", version))
    return proto


def _default(schema: Any, name: str) -> Any | None:
    attribute = schema.attributes.get(name)
    if attribute is None or not attribute.default_value.type:
        return None
    return ir.from_proto(attribute.default_value)
