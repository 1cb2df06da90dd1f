"""Attributes whose text is one of a few: what the CPU provider makes of other spellings, we make of them too or refuse by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from onnxruntime_ep_wgpu.compiler.lower.ops import registry
from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests import feeding, support
from tests.ops.compare import random
from tests.provider import exact

from .enumerated import EXAMPLES, Example

FREE = {"equation"}
"""Attributes of any text."""


@pytest.fixture(autouse=True)
def way() -> None:
    """What a text stands for is known before a Target matters, so these tests run once."""


def attributes_of_text() -> Iterator[tuple[str, str, str, registry.Operator]]:
    """(domain, operator, attribute, its declaration) for every version of an operator that is declared here."""
    for schema in get_all_operator_schema():
        domain = "" if schema.domain == "ai.onnx" else schema.domain
        entry = registry.find(schema.name, domain, schema.since_version)
        if entry is None or (not domain and schema.since_version < registry.OLDEST_OPSET and schema.deprecated):
            continue
        for name, attribute in schema.attributes.items():
            if str(attribute.type).endswith(".STRING") and name in entry.attributes:
                yield domain, schema.name, name, entry


def test_every_text_is_declared_and_has_an_example() -> None:
    shown = {(it.domain, it.op, name) for it in EXAMPLES for name in it.choices}
    found = list(attributes_of_text())
    assert len(found) > 80
    for domain, op, name, entry in found:
        if name not in FREE and entry.kinds.get(name) == "str":
            assert name in entry.choices, f"{op}: {name} takes any text"
            assert (domain, op, name) in shown, f"{op}: {name} has no example"


def test_an_attribute_of_a_lowering_function_takes_no_text_at_will() -> None:
    for versions in registry._OPERATORS.values():
        for entry in versions:
            texts = {name for name, kind in entry.kinds.items() if kind == "str"}
            assert texts - entry.choices.keys() <= FREE | registry._INJECTED, entry.name


def spellings(values: Any) -> list[str]:
    """What is none of the values, and how people write them else."""
    first, *rest = values
    found = ["", first.lower(), first.upper(), first.title(), f"{first} ", "nonsense", *(it.swapcase() for it in rest)]
    return [it for it in dict.fromkeys(found) if it not in values]


CASES = [
    pytest.param(it, name, id=f"{it.domain}.{it.op}-{it.opset}-{name}-{values[0]}")
    for it in EXAMPLES
    for name, values in it.choices.items()
]


def by_cpu(example: Example, **attributes: Any) -> list[np.ndarray] | None:
    """What the CPU provider calculates; None when it refuses the node."""
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    try:
        model = example.model(**attributes).SerializeToString()
        session = ort.InferenceSession(model, exact(settings), providers=["CPUExecutionProvider"])
        return [np.asarray(it) for it in feeding.run(session, example.feeds())]
    except Exception:
        return None


def taken(example: Example, name: str, text: str) -> str | None:
    """What a text stands for here; None when it is refused, with a reason that names the attribute and the text."""
    entry = registry.find(example.op, example.domain, example.opset)
    assert entry is not None
    given = {key: values[0] for key, values in example.choices.items()} | dict(example.others) | {name: text}
    try:
        return str(registry.arguments(entry, example.opset, given, [True])[name])
    except UnsupportedError as error:
        assert f"attribute {name}={text!r} is not one of" in str(error)
        return None


@pytest.mark.parametrize(("example", "name"), CASES)
def test_spellings(example: Example, name: str) -> None:
    for value in example.choices[name]:
        assert taken(example, name, value) == value
    for text in spellings(example.choices[name]):
        ours = taken(example, name, text)
        if ours is None:
            continue
        theirs, plain = by_cpu(example, **{name: text}), by_cpu(example, **{name: ours})
        assert (theirs is None) == (plain is None), f"{text!r} is {ours!r} here, and not on the CPU provider"
        for one, other in zip(theirs or (), plain or (), strict=True):
            np.testing.assert_array_equal(one, other)


ACCEPTED = [
    pytest.param(it, name, text, id=f"{it.domain}.{it.op}-{it.opset}-{name}-{text}")
    for it in EXAMPLES
    for name, values in it.choices.items()
    for text in spellings(values)
    if taken(it, name, text) is not None
]


@pytest.mark.costly
@pytest.mark.parametrize(("example", "name", "text"), ACCEPTED)
def test_a_node_spelled_otherwise(example: Example, name: str, text: str) -> None:
    want = by_cpu(example, **{name: text})
    if want is None:
        pytest.skip("the CPU provider refuses it: it does not go with the other inputs")
    got = support.run_model(example.model(**{name: text}), *example.feeds().values())
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("text", ["tanh", "TANH", "RELU", "", "nonsense", "Tanh "])
@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_activations(op: str, text: str) -> None:
    gates, names, states = {"RNN": (1, 1, 1), "GRU": (3, 2, 1), "LSTM": (4, 3, 2)}[op]
    w = [random(1, gates * 5, n, seed=n) for n in (4, 5)]
    how = {"hidden_size": 5, "activations": [text] * names}
    example = Example(op, [random(3, 2, 4), *w], {}, how, outputs=[np.float32] * (1 + states))
    want = by_cpu(example)
    if want is None:
        with pytest.raises(UnsupportedError, match="activation"):
            support.run_model(example.model(), *example.feeds().values())
        return
    for ours, theirs in zip(support.run_model(example.model(), *example.feeds().values()), want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
