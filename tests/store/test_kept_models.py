"""Compiled models that the cache keeps for `session()`: opened where the session is as one of the model, and nowhere else."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu import threads
from onnxruntime_ep_wgpu.api.kept import description_of
from onnxruntime_ep_wgpu.api.reports import state_of
from onnxruntime_ep_wgpu.kept import entry, folder
from onnxruntime_ep_wgpu.kept.folder import Folder
from onnxruntime_ep_wgpu.options import OPTIONS
from onnxruntime_ep_wgpu.plugin.context.kept_model import KIND, REFUSED
from onnxruntime_ep_wgpu.threads import wait_deferred
from tests import patience
from tests.context.compiling import WIDE, wide, wide_reference
from tests.plugin import models
from tests.plugin.loss import device_of, lose

F = np.float32
X = np.random.default_rng(3).standard_normal((5, 8)).astype(F)
ROOT = Path(__file__).resolve().parents[2]
DEVICE = 68  # number of the context that tests lose


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "of").mkdir()
    made = tmp_path / "of" / "model.onnx"
    made.write_bytes(wide())
    return made


def is_kept(session: Any) -> bool:
    """Whether a session has a compiled model of the cache."""
    return state_of(session)._model.kept is not None


def check(session: Any, seed: int = 0) -> None:
    np.testing.assert_allclose(session.run(None, {"x": X})[0], wide_reference(X, seed), rtol=1e-4, atol=1e-5)


def kept(model: Path, **options: Any) -> Any:
    """A session of a compiled model, and before it the one that leaves it there."""
    assert not is_kept(webgpu_ep.session(model, **options))
    session = webgpu_ep.session(model, **options)
    assert is_kept(session)
    return session


def entries(place: Folder) -> list[str]:
    """The names of all compiled models, and of models that are known to have none."""
    wait_deferred()
    kinds = {it.name: entry.read(place.read(it.name, used=False) or b"", None).kind for it in place.entries()}
    return [name for name, kind in kinds.items() if kind in (KIND, REFUSED)]


def described() -> bytes:
    """A model that says all that a model can say of itself, with values that nothing reads or that are of no axes."""
    text = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1], producer_name: "some", domain: "a.b",
        model_version: -3, doc_string: "words", metadata_props: ["b": "2", "a": "ä"]>
        g (float[n,8,3] x, float[] unread, float16 s, float[p,m] z) => (float[n,8,3] y, float16 t, float[k,l] v)
        { y = Relu (x) t = Neg (s) v = Exp (z) }"""
    made = onnx.parser.parse_model(text)
    made.graph.doc_string = "of the graph"
    made.graph.input[3].type.tensor_type.shape.dim[0].ClearField("dim_param")
    made.graph.input[3].type.tensor_type.shape.dim[1].dim_param = "m m"
    return made.SerializeToString()


def numbered() -> bytes:
    """Nodes without names, of which ONNX Runtime fuses some, and a constant that it calculates."""
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[n,8] x) => (float[n,8] y, int64[2] shape)
        <float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}>
        { two = Constant <value_float = 2.0> () a = Exp (w) b = Mul (a, two) c = Add (x, b) y = Softmax (c) shape = Shape (c) }"""
    return onnx.parser.parse_model(text).SerializeToString()


@pytest.mark.parametrize("model", [wide, models.chain, described, numbered])
def test_the_session_says_what_one_of_the_model_says(place: Folder, path: Path, model: Callable[[], bytes]) -> None:
    path.write_bytes(model())
    first = webgpu_ep.session(path)
    second = webgpu_ep.session(path)
    assert not is_kept(first) and is_kept(second) and not state_of(second)._compiler.compiled
    assert description_of(first) == description_of(second)
    a, b = map(webgpu_ep.report, (first, second))
    assert (a.nodes, a.values, a.library, a.device) == (b.nodes, b.values, b.library, b.device)
    assert first.get_providers() == second.get_providers()
    assert first.get_session_options().log_severity_level == second.get_session_options().log_severity_level
    types = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    sizes = {"n": 3, "m m": 2, "N": 5, None: 4}
    feeds = {
        it.name: np.linspace(0, 1, int(np.prod(shape)), dtype=types[it.type]).reshape(shape)
        for it in second.get_inputs()
        for shape in [[sizes.get(extent, extent) for extent in it.shape]]
    }
    for got, want in zip(second.run(None, feeds), first.run(None, feeds), strict=True):
        np.testing.assert_array_equal(got, want)


def test_the_device_is_opened_before_the_session_is_made(
    place: Folder, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an adapter by number. ONNX Runtime's list has the names, and fixed sizes need the model."""
    from onnxruntime_ep_wgpu.api import sessions

    for options in ({}, {"adapterIndex": 0}, {"device": 0}):
        webgpu_ep.session(path, **options)
    looked: list[Any] = []

    def look(*arguments: Any) -> Any:
        looked.append(arguments)
        return kept_models(*arguments)

    kept_models = sessions.kept_models
    monkeypatch.setattr(sessions, "kept_models", look)
    for options in ({}, {"adapterIndex": 0}, {"device": 0}):
        check(session := webgpu_ep.session(path, **options))
        assert is_kept(session) and not looked
    webgpu_ep.session(path, device=webgpu_ep.devices()[0])
    assert len(looked) == 1
    for wrong in (
        {"device": 99},
        {"adapterIndex": 99},
        {"validationMode": "none"},
        {"unknown": 1},
        {"device": "other"},
    ):
        with pytest.raises((webgpu_ep.OptionError, webgpu_ep.DeviceError, TypeError), match=next(iter(wrong))):
            webgpu_ep.session(path, **wrong)


def test_a_session_made_again_is_of_the_model(place: Folder, path: Path) -> None:
    session = kept(path)
    session.set_providers(["CPUExecutionProvider"])
    check(session)


def lose_the_device(run: Callable[[], object]) -> None:
    """Loses the device of the sessions with deviceId=DEVICE; their next run reports it."""
    device = device_of(DEVICE)
    lose(device)
    with pytest.raises(webgpu_ep.DeviceLostError):
        run()
    assert device_of(DEVICE) is not device


def test_weights_come_back_after_a_loss(place: Folder, path: Path) -> None:
    session = kept(path, deviceId=DEVICE)
    check(session)
    lose_the_device(lambda: check(session))
    check(session)


# ---- files that changed


def same_size_and_time(path: Path, data: bytes) -> None:
    known = path.stat()
    assert known.st_size == len(data)
    with open(path, "r+b") as file:  # the same inode
        file.write(data)
    os.utime(path, ns=(known.st_atime_ns, known.st_mtime_ns))


def replaced(path: Path, data: bytes) -> None:
    known = path.stat()
    other = path.with_name("other")
    other.write_bytes(data)
    os.utime(other, ns=(known.st_atime_ns, known.st_mtime_ns))
    os.replace(other, path)


@pytest.mark.parametrize("change", [same_size_and_time, replaced])
def test_another_model_in_the_same_file(place: Folder, path: Path, change: Callable[[Path, bytes], None]) -> None:
    check(kept(path))
    for seed in (1, 2):
        change(path, wide(seed))
        session = webgpu_ep.session(path)
        assert not is_kept(session)
        check(session, seed)
        session = webgpu_ep.session(path)
        assert is_kept(session)
        check(session, seed)
    assert len(entries(place)) == 1


def beside(path: Path, seed: int, name: str = "weights") -> None:
    onnx.save(onnx.load_from_string(wide(seed)), path, save_as_external_data=True, location=name, size_threshold=0)


def test_a_location_with_a_null_character(place: Folder, path: Path) -> None:
    """ONNX Runtime reads it up to that."""
    beside(path, 0)
    model = onnx.load(path, load_external_data=False)
    for it in model.graph.initializer:
        it.external_data[0].value += "\0x"
    onnx.save(model, path)
    for _ in range(2):
        session = webgpu_ep.session(path)
        check(session)
        assert not is_kept(session)


@pytest.mark.parametrize("change", [same_size_and_time, replaced])
def test_other_external_data(place: Folder, path: Path, change: Callable[[Path, bytes], None]) -> None:
    beside(path, 0)
    weights = path.with_name("weights")
    other = path.with_name("elsewhere.onnx")
    beside(other, 1, "others")
    check(kept(path))
    change(weights, other.with_name("others").read_bytes())
    session = webgpu_ep.session(path)
    assert not is_kept(session)
    check(session, 1)
    check(kept_now(path), 1)


def kept_now(path: Path, **options: Any) -> Any:
    session = webgpu_ep.session(path, **options)
    assert is_kept(session)
    return session


def test_models_and_weights_behind_links(place: Folder, path: Path) -> None:
    """As the cache of Hugging Face has them."""
    blobs = path.parent / "blobs"
    for seed in (0, 1):
        (blobs / str(seed)).mkdir(parents=True)
        beside(blobs / str(seed) / "m", seed, "w")
    snapshot = path.parent / "snapshot"
    snapshot.mkdir()
    (snapshot / "model.onnx").symlink_to(blobs / "0" / "m")
    (snapshot / "w").symlink_to(blobs / "0" / "w")
    check(kept(snapshot / "model.onnx"))
    for name, at in (("model.onnx", "m"), ("w", "w")):
        (snapshot / name).unlink()
        (snapshot / name).symlink_to(blobs / "1" / at)
    session = webgpu_ep.session(snapshot / "model.onnx")
    assert not is_kept(session)
    check(session, 1)


def test_a_model_that_is_written_while_it_is_opened(place: Folder, path: Path) -> None:
    kept(path)
    written: list[object] = []

    def write(progress: Any) -> None:
        if progress.part == "weights" and not written:
            written.append(progress)
            same_size_and_time(path, wide(1))

    session = webgpu_ep.session(path, on_progress=write)
    assert written and not is_kept(session)
    check(session, 1)


def test_a_file_that_is_gone(place: Folder, path: Path) -> None:
    beside(path, 0)
    kept(path)
    path.with_name("weights").unlink()
    with pytest.raises(Exception, match="weights"):
        webgpu_ep.session(path)


# ---- what decides beside the files


def test_options_and_sizes_have_compiled_models_of_their_own(place: Folder, path: Path) -> None:
    kept(path)
    kept(path, validationMode="full")
    kept(path, free_dimensions={"n": 5})
    session = kept(path, free_dimensions={"n": 6})
    assert session.get_inputs()[0].shape == [6, 8]
    shutil.copy(path, path.with_name("copy.onnx"))
    kept(path.with_name("copy.onnx"))
    webgpu_ep.set_default_options(maxNumPendingDispatches=7)
    try:
        kept(path)
    finally:
        webgpu_ep.set_default_options()
    assert len(entries(place)) == 6
    check(kept_now(path))


def test_another_onnxruntime_opens_the_model(place: Folder, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(path)
    monkeypatch.setattr(ort, "__version__", "1.99.0")
    assert not is_kept(webgpu_ep.session(path))


def test_another_adapter_opens_the_model(place: Folder, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another driver, or another tuning: all that a context says for what it was made."""
    from onnxruntime_ep_wgpu.plugin.context.build_key import BuildKey

    kept(path)
    monkeypatch.setattr(BuildKey, "differs", lambda *_: "another adapter")
    assert not is_kept(webgpu_ep.session(path))


def looped() -> bytes:
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[n,8] x, bool c) => (float[n,8] y) {
        y = If (c) <then_branch = t () => (float[n,8] a) { a = Exp (x) }, else_branch = e () => (float[n,8] b) { b = Neg (x) }> }"""
    return onnx.parser.parse_model(text).SerializeToString()


def replaceable() -> bytes:
    """An initializer that is an input too."""
    made = onnx.load_from_string(wide())
    made.graph.input.append(onnx.helper.make_tensor_value_info("b", models.FLOAT, [WIDE]))
    return made.SerializeToString()


def is_tried(session: Any) -> bool:
    """Whether a session tried to leave a compiled model."""
    return state_of(session).keeping is not None


@pytest.mark.parametrize("model", [models.doubles_beside, looped, replaceable])
def test_models_that_need_more_than_a_group_are_tried_once(
    place: Folder, path: Path, model: Callable[[], bytes]
) -> None:
    path.write_bytes(model())
    for number in range(3):
        session = webgpu_ep.session(path)
        assert not is_kept(session) and is_tried(session) == (number == 0)
    (name,) = entries(place)
    found = entry.read(place.read(name) or b"", None)
    assert found.kind == REFUSED and found.content["why"] and not found.data
    path.write_bytes(wide())
    kept(path)
    assert entries(place) == [name]


def test_what_was_refused_on_another_adapter_is_tried(
    place: Folder, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxruntime_ep_wgpu.plugin.context.build_key import BuildKey

    path.write_bytes(looped())
    assert is_tried(webgpu_ep.session(path)) and not is_tried(webgpu_ep.session(path))
    monkeypatch.setattr(BuildKey, "differs", lambda *_: "another adapter")
    assert is_tried(webgpu_ep.session(path))


def test_a_model_with_tensors_elsewhere_is_tried_once(place: Folder, path: Path) -> None:
    """In a file that an attribute names."""
    made = onnx.load_from_string(wide())
    constant = onnx.numpy_helper.from_array(np.ones((1,), F), "one")
    path.with_name("one").write_bytes(constant.raw_data)
    onnx.external_data_helper.set_external_data(constant, "one")
    constant.ClearField("raw_data")
    constant.data_location = onnx.TensorProto.EXTERNAL
    made.graph.node.append(onnx.helper.make_node("Constant", [], ["one"], value=constant))
    made.graph.node.append(onnx.helper.make_node("Mul", [made.graph.output[0].name, "one"], ["z"]))
    made.graph.output[0].name = "z"
    path.write_bytes(made.SerializeToString())
    for number in range(2):
        session = webgpu_ep.session(path)
        assert not is_kept(session) and is_tried(session) == (number == 0)


# ---- constants that are in no file of the model


CHANNELS = 64
IMAGE = {"x": np.random.default_rng(4).standard_normal((2, CHANNELS, 6, 5)).astype(F)}


def normalised() -> bytes:
    """A convolution with BatchNormalization, which ONNX Runtime joins: its weights are then in no file."""
    rng, c = np.random.default_rng(5), CHANNELS
    values = {"w": rng.standard_normal((c, c, 3, 3)) / 24, "b": rng.standard_normal(c), "scale": rng.uniform(0.5, 2, c)}
    values |= {"shift": rng.standard_normal(c), "mean": rng.standard_normal(c), "var": rng.uniform(0.5, 2, c)}
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4),
        onnx.helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["y"]),
    ]
    ends = [onnx.helper.make_tensor_value_info(it, models.FLOAT, ["n", c, "h", "w"]) for it in "xy"]
    weights = [onnx.numpy_helper.from_array(it.astype(F), name) for name, it in values.items()]
    graph = onnx.helper.make_graph(nodes, "normalised", ends[:1], ends[1:], weights)
    opsets = [onnx.helper.make_opsetid("", 21)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


@pytest.fixture
def joined(path: Path) -> Path:
    path.write_bytes(normalised())
    return path


def second_file(place: Folder) -> Path:
    (name,) = entries(place)
    return Path(place.second_path(name))


def test_constants_that_no_file_has_are_mapped_from_a_second_file(place: Folder, joined: Path) -> None:
    want = webgpu_ep.session(joined, deviceId=DEVICE).run(None, IMAGE)[0]
    session = kept_now(joined, deviceId=DEVICE)
    np.testing.assert_array_equal(session.run(None, IMAGE)[0], want)
    nbytes = CHANNELS * CHANNELS * 9 * 4
    assert second_file(place).stat().st_size == nbytes
    (name,) = entries(place)
    assert len(place.read(name) or b"") < nbytes
    assert next(it.nbytes for it in place.entries() if it.name == name) > nbytes
    lose_the_device(lambda: session.run(None, IMAGE))
    np.testing.assert_array_equal(session.run(None, IMAGE)[0], want)


@pytest.mark.skipif(os.name != "posix", reason="a file that is mapped stays")
def test_a_session_outlives_its_second_file(place: Folder, joined: Path) -> None:
    want = webgpu_ep.session(joined, deviceId=DEVICE).run(None, IMAGE)[0]
    session = kept_now(joined, deviceId=DEVICE)
    place.remove(*entries(place))
    assert not [it for it in Path(place.path).iterdir() if it.name.endswith(folder.APART_SUFFIX)]
    lose_the_device(lambda: session.run(None, IMAGE))
    np.testing.assert_array_equal(session.run(None, IMAGE)[0], want)


def test_the_second_file_goes_with_its_entry(place: Folder, joined: Path) -> None:
    webgpu_ep.session(joined)
    file = second_file(place)
    assert file.exists()
    place.remove(*entries(place))
    assert not file.exists()
    webgpu_ep.session(joined)
    joined.write_bytes(wide())
    webgpu_ep.session(joined)
    assert entries(place) and not file.exists()


def cut_off(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 4)


def changed(file: Path) -> None:
    with open(file, "r+b") as opened:
        opened.write(b"1234")


@pytest.mark.parametrize("damage", [cut_off, changed, Path.unlink])
def test_a_second_file_that_was_changed_is_written_again(
    place: Folder, joined: Path, damage: Callable[[Path], None]
) -> None:
    want = webgpu_ep.session(joined).run(None, IMAGE)[0]
    damage(second_file(place))
    for again in (False, True):
        session = webgpu_ep.session(joined)
        assert is_kept(session) == again
        np.testing.assert_array_equal(session.run(None, IMAGE)[0], want)


def test_a_second_file_of_another_process_is_not_taken(place: Folder, joined: Path) -> None:
    """Two processes wrote at once: the entry is of one, and the file of the other one."""
    webgpu_ep.session(joined)
    file = second_file(place)
    replaced(file, file.read_bytes())
    assert not is_kept(webgpu_ep.session(joined)) and is_kept(webgpu_ep.session(joined))


def test_too_many_constants_that_no_file_has_are_refused(
    place: Folder, joined: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxruntime_ep_wgpu.plugin.context import keeping

    monkeypatch.setattr(keeping, "MOST_APART_BYTES", 1 << 16)
    for number in range(2):
        session = webgpu_ep.session(joined)
        assert not is_kept(session) and is_tried(session) == (number == 0)
    assert not second_file(place).exists()


def embedded() -> bytes:
    """A table that is read by rows, and transposed by the last product, as of a language model."""
    rng = np.random.default_rng(6)
    ends = [onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["n"])]
    ends += [onnx.helper.make_tensor_value_info("y", models.FLOAT, ["n", 300])]
    nodes = [
        onnx.helper.make_node("Gather", ["table", "ids"], ["rows"]),
        onnx.helper.make_node("Tanh", ["rows"], ["t"]),
        onnx.helper.make_node("Transpose", ["table"], ["columns"], perm=[1, 0]),
        onnx.helper.make_node("MatMul", ["t", "columns"], ["y"]),
    ]
    table = onnx.numpy_helper.from_array(rng.standard_normal((300, 64)).astype(F), "table")
    graph = onnx.helper.make_graph(nodes, "embedded", ends[:1], ends[1:], [table])
    opsets = [onnx.helper.make_opsetid("", 21)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def test_a_table_that_is_transposed_is_kept_nowhere(place: Folder, path: Path) -> None:
    path.write_bytes(embedded())
    feeds = {"ids": np.arange(0, 300, 7)}
    want = webgpu_ep.session(path, deviceId=DEVICE).run(None, feeds)[0]
    session = kept_now(path, deviceId=DEVICE)
    np.testing.assert_array_equal(session.run(None, feeds)[0], want)
    (name,) = entries(place)
    assert len(place.read(name) or b"") < 300 * 64 * 4 and not Path(place.second_path(name)).exists()
    lose_the_device(lambda: session.run(None, feeds))
    np.testing.assert_array_equal(session.run(None, feeds)[0], want)


def test_options_with_nodes_or_objects_of_the_caller_need_the_original_model() -> None:
    assert {key for key, it in OPTIONS.items() if it.needs_original} == {
        "dawnProcTable",
        "enableGraphCapture",
        "enablePIXCapture",
        "forceCpuNodeNames",
        "webgpuDevice",
        "webgpuInstance",
    }


def test_such_options_with_their_defaults_change_nothing(place: Folder, path: Path) -> None:
    options: dict[str, Any] = {"deviceId": DEVICE, "enableGraphCapture": False, "forceCpuNodeNames": []}
    webgpu_ep.session(path, **options)
    kept_now(path, **options)


def test_what_a_caller_has_in_memory_is_not_kept(place: Folder, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        assert not is_kept(webgpu_ep.session(wide()))
        assert not is_kept(webgpu_ep.session(path, sess_options=ort.SessionOptions()))
        assert not is_kept(webgpu_ep.session(path, forceCpuNodeNames=["sum"]))
        with monkeypatch.context() as there:
            there.setenv(folder.VARIABLE, "off")
            assert not is_kept(webgpu_ep.session(path))
    assert not entries(place)


def test_a_compiled_model_is_not_kept(place: Folder, path: Path) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("ep.context_enable", "1")
    webgpu_ep.session(path, sess_options=options)
    for _ in range(2):
        session = webgpu_ep.session(path.with_name("model_ctx.onnx"))
        assert not is_kept(session)
        check(session)


# ---- entries


def test_an_entry_that_was_damaged_is_made_again(place: Folder, path: Path) -> None:
    kept(path)
    (name,) = entries(place)
    file = Path(place.path) / f"{name}{folder.SUFFIX}"
    data = file.read_bytes()
    for at in np.linspace(0, len(data) - 1, 7, dtype=int):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]):
            file.write_bytes(damaged)
            check(kept(path))


def test_a_progress_that_ends_the_work_does_so_once(place: Folder, path: Path) -> None:
    kept(path)
    asked = []

    def stop(progress: Any) -> None:
        asked.append(progress)
        if len(asked) > 1:
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        webgpu_ep.session(path, on_progress=stop)
    assert len(asked) == 2


def test_the_list_shows_it(place: Folder, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from onnxruntime_ep_wgpu.cli import main

    kept(path)
    main(["cache", "list", "--json"])
    assert f'"{KIND}"' in capsys.readouterr().out
    main(["cache", "clear"])
    assert not entries(place) and not is_kept(webgpu_ep.session(path))


SCRIPT = """
import sys, onnxruntime_ep_wgpu as webgpu_ep
from pathlib import Path
from tests.writing.worker import stopped
stopped("killed", int(sys.argv[2]), Path(sys.argv[3]))
webgpu_ep.session(sys.argv[1])
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
@pytest.mark.parametrize(("model", "inputs"), [(wide, {"x": X}), (lambda: normalised(), IMAGE)])
def test_a_process_that_is_killed_while_it_writes(
    place: Folder, path: Path, model: Callable[[], bytes], inputs: dict[str, Any]
) -> None:
    """Before it opens or renames a file; entries of claims and Programs are there already."""
    path.write_bytes(model())
    want = webgpu_ep.session(path).run(None, inputs)[0]
    (name,) = entries(place)
    place.remove(name)
    ended = set()
    for number in range(1, 16):
        done = patience.run([sys.executable, "-c", SCRIPT, str(path), str(number), place.path], cwd=ROOT)
        ended.add(done.returncode)
        session = webgpu_ep.session(path)
        np.testing.assert_array_equal(session.run(None, inputs)[0], want)
        for it in entries(place):
            place.remove(it)
    assert -signal.SIGKILL in ended


BEHIND = """
import _imp, os, sys, threading
import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.kept.folder import Folder
from onnxruntime_ep_wgpu.threads import wait_deferred
write, open_gate, events = Folder.write_second, threading.Event(), []
def gated(*given):
    if threading.current_thread() is not threading.main_thread():
        open_gate.wait()
    done = write(*given)
    events.append("written")
    return done
Folder.write_second = gated
webgpu_ep.session(sys.argv[1])
events.append("made")
child = os.fork() if hasattr(os, "fork") else 0
if not child and hasattr(os, "fork"):
    sys.exit()
_imp.acquire_lock()  # as an interrupt may leave it
open_gate.set()
wait_deferred()
_imp.release_lock()
print(*events, os.waitpid(child, 0)[1] if child else 0)
"""


def test_an_entry_is_written_behind_the_session(place: Folder, joined: Path) -> None:
    """On a thread that imports nothing. A child that is forked meanwhile does not wait for it."""
    done = patience.run([sys.executable, "-c", BEHIND, str(joined)], cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "made written 0\n"), done.stderr
    kept_now(joined)


def test_an_entry_is_written_before_the_session_where_no_thread_can_be_begun(
    place: Folder, joined: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "start_ahead", none)
    monkeypatch.setattr(threads, "_deferred", [])
    webgpu_ep.session(joined)
    assert not threads._deferred and len(entries(place)) == 1
    kept_now(joined)


def test_a_process_that_ends_at_once_leaves_an_entry(place: Folder, joined: Path) -> None:
    script = "import sys, onnxruntime_ep_wgpu as webgpu_ep; webgpu_ep.session(sys.argv[1])"
    assert patience.run([sys.executable, "-c", script, str(joined)], cwd=ROOT).returncode == 0
    kept_now(joined)


def test_processes_that_write_at_once(place: Folder, path: Path) -> None:
    script = "import sys, onnxruntime_ep_wgpu as webgpu_ep; webgpu_ep.session(sys.argv[1])"
    command = [sys.executable, "-c", script, str(path)]
    for it in [subprocess.Popen(command, env=patience.here()) for _ in range(2)]:
        assert it.wait() == 0
    check(kept_now(path))
    assert len(entries(place)) == 1
