"""Graph capture: a run under a graph id gives what an uncaptured run gives, or raises; replays make nothing new."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.plugin import captures as capture
from onnxruntime_ep_wgpu.plugin import watch
from onnxruntime_ep_wgpu.plugin.abi import Logger, text
from tests import zoo

from . import models
from .capturing import OWN, Bound, X, captured, close, under

OpenSession = Callable[..., ort.InferenceSession]


# Right results


@pytest.mark.costly
@pytest.mark.parametrize("name", ["tiny", "minilm"])
def test_replays_give_what_uncaptured_runs_give_for_every_shape(name: str) -> None:
    case = zoo.load(name)
    session, plain = captured(case.path), webgpu_ep.session(case.path)
    for turn in range(3):
        for index in range(case.variations):
            feed = case.inputs(index + turn * case.variations)
            for got, wanted in zip(session.run(None, feed), plain.run(None, feed), strict=True):
                np.testing.assert_array_equal(got, wanted)


def test_a_replay_sees_contents_that_changed_in_place() -> None:
    bound = Bound(captured(), X)
    for factor in (1, 2, 3, 4):
        bound.x.update_inplace(X * factor)
        close(bound.run(), X * factor)


def test_several_ids_hold_a_binding_each() -> None:
    session = captured()
    first, second = Bound(session, X), Bound(session, X[:3] * 2)
    for _ in range(3):
        close(first.run(1), X)
        close(second.run(2), X[:3] * 2)


@pytest.mark.parametrize("alias", [False, True])
def test_capture_works_under_both_provider_names(open_session: OpenSession, alias: bool) -> None:
    session = open_session(models.chain(), {"enableGraphCapture": "1"}, alias=alias)
    bound = Bound(session, X)
    for _ in range(3):
        close(session.run(None, {"x": X * 2})[0], X * 2)
        close(bound.run(), X)


@pytest.mark.costly
@pytest.mark.parametrize(
    "options",
    [{"maxNumPendingDispatches": 1}, {"validationMode": "full"}, {"sessionBufferPoolGenerations": 0}],
    ids=str,
)
def test_replays_keep_to_the_other_options(options: dict[str, Any]) -> None:
    session = captured(deviceId=OWN, **options)
    for rows in (5, 3, 5, 3):
        close(session.run(None, {"x": X[:rows]})[0], X[:rows])
        close(session.run(None, {"x": X[:4]}, under(-1))[0], X[:4])


def test_a_plain_run_beside_a_captured_binding_is_right_and_leaves_it_alone() -> None:
    session = captured()
    bound = Bound(session, X)
    for factor in (2, 3, 4):
        close(bound.run(), X)
        close(session.run(None, {"x": X * factor})[0], X * factor)
        close(session.run(None, {"x": X[:2] * factor}, under(0))[0], X[:2] * factor)
        close(bound.y.numpy(), X)


def test_arrays_and_device_names_can_be_bound() -> None:
    session = captured()
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "webgpu", 0)
    for _ in range(3):
        session.run_with_iobinding(binding)
        close(binding.copy_outputs_to_cpu()[0], X)


def test_device_tensors_fed_to_a_run_are_captured_in_place() -> None:
    session = captured()
    x = ort.OrtValue.ortvalue_from_numpy(X, "webgpu", 0)
    for factor in (1, 2, 3):
        x.update_inplace(X * factor)
        close(session.run_with_ort_values(None, {"x": x})[0].numpy(), X * factor)
    with pytest.raises(Exception, match="input 'x' is in other memory"):
        session.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(X, "webgpu", 0)})


def test_the_result_of_one_replay_is_the_input_of_another() -> None:
    session = captured()
    a, b = (ort.OrtValue.ortvalue_from_numpy(X / 4, "webgpu", 0) for _ in range(2))
    forth, back = session.io_binding(), session.io_binding()
    forth.bind_ortvalue_input("x", a)
    forth.bind_ortvalue_output("y", b)
    back.bind_ortvalue_input("x", b)
    back.bind_ortvalue_output("y", a)
    for _ in range(3):
        a.update_inplace(X / 4)
        session.run_with_iobinding(forth, under(1))
        session.run_with_iobinding(back, under(2))
        close(a.numpy(), models.chain_reference(X / 4))


def test_one_tensor_may_be_input_and_output() -> None:
    session = captured()
    value = ort.OrtValue.ortvalue_from_numpy(X, "webgpu", 0)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_ortvalue_output("y", value)
    for _ in range(3):
        value.update_inplace(X)
        session.run_with_iobinding(binding)
        close(value.numpy(), X)


def test_integers_of_64_bits_are_exact() -> None:
    nodes = [models.node("Mul", ["a", "a"], ["b"], "mul"), models.node("Add", ["b", "a"], ["c"], "add")]
    session = captured(models.model(nodes, [("a", models.INT64, ["N"])], [("c", models.INT64, ["N"])]))
    for value in (2**31 + 1, -(2**30) - 7, 3):
        a = np.array([value, 1, -1], np.int64)
        np.testing.assert_array_equal(session.run(None, {"a": a})[0], a * a + a)


def test_an_empty_tensor_is_captured() -> None:
    session = captured(models.square())
    for _ in range(3):
        assert session.run(None, {"x": np.zeros((0, 8), np.float32)})[0].shape == (0, 8)


def reshape() -> bytes:
    """y = reshape(x * x, shape)."""
    nodes = [models.node("Mul", ["x", "x"], ["a"], "mul"), models.node("Reshape", ["a", "shape"], ["y"], "reshape")]
    inputs = [("x", models.FLOAT, ["N", 8]), ("shape", models.INT64, [2])]
    return models.model(nodes, inputs, [("y", models.FLOAT, ["A", "B"])])


def test_a_plain_run_follows_an_input_that_sets_a_shape() -> None:
    session = captured(reshape())
    for shape in ((8, 5), (5, 8), (8, 5), (2, 20), (20, 2)):
        got = session.run(None, {"x": X, "shape": np.array(shape, np.int64)})[0]
        np.testing.assert_array_equal(got, (X * X).reshape(shape))


def test_a_bound_input_that_sets_a_shape_must_keep_its_value() -> None:
    session = captured(reshape())
    binding = session.io_binding()
    x, shape = (ort.OrtValue.ortvalue_from_numpy(it, "webgpu", 0) for it in (X, np.array([8, 5], np.int64)))
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_input("shape", shape)
    binding.bind_output("y")
    for turn in range(3):
        shape.update_inplace(np.array([8, 5], np.int64))
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], (X * X).reshape(8, 5), err_msg=f"turn {turn}")
        shape.update_inplace(np.array([4, 10], np.int64))
        binding.bind_output("y")
        with pytest.raises(Exception, match="an integer input that sets a shape has another value"):
            session.run_with_iobinding(binding)
        binding.bind_output("y")


def test_an_input_with_a_value_in_the_model_leaves_plain_runs_free_to_change_shape() -> None:
    model = onnx.load_from_string(models.chain())
    model.graph.input.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [8]))
    session = captured(model.SerializeToString())
    for rows in (5, 3, 5, 4):
        close(session.run(None, {"x": X[:rows]})[0], X[:rows])
    got = session.run(None, {"x": X, "b": np.arange(8, dtype=np.float32) + 100})[0]
    np.testing.assert_allclose(got, models.chain_reference(X) + 100, rtol=1e-4, atol=1e-4)
    close(session.run(None, {"x": X})[0], X)


# Refused runs


def test_another_binding_under_the_same_id_raises_and_says_what_to_do() -> None:
    session = captured()
    first, second = Bound(session, X), Bound(session, X * 2)
    first.run(4)
    with pytest.raises(Exception, match=r"graph 4 .*input 'x' is in other memory.*gpu_graph_id=-1"):
        second.run(4)
    close(second.run(5), X * 2)
    close(second.run(-1), X * 2)
    close(first.run(4), X)


def test_a_value_that_was_rebound_raises() -> None:
    session = captured()
    bound = Bound(session, X)
    bound.run()
    other = ort.OrtValue.ortvalue_from_shape_and_type(X.shape, np.float32, "webgpu", 0)
    bound.binding.bind_ortvalue_output("y", other)
    with pytest.raises(Exception, match="output 'y' is in other memory"):
        session.run_with_iobinding(bound.binding)


def test_another_shape_under_the_same_id_raises() -> None:
    session = captured()
    Bound(session, X).run()
    with pytest.raises(Exception, match=r"input 'x' has shape \[3, 8\], it was captured with \[5, 8\]"):
        Bound(session, X[:3]).run()


def test_a_run_without_capture_takes_any_binding() -> None:
    session = captured()
    for rows in (5, 3, 4):
        close(Bound(session, X[:rows]).run(-1), X[:rows])


def test_tensors_of_another_device_move_to_the_session_wherever_they_lay() -> None:
    """Tensors made by name lie on the adapter's shared device, the session runs on one of its own. Captured there they stay, also
    for another session, which copies them."""
    session, other = captured(deviceId=OWN), webgpu_ep.session(models.chain())
    bound = Bound(session, X)
    binding = other.io_binding()
    binding.bind_ortvalue_input("x", bound.x)
    binding.bind_ortvalue_output("y", bound.y)
    for factor in range(1, 10):
        bound.x.update_inplace(X * factor)
        close(bound.run(), X * factor)
        if factor > 2:
            bound.x.update_inplace(X * -factor)
            other.run_with_iobinding(binding)
            close(bound.y.numpy(), X * -factor)


# Creation


def test_nodes_elsewhere_are_named_with_their_reasons(open_session: OpenSession) -> None:
    options = {"enableGraphCapture": "1", "forceCpuNodeNames": "relu\nmul"}
    wanted = r"LeakyRelu 'relu' on CPUExecutionProvider: named in forceCpuNodeNames"
    with pytest.raises(webgpu_ep.UnsupportedError, match=wanted) as caught:
        webgpu_ep.session(models.chain(), **options)
    assert "Mul 'mul'" in str(caught.value) and "MatMul" not in str(caught.value)
    with pytest.raises(Exception, match=wanted):
        open_session(models.chain(), options, log_severity_level=4)


def test_a_model_of_which_nothing_runs_here_is_refused() -> None:
    with pytest.raises(webgpu_ep.UnsupportedError, match="Mul 'mul'"):
        captured(models.square(), forceCpuNodeNames="mul")


def test_control_flow_is_refused_by_name() -> None:
    then, other = (
        helper.make_graph(
            [models.node(op, ["x"], [f"{op}_out"], op.lower())],
            op,
            [],
            [helper.make_tensor_value_info(f"{op}_out", TensorProto.FLOAT, ["N", 8])],
        )
        for op in ("Relu", "Abs")
    )
    nodes = [models.node("If", ["c"], ["y"], "choice", then_branch=then, else_branch=other)]
    inputs = [("x", models.FLOAT, ["N", 8]), ("c", TensorProto.BOOL, [])]
    with pytest.raises(webgpu_ep.UnsupportedError, match="'choice'"):
        captured(models.model(nodes, inputs, [("y", models.FLOAT, ["N", 8])]))


def test_shape_arithmetic_may_stay_on_the_cpu() -> None:
    nodes = [
        models.node("Mul", ["x", "x"], ["y"], "mul"),
        models.node("Add", ["n", "n"], ["m"], "double"),
    ]
    inputs = [("x", models.FLOAT, ["N", 8]), ("n", models.INT64, [1])]
    session = captured(models.model(nodes, inputs, [("y", models.FLOAT, ["N", 8]), ("m", models.INT64, [1])]))
    assert [node.name for node in webgpu_ep.report(session).on_cpu] == ["double"]
    for value in (3, 4, 5):
        y, m = session.run(None, {"x": X * value, "n": np.array([value], np.int64)})
        np.testing.assert_array_equal(y, (X * value) ** 2)
        assert m.tolist() == [2 * value]


def test_without_the_option_nothing_is_captured_and_any_node_may_be_elsewhere() -> None:
    session = webgpu_ep.session(models.chain(), forceCpuNodeNames="relu")
    close(session.run(None, {"x": X}, under(3))[0], X)


def test_onnx_runtime_is_never_told_that_a_graph_is_captured() -> None:
    session = captured()
    session.run(None, {"x": X})
    provider = watch.live()[-1]
    table, ort_api = provider.pointer, provider.ort
    if ort_api.version < 26:
        pytest.skip("this ONNX Runtime has no such callbacks")
    assert not table.IsGraphCaptureEnabled(table) and not table.IsGraphCaptured(table, 0)
    status = table.ReplayGraph(table, 0)
    assert "replayed by its nodes" in text(ort_api.api.GetErrorMessage(status))
    ort_api.api.ReleaseStatus(status)


def test_an_id_that_is_no_integer_is_an_error() -> None:
    session = captured()
    options = ort.RunOptions()
    options.add_run_config_entry("gpu_graph_id", "first")
    with pytest.raises(Exception, match="first"):
        session.run(None, {"x": X}, options)
    close(session.run(None, {"x": X})[0], X)
    with pytest.raises(webgpu_ep.InputError, match=r"gpu_graph_id: 'first' is not an integer"):
        capture.Captures(Logger(None, None), True).begin("first")  # type: ignore[arg-type]
