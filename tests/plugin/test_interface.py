"""The package as a newcomer meets it: names are found, types are true, a report reads as a table."""

from __future__ import annotations

import ast
import inspect
import pydoc
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu import scale
from onnxruntime_ep_wgpu.api.reports import SHOWN, Report
from onnxruntime_ep_wgpu.options import OPTIONS, as_text
from onnxruntime_ep_wgpu.options.types import Flag, Number, ProviderOptions
from onnxruntime_ep_wgpu.plugin.assign.placement import Placement
from tests import patience

from . import models


@pytest.mark.parametrize(
    ("module", "more"), [(webgpu_ep, {"get_ep_name", "get_ep_names", "get_library_path"}), (scale, set())]
)
def test_what_type_checkers_see_is_what_there_is_at_run_time(module: Any, more: set[str]) -> None:
    tree = ast.parse(Path(inspect.getfile(module)).read_text())
    block = next(part for part in tree.body if isinstance(part, ast.If))
    imports = {
        alias.asname: part.module for part in block.body if isinstance(part, ast.ImportFrom) for alias in part.names
    }
    assert imports == module._PLACES
    assert {*imports, *more} == set(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_dir_and_help_show_the_interface_before_anything_is_used() -> None:
    script = "import sys, onnxruntime_ep_wgpu as w; print(' '.join(dir(w))); print('onnxruntime' in sys.modules)"
    names, loaded = patience.run([sys.executable, "-c", script], check=True).stdout.splitlines()
    public = {name for name in names.split() if not name.startswith("_")}
    assert public == set(webgpu_ep.__all__)
    assert loaded == "False", "importing costs nothing"
    text = pydoc.plain(pydoc.render_doc(webgpu_ep))
    assert "session(model" in text and "class OptionError" in text and "report(session" in text


def test_the_options_have_the_types_that_the_table_accepts() -> None:
    types = get_type_hints(ProviderOptions)
    assert list(types) == list(OPTIONS), "in the order of the table"
    for key, kind in types.items():
        option = OPTIONS[key]
        choices = ["" if it == "or empty" else it for it in option.domain.split(", ")]
        literals = {
            as_text(key, value)
            for part in get_args(kind)
            for value in (get_args(part) or [part])
            if not isinstance(value, type)
        }
        if choices == ["0", "1"]:
            assert kind == Flag, key
        elif key == "forceCpuNodeNames":
            assert option.parse(as_text(key, ["a", "b"])) == ("a", "b")
        elif key == "tuningTable":
            assert option.parse(as_text(key, Path("text"))) == option.parse("text") == "text"
        elif kind == Number:
            assert isinstance(option.parse(option.default), int), key
        else:
            assert literals == set(choices), key


def test_a_session_has_the_type_of_onnxruntimes() -> None:
    assert get_type_hints(webgpu_ep.session)["return"] is ort.InferenceSession
    assert isinstance(webgpu_ep.session(models.square()), ort.InferenceSession)


def test_a_report_prints_as_a_table_with_the_cpus_nodes_first() -> None:
    report = webgpu_ep.report(webgpu_ep.session(models.square(), forceCpuNodeNames="mul"))
    assert str(report) == repr(report)
    title, library, made, pipelines, heading, first = str(report).splitlines()
    assert made == f"made in {report.made()}" and pipelines == "pipelines: no new ones"
    assert library == f"through {report.library}" and report.library.endswith(")")
    assert title.endswith("0 of 1 node in 0 kernels of 0 groups, 1 on the CPU")
    assert heading.split() == ["node", "operator", "runs", "on", "kernel,", "or", "reason"]
    assert first.split()[:3] == ["mul", "Mul", "CPUExecutionProvider"]


def test_a_long_report_says_how_much_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    ours = [Placement(f"n{k}", "Relu", "", "", "WebGpuExecutionProvider", 0, (f"{k} map",), None) for k in range(SHOWN)]
    other = Placement("last", "NonZero", "", "", "CPUExecutionProvider", None, (), "depends on data")
    caches: dict[str, Any] = {}
    report = Report("gpu", (*ours, other), caches)
    assert report.kernels == SHOWN
    for lines in (str(report), _rich(Console(width=200), report, capsys)):
        assert "last" in lines and f"n{SHOWN - 2} " in lines and f"n{SHOWN - 1} " not in lines
        assert "1 more: report(session).nodes has all" in lines


def _rich(console: Any, report: Report, capsys: pytest.CaptureFixture[str]) -> str:
    console.print(report)
    return capsys.readouterr().out
