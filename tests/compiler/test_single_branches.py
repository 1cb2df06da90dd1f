"""Functions of a kernel have no `else`, and one `return`: the same results, and what no driver's compiler is slow with."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx.helper import make_node as make

from onnxruntime_ep_wgpu.compiler.emit.branches import with_single_branches
from onnxruntime_ep_wgpu.device import adapters, open_device
from tests.support import compile_model, make_model

F = np.float32
HEAD = "fn f(i: u32) -> u32 {"
BRANCHING = {
    "returns a constant": "if (i > 9u) { return 7u; }\n  return i * 2u;",
    "returns what it calls": "if (i > 9u) { return max(i, 20u); }\n  let k = i + 1u;\n  return k * k;",
    "three": "if (i < 5u) { return i; } if (i < 9u) { let a = i; return a * a; } if (i == 12u) { return 1u; } return 0u;",
    "a chain": "if (i < 5u) { return i; }\n  else if (i < 9u) { return 3u; }\n  else { return i / 2u; }",
    "else without return": "var r = 1u;\n  if (i < 3u) { r = i; } else if (i < 7u) { r += 5u; } else { r *= i; }\n  return r;",
    "changes its condition": "var k = i;\n  if (k > 4u) { k = 1u; } else { k = 8u; }\n  return k;",
    "in a block": "if (i < 4u) { return 3u; }\n  { let k = i; return k + 1u; }",
    "follows both": "var r = i;\n  if (i > 6u) { if (i > 9u) { return 0u; } r = 2u; if (i == 8u) { return 1u; } }\n  return r;",
    "goes on behind one": "if (i > 6u) { r_of(i); return 2u; } else { r_of(i); }\n  let k = i + 3u;\n  return k;",
    "both end inside": "if (i > 6u) { if (i > 9u) { return 4u; } else { return 5u; } }\n  let k = i % 4u;\n  return k;",
    "hidden in conditions": "if ((i & 1u) == 0u && (i > 3u || i == 0u)) { return u32(i > 5u); }\n  return 9u;",
    "nothing behind": "if (i > 6u) { return 2u; } else { return i; }",
}
LEFT = {
    "in a loop": "for (var k = 0u; k < i; k++) { if (k * k > i) { return k; } }\n  return i;",
    "in a switch": "switch (i) { case 1u: { return 4u; } default: { return 5u; } }",
    "written twice": "if (i > 6u) { if (i > 9u) { return 4u; } }\n  let k = i;\n  return k + 1u;",
    "another of its name": "let k = 1u;\n  if (i > 6u) { let k = 2u; if (i > k + 8u) { return 4u; } }\n  return k;",
    "nothing to do": "let k = i * 2u;\n  return k;",
}


def function(body: str) -> str:
    return f"{HEAD}\n  {body}\n}}"


@pytest.mark.parametrize("body", BRANCHING.values(), ids=BRANCHING)
def test_branches_become_single(body: str) -> None:
    text = with_single_branches(function(body))
    assert not re.search(r"\belse\b", text)
    assert len(re.findall(r"\breturn\b", text)) == 1


@pytest.mark.parametrize("body", LEFT.values(), ids=LEFT)
def test_others_are_left_as_they_are(body: str) -> None:
    assert with_single_branches(function(body)) == function(body)


def test_what_a_constant_is_behind_stands_first() -> None:
    """One `if` instead of two."""
    assert with_single_branches(function(BRANCHING["returns a constant"])).split("\n") == [
        HEAD,
        "  var returned: u32;",
        "  returned = 7u;",
        "  if (!(i > 9u)) {",
        "    returned = i * 2u;",
        "  }",
        "  return returned;",
        "}",
    ]


def test_functions_without_a_result() -> None:
    text = with_single_branches("fn put(i: u32) {\n  if (i < 4u) { y[i] = 1u; return; }\n  { y[i] = z[i]; return; }\n}")
    assert "return" not in text
    assert text.count("if (") == 2


def test_results_are_the_same() -> None:
    """Each function as it was written, and as it became, of 0 to 31."""
    cases = [function(body) for body in (BRANCHING | LEFT).values()]
    functions, stores = ["fn r_of(i: u32) { y[i] += 1u; }"], []
    for number, text in enumerate(cases):
        for place, code in enumerate((text, with_single_branches(text))):
            name = f"f{number}_{place}"
            functions.append(code.replace("fn f(", f"fn {name}(", 1))
            stores.append(f"y[{(2 * number + place) * 32 + 64}u + i] = {name}(i);")
    size = 64 + 64 * len(cases)
    head = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;"
    lines = "\n  ".join(stores)
    main = f"@compute @workgroup_size(32)\nfn main(@builtin(local_invocation_index) i: u32) {{\n  {lines}\n}}"
    device = open_device(adapters()[0])
    pipeline = device.pipeline("\n".join([head, *functions, main]), ("read_write",), "branches")
    buffer = device.buffer(4 * size)
    device.upload(buffer, 0, np.zeros(size, np.uint32).data)
    device.submit([(pipeline, device.bind_group(pipeline, [(buffer, 0, 4 * size)]), (1, 1, 1))])
    found = np.empty(size, np.uint32)
    device.download(buffer, 0, found.data)
    written, made = found[64:].reshape(len(cases), 2, 32).swapaxes(0, 1)
    np.testing.assert_array_equal(made, written)
    assert len({tuple(row) for row in written}) > len(cases) // 2  # they are different functions


def test_a_kernel_that_reads_windows_has_no_two_branches_to_inline() -> None:
    """A convolution of one place as a product: its windows are asked for 40 times in a loop."""
    nodes = [make("Conv", ["x", "w", "b"], ["y"], pads=[1, 0, 0, 0, 1, 0])]
    weights = {"w": np.ones((4, 1, 2, 2, 3), F), "b": np.ones(4, F)}
    program = compile_model(make_model(nodes, {"x": (F, [2, 1, 1, 1, 3])}, weights))
    texts = [text for kernel in program.kernels for text in kernel.wgsl]
    windows = [it for text in texts for it in re.findall(r"^fn map\w+\(.*?^}", text, re.DOTALL | re.MULTILINE)]
    assert any("returned" in it for it in windows)
    assert all("else" not in it and it.count("return ") <= 1 for it in windows)
