"""Graph capture: a run under a graph id gives what an uncaptured run gives, or raises; replays make nothing new."""

from __future__ import annotations

import gc
import queue
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device import adapters, open_device
from onnxruntime_ep_wgpu.plugin import captures as capture
from onnxruntime_ep_wgpu.plugin import watch
from onnxruntime_ep_wgpu.plugin.abi import Logger, text
from tests import zoo

from . import models
from .test_memo import hits

RNG = np.random.default_rng(3)
X = RNG.standard_normal((5, 8), np.float32)
OWN = 260  # a device of a test's own, so that its counters are
needs_release = pytest.mark.skipif(
    not hasattr(ort.InferenceSession, "release_captured_graph"), reason="onnxruntime before 1.27 cannot release a graph"
)
OpenSession = Callable[..., ort.InferenceSession]


def captured(model: Any = None, **options: Any) -> ort.InferenceSession:
    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    model = models.chain() if model is None else model
    return webgpu_ep.session(model, sess_options=settings, enableGraphCapture=1, **options)


def under(graph_id: int) -> ort.RunOptions:
    options = ort.RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(graph_id))
    return options


class Bound:
    """An IOBinding of x and y to device tensors."""

    def __init__(self, session: ort.InferenceSession, x: np.ndarray, y_shape: tuple[int, ...] | None = None) -> None:
        self.session, self.binding = session, session.io_binding()
        self.x = ort.OrtValue.ortvalue_from_numpy(x, "webgpu", 0)
        self.y = ort.OrtValue.ortvalue_from_shape_and_type(y_shape or x.shape, np.float32, "webgpu", 0)
        self.binding.bind_ortvalue_input("x", self.x)
        self.binding.bind_ortvalue_output("y", self.y)

    def run(self, graph_id: int = 0) -> np.ndarray:
        self.session.run_with_iobinding(self.binding, under(graph_id))
        return self.y.numpy()


def close(actual: np.ndarray, x: np.ndarray) -> None:
    np.testing.assert_allclose(actual, models.chain_reference(x), rtol=1e-4, atol=1e-4)


# Right results


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
    with pytest.raises(Exception, match="input 'x' lies in other memory"):
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
    with pytest.raises(Exception, match=r"graph 4 .*input 'x' lies in other memory.*gpu_graph_id=-1"):
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
    with pytest.raises(Exception, match="output 'y' lies in other memory"):
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


def test_tensors_of_another_device_are_copied_wherever_they_lie() -> None:
    """Tensors made by name lie on the adapter's shared device, the session runs on one of its own."""
    session = captured(deviceId=OWN)
    for rows in (5, 5, 3):
        close(Bound(session, X[:rows]).run(), X[:rows])


# Release and bounds


@needs_release
def test_a_released_id_takes_another_binding() -> None:
    session = captured()
    first, second = Bound(session, X), Bound(session, X[:3])
    for _ in range(2):
        close(first.run(7), X)
        session.release_captured_graph(7)
        close(second.run(7), X[:3])
        session.release_captured_graph(7)
    session.release_captured_graph(99)
    close(first.run(7), X)


@needs_release
@pytest.mark.parametrize("seed", range(3))
def test_runs_of_captured_graphs_are_repeated_in_c_whatever_is_run_between_them(seed: int) -> None:
    """Random runs under three ids and under none, with tensors that stay, and releases. A table says what has to be refused."""
    session, random = captured(), np.random.default_rng(seed)
    bound = [Bound(session, random.standard_normal((rows, 8)).astype(np.float32)) for rows in (3, 3, 5)]
    arrays = [it.x.numpy() for it in bound]
    graphs: dict[int, int] = {}  # which binding has been captured under an id
    before, wanted, refused = hits(), 0, 0
    for _ in range(250):
        which, graph_id = int(random.integers(3)), int(random.choice([-1, 0, 1, 2]))
        if random.random() < 0.04:
            session.release_captured_graph(graph_id)
            graphs.pop(graph_id, None)
            continue
        if random.random() < 0.2:
            arrays[which] = random.standard_normal(arrays[which].shape).astype(np.float32)
            bound[which].x.update_inplace(arrays[which])
        if graph_id >= 0 and graphs.setdefault(graph_id, which) != which:
            with pytest.raises(Exception, match=f"graph {graph_id} does not fit this run"):
                bound[which].run(graph_id)
            refused += 1
        else:
            close(bound[which].run(graph_id), arrays[which])
            wanted += 1
    assert refused > 20
    assert hits() - before > wanted // 3


def test_a_captured_run_makes_nothing_and_needs_no_python_after_some_runs() -> None:
    bound = Bound(captured(), X)
    for _ in range(4):
        close(bound.run(5), X)
    before = hits()
    for k in range(3):
        bound.x.update_inplace(X * k)
        close(bound.run(5), X * k)
    assert hits() == before + 3


@needs_release
def test_releasing_gives_the_memory_back() -> None:
    session, device = captured(models.square(), deviceId=OWN), open_device(adapters()[0], OWN)
    x = np.ones((4000, 8), np.float32)
    session.run(None, {"x": x}, under(1))
    session.run(None, {"x": x}, under(-1))
    gc.collect()
    before = device.counters["buffer_bytes"]
    session.run(None, {"x": x}, under(2))
    assert device.counters["buffer_bytes"] >= before + 2 * x.nbytes
    session.release_captured_graph(2)
    session.run(None, {"x": x}, under(1))
    assert device.counters["buffer_bytes"] == before


def test_the_end_of_a_session_gives_everything_back_at_once() -> None:
    device, x = open_device(adapters()[0], OWN), np.ones((3000, 8), np.float32)

    def use() -> int:
        session = captured(models.square(), deviceId=OWN)
        for graph_id in range(5):
            session.run(None, {"x": x}, under(graph_id))
        return device.counters["buffer_bytes"]

    use()  # fills the pool that tensors come from
    gc.collect()
    before = device.counters["buffer_bytes"]
    gc.disable()
    try:
        during = use()
    finally:
        gc.enable()
    device.wait()
    assert during >= before + 10 * x.nbytes
    assert device.counters["buffer_bytes"] <= before + x.nbytes


def test_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "MAX_GRAPHS", 2)
    session = captured()
    for graph_id in (10, 20, 10):
        session.run(None, {"x": X}, under(graph_id))
    with pytest.raises(Exception, match=r"graph 30 .*gpu_graph_id=-1"):
        session.run(None, {"x": X}, under(30))
    close(session.run(None, {"x": X}, under(-1))[0], X)
    close(session.run(None, {"x": X}, under(20))[0], X)


@needs_release
def test_a_released_id_makes_room_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "MAX_GRAPHS", 1)
    session = captured()
    session.run(None, {"x": X}, under(10))
    with pytest.raises(Exception, match=r"release_captured_graph\(id\)"):
        session.run(None, {"x": X}, under(30))
    session.release_captured_graph(10)
    close(session.run(None, {"x": X}, under(30))[0], X)


def test_shapes_beyond_the_bound_run_uncaptured_and_say_so_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(capture, "MAX_CAPTURES", 2)
    settings = ort.SessionOptions()
    settings.log_severity_level = 2
    session = webgpu_ep.session(models.chain(), sess_options=settings, enableGraphCapture=1)
    for rows in (5, 4, 3, 2, 3, 2, 5):
        close(session.run(None, {"x": X[:rows]})[0], X[:rows])
    assert capfd.readouterr().err.count("further ones run without capture") == 1


def test_replays_make_nothing_new() -> None:
    session, device = captured(), open_device(adapters()[0])
    bound = Bound(session, X)
    for _ in range(2):
        bound.run()
        session.run(None, {"x": X})
    gc.collect()  # what earlier tests left on this device
    before = device.counters
    for _ in range(300):
        session.run_with_iobinding(bound.binding)
        session.run(None, {"x": X})
    after = device.counters
    same = ("pipelines", "bind_groups", "buffers", "buffer_bytes")
    assert {key: after[key] for key in same} == {key: before[key] for key in same}
    assert after["submits"] == before["submits"] + 600


def test_a_plan_that_a_capture_uses_outlives_many_other_shapes() -> None:
    session, device = captured(models.square(), deviceId=OWN), open_device(adapters()[0], OWN)
    session.run(None, {"x": X})
    before = device.counters["bind_groups"]
    for rows in range(10, 50):
        session.run(None, {"x": np.ones((rows, 8), np.float32)}, under(-1))
    made = device.counters["bind_groups"]
    assert made > before
    np.testing.assert_array_equal(session.run(None, {"x": X * 2})[0], (X * 2) ** 2)
    assert device.counters["bind_groups"] == made


# Threads


def test_threads_replay_one_capture_and_their_own() -> None:
    session = captured()
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        try:
            bound = Bound(session, X * number)
            for turn in range(20):
                x = X * (number + turn)
                close(session.run(None, {"x": x}, under(0))[0], x)
                close(bound.run(number), X * number)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_asynchronous_runs_are_captured() -> None:
    session = captured()
    ended: queue.Queue[tuple[Any, str]] = queue.Queue()
    for factor in (1, 2, 3):
        session.run_async(None, {"x": X * factor}, lambda results, to, error: to.put((results, error)), ended)
        results, error = ended.get(timeout=60)
        assert error == ""
        close(results[0], X * factor)


def test_a_node_outside_the_thread_of_its_run_is_refused() -> None:
    captures = capture.Captures(Logger(None, None), True)  # type: ignore[arg-type]
    captures.begin("3")
    assert captures.current().graph == 3
    errors: list[BaseException] = []

    def elsewhere() -> None:
        try:
            captures.current()
        except webgpu_ep.UnsupportedError as error:
            errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "ORT_SEQUENTIAL" in str(errors[0])


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
