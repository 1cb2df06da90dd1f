"""What goes wrong outside this package: each an exception that names the thing, or a right result; never a crash."""

from __future__ import annotations

import os
import sys

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx.helper import make_node as node

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.external_data import check_external_data
from onnxruntime_ep_wgpu.device import adapters
from tests import patience
from tests.support import make_model

F = np.float32


@pytest.fixture(scope="module")
def session():
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Softmax", ["m"], ["y"])]
    model = make_model(nodes, {"x": (F, ["n", 4])}, {"w": np.ones((4, 3), F)})
    return webgpu_ep.session(model.SerializeToString())


def test_a_missing_file(tmp_path):
    with pytest.raises(Exception, match=r"absent\.onnx"):
        webgpu_ep.session(tmp_path / "absent.onnx")


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("offset", "length"),
    [("-1", "16384"), ("16385", "16384"), ("16384", "99999999"), (str(2**63 - 1), "16384"), ("0", "1"), ("32768", "0")],
)
def test_weights_that_cannot_lie_where_a_model_says_are_an_error_that_names_them(offset, length, tmp_path):
    np.ones((2, 64, 64), F).tofile(tmp_path / "w.bin")
    model = make_model([node("MatMul", ["x", "w"], ["y"])], {"x": (F, [2, 64])}, {"w": np.ones((64, 64), F)})
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), ("offset", offset), ("length", length)):
        weight.external_data.add(key=key, value=value)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(Exception, match=r"'w'|initializer: w|external") as caught:
        webgpu_ep.session(tmp_path / "model.onnx")
    assert isinstance(caught.value, webgpu_ep.WgpuEpError) or "onnxruntime" in type(caught.value).__module__


@pytest.mark.parametrize("dims", [[2**62] * 3, [2**62] * 1000, [-1], [2**31, 2**31, 4]], ids=len)
def test_a_shape_that_no_memory_has_is_an_error_that_names_the_weight(dims, tmp_path):
    """Products of many extents are not calculated to their end, nor printed."""
    (tmp_path / "w.bin").write_bytes(b"")
    model = make_model([node("Identity", ["w"], ["y"])], {}, {"w": np.ones(4, F)})
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.dims[:] = dims
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="w.bin")
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(webgpu_ep.ModelError, match="'w'") as caught:
        check_external_data(tmp_path / "model.onnx")
    assert len(str(caught.value)) < 1000


def with_a_nameless(inputs=(), outputs=()):
    """Relu and a Dropout whose second output was left out, in a graph that has values named "" too."""
    model = make_model([node("Relu", ["x"], ["y"]), node("Dropout", ["x"], ["z", ""])], {"x": (F, [2])})
    for values, names in ((model.graph.input, inputs), (model.graph.output, outputs)):
        values.extend(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in names)
    return model.SerializeToString()


def test_an_output_without_a_name_is_an_error():
    with pytest.raises(webgpu_ep.ModelError, match="output 2 of the graph 'test' has no name"):
        webgpu_ep.session(with_a_nameless(outputs=[""]))


@pytest.mark.parametrize("capture", [False, True])
def test_an_input_without_a_name_is_read_by_nothing(capture):
    session = webgpu_ep.session(with_a_nameless(inputs=[""]), enableGraphCapture=capture)
    y, z = session.run(None, {"x": np.array([-1, 1], F), "": np.ones(2, F)})
    assert y.tolist() == [0, 1] and z.tolist() == [-1, 1]


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x07\x12\xff\xff\xff"])
def test_a_broken_file(tmp_path, content):
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    with pytest.raises(Exception, match=r"(?i)protobuf|model|graph"):
        webgpu_ep.session(path)


def test_an_unsupported_opset():
    model = make_model([node("Relu", ["x"], ["y"])], {"x": (F, [1])})
    model.opset_import[0].version = 999
    with pytest.raises(Exception, match="999"):
        webgpu_ep.session(model.SerializeToString())


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        ({"z": np.ones((1, 4), F)}, "z"),
        ({}, "x"),
        ({"x": np.ones((1, 1, 4), F)}, "rank"),
        ({"x": np.ones((1, 4), np.float64)}, "(?i)type"),
        ({"x": np.ones((1, 5), F)}, "x"),
    ],
    ids=["name", "missing", "rank", "type", "shape"],
)
def test_a_wrong_input_is_named_and_the_session_goes_on(session, feed, message):
    with pytest.raises(Exception, match=message):
        session.run(None, feed)
    (y,) = session.run(None, {"x": np.ones((2, 4), F)})
    np.testing.assert_allclose(y, np.full((2, 3), 1 / 3), rtol=1e-5)


def added(**inputs):
    return make_model(
        [node("Add", list(inputs), ["y"], name="sum")], {name: (F, shape) for name, shape in inputs.items()}
    )


@pytest.mark.parametrize("stock", [False, True])
def test_an_input_that_is_none_is_named(stock):
    model = added(a=["n", 4], b=["m", 4]).SerializeToString()
    webgpu_ep.devices()
    session = ort.InferenceSession(model, providers=[webgpu_ep.PROVIDER]) if stock else webgpu_ep.session(model)
    for feed in ({"a": np.ones((1, 4), F), "b": None}, {"b": np.ones((1, 4), F), "a": None}):
        (name,) = (name for name, value in feed.items() if value is None)
        with pytest.raises(Exception, match=f"input '{name}' is None; the model needs a tensor"):
            session.run(None, feed)
    assert session.run(None, {"a": np.ones((1, 4), F), "b": np.ones((1, 4), F)})[0].sum() == 8


SIZES = {"zero": np.array([0]), "two": np.array([2]), "three": np.array([3])}


@pytest.mark.parametrize(
    ("nodes", "inputs", "feed", "message"),
    [
        ([node("Reshape", ["x", "s"], ["y"], name="turn")], {"x": (F, ["n", 4]), "s": (np.int64, [2])},
         {"x": np.ones((3, 4), F), "s": np.array([5, 5])},
         "node 'turn': cannot reshape float32[3, 4] to [5, 5]; the inputs have n = 3, s[0] = 5, s[1] = 5"),
        ([node("Shape", ["x"], ["a"]), node("Gather", ["a", "zero"], ["g"]), node("Div", ["g", "two"], ["h"]),
          node("Concat", ["h", "h"], ["c"], axis=0), node("Reshape", ["x", "c"], ["y"], name="turn")],
         {"x": (F, ["?", 4])}, {"x": np.ones((5, 4), F)},
         "node 'turn': cannot reshape float32[5, 4] to [2, 2]; the inputs have x.shape[0] = 5"),
        ([node("MatMul", ["x", "z"], ["y"], name="mul")], {"x": (F, ["n", "k"]), "z": (F, ["j", 4])},
         {"x": np.ones((3, 4), F), "z": np.ones((2, 4), F)},
         "node 'mul': cannot multiply float32[3, 4] by float32[2, 4]; the inputs have n = 3, k = 4, j = 2"),
        ([node("TopK", ["x", "k"], ["y", "i"], name="best{}")], {"x": (F, ["n", "m"]), "k": (np.int64, [1])},
         {"x": np.ones((3, 4), F), "k": np.array([9])},
         "node 'best{}': TopK cannot select 9 of 4 elements; the inputs have n = 3, m = 4, k[0] = 9"),
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit_are_said_in_numbers_with_the_node(nodes, inputs, feed, message):
    session = webgpu_ep.session(make_model(nodes, inputs, SIZES).SerializeToString())
    assert not webgpu_ep.report(session).on_cpu
    with pytest.raises(webgpu_ep.InputError) as caught:
        session.run(None, feed)
    assert str(caught.value) == message


def test_a_deep_expression_is_said_in_numbers_too():
    """Sizes that depend on sizes, layer after layer: none of the names that the compiler gives them is shown."""
    nodes, axis = [node("Shape", ["x"], ["s0"])], 12
    for k in range(axis):
        nodes += [node("Mul", [f"s{k}", "two"], [f"d{k}"]), node("Div", [f"d{k}", "three"], [f"e{k}"]),
                  node("Add", [f"e{k}", f"s{k}"], [f"s{k + 1}"])]  # fmt: skip
    nodes.append(node("Reshape", ["x", f"s{axis}"], ["y"], name="turn"))
    session = webgpu_ep.session(make_model(nodes, {"x": (F, ["n", "m"])}, SIZES).SerializeToString())
    sizes = [3, 4]
    for _ in range(axis):
        sizes = [2 * size // 3 + size for size in sizes]
    with pytest.raises(webgpu_ep.InputError) as caught:
        session.run(None, {"x": np.ones((3, 4), F)})
    assert f"cannot reshape float32[3, 4] to {sizes}; the inputs have n = 3, m = 4" in str(caught.value)


@pytest.mark.parametrize(
    "use",
    [
        lambda model: webgpu_ep.session(model, validationMode="v" * 100_000),
        lambda model: webgpu_ep.session(model, **{"k" * 100_000: "1"}),
        lambda model: webgpu_ep.session(model, device="d" * 100_000),
        lambda model: webgpu_ep.session(model, free_dimensions={"f" * 100_000: 1}),
        lambda model: webgpu_ep.session(model, forceCpuNodeNames=["n" * 100_000]),
    ],
)
def test_long_values_are_cut(use):
    with pytest.raises(webgpu_ep.WgpuEpError) as caught:
        use(added(a=["n", 4], b=["m", 4]).SerializeToString())
    assert "..." in str(caught.value) and len(str(caught.value)) < 2000


def test_a_dimension_of_zero_gives_the_empty_result(session):
    (y,) = session.run(None, {"x": np.ones((0, 4), F)})
    assert y.shape == (0, 3)


def test_shapes_that_disagree_with_each_other_are_named():
    model = make_model([node("Add", ["a", "b"], ["y"])], {"a": (F, ["n", "m"]), "b": (F, ["n", "m"])})
    session = webgpu_ep.session(model.SerializeToString())
    message = r"cannot broadcast \[2, 2\] to \[3, 2\].*; input 'b' has 3 elements along axis 0, the model needs 2 \(n\)"
    with pytest.raises(Exception, match=message):
        session.run(None, {"a": np.ones((2, 2), F), "b": np.ones((3, 2), F)})


def test_a_result_above_the_limit_of_a_buffer_is_refused_with_its_size():
    nodes = [node("Expand", ["x", "s"], ["e"]), node("Relu", ["e"], ["y"])]
    model = make_model(nodes, {"x": (F, ["n", 1])}, {"s": np.array([1, 1 << 20])})
    session = webgpu_ep.session(model.SerializeToString())
    limit = adapters()[0].target().max_buffer_bytes
    rows = limit // (4 << 20) + 1
    if rows > 1 << 20:
        pytest.skip("the adapter has larger buffers than this test wants to fill with sums")
    with pytest.raises(Exception, match=rf"takes {rows * (4 << 20)} bytes, but a buffer .* at most {limit}"):
        session.run(None, {"x": np.ones((rows, 1), F)})
    assert session.run(None, {"x": np.ones((1, 1), F)})[0].sum() == 1 << 20


def test_a_weight_above_the_binding_limit_runs(tmp_path):
    size = adapters()[0].target().max_binding_bytes // 4 + 1
    if size > 1 << 27:
        pytest.skip("the adapter binds more than this test wants to allocate")
    path = tmp_path / "large.onnx"
    nodes = [node("Gather", ["w", "i"], ["g"], name="lookup"), node("Relu", ["g"], ["y"], name="relu")]
    onnx.save(make_model(nodes, {"i": (np.int64, ["n"])}, {"w": np.ones(size, F)}), path)
    session = webgpu_ep.session(path)
    assert not webgpu_ep.report(session).on_cpu
    np.testing.assert_array_equal(session.run(None, {"i": np.array([0, size - 1])})[0], [1, 1])


NO_LOADER = """
import onnxruntime as ort, onnxruntime_ep_wgpu as webgpu_ep
ort.register_execution_provider_library("ep", webgpu_ep.get_library_path())
print(len([d for d in ort.get_ep_devices() if d.ep_name == webgpu_ep.get_ep_name()]))
try:
    webgpu_ep.session("any.onnx")
except webgpu_ep.DeviceError as error:
    print(error)
"""


def test_no_adapter_is_an_error_that_says_what_to_install(tmp_path):
    """Vulkan is pointed at a driver that does not exist, which is how a machine without one looks."""
    environment = {
        **os.environ,
        "VK_ICD_FILENAMES": str(tmp_path / "none.json"),
        "VK_DRIVER_FILES": str(tmp_path / "none.json"),
    }
    done = patience.run([sys.executable, "-c", NO_LOADER], env=environment, check=True)
    devices, message = done.stdout.strip().split("\n", 1)
    assert devices == "0"
    assert "mesa-vulkan-drivers" in message or "driver" in message


def test_the_cpu_is_never_used_silently_by_session(monkeypatch):
    """InferenceSession would retry on the CPU; session() raises what the provider raised."""
    with pytest.raises(webgpu_ep.OptionError, match="validationMode"):
        webgpu_ep.session(
            make_model([node("Relu", ["x"], ["y"])], {"x": (F, [1])}).SerializeToString(), validationMode="all"
        )
    assert ort.get_available_providers()
