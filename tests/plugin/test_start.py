"""What a program pays before its first session: registering and listing devices loads nothing that only compiling needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from . import models

HEAVY = ("onnx", "onnx_ir", "sympy", "pycparser", "cffi", "wgpu", "rich", "ml_dtypes")


# What only sessions need, of this package and of the standard library: half of the CPU time that listing devices once took.
LATER = {
    *(
        f"onnxruntime_ep_wgpu.{part}"
        for part in ("api.reports", "api.sessions", "compiler", "device.device", "options", "runtime")
    ),
    *("json", "pathlib", "tempfile", "urllib"),
}


def modules_after(script: str) -> set[str]:
    """The modules that a process has loaded because of a script, beyond onnxruntime's."""
    code = f"import sys, onnxruntime as ort, onnxruntime_ep_wgpu as webgpu_ep\nbefore = set(sys.modules)\n{script}\n"
    code += "print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def loaded_after(script: str) -> set[str]:
    """Which of HEAVY a process has loaded that ran a script."""
    return set(HEAVY) & {name.split(".")[0] for name in modules_after(script)}


@pytest.mark.parametrize(
    "script",
    [
        "pass",
        "webgpu_ep.devices()",
        "ort.register_execution_provider_library('ep', webgpu_ep.get_library_path())\n"
        "print([d.ep_metadata for d in ort.get_ep_devices() if d.ep_name == webgpu_ep.get_ep_name()])",
        "ort.OrtValue.ortvalue_from_shape_and_type([4], float, 'cpu'); webgpu_ep.set_default_options(enableInt64=True)",
    ],
)
def test_nothing_heavy_is_loaded_before_a_graph_is_compiled(script: str) -> None:
    assert loaded_after(script) == set()


def test_listing_devices_loads_nothing_that_only_sessions_need() -> None:
    assert not modules_after("webgpu_ep.register(); webgpu_ep.devices()") & LATER


RELU = (
    "from onnx import TensorProto, helper\n"
    "x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ['n']) for n in 'xy')\n"
    "graph = helper.make_graph([helper.make_node('Relu', ['x'], ['y'])], 'g', [x], [y])\n"
    "model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)\n"
    "webgpu_ep.session(model.SerializeToString())\n"
)


def test_a_session_executes_no_sympy_and_who_uses_it_finds_it_as_always() -> None:
    loaded = modules_after(RELU)
    assert "onnx_ir" in loaded
    assert not [name for name in loaded if name.startswith("sympy.")], "onnx_ir's arithmetic with names, unused"
    used = "import onnx_ir, sympy\nassert str(onnx_ir.SymbolicDim('a') + 1) == 'a + 1'\nfrom sympy.core import Symbol\n"
    used += "assert sympy.Max(1, 2) == 2 and isinstance(Symbol('x'), sympy.Expr)\n"
    assert "sympy.core" in modules_after(RELU + used)
    assert "sympy.core" in modules_after("import sympy\nassert sympy.Integer(2)\n" + RELU + used)


def test_a_session_writes_no_model_as_text_and_who_does_finds_all_as_always() -> None:
    shown = "print(*[name for name in OF_ONNX_IR if type(sys.modules[name]).__name__ != '_LazyModule']); sys.exit()\n"
    session = f"webgpu_ep.session({models.square()!r})\nfrom onnxruntime_ep_wgpu.lazily import OF_ONNX_IR\n"
    assert not modules_after(session + shown)
    used = "import onnx\nfrom google.protobuf import json_format, text_format\nfrom onnx import compose\n"
    used += "assert json_format.Parse(json_format.MessageToJson(model), onnx.ModelProto()) == model\n"
    used += "assert text_format.Parse(text_format.MessageToString(model), onnx.ModelProto()) == model\n"
    used += "assert compose.add_prefix(model, 'a').graph.input[0].name == 'ax'\n"
    used += "for name in ('json', 'textproto'):\n"
    used += "    assert onnx.load_from_string(onnx.serialization.registry.get(name).serialize_proto(model), name) == model\n"
    assert "onnx.compose" in modules_after(RELU + used)
    assert "onnx.compose" in modules_after("import onnx\n" + RELU + used)


def test_a_session_loads_the_compiler_but_not_the_parser_of_c_headers() -> None:
    loaded = loaded_after(RELU)
    assert "onnx_ir" in loaded
    assert not loaded & {"pycparser", "cffi", "wgpu", "rich"}
