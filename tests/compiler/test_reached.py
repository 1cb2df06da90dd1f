"""Which declarations of a module its entry point reaches; browsers compile those alone."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from onnx.helper import make_node

from onnxruntime_ep_wgpu.api.web_export import REDUCING
from onnxruntime_ep_wgpu.compiler.emit.reached import reached
from onnxruntime_ep_wgpu.program.target import F16, SUBGROUP_MATRIX, MatrixUnit
from tests.support import compile_model, make_model

MAIN = "@compute @workgroup_size(SIZE)\nfn main(@builtin(local_invocation_index) lane: u32) { y[lane] = twice(y[lane]); }\n"
BINDING = "@group(0) @binding(0) var<storage, read_write> y: array<f32>;\n"
NEEDED = "const SIZE = 64u;\nfn twice(x: f32) -> f32 { return 2.0 * x; }\n"


def module(more: str) -> str:
    return f"{BINDING}{NEEDED}{more}{MAIN}"


@pytest.mark.parametrize(
    "unused",
    [
        "fn unused(x: f32) -> f32 { if (x > 0.0) { return twice(x); } return x; }",
        "fn recent(a: u32) -> u32 { return earlier(a); }\nfn earlier(a: u32) -> u32 { return a; }",
        "struct Pair { a: u32, b: array<f32, 4> }",
        "alias pair = array<f32, 2>;",
        "const LENGTH = max(4u, 3u);",
        "var<workgroup> memory: array<u32, 64>;",
        "var<private> number: u32;",
        "// a comment; with } what would end a declaration\nfn behind() {}",
        "/* fn of() { */ const WITHIN = 1u;",
    ],
)
def test_what_nothing_mentions_is_left_out(unused: str) -> None:
    found = reached(module(f"{unused}\n"))
    assert [line for line in found.split("\n") if line] == [line for line in module("").split("\n") if line]


@pytest.mark.parametrize(
    "kept",
    [
        "enable f16;",
        "requires packed_4x8_integer_dot_product;",
        "diagnostic(off,chromium.subgroup_matrix_uniformity);",
        "override width: u32 = 4u;",
        "const_assert SIZE > 3u;",
        "@group(0) @binding(1) var<uniform> dims: vec4<u32>;",
        "@fragment fn other() {}",
    ],
)
def test_what_needs_no_mention_stays(kept: str) -> None:
    assert reached(module(f"{kept}\n")) == module(f"{kept}\n")


@pytest.mark.parametrize(
    ("declared", "user"),
    [
        ("const WIDTH = 4u;", "const_assert WIDTH > 3u;"),
        ("struct Dims { d0: u32 }", "@group(0) @binding(1) var<uniform> dims: Dims;"),
        ("const HALF = SIZE / 2u;\nconst QUARTER = HALF / 2u;", "override width: u32 = QUARTER;"),
        ("alias four = vec4<f32>;\nfn of(x: four) -> f32 { return x.x; }", "@fragment fn other() { let v = of(four()); }"),
    ],
)  # fmt: skip
def test_what_a_kept_declaration_mentions_stays(declared: str, user: str) -> None:
    """Also what is declared behind its user."""
    assert reached(module(f"{declared}\n{user}\n")) == module(f"{declared}\n{user}\n")
    assert reached(module(f"{user}\n{declared}\n")) == module(f"{user}\n{declared}\n")


def test_a_local_name_keeps_what_the_module_calls_so() -> None:
    text = module("const shadowed = 1u;\n").replace("y[lane] =", "let shadowed = lane; y[shadowed] =")
    assert reached(text) == text


def test_declarations_stay_in_their_order() -> None:
    text = module("fn a() {}\nconst B = 2u;\n").replace("y[lane] =", "a(); y[lane + B] =")
    assert reached(text) == text
    names = re.findall(r"(?:fn|const) (\w+)", reached(text))
    assert names == ["SIZE", "twice", "a", "B", "main"]


def test_kernels_of_a_page_have_what_they_reach() -> None:
    """A product by matrix units needs some of the ways to load a matrix, and its template declares all."""
    units = (MatrixUnit(16, 16, 16, "f16", "f32", 32),)
    features = REDUCING.features | {F16, SUBGROUP_MATRIX}
    page = replace(REDUCING, features=features, max_workgroup_storage=48 << 10, matrices=units)
    nodes = [make_node("MatMul", ["x", "w"], ["y"])]
    model = make_model(nodes, {"x": (np.float16, [256, 256])}, {"w": np.ones((256, 256), np.float16)})
    here, there = (
        [text for kernel in compile_model(model, it).kernels for text in kernel.wgsl]
        for it in (page, replace(page, library="dawn"))
    )
    assert all(reached(it) != it for it in there)
    assert [reached(it) for it in here] == here
