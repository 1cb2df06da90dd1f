"""Vectors in memory whose components several invocations store: nowhere but where to store one is to store nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.helper import make_node as make

import onnxruntime_ep_wgpu
from onnxruntime_ep_wgpu.program.target import COMPONENT_STORES
from tests import targets
from tests.support import compile_model, make_model

F = np.float32
TEXTS = sorted((Path(onnxruntime_ep_wgpu.__file__).parent / "compiler" / "wgsl").rglob("*.wgsl"))
# a[i][k] = v, a[i].x += v: of an array of vectors one component.
STORE = re.compile(r"\b(\w+)\[[^=;]*\](?:\[[^=;]*\]|\.[xyzw]) *[-+*|&]?= ")


def stored_by_component(text: str) -> set[str]:
    """Arrays of vectors in the memory of a workgroup or a buffer, of which the text stores components."""
    shared = set(re.findall(r"var<(?:workgroup|storage, read_write)> (\w+)\s*: array<(?!f32|u32|i32|f16|atomic)", text))
    return shared & {found[1] for line in text.split("\n") if (found := STORE.search(line))}


@pytest.mark.parametrize("path", TEXTS, ids=lambda it: it.stem)
def test_no_template_but_one_stores_components_of_shared_vectors(path: Path) -> None:
    assert stored_by_component(path.read_text("utf-8")) == ({"tiles"} if path.stem == "shared_vectors" else set())


def _matmul() -> Any:
    return make_model([make("MatMul", ["a", "b"], ["y"])], {"a": (F, [200, 100]), "b": (F, [100, 200])})


def _attention() -> Any:
    shapes = {name: (F, [1, 2, 100, 32]) for name in "qkv"}
    return make_model([make("Attention", list("qkv"), ["y"])], shapes, opset=23)


@pytest.mark.parametrize("make_one", [_matmul, _attention])
def test_kernels_store_components_where_the_adapter_says_that_they_may(make_one: Any) -> None:
    here = targets.device(targets.Way("gpu")).target
    for features in (here.features | {COMPONENT_STORES}, here.features - {COMPONENT_STORES}):
        program = compile_model(make_one(), replace(here, features=features))
        found = [stored_by_component(text) for kernel in program.kernels for text in kernel.wgsl]
        assert any(found) == (COMPONENT_STORES in features)


def test_shaders_become_spir_v_where_components_are_stored_alone() -> None:
    adapter = targets.adapters()[0]
    for backend in ("Vulkan", "Metal", "D3D12", "OpenGL"):
        features = replace(adapter, backend=backend).target().features
        assert (COMPONENT_STORES in features) == (backend == "Vulkan")
