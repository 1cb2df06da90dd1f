"""Nodes that generate text, whose bodies an earlier process has decided on and compiled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.reports import state_of
from onnxruntime_ep_wgpu.kept import folder
from onnxruntime_ep_wgpu.plugin.callbacks import held
from onnxruntime_ep_wgpu.plugin.search.node import SearchNode
from onnxruntime_ep_wgpu.program.file import header
from tests import patience
from tests.plugin import search_models
from tests.plugin.loss import device_of, lose

MODELS = search_models.models()
SCRIPT = """
import sys, numpy as np, onnxruntime_ep_wgpu as webgpu_ep
session = webgpu_ep.session(sys.argv[1])
y = session.run(None, {"input_ids": np.array([[3, 4, 5], [6, 7, 2]], np.int32)})[0]
assert all(it.on_webgpu for it in webgpu_ep.report(session).nodes)
heavy = {"onnx", "onnx_ir", "sympy"} & {name for name in sys.modules}
print(len(heavy), sum(name.startswith("onnxruntime_ep_wgpu.compiler") for name in sys.modules), y.tobytes().hex())
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(folder.VARIABLE, str(tmp_path / "cache"))


def session_of(model: onnx.ModelProto, **options: Any) -> Any:
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    return webgpu_ep.session(model.SerializeToString(), sess_options=settings, **options)


def compiled(session: Any) -> list[str]:
    return state_of(session)._compiler.compiled


def test_a_second_process_imports_no_compiler(tmp_path: Path) -> None:
    """Of an encoder and a decoder."""
    onnx.save(MODELS["BeamSearch-T5"], tmp_path / "model.onnx")
    found = []
    for _ in range(2):
        done = patience.run([sys.executable, "-c", SCRIPT, str(tmp_path / "model.onnx")])
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.split())
    (heavy, ours, y), second = found
    assert int(heavy) >= 2 and int(ours) > 50
    assert second == ["0", "0", y]


def test_reasons_against_a_node_are_known() -> None:
    first, second = session_of(MODELS["BeamSearch-nested"]), session_of(MODELS["BeamSearch-nested"])
    assert compiled(first) and not compiled(second)
    assert webgpu_ep.report(first).nodes == webgpu_ep.report(second).nodes
    assert any("must run here completely, but If (choose)" in str(it.reason) for it in webgpu_ep.report(second).nodes)


def body(model: onnx.ModelProto) -> onnx.GraphProto:
    (node,) = (it for it in model.graph.node if it.name == "search")
    return next(it.g for it in node.attribute if it.name == "decoder")


def set_vocabulary(model: onnx.ModelProto) -> None:
    (node,) = (it for it in model.graph.node if it.name == "search")
    node.attribute.append(onnx.helper.make_attribute("vocab_size", 8))


def scale_places(model: onnx.ModelProto) -> None:
    (weight,) = (it for it in body(model).initializer if it.name == "places")
    weight.CopyFrom(numpy_helper.from_array(3 * numpy_helper.to_array(weight), "places"))


def subtract(model: onnx.ModelProto) -> None:
    next(it for it in body(model).node if list(it.output) == ["x"]).op_type = "Sub"


@pytest.mark.parametrize("change", [set_vocabulary, scale_places, subtract])
def test_what_differs_is_compiled(monkeypatch: pytest.MonkeyPatch, change: Callable[[onnx.ModelProto], None]) -> None:
    model = MODELS["GreedySearch"]
    other = onnx.ModelProto()
    other.CopyFrom(model)
    change(other)
    feeds = search_models.feeds(model)
    first = session_of(model).run(None, feeds)[0]
    session = session_of(other)
    assert "search.decoder" in compiled(session)
    monkeypatch.setenv(folder.VARIABLE, folder.OFF)
    want = session_of(other).run(None, feeds)[0]
    np.testing.assert_array_equal(session.run(None, feeds)[0], want)
    assert first.shape != want.shape or (first != want).any()


def test_a_body_of_the_store_is_compiled_again() -> None:
    """As for a run that contradicts a name, or on the next device: from the graph that was shown, changed as before."""
    model, feeds = MODELS["BeamSearch-outer"], search_models.feeds(MODELS["BeamSearch-outer"])
    want = session_of(model).run(None, feeds)[0]
    before = set(held.copy().values())
    session = session_of(model, deviceId=67)
    assert not compiled(session)
    (node,) = (it for it in held.copy().values() if isinstance(it, SearchNode) and it not in before)
    program, again = node._steps["decoder"].group._next.compiled()
    assert again is not None
    assert header(again()) == header(program)
    np.testing.assert_array_equal(session.run(None, feeds)[0], want)
    lose(device_of(67))
    with pytest.raises(Exception, match="lost"):
        session.run(None, feeds)
    np.testing.assert_array_equal(session.run(None, feeds)[0], want)
