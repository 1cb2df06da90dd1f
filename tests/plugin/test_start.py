"""What a program pays before its first session: registering and listing devices loads nothing that only compiling needs."""

from __future__ import annotations

import sys

from tests import patience

from . import models

HEAVY = {"onnx", "onnx_ir", "sympy", "pycparser", "cffi", "wgpu", "rich", "ml_dtypes"}


# What only sessions need, of this package and of the standard library: half of the CPU time that listing devices once took.
LATER = {
    *(
        f"onnxruntime_ep_wgpu.{part}"
        for part in (
            *("api.reports", "api.sessions", "compiler", "device.device", "device.encoding", "device.pipelines"),
            *("device.queue", "device.work", "options", "runtime"),
        )
    ),
    *("hashlib", "json", "pathlib", "tempfile", "traceback", "urllib"),
}
RUN = """
import sys, onnxruntime as ort, onnxruntime_ep_wgpu as webgpu_ep
before = set(sys.modules)
for script in SCRIPTS:
    exec(script, globals())
    print(*sorted(set(sys.modules) - before))
"""


def modules_after(*scripts: str) -> list[set[str]]:
    """Of a process that runs these one after another: the modules that it has loaded after each, beyond onnxruntime's."""
    done = patience.run([sys.executable, "-c", f"SCRIPTS = {[*scripts]!r}\n{RUN}"])
    assert done.returncode == 0, done.stderr
    loaded = [set(line.split()) for line in done.stdout.splitlines()]
    assert len(loaded) == len(scripts), done.stdout
    return loaded


def heavy(loaded: set[str]) -> set[str]:
    return HEAVY & {name.split(".")[0] for name in loaded}


def test_nothing_heavy_is_loaded_before_a_graph_is_compiled() -> None:
    """And to list devices nothing that only sessions need."""
    scripts = (
        "pass",
        "webgpu_ep.register(); webgpu_ep.devices()",
        "ort.register_execution_provider_library('ep', webgpu_ep.get_library_path())\n"
        "assert [d.ep_metadata for d in ort.get_ep_devices() if d.ep_name == webgpu_ep.get_ep_name()]",
        "ort.OrtValue.ortvalue_from_shape_and_type([4], float, 'cpu'); webgpu_ep.set_default_options(enableInt64=True)",
    )
    loaded = modules_after(*scripts)
    assert not loaded[1] & LATER
    for script, found in zip(scripts, loaded, strict=True):
        assert not heavy(found), script


SESSION = f"webgpu_ep.session({models.square()!r})"
UNTOLD = """
from onnxruntime_ep_wgpu.lazily import OF_ONNX_IR
assert not [name for name in OF_ONNX_IR if type(sys.modules[name]).__name__ != "_LazyModule"]
"""
RELU = (
    "from onnx import TensorProto, helper\n"
    "x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ['n']) for n in 'xy')\n"
    "graph = helper.make_graph([helper.make_node('Relu', ['x'], ['y'])], 'g', [x], [y])\n"
    "model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)\n"
    "webgpu_ep.session(model.SerializeToString())\n"
)
ARITHMETIC = (
    "import onnx_ir, sympy\nassert str(onnx_ir.SymbolicDim('a') + 1) == 'a + 1'\nfrom sympy.core import Symbol\n"
    "assert sympy.Max(1, 2) == 2 and isinstance(Symbol('x'), sympy.Expr)\n"
)
TEXT = (
    "import onnx\nfrom google.protobuf import json_format, text_format\nfrom onnx import compose\n"
    "assert json_format.Parse(json_format.MessageToJson(model), onnx.ModelProto()) == model\n"
    "assert text_format.Parse(text_format.MessageToString(model), onnx.ModelProto()) == model\n"
    "assert compose.add_prefix(model, 'a').graph.input[0].name == 'ax'\n"
    "for name in ('json', 'textproto'):\n"
    "    assert onnx.load_from_string(onnx.serialization.registry.get(name).serialize_proto(model), name) == model\n"
)


def test_a_session_loads_the_compiler_and_nothing_that_it_does_not_use() -> None:
    """No arithmetic of sympy, no model as text, no parser of C headers; who uses one of them afterwards finds it as always."""
    session, untold, relu, arithmetic, text = modules_after(SESSION, UNTOLD, RELU, ARITHMETIC, TEXT)
    for loaded in (session, untold, relu):
        assert "onnx_ir" in loaded
        assert not [name for name in loaded if name.startswith("sympy.")], "onnx_ir's arithmetic with names, unused"
        assert not heavy(loaded) & {"pycparser", "cffi", "wgpu", "rich"}
    assert "sympy.core" in arithmetic
    assert "onnx.compose" in text


def test_who_uses_them_before_a_session_finds_them_as_always() -> None:
    loaded = modules_after("import onnx, sympy\nassert sympy.Integer(2)", RELU, ARITHMETIC, TEXT)
    assert {"sympy.core", "onnx.compose"} <= loaded[-1]
