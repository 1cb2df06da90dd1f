"""What the body of a map reads, as slots: whoever divides a map relies on operands, coordinates and what is returned as it is."""

from __future__ import annotations

import dataclasses
import random
import re
from importlib.resources import files

import pytest

from onnxruntime_ep_wgpu.compiler.ir import Body, Element, Map, Read, Storage, Tensor, View
from onnxruntime_ep_wgpu.compiler.nodes.divide import BindingsError, divided
from onnxruntime_ep_wgpu.compiler.templates.files import map_body
from onnxruntime_ep_wgpu.program.dtypes import DType
from tests.support import target

BODIES = sorted(
    it.name.removesuffix(".wgsl") for it in files("onnxruntime_ep_wgpu.compiler.emit.wgsl.bodies").iterdir()
)


def shown(body: Body) -> str:
    return body.text(lambda operand: f"{operand}_at")


def coordinates(body: Body, operand: str) -> list[list[str]]:
    return [list(map(shown, it.coordinates)) for it in body.elements(operand)]


def expression(rng: random.Random, depth: int) -> str:
    """WGSL with calls and elements inside of each other."""
    if depth == 0:
        return rng.choice(["i", "3u", "$extent", "(i + 1u)"])
    inside = [expression(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    name = rng.choice(["x_at", "y_at", "index_at", "min", "u32", "element_of", "at", "max_at_least"])
    return f"{name}({', '.join(inside)}) {rng.choice('+-*')} {expression(rng, depth - 1)}"


@pytest.mark.parametrize("seed", range(50))
def test_a_body_without_changes_is_its_text(seed: int) -> None:
    rng = random.Random(seed)
    text = "".join(
        f"{rng.choice(['let v = ', 'return ', 'if (i < 2u) { return '])}{expression(rng, rng.randint(0, 4))}; "
        for _ in range(3)
    )
    body = Body.of(text)
    assert shown(body) == text
    assert shown(body.changed("x", lambda it: Body((it,)))) == text
    for operand in ("x", "y", "index"):
        assert len(list(body.elements(operand))) == len(re.findall(rf"\b{operand}_at\(", text))
        gone = body.changed(operand, lambda _: Body(("0u",)))
        assert not list(gone.elements(operand))
        assert not re.search(rf"\b{operand}_at\(", shown(gone))


@pytest.mark.parametrize("name", BODIES)
def test_every_body_has_its_text(name: str) -> None:
    assert shown(Body.of(map_body(name))) == map_body(name)


def test_elements_are_known_with_their_coordinates() -> None:
    body = Body.of("let k = index_at(n) + 1i; return x_at(outer, u32(index_at(x_at(0u, max(i, k)))), inner);")
    assert coordinates(body, "index") == [["n"], ["x_at(0u, max(i, k))"]]
    assert coordinates(body, "x") == [["outer", "u32(index_at(x_at(0u, max(i, k))))", "inner"], ["0u", "max(i, k)"]]
    assert [it.returned for it in body.elements("x")] == [True, False]
    assert coordinates(Body.of("return scalar_at();"), "scalar") == [[]]


def test_only_a_statement_that_returns_an_element_returns_it() -> None:
    for text in (
        "return x_at(i) * 2f;",
        "return -x_at(i);",
        "return select(x_at(i), 0f, false);",
        "no_return x_at(i);",
    ):
        assert [it.returned for it in Body.of(text).elements("x")] == [False], text
    assert Body.of("if (i < 2u) { return x_at(i); } ").parts[1] == Element("x", (Body(("i",)),), True)


def test_open_parentheses_are_refused() -> None:
    with pytest.raises(ValueError, match="open"):
        Body.of("return x_at(min(i, 2u);")


@pytest.mark.parametrize(
    ("body", "pages"), [("return x_at(u32(k_at(n)));", True), ("return x_at(u32(k_at(n))) * 2f;", False)]
)
def test_pages_are_taken_of_what_is_only_picked(body: str, pages: bool) -> None:
    """A map that calculates something of an element would do so with what the map before it has stored, too."""
    x, k = (Tensor(dtype, (size,), Storage.INPUT) for dtype, size in ((DType.FLOAT32, 4096), (DType.INT32, 8)))
    output = Tensor(DType.FLOAT32, (8,))
    reads = {"x": Read(View.of(x), (1,)), "k": Read(View.of(k), (1,))}
    node = Map(output, reads, body=Body.of(body), coordinates=("n",), groups=(1,))
    on = dataclasses.replace(target(), max_binding_bytes=2048, max_storage_buffers=6)
    if pages:
        assert len(divided(node, on)) > 1
    else:
        with pytest.raises(BindingsError):
            divided(node, on)
