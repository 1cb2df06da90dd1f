"""What the command line cannot use is refused in one line that names it and the cause; nothing is written then."""

from __future__ import annotations

import errno
import json
import os
import shlex
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu import cli
from tests import patience
from tests.support import make_model

F = np.float32


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a model and files that are none."""
    monkeypatch.chdir(tmp_path)
    onnx.save(make_model([node("Relu", ["x"], ["y"])], {"x": (F, ["n", 3])}), "model.onnx")
    for name, kept in (("short", 100), ("gone", None)):
        product = make_model([node("MatMul", ["x", "w"], ["y"])], {"x": (F, ["n", 64])}, {"w": np.ones((64, 64), F)})
        onnx.save(product, f"{name}.onnx", save_as_external_data=True, location=f"{name}.data", size_threshold=0)
        if kept is None:
            Path(f"{name}.data").unlink()
        else:
            os.truncate(f"{name}.data", kept)
    Path("empty.onnx").touch()
    Path("code.py").write_text("print('no model')\n" * 9)
    Path("bare.onnx").write_bytes(onnx.ModelProto(ir_version=10).SerializeToString())
    Path("dir").mkdir()
    np.save("whole.npy", np.ones((2, 3), np.int64))
    np.savez("one.npz", a=np.ones((2, 3), F))
    np.savez("two.npz", a=np.ones((2, 3), F), b=np.ones(1, F))
    for name, data in {
        "object.json": {},
        "list.json": [],
        "events.json": [{"ph": "X", "cat": "Session", "name": "session_initialization", "ts": 0, "dur": 1, "tid": 1}],
        "no_time.json": [{"ph": "X", "cat": "Node", "name": "n"}],
        "result.trace.json": {"traceEvents": []},
    }.items():
        Path(name).write_text(json.dumps(data))
    Path("model.wgpu").write_bytes(b"wgpupack" + bytes(64))
    Path("exported").mkdir()
    Path("exported/manifest.json").write_text('{"format":"onnxruntime-ep-wgpu","version":4}')
    Path("cut.json").write_text('[{"ph": "X"')
    return tmp_path


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("run dir", "dir is a folder"),
        ("run code.py", "code.py is not an ONNX model"),
        ("run empty.onnx", "empty.onnx is empty (0 bytes)"),
        ("run none.onnx", "there is no file none.onnx"),
        ("explain dir", "dir is a folder"),
        ("verify code.py", "code.py is not an ONNX model"),
        ("export empty.onnx", "empty.onnx is empty (0 bytes)"),
        ("export code.py", "code.py cannot be read as an ONNX model"),
        ("export dir", "dir is a folder"),
        ("export model.onnx --dim n=3", "--dim n=3 sets inputs that measure the error of --fp16, --int4 or --int8"),
        ("export bare.onnx", "bare.onnx is not an ONNX model: it names no version of the operators"),
        ("run model.onnx --seed -3", "argument --seed: '-3' is not an integer of at least 0"),
        ("run model.onnx --runs -1", "argument --runs: '-1' is not an integer of at least 0"),
        ("profile model.onnx --runs -1", "argument --runs: '-1' is not an integer of at least 0"),
        ("verify model.onnx --tolerance -1", "argument --tolerance: '-1' is not a number from 0 on"),
        ("verify model.onnx --tolerance nan", "argument --tolerance: 'nan' is not a number from 0 on"),
        ("info --adapter -1", "argument --adapter: '-1' is not an integer of at least 0"),
        ("run model.onnx --input two.npz", "two.npz has 2 arrays (a, b)"),
        ("run model.onnx --input model.onnx", "model.onnx is not a .npy file, which numpy.save writes"),
        ("run model.onnx --input whole.npy", "input 'x' is tensor(float), whole.npy has int64: save it as float32"),
        ("run model.onnx --input dir", "dir is a folder"),
        ("run model.onnx --input x=one.npz --shape x=3,3", "--shape x=3,3: 'x' has the shape of its file, one.npz"),
        ("run model.onnx --input one.npz --input two.npz", "--input x=two.npz: x is one.npz already; give it once"),
        ("run model.onnx --shape x=2,3 --shape x=4,3", "--shape x=4,3: x is 2,3 already; give it once"),
        ("run model.onnx --dim n=2 --dim n=3", "--dim n=3: n is 2 already; give it once"),
        ("run model.onnx --output code.py", "--output code.py: that is a file; name a folder"),
        ("run model.onnx --output none/out", "--output none/out: there is no folder none to write out in"),
        ("profile model.onnx --output none/p", "--output none/p.html: there is no folder none to write p.html in"),
        ("tune --output none/t.json", "--output none/t.json: there is no folder none to write t.json in"),
        ("tune --out dir", "--output dir: that is a folder; name a file"),
        ("run short.onnx", "short.data has 100 bytes, and the weight 'w' of short.onnx has the bytes 0 to 16384"),
        (
            "explain short.onnx",
            "short.data has 100 bytes, and the weight 'w' of short.onnx has the bytes 0 to 16384",
        ),
        (
            "verify short.onnx",
            "short.data has 100 bytes, and the weight 'w' of short.onnx has the bytes 0 to 16384",
        ),
        (
            "export short.onnx",
            "short.data has 100 bytes, and the weight 'w' of short.onnx has the bytes 0 to 16384",
        ),
        (
            "export short.onnx --single-file",
            "short.data has 100 bytes, and the weight 'w' of short.onnx has the bytes 0 to 16384",
        ),
        (
            "export short.onnx --int8",
            "short.data has 100 bytes, and the weight 'w' of short.onnx has the bytes 0 to 16384",
        ),
        ("run gone.onnx", "gone.onnx keeps its weights in gone.data, which is missing ('w' is the first)"),
        ("verify gone.onnx", "gone.onnx keeps its weights in gone.data, which is missing ('w' is the first)"),
        ("export gone.onnx", "gone.onnx keeps its weights in gone.data, which is missing ('w' is the first)"),
        ("export gone.onnx --fp16", "gone.onnx keeps its weights in gone.data, which is missing ('w' is the first)"),
        ("export model.onnx --override n", "--override n: write it as NAME=SIZE"),
        ("export model.onnx --override n=x", "--override n=x: a size is an integer of at least 0"),
        (
            "export model.onnx --override n=-1",
            "--override n=-1: a size is an integer of at least 0; unnamed dimensions",
        ),
        ("export model.onnx --chunk 0", "--chunk 0: a chunk has at least 16 bytes"),
        ("export model.onnx --chunk big", "--chunk big: write a size such as 16MB"),
        ("export model.onnx --seed 3", "--seed 3 sets inputs that measure the error of --fp16, --int4 or --int8"),
        (
            "export --transformers dir --input x.npy",
            "--input x.npy sets inputs that measure the error of --fp16, --int4 or --int8",
        ),
        ("export --transformers nope", "there is no folder nope"),
        ("run model.wgpu", "model.wgpu is an export already, for browsers: name the file of an ONNX model"),
        ("explain model.wgpu", "model.wgpu is an export already"),
        ("export model.wgpu", "model.wgpu is an export already"),
        ("verify exported", "exported is an export already"),
        ("tune --out none/t.json", "--output none/t.json: there is no folder none to write t.json in"),
        ("export model.onnx --override m=3", "--override: no input has a free dimension 'm'; the model has n"),
        ("export model.onnx --override n=0", "--override: 'n': 0 is not a size"),
        ("export model.onnx --override n=2 --override n=3", "--override n=3: n is 2 already; give it once"),
        ("chat dir --device 99", "there is no device 99; there are 0: "),
        ("chat dir --device nonesuch", "there is no device 'nonesuch'; there are 0: "),
        ("chat dir --device ''", "there is no device ''; there are 0: "),
        ("chat dir --option validationMode", "--option validationMode: write it as KEY=VALUE"),
        (
            "chat dir --device 0 --option adapterIndex=7",
            "--option adapterIndex=0: adapterIndex is 7 already; give it once",
        ),
        ("profile object.json", "object.json is not a profile of ONNX Runtime, which is a list of events"),
        ("profile list.json", "list.json is not a profile of ONNX Runtime, which is a list of events"),
        ("profile events.json", "events.json has no run in it"),
        ("profile no_time.json", "no_time.json is not a profile of ONNX Runtime: an event has no 'tid'"),
        ("profile cut.json", "cut.json is not a profile of ONNX Runtime: it is not JSON, or truncated"),
        ("profile result.trace.json", "result.trace.json is a trace for Perfetto"),
    ],
)
def test_nonsense_is_refused_by_its_cause(
    line: str, cause: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(os.listdir(folder))
    assert cli.main(shlex.split(line)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1 and captured.err.startswith("error: "), captured.err
    assert cause in captured.err and "Error:" not in captured.err
    assert sorted(os.listdir(folder)) == before


@pytest.mark.skipif(sys.platform == "win32" or os.getuid() == 0, reason="root writes anywhere")
@pytest.mark.parametrize("way", ["", " --single-file"])
def test_a_place_that_cannot_be_written_is_named(way: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("dir").chmod(0o555)
    assert cli.main(shlex.split(f"export model.onnx --output dir/out{way}")) == 2
    assert "output dir/out: nothing can be written in the folder dir (Permission denied)" in capsys.readouterr().err


def test_a_place_that_a_file_system_refuses_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "dir")

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert cli.main(["export", "model.onnx", "--output", "dir/out"]) == 2
    assert "output dir/out: nothing can be written in the folder dir (Read-only file system)" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no file system that takes no files")
@pytest.mark.parametrize(
    "line",
    ["run model.onnx --output /proc/foo", "run model.onnx --output /proc", "profile model.onnx --output /proc/foo"],
)
def test_the_place_is_tried_before_the_run(
    line: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxruntime_ep_wgpu.tools._model.open_session", None)
    assert cli.main(shlex.split(line)) == 2
    error = capsys.readouterr().err
    assert (
        error.count("\n") == 1 and "--output /proc" in error and "nothing can be written in the folder /proc (" in error
    )


@pytest.mark.parametrize(
    ("name", "cause"), [("missing.json", "cannot be read (No such file"), ("code.py", "is not a table")]
)
def test_a_tuning_table_that_is_none_is_named_with_the_way_to_one(
    name: str, cause: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["explain", "model.onnx", "--option", f"tuningTable={name}"]) == 2
    error = capsys.readouterr().err
    assert (
        error.count("\n") == 1 and f"option 'tuningTable': {name} {cause}" in error and "wgpu-ep tune --output" in error
    )
    assert "[Errno" not in error


@pytest.mark.parametrize("declared", [False, True])
def test_nodes_behind_one_without_shape_inference_name_it_and_the_way_out(
    declared: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shape of unknown length stands for an operator of a domain of somebody else's. Its rank is said once, and is enough."""
    steps = [
        node("Reshape", ["x", "s"], ["v"], name="own"),
        node("Neg", ["v"], ["w"], name="neg"),
    ]
    steps += [node("Tanh", ["w"], ["t"], name="tanh"), node("Relu", ["t"], ["y"], name="relu")]
    model = make_model(steps, {"x": (F, ["n", 3]), "s": (np.int64, ["k"])})
    del model.graph.value_info[:]
    if declared:
        model.graph.value_info.append(onnx.helper.make_tensor_value_info("v", onnx.TensorProto.FLOAT, [None, None]))
    onnx.save(model, "own.onnx")
    assert cli.main(["explain", "own.onnx", "--json"]) == 0
    found = {it["name"]: it for it in json.loads(capsys.readouterr().out)["placements"]}
    for name in ("tanh", "relu"):
        assert found[name]["on_webgpu"] == declared
        reason = found[name]["reason"] or ""
        assert declared or (
            "follows from that of 'v'" in reason and "the results of Reshape 'own'; declare it" in reason
        )
        assert declared or "graph.value_info; a rank is enough" in reason


def test_made_up_values_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("run", "verify", "profile --output p"):
        assert cli.main([*line.split(), "model.onnx"]) == 0
        assert "note: made-up values (seed 0) for x: --input NAME=FILE.npy sets real ones" in capsys.readouterr().err
        assert cli.main([*line.split(), "model.onnx", "--input", "one.npz"]) == 0
        assert "made-up" not in capsys.readouterr().err


def test_an_archive_of_one_array_is_that_array(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "model.onnx", "--input", "x=one.npz", "--json", "--runs", "0"]) == 0
    assert json.loads(capsys.readouterr().out)["inputs"][0]["shape"] == "2x3"


def test_an_option_that_changes_nothing_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["explain", "model.onnx", "--option"]
    assert cli.main([*command, "weightLoadAcceleration=preferred"]) == 0
    assert (
        capsys.readouterr().err == "warning: option weightLoadAcceleration='preferred' has no effect in this version\n"
    )
    assert cli.main([*command, "weightLoadAcceleration=off"]) == 0
    assert capsys.readouterr().err == ""


def test_a_model_that_cannot_run_here_is_explained_and_not_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(make_model([node("LpNormalization", ["x"], ["y"])], {"x": (np.float64, [3])}), "doubles.onnx")
    assert cli.main(["run", "doubles.onnx"]) == 2
    error = capsys.readouterr().err
    assert "the only node of the model on the CPU: LpNormalization" in error
    assert "wgpu-ep explain" in error and "allow_cpu_only" not in error, "what a user of the command line can do"
    assert cli.main(["explain", "doubles.onnx", "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert explained["nodes_on_cpu"] == 1 and [it["on_webgpu"] for it in explained["placements"]] == [False]


@pytest.mark.costly
@pytest.mark.parametrize("library", ["libc.so.6", "/nowhere/libwgpu_native.so", __file__])
def test_another_library_than_wgpu_native_is_named(library: str) -> None:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), "WGPU_LIB_PATH": library}
    done = patience.run([sys.executable, "-m", "onnxruntime_ep_wgpu", "info"], env=environment)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.count("error:") == 1 and f"WGPU_LIB_PATH={library}" in done.stderr


def test_no_difference_at_all_is_within_a_tolerance_of_zero(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", "model.onnx", "--tolerance", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kernels_differing"] == 0 and found["kernels_by_running_order"][0]["elements"] == "0 of 3"


def test_what_is_above_the_tolerance_is_counted_by_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Elements that differ by a little are above a tolerance of nothing."""
    onnx.save(make_model([node("Exp", ["x"], ["y"])], {"x": (F, [1000])}), "exp.onnx")
    for tolerance, above in (("0", True), ("1e-3", False)):
        cli.main(["verify", "exp.onnx", "--tolerance", tolerance, "--json"])
        (compared,) = json.loads(capsys.readouterr().out)["kernels_by_running_order"]
        assert (compared["elements"] != "0 of 1000") == above == (compared["error"] > float(tolerance))


@pytest.mark.parametrize("line", ["run model.onnx --output out", "profile model.onnx --output p"])
def test_results_are_printed_when_they_cannot_be_written(
    line: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object, **_more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert cli.main([*shlex.split(line), "--runs", "1", "--json"]) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out)["device"]
    assert "No space left on device" in captured.err


def test_a_profile_that_is_overwritten_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for there in (False, True):
        assert cli.main(["profile", "model.onnx", "--runs", "1"]) == 0
        assert ("note: model.profile.html is there already and will be overwritten" in capsys.readouterr().err) == there


@pytest.mark.parametrize(
    ("dtype", "shape", "text"), [(np.int64, [], "16000"), (F, [3], "1,-2.5,3e1"), (F, [1, 3], "0,1,2")]
)
def test_numbers_of_an_input_stand_on_the_command_line(
    dtype: type, shape: list[int], text: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(
        make_model([node("Identity", ["x"], ["i"]), node("Add", ["i", "i"], ["y"])], {"x": (dtype, shape)}), "m.onnx"
    )
    assert cli.main(["run", "m.onnx", "--input", f"x={text}", "--runs", "0", "--output", "out", "--json"]) == 0
    expected = 2 * np.array([float(it) for it in text.split(",")]).astype(dtype).reshape(shape)
    np.testing.assert_array_equal(np.load("out/y.npy"), expected)


def test_numbers_that_an_input_cannot_hold_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(make_model([node("Add", ["x", "x"], ["y"])], {"x": (np.int8, [2])}), "m.onnx")
    for text in ("300,1", "1.5,2"):
        assert cli.main(["run", "m.onnx", "--input", f"x={text}"]) == 2
        assert "tensor(int8), which does not have these values" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["info --adapter 0", "tune"])
def test_without_an_adapter_its_driver_is_what_is_missing(
    line: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("onnxruntime_ep_wgpu.device.adapters", tuple)
    monkeypatch.setattr("onnxruntime_ep_wgpu.device.adapters_problem", lambda: "install a driver")
    assert cli.main(line.split()) == 2
    assert capsys.readouterr().err == "error: install a driver\n"
