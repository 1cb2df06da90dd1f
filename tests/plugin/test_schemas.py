"""What onnxruntime's own schemas write into nodes: their defaults, which no lowering may take for something unknown."""

from __future__ import annotations

from typing import Any

import onnx
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from onnxruntime_ep_wgpu.compiler.lower.ops import registry
from onnxruntime_ep_wgpu.errors import UnsupportedError

SCHEMAS = {f"{it.domain}.{it.name}-{it.since_version}": it for it in get_all_operator_schema()}
# With other attributes than since 9, and 2; GRU has a direction that is misspelled.
OBSOLETE = {".MeanVarianceNormalization-1", ".LpPool-1", ".GlobalLpPool-1", ".GRU-1"}


def defaults_of(schema: Any) -> dict[str, Any]:
    found = {}
    for name, it in schema.attributes.items():
        attribute = onnx.AttributeProto()
        attribute.ParseFromString(it._default_value)
        if attribute.type:
            found[name] = registry._decoded(onnx.helper.get_attribute_value(attribute))
    return found


def test_a_default_that_is_written_out_is_known() -> None:
    unknown, checked = [], 0
    for name in sorted(SCHEMAS.keys() - OBSOLETE):
        schema = SCHEMAS[name]
        entry = registry.find(schema.name, schema.domain, schema.since_version)
        for attribute, value in defaults_of(schema).items() if entry is not None else ():
            checked += 1
            try:
                registry.arguments(entry, schema.since_version, {attribute: value}, [True])
            except UnsupportedError as error:
                if attribute in str(error):
                    unknown.append(f"{name}: {error}")
    assert not unknown, "\n".join(unknown)
    assert checked > 300
