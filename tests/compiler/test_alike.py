"""Kernels of groups that are alike are generated once; each is what would be generated for its own group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxruntime_ep_wgpu.compiler import compile as compiling
from onnxruntime_ep_wgpu.compiler.emit import alike
from onnxruntime_ep_wgpu.compiler.emit.alike import Kernels, key_of
from onnxruntime_ep_wgpu.compiler.emit.kernel_text import Source, generate
from onnxruntime_ep_wgpu.compiler.ir import Call, Function, Map, Read, Storage, Tensor, View
from onnxruntime_ep_wgpu.compiler.passes.fuse import FusedGroup
from onnxruntime_ep_wgpu.errors import UnsupportedError
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.program.target import Target
from tests.graphs.generate import generate as random_graph
from tests.language.models import Decoder, graph_of, growing_graph_of
from tests.support import compile_model, device
from tests.targets import Way

WAYS = ("own", "gpu", "browser")


class Checked(Kernels):
    """Generates every kernel again, and compares; one for all graphs of a target, so that the groups of others are alike too."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.groups = 0
        self.plain: dict[tuple[type, str], set[type]] = {}  # what is in fields that keys have as they are

    def of(self, group: FusedGroup) -> Source:
        for node in group.nodes:
            self._look_at(node, set())
        found, fresh = super().of(group), generate(group, self._target)
        self.groups += 1
        assert found.bindings == fresh.bindings  # tensors are equal when they are the same
        assert found == fresh
        return found

    def _look_at(self, value: Any, met: set[int]) -> None:
        if isinstance(value, Mapping):
            value = [*value.values()]
        if isinstance(value, list | tuple):
            for it in value:
                self._look_at(it, met)
        elif is_dataclass(value) and id(value) not in met:
            met.add(id(value))
            for it in fields(value):
                within = getattr(value, it.name)
                if it.name in alike._PLAIN:
                    self.plain.setdefault((type(value), it.name), set()).update(map(type, _atoms(within)))
                elif it.name not in ("users", "producer"):
                    self._look_at(within, met)


def _atoms(value: Any) -> list[Any]:
    return [it for item in value for it in _atoms(item)] if isinstance(value, list | tuple) else [value]


@pytest.fixture(params=WAYS)
def checked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Target, Checked]]:
    target = Way(request.param, "pair").of(device().target)
    kernels = Checked(target)
    monkeypatch.setattr(compiling, "Kernels", lambda _target: kernels)
    yield target, kernels
    assert len(kernels._known) < kernels.groups, "no two groups were alike"
    assert kernels.plain
    for where, kinds in kernels.plain.items():
        # Equal ones mean the same: 1, 1.0 and True are equal, tensors are whatever lies in them.
        numbers = kinds & {int, bool, float}
        assert len(numbers) < 2 and float not in numbers and not kinds & {Tensor, View, Read, Map, Call}, (where, kinds)


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["fp32", "fp16", "int4"])
def test_layers_of_a_decoder_share_their_kernels(kind: str, checked: tuple[Target, Checked]) -> None:
    target, kernels = checked
    compile_model(graph_of(Decoder(kind=kind, layers=3)), target)
    few, groups = len(kernels._known), kernels.groups
    compile_model(graph_of(Decoder(kind=kind, layers=5)), target)
    assert len(kernels._known) == few, "layers have their names and weights alone for themselves"
    assert kernels.groups > 2 * groups


@pytest.mark.costly
def test_a_decoder_whose_caches_grow(checked: tuple[Target, Checked]) -> None:
    compile_model(growing_graph_of(Decoder(layers=3)), checked[0])


@pytest.mark.costly
def test_any_graph(checked: tuple[Target, Checked]) -> None:
    target, kernels = checked
    for seed in range(40):
        try:
            compile_model(onnx.load_from_string(random_graph(seed)[0].model().SerializeToString()), target)
        except UnsupportedError:
            continue
    assert kernels.groups > 100


def chain(expression: str = "x + c", constant: object = 1.0, **of_tensors: object) -> FusedGroup:
    """One map of x."""
    x = Tensor(DType.FLOAT32, (8,), Storage.INPUT, "x")
    y = Tensor(DType.FLOAT32, (8,), Storage.OUTPUT, "y")
    for name, value in of_tensors.items():
        setattr(x, name, value)
    node = Map(y, {"x": Read(View.of(x), (1,))}, expression, {"c": constant})  # type: ignore[dict-item]
    return FusedGroup([node], stores=[y])


def literal(value: np.ndarray) -> FusedGroup:
    """One map of x and a weight of one element."""
    group = chain("x + w", 1.0)
    weight = Tensor(DType.of_numpy(value.dtype), (1,), Storage.WEIGHT, "w", data=value)
    (node,) = group.nodes
    node.operands["w"] = Read(View.of(weight).expand((8,)), (1,))
    return group


def squared(same: bool) -> FusedGroup:
    x, other = (Tensor(DType.FLOAT32, (8,), Storage.INPUT) for _ in range(2))
    y = Tensor(DType.FLOAT32, (8,), Storage.OUTPUT)
    reads = {"x": Read(View.of(x), (1,)), "z": Read(View.of(x if same else other), (1,))}
    return FusedGroup([Map(y, reads, "x * z")], stores=[y])


def test_what_makes_a_difference_in_the_text_makes_one_in_the_key() -> None:
    groups = [
        chain(), chain("x - c"), chain(constant=1), chain(constant=True), chain(constant=0.0), chain(constant=-0.0),
        chain(constant=0), chain(constant=False), chain(constant="1.0"), chain(dtype=DType.FLOAT16),
        chain(storage=Storage.WEIGHT), chain(producer=Map(Tensor(DType.FLOAT32, ()), {}, inline=True)), squared(True),
        squared(False), *(literal(np.array([v], kind)) for kind in (np.float32, np.float16) for v in (0.0, -0.0, 1, np.nan)),
    ]  # fmt: skip
    assert len({key_of(it)[0] for it in groups}) == len(groups)
    stored = replace(chain(), stores=[])
    assert key_of(stored)[0] != key_of(chain())[0]


def test_names_and_weights_make_none() -> None:
    assert key_of(chain(name="one"))[0] == key_of(chain(name="another"))[0]
    assert key_of(literal(np.array([np.nan], np.float32)))[0] == key_of(literal(np.array([np.nan], np.float32)))[0]
    of_weights = [chain(storage=Storage.WEIGHT, data=np.full(8, k, np.float32)) for k in range(2)]
    assert len({key_of(it)[0] for it in of_weights}) == 1


def test_every_field_of_a_map_is_in_the_key() -> None:
    x = Tensor(DType.FLOAT32, (8,), Storage.INPUT)
    y = Tensor(DType.FLOAT32, (8,), Storage.OUTPUT)
    changes = {
        "coordinates": ("i",), "groups": (1,), "parameters": {"n": 3}, "cost": 9, "inline": True, "neighbours": True,
        "iterations": 4, "expression": "x + 2", "constants": {"c": 2.0}, "functions": {"F": Function((), "1", "f32")},
    }  # fmt: skip
    node = Map(y, {"x": Read(View.of(x), (1,))}, "x + 1")
    told = {"output", "operands", "body", "origin", *changes}
    assert {it.name for it in fields(Map)} == told, "a field that this test does not know"
    keys = {
        key_of(FusedGroup([it], stores=[y]))[0] for it in (node, *(replace(node, **{k: v}) for k, v in changes.items()))
    }
    assert len(keys) == len(changes) + 1


def test_layers_with_other_constants_do_not_share(checked: tuple[Target, Checked]) -> None:
    nodes = [helper.make_node("LeakyRelu", [f"v{k}"], [f"v{k + 1}"], alpha=0.1 * (k % 3)) for k in range(6)]
    nodes = [
        node for k, it in enumerate(nodes) for node in (it, helper.make_node("Transpose", [f"v{k + 1}"], [f"t{k}"]))
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("v0", 1, ["n", "n"])], [info(f"t{k}", 1, ["n", "n"]) for k in range(6)])
    compile_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), checked[0])
