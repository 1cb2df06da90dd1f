"""Vectors in memory whose components several invocations store: nowhere but where to store one is to store nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as make

import onnxruntime_ep_wgpu
from onnxruntime_ep_wgpu.program.target import COMPONENT_STORES
from tests import targets
from tests.support import Runner, compile_model, make_model

F = np.float32
TEXTS = sorted((Path(onnxruntime_ep_wgpu.__file__).parent / "compiler" / "emit" / "wgsl").rglob("*.wgsl"))
# a[i][k] = v, a[i].x += v: of an array of vectors one component.
STORE = re.compile(r"\b(\w+)\[[^=;]*\](?:\[[^=;]*\]|\.[xyzw]) *[-+*|&]?= ")


def stored_by_component(text: str) -> set[str]:
    """Arrays of vectors in the memory of a workgroup or a buffer, of which the text stores components."""
    shared = set(re.findall(r"var<(?:workgroup|storage, read_write)> (\w+)\s*: array<(?!f32|u32|i32|f16|atomic)", text))
    return shared & {found[1] for line in text.split("\n") if (found := STORE.search(line))}


@pytest.mark.parametrize("path", TEXTS, ids=lambda it: it.stem)
def test_no_template_but_one_stores_components_of_shared_vectors(path: Path) -> None:
    assert stored_by_component(path.read_text("utf-8")) == ({"tiles"} if path.stem == "shared_vectors" else set())


Made = tuple[Any, tuple[Any, ...]]
RNG = np.random.default_rng(3)


def _matmul(m: int, k: int, n: int, dtype: Any = F) -> Made:
    model = make_model([make("MatMul", ["a", "b"], ["y"])], {"a": (dtype, ["m", k]), "b": (dtype, [k, "n"])})
    return model, tuple(RNG.integers(-9, 9, shape).astype(dtype) for shape in ((m, k), (k, n)))


def _transposed(m: int, k: int, n: int) -> Made:
    nodes = [make("Gemm", ["a", "b", "c"], ["g"], transA=1, transB=1), make("Gelu", ["g"], ["y"])]
    weights = {"b": RNG.normal(size=(n, k)).astype(F), "c": RNG.normal(size=n).astype(F)}
    return make_model(nodes, {"a": (F, [k, "m"])}, weights, opset=20), (RNG.normal(size=(k, m)).astype(F),)


def _packed(m: int, k: int, n: int) -> Made:
    weights = {"w": RNG.integers(0, 256, (n, k // 32, 16), np.uint8), "s": RNG.uniform(0.5, 1, n * k // 32).astype(F)}
    nodes = [make("MatMulNBits", ["a", "w", "s"], ["y"], domain="com.microsoft", K=k, N=n, bits=4, block_size=32)]
    model = make_model(nodes, {"a": (F, ["m", k])}, weights)
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return model, (RNG.normal(size=(m, k)).astype(F),)


def _attention(rows: int, keys: int, size: int, dtype: Any = F, **how: Any) -> Made:
    shapes = {name: (dtype, [1, 2, steps, size]) for name, steps in (("q", rows), ("k", keys), ("v", keys))}
    model = make_model([make("Attention", list("qkv"), ["y"], **how)], shapes, opset=23)
    return model, tuple(RNG.normal(size=shape).astype(dtype) for _, shape in shapes.values())


CASES: dict[str, Callable[[], Made]] = {
    "product": lambda: _matmul(200, 100, 130),
    "product of halves": lambda: _matmul(67, 33, 259, np.float16),
    "product of integers": lambda: _matmul(70, 40, 65, np.int32),
    "transposed product": lambda: _transposed(129, 66, 67),
    "packed product": lambda: _packed(150, 96, 70),
    "attention": lambda: _attention(100, 70, 36),
    "attention of halves": lambda: _attention(65, 129, 64, np.float16, is_causal=1),
}


@pytest.mark.costly
@pytest.mark.parametrize("name", CASES)
def test_results_are_the_same_where_components_are_not_stored_alone(name: str) -> None:
    model, arrays = CASES[name]()
    here = targets.device(targets.Way("gpu")).target
    found = []
    for features in (here.features | {COMPONENT_STORES}, here.features - {COMPONENT_STORES}):
        program = compile_model(model, replace(here, features=features))
        by_component = any(stored_by_component(text) for kernel in program.kernels for text in kernel.wgsl)
        assert by_component == (COMPONENT_STORES in features)
        if by_component <= (COMPONENT_STORES in here.features):
            found.append(Runner(program)(*arrays)[0])
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_shaders_become_spir_v_where_components_are_stored_alone() -> None:
    adapter = targets.adapters()[0]
    for backend in ("Vulkan", "Metal", "D3D12", "OpenGL"):
        features = replace(adapter, backend=backend).target().features
        assert (COMPONENT_STORES in features) == (backend == "Vulkan")
