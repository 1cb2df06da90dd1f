"""A node of an operator with attributes of enumerated text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from .compare import model

PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True)
class Example:
    """A node: `choices` has for each of its enumerated attributes the values of the schema, the first of which this node has.

    `constants` are the inputs that are initializers; `others` the attributes that go with them.
    """

    op: str
    arrays: Sequence[np.ndarray | None]
    choices: Mapping[str, Sequence[str]]
    others: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    opset: int = 22
    constants: Sequence[int] = ()
    outputs: Sequence[Any] = ()
    version: int = 1  # of the other domain

    def model(self, symbolic: bool = False, **attributes: Any) -> onnx.ModelProto:
        how = {name: values[0] for name, values in self.choices.items()} | dict(self.others) | attributes
        if how.get("auto_pad") in PADS[1:]:
            how.pop("pads", None)  # Conv takes no two answers
        named = {name: how.pop(name) for name in ("opset",) if name in how}  # an attribute, called as a parameter is
        made = model(
            self.op,
            self.arrays,
            opset=self.opset,
            outputs=self.outputs,
            constants=self.constants,
            domain=self.domain,
            version=self.version,
            symbolic=symbolic,
            **how,
        )
        made.graph.node[0].attribute.extend(onnx.helper.make_attribute(name, value) for name, value in named.items())
        return made

    def feeds(self) -> dict[str, np.ndarray]:
        given = enumerate(self.arrays)
        return {f"x{k}": it for k, it in given if it is not None and k not in self.constants}
