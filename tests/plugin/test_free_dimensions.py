"""Free dimensions that are fixed, by name or denotation, are constants; what would have no effect is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.plugin.callbacks import held
from onnxruntime_ep_wgpu.plugin.node import ComputeInfo
from tests.links import in_a_cache

from . import models

X = np.random.default_rng(4).standard_normal((5, 8), np.float32)


def softmax() -> bytes:
    """y = softmax(x) + x over a free batch and length; the batch is called DATA_BATCH."""
    nodes = [models.node("Softmax", ["x"], ["s"], "softmax"), models.node("Add", ["s", "x"], ["y"], "add")]
    shape = ["batch", "length", 8]
    model = onnx.load_from_string(models.model(nodes, [("x", models.FLOAT, shape)], [("y", models.FLOAT, shape)]))
    model.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    return model.SerializeToString()


def program_of(make: Any) -> tuple[Any, Any]:
    """A session and the program of its only group."""
    before = set(held)
    session = make()
    (node,) = [it for at, it in list(held.items()) if at not in before and isinstance(it, ComputeInfo)]
    return session, node.group.on_device().executable.program


def symbols(**sizes: int) -> list[str]:
    _, program = program_of(lambda: webgpu_ep.session(softmax(), free_dimensions=sizes))
    return [symbol.name for symbol in program.symbols]


def test_a_program_has_a_symbol_for_each_free_dimension_that_is_not_fixed() -> None:
    assert len(symbols()) == 2
    assert len(symbols(batch=2)) == 1
    assert len(symbols(DATA_BATCH=2)) == 1
    assert symbols(batch=2, length=3) == []


def test_fixed_dimensions_are_constants_of_the_program_and_results_are_right() -> None:
    x = np.random.default_rng(5).standard_normal((2, 3, 8), np.float32)
    session, program = program_of(lambda: webgpu_ep.session(softmax(), free_dimensions={"DATA_BATCH": 2, "length": 3}))
    everything = [d for value in program.values for d in value.shape]
    everything += [d for it in program.dispatches for d in (*it.uniforms, *it.guards, *it.workgroups)]
    assert all(isinstance(d, int) for d in everything)
    assert [value.shape for value in session.get_inputs()] == [[2, 3, 8]]
    e = np.exp(x - x.max(-1, keepdims=True))
    np.testing.assert_allclose(session.run(None, {"x": x})[0], e / e.sum(-1, keepdims=True) + x, rtol=1e-5)
    with pytest.raises(Exception, match="Got: 4 Expected: 3"):
        session.run(None, {"x": np.zeros((2, 4, 8), np.float32)})


def test_overrides_in_session_options_do_the_same() -> None:
    settings = ort.SessionOptions()
    settings.add_free_dimension_override_by_denotation("DATA_BATCH", 2)
    settings.add_free_dimension_override_by_name("length", 3)
    _, program = program_of(lambda: webgpu_ep.session(softmax(), sess_options=settings))
    assert not program.symbols


def test_a_model_file_is_read_without_its_weights(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    w = np.eye(8, dtype=np.float32)
    model = models.model(
        [models.node("MatMul", ["x", "w"], ["y"], "matmul")],
        [("x", models.FLOAT, ["N", 8])],
        [("y", models.FLOAT, ["N", 8])],
        [("w", w)],
    )
    onnx.save(onnx.load_from_string(model), path, save_as_external_data=True, location="weights", size_threshold=0)
    session = webgpu_ep.session(path, free_dimensions={"N": 5})
    np.testing.assert_allclose(session.run(None, {"x": X})[0], X, rtol=1e-6)


@pytest.mark.parametrize(
    ("sizes", "part"),
    [
        ({"bacth": 2}, "no input has a free dimension 'bacth'; the model has DATA_BATCH, batch, length"),
        ({"x": 2}, "no input has a free dimension 'x'"),
        ({"batch": 0}, "'batch': 0 is not a size"),
        ({"batch": -2}, "-2 is not a size"),
        ({"batch": "2"}, "'2' is not a size"),
        ({"batch": True}, "True is not a size"),
        ({"batch": 2, "DATA_BATCH": 3}, "axis 0 of input 'x' would be 2 and 3"),
    ],
)
def test_a_wrong_override_is_an_error_that_names_it(sizes: dict[str, Any], part: str) -> None:
    with pytest.raises(webgpu_ep.OptionError, match=part):
        webgpu_ep.session(softmax(), free_dimensions=sizes)


def test_an_earlier_override_in_session_options_is_not_overlooked() -> None:
    settings = ort.SessionOptions()
    settings.add_free_dimension_override_by_name("batch", 7)
    with pytest.raises(webgpu_ep.OptionError, match="axis 0 of input 'x' is 7 and not 2"):
        webgpu_ep.session(softmax(), sess_options=settings, free_dimensions={"batch": 2})


def test_equal_sizes_by_name_and_denotation_are_no_conflict() -> None:
    assert len(symbols(batch=2, DATA_BATCH=2)) == 1


def test_what_is_no_onnx_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "model.ort"
    path.write_bytes(b"\xff" * 100)
    with pytest.raises(webgpu_ep.OptionError, match="not an ONNX"):
        webgpu_ep.session(path, free_dimensions={"batch": 2})


def squeezed(size: str) -> bytes:
    """What exporters write for `x.squeeze(1)`: a rank that the size of axis 1 decides, between nodes that do not mind."""
    text = f"""<ir_version: 10, opset_import: ["" : 17]> g (float[N, {size}, 8] x) => (float[] y)
        <int64[1] axis = {{1}}, int64 one = {{1}}, int64 place = {{1}}, float[8, 4] w>
    {{
        a = Relu (x)  shape = Shape (a)  extent = Gather (shape, place)  c = Equal (extent, one)
        r = If (c) <then_branch = t () => (float[] p) {{ p = Squeeze (a, axis) }},
                    else_branch = e () => (float[] q) {{ q = Identity (a) }}>
        m = MatMul (r, w)  s = Tanh (m)  y = Softmax <axis = -1> (s)
    }}"""
    model = onnx.parser.parse_model(text)
    weight = np.random.default_rng(2).standard_normal((8, 4), np.float32)
    kept = [it for it in model.graph.initializer if it.name != "w"]
    del model.graph.initializer[:], model.graph.input[1:]
    model.graph.initializer.extend([*kept, onnx.numpy_helper.from_array(weight, "w")])
    return model.SerializeToString()


@pytest.mark.costly
@pytest.mark.parametrize("fixed", [{}, {"N": 2}, {"L": 1}], ids=str)
def test_a_rank_that_sizes_decide_is_known_where_they_are_fixed(fixed: dict[str, int]) -> None:
    """Else the nodes behind it run on the CPU, and the reason names what decides the rank, and the way out."""
    model = squeezed("L")
    session = webgpu_ep.session(model, free_dimensions=fixed)
    behind = {
        node.op_type: node for node in webgpu_ep.report(session).nodes if node.op_type in ("MatMul", "Tanh", "Softmax")
    }
    assert len(behind) == 3
    for node in behind.values():
        assert (node.partition is None) == ("L" not in fixed)
    if "L" not in fixed:
        assert "If 'If_4' decides it in a run; fixed dimensions of inputs may determine it" in (
            behind["MatMul"].reason or ""
        )
    for size in (fixed.get("L", 1), fixed.get("L", 3)):
        x = np.random.default_rng(size).standard_normal((2, size, 8), np.float32)
        (want,) = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
        (got,) = session.run(None, {"x": x})
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def nameless() -> bytes:
    """`softmax()` whose length has no name, and behind it an input without any."""
    model = onnx.load_from_string(softmax())
    model.graph.node.append(models.node("Add", ["y", "b"], ["z"], "bias"))
    model.graph.input.append(onnx.helper.make_tensor_value_info("b", models.FLOAT, [None, 8]))
    model.graph.output[0].name = "z"
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[-2].ClearField("dim_param")
    return model.SerializeToString()


@pytest.mark.parametrize("kept", ["bytes", "file", "links"])
def test_dimensions_without_a_name_are_fixed_by_input_and_axis(kept: str, tmp_path: Path) -> None:
    model: Any = nameless()
    (tmp_path / "folder").mkdir()
    if kept != "bytes":
        proto = onnx.load_from_string(model)
        proto.graph.node.append(models.node("MatMul", ["z", "w"], ["m"], "matmul"))
        proto.graph.output[0].name = "m"
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(8, dtype=np.float32), "w"))
        model = tmp_path / "folder" / "model.onnx"
        onnx.save(proto, model, save_as_external_data=True, location="weights", size_threshold=0)
    if kept == "links":
        in_a_cache(tmp_path / "folder")
    sizes = {"x.shape[1]": 3, "b.shape[0]": 3}
    session, program = program_of(lambda: webgpu_ep.session(model, free_dimensions=sizes))
    assert [symbol.name for symbol in program.symbols] == ["batch"]
    assert [value.shape for value in session.get_inputs()] == [["batch", 3, 8], [3, 8]]
    x, b = X[:3][None], X[2:5]
    e = np.exp(x - x.max(-1, keepdims=True))
    np.testing.assert_allclose(session.run(None, {"x": x, "b": b})[0], e / e.sum(-1, keepdims=True) + x + b, rtol=1e-5)


def test_options_of_a_session_are_used_again_for_dimensions_without_a_name() -> None:
    settings = ort.SessionOptions()
    for _ in range(2):
        session = webgpu_ep.session(nameless(), sess_options=settings, free_dimensions={"b.shape[0]": 3, "batch": 2})
        assert [value.shape for value in session.get_inputs()] == [[2, None, 8], [3, 8]]


@pytest.mark.parametrize(
    ("sizes", "part"),
    [
        ({"x.shape[9]": 2}, "no input has a free dimension axis 9 of an input 'x'; the model has DATA_BATCH, b.shape"),
        ({"x.shape[2]": 2}, "axis 2 of an input 'x'"),
        ({"y.shape[0]": 2}, "axis 0 of an input 'y'"),
        ({"batch": 2, "x.shape[0]": 3}, "axis 0 of input 'x' would be 2 and 3"),
        ({"x.shape[1]": 0}, "0 is not a size"),
    ],
)
def test_a_wrong_input_and_axis_is_an_error_that_names_it(sizes: dict[str, Any], part: str) -> None:
    with pytest.raises(webgpu_ep.OptionError, match=part.replace("[", r"\[")):
        webgpu_ep.session(nameless(), free_dimensions=sizes)


def test_what_sizes_decide_is_told_with_the_way_to_fix_them() -> None:
    """Of a model with nothing else the session says so; `keys` are what the way consists of."""
    text = '<ir_version: 10, opset_import: ["" : 17]> g (float[N, L, 8] x) => (float[] y) { y = Squeeze (x) }'
    model = onnx.parser.parse_model(text)
    model.graph.input[0].type.tensor_type.shape.dim[1].ClearField("dim_param")
    with pytest.raises(webgpu_ep.FreeSizeError) as caught:
        webgpu_ep.session(model.SerializeToString())
    assert caught.value.keys == ("N", "x.shape[1]")
    assert str(caught.value).endswith("free_dimensions={'N': SIZE, 'x.shape[1]': SIZE} fixes sizes that are free")
    sizes = dict.fromkeys(caught.value.keys, 3)
    session = webgpu_ep.session(model.SerializeToString(), free_dimensions=sizes)
    assert not webgpu_ep.report(session).on_cpu
