"""Wrong arguments: the error names the argument, what was passed, and what to pass."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.errors import OptionError

from . import models

X = np.ones((2, 8), np.float32)
MODEL = models.square()


def other_device() -> Any:
    return next(it for it in ort.get_ep_devices() if it.ep_name == "CPUExecutionProvider")


CASES: list[tuple[str, Callable[[], Any], str]] = [
    ("session", lambda: webgpu_ep.session(None), "model: None is not the path of a model's file or its bytes"),
    ("session", lambda: webgpu_ep.session(onnx.load_from_string(MODEL)), r"pass model.SerializeToString\(\)"),
    ("session", lambda: webgpu_ep.session(bytearray(MODEL)), r"pass bytes\(model\)"),
    ("session", lambda: webgpu_ep.session(Path(__file__).parent), "plugin is a folder; pass the file in it"),
    ("session", lambda: webgpu_ep.session(""), "model: '' is no path; pass the path of a model's file or its bytes"),
    (
        "session",
        lambda: webgpu_ep.session("a\0b.onnx"),
        r"model: 'a\\x00b\.onnx' has a character that no name of a file has; pass",
    ),
    (
        "session",
        lambda: webgpu_ep.session(Path("\ud800.onnx")),
        r"model: '\\ud800\.onnx' has a character that no name of a file has",
    ),
    (
        "session",
        lambda: webgpu_ep.session(MODEL, device=False),
        "device: False is not .* a number or a name; there are 0: ",
    ),
    (
        "session",
        lambda: webgpu_ep.session(MODEL, device=other_device()),
        "device: it belongs to CPUExecutionProvider .* there are 0: ",
    ),
    (
        "session",
        lambda: webgpu_ep.session(MODEL, sess_options={"a": 1}),
        "sess_options: {'a': 1} is not an onnxruntime.Sess",
    ),
    (
        "session",
        lambda: webgpu_ep.session(MODEL, free_dimensions=[("N", 2)]),
        "free_dimensions: .* dict of sizes by name",
    ),
    (
        "session",
        lambda: webgpu_ep.session(MODEL, providers=["x"]),
        r"providers=\['x'\]: session\(\) always uses this provider",
    ),
    (
        "session",
        lambda: webgpu_ep.session(MODEL, provider_options=[{}]),
        r"provider_options=\[{}\]: .* keyword arguments",
    ),
    ("export", lambda: webgpu_ep.export(MODEL), "bytes in a bytes; pass the name of a file"),
    ("check", lambda: webgpu_ep.check(None), "session: None is not an onnxruntime.InferenceSession"),
    ("report", lambda: webgpu_ep.report("model.onnx"), "session: 'model.onnx' is not an onnxruntime.InferenceSession"),
    ("wgpu_device_of", lambda: webgpu_ep.wgpu_device_of(3), "session: 3 is not an onnxruntime.InferenceSession"),
    ("buffer_of", lambda: webgpu_ep.buffer_of(X), "value: an object of type ndarray is not an onnxruntime.OrtValue"),
]


@pytest.mark.parametrize(("call", "message"), [pytest.param(f, m, id=f"{n}-{k}") for k, (n, f, m) in enumerate(CASES)])
def test_a_wrong_argument_is_named_with_what_to_pass(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, IsADirectoryError, webgpu_ep.OptionError), match=message):
        call()


@pytest.mark.parametrize("feeds", [[X], X, None], ids=["list", "array", "None"])
def test_feeds_that_are_no_dict_are_told_the_names_of_the_inputs(feeds: Any) -> None:
    wanted = re.escape("is not a dict of arrays by the names of inputs; pass {'x': ...}")
    with pytest.raises(TypeError, match=wanted):
        webgpu_ep.session(MODEL).run(None, feeds)


def test_an_input_of_another_type_is_named() -> None:
    session, wrong = webgpu_ep.session(MODEL), X.astype(np.float64)

    def bound(value: Any) -> None:
        binding = session.io_binding()
        if isinstance(value, ort.OrtValue):
            binding.bind_ortvalue_input("x", value)
        else:
            binding.bind_cpu_input("x", value)
        binding.bind_output("y")
        session.run_with_iobinding(binding)

    message = r"Unexpected input data type.*input 'x' has the type float64, the model needs float32: pass array.astype\('float32'"
    for run in (
        lambda: session.run(None, {"x": wrong}),
        lambda: session.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(wrong)}),
        lambda: bound(wrong),
        lambda: bound(ort.OrtValue.ortvalue_from_numpy(wrong, "webgpu", 0)),
    ):
        with pytest.raises(Exception, match=message):
            run()


def test_text_for_numbers_is_named() -> None:
    with pytest.raises(Exception, match="input 'x' has text, the model needs numbers of the type float32"):
        webgpu_ep.session(MODEL).run(None, {"x": np.full(X.shape, "a")})


def test_an_export_is_no_model(tmp_path: Path) -> None:
    """Neither its folder nor its one file, for whoever takes a model."""
    (tmp_path / "m.onnx").write_bytes(MODEL)
    folder, file = tmp_path / "m.onnx.wgpu", tmp_path / "m.wgpu"
    webgpu_ep.export(tmp_path / "m.onnx", folder)
    webgpu_ep.export(tmp_path / "m.onnx", file, single_file=True)
    for path, take in itertools.product((folder, file), (webgpu_ep.session, webgpu_ep.export)):
        with pytest.raises(OptionError, match=rf"{re.escape(str(path))} is an export already, for browsers"):
            take(path)
        with pytest.raises(OptionError, match="is an export already"):
            take(str(path))


def test_in_pyodide_what_needs_onnxruntime_says_what_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "emscripten")
    with pytest.raises(
        ImportError, match=r"onnxruntime_ep_wgpu.session needs ONNX Runtime.*onnxruntime_ep_wgpu.web runs"
    ):
        webgpu_ep.__getattr__("session")
    assert webgpu_ep.__getattr__("OptionError") is OptionError
