"""`wgpu-ep profile`: a page that needs nothing else, a trace for Perfetto, and tables that add up."""

from __future__ import annotations

import argparse
import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper, save_model

from onnxruntime_ep_wgpu import cli
from onnxruntime_ep_wgpu.device import Device, adapters, open_device
from onnxruntime_ep_wgpu.device.peak import peak
from onnxruntime_ep_wgpu.errors import InputError
from onnxruntime_ep_wgpu.profiles.events import RUN, Event, Timeline, from_ort, from_spans
from onnxruntime_ep_wgpu.profiles.page import page
from onnxruntime_ep_wgpu.profiles.perfetto import trace
from onnxruntime_ep_wgpu.profiles.tables import BEYOND, by_dispatch, by_kernel, by_operator, summary
from onnxruntime_ep_wgpu.tools.profile import show
from onnxruntime_ep_wgpu.trace import GPU_THREAD, Span
from tests import patience

timed = pytest.mark.skipif("timestamp-query" not in adapters()[0].features, reason="the adapter has no timestamps")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def dispatch(begin: float, duration: float, operators: str, **args: Any) -> Event:
    args = {"operators": operators, "kernel": "map", "flops": 0, "bytes": 0, "dispatch": 0, **args}
    return Event("dispatch", f"map: {operators}", begin, duration, GPU_THREAD, args)


def run(begin: float, duration: float) -> Event:
    return Event(RUN, "model_run", begin, duration, 7, {})


@pytest.fixture
def profile() -> Timeline:
    """Two runs after a first one: per run 30 us of MatMul, in two kernels, and 10 us of Relu."""
    events = [run(0, 1000), dispatch(10, 900, "MatMul")]
    for at in (1000, 2000):
        events += [
            run(at, 100),
            Event("node", "size", at + 1, 5, 7, {"op_name": "NonZero", "provider": "CPUExecutionProvider"}),
            dispatch(at + 10, 20, "MatMul", kernel="matmul", flops=4000, bytes=400),
            dispatch(at + 30, 10, "MatMul", kernel="matmul_direct", flops=2000, bytes=200, dispatch=1),
            dispatch(at + 40, 10, "Relu", bytes=8000, dispatch=2),
        ]
    return Timeline(events, {"model": "m.onnx", "device": "GPU </script>"}, peak_flops=4e8, peak_bytes=1e9)


def test_tables_leave_out_the_first_run_and_count_per_run(profile: Timeline) -> None:
    product, relu, on_cpu = by_operator(profile)
    assert (product.name, product.calls, product.time, product.share) == ("MatMul", 2, 30, 0.75)
    assert [repr(it) for it in (product.calls, on_cpu.calls, summary(profile)["dispatches"])] == ["2", "1", "3"], (
        "counts"
    )
    assert (relu.name, relu.calls, relu.time, relu.share) == ("Relu", 1, 10, 0.25)
    assert (on_cpu.name, on_cpu.where, on_cpu.time) == ("NonZero", "CPU", 5)
    assert [row.name for row in by_kernel(profile)] == ["matmul", "matmul_direct", "map"]
    assert len(by_dispatch(profile)) == 3


def test_rates_are_work_by_time_and_compared_with_the_peak_that_is_nearer(profile: Timeline) -> None:
    product, relu, _ = by_operator(profile)
    assert product.flops == pytest.approx(6000 / 30e-6)
    assert (product.of_peak, product.bound) == (pytest.approx(0.5), "arithmetic")
    assert relu.bytes == pytest.approx(8000 / 10e-6)
    assert (relu.of_peak, relu.bound) == (pytest.approx(0.8), "memory")
    total = summary(profile)
    assert (total["run"], total["first_run"], total["gpu"], total["dispatches"]) == (100, 1000, 40, 3)


@pytest.mark.parametrize(("peak_bytes", "beyond"), [(8e8, False), (7.99e8, False), (7e8, True)])
def test_what_is_beyond_the_measured_peak_is_marked_and_explained(
    profile: Timeline, peak_bytes: float, beyond: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the table that is printed and in the page; 100 % is what rounds to it."""
    faster = Timeline(profile.events, profile.facts, profile.peak_flops, peak_bytes)
    relu = by_operator(faster)[1]
    assert relu.beyond == beyond
    args = argparse.Namespace(json=False, rows=15)
    show(args, faster, summary(faster), {})
    out = capsys.readouterr().out
    assert ("% memory*" in out) == (f"\n* {BEYOND}\n" in out) == beyond
    assert BEYOND in embedded(page(faster))["beyond"]


def test_a_profile_of_one_run_has_its_tables() -> None:
    (row,) = by_operator(Timeline([run(0, 50), dispatch(5, 10, "Add")]))
    assert (row.calls, row.time, row.of_peak) == (1, 10, None)


def embedded(text: str) -> Any:
    """The JSON that the page draws."""
    (found,) = re.findall(r'<script type="application/json" id="profile">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


def test_the_page_holds_everything_and_asks_for_nothing(profile: Timeline) -> None:
    text = page(profile)
    data = embedded(text)
    assert data["facts"]["device"] == "GPU </script>"
    assert len(data["events"]) == len(profile.events)
    kind, name, begin, duration, thread, args = data["events"][1]
    assert (kind, name, begin, duration, thread) == ("dispatch", "map: MatMul", 10, 900, GPU_THREAD)
    assert data["args"][args]["operators"] == "MatMul"
    assert [row["name"] for row in data["tables"]["operators"]] == ["MatMul", "Relu", "NonZero"]
    assert not re.search(r"(src|href)\s*=|@import|url\(|fetch\(|https?://", text)
    assert "{{" not in text


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium to draw the page with")
def test_a_browser_draws_the_page(profile: Timeline, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(profile), encoding="utf-8")
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'user'}"]
    command += ["--enable-logging=stderr", "--dump-dom", path.as_uri()]
    result = patience.run(command, check=True)
    assert "CONSOLE" not in result.stderr  # where errors of scripts go
    assert re.search(r'<td class="text"[^>]*>MatMul</td>', result.stdout)
    assert ">75 %<" in result.stdout
    assert re.search(r'<div id="flame"[^>]*><button', result.stdout)
    assert re.search(r'<canvas id="timeline"[^>]*style="height', result.stdout)


# Beside what the page draws: the texts on its canvas, for `shown` below.
NOTED = """<script>
const texts = [], plain = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) { texts.push([text, x, y]); plain.call(this, text, x, y); };
</script>"""
TOLD = """<script>
const flame = [...document.querySelectorAll("#flame button")];
const boxes = flame.map((it) => [it.textContent, it.scrollWidth - it.clientWidth, it.ariaLabel]);
document.body.append(Object.assign(document.createElement("pre"), { id: "noted", textContent: JSON.stringify({ texts, boxes }) }));
</script>"""


# The page allows its own script alone.
POLICY = re.compile(r'<meta http-equiv="content-security-policy"[^>]*>')


def drawn(profile: Timeline, folder: Path) -> tuple[list[list[Any]], list[list[Any]], str]:
    """The texts on the timeline with their places, the boxes of the flame view as text, what of it is cut and name, and
    the document, as a browser draws the page."""
    path = folder / "page.html"
    text = POLICY.sub("", page(profile)).replace("</head>", NOTED + "</head>").replace("</body>", TOLD + "</body>")
    path.write_text(text, encoding="utf-8")
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'user'}"]
    command += ["--enable-logging=stderr", "--window-size=1200,900", "--dump-dom", path.as_uri()]
    result = patience.run(command, check=True)
    assert "CONSOLE" not in result.stderr  # where errors of scripts go
    (found,) = re.findall(r'<pre id="noted">(.*?)</pre>', result.stdout, re.DOTALL)
    noted = json.loads(html.unescape(found))
    return noted["texts"], noted["boxes"], result.stdout


@pytest.mark.costly
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium to draw the page with")
@pytest.mark.parametrize(
    ("begin", "duration"), [(0, 30), (1e3, 1e6), (1.15e6, 4e3), (7e6, 40), (3e7, 5e7), (999_990, 90)]
)
def test_labels_of_the_axis_tell_their_places_apart(begin: float, duration: float, tmp_path: Path) -> None:
    events = [run(0, 1), Event("compile", "group", 0, 1, 9, {}), run(begin + 2, duration)]
    texts, _, _ = drawn(Timeline(events, {"model": "m.onnx", "nodes_on_cpu": "3"}), tmp_path)
    axis = [(text, x) for text, x, y in texts if y == min(it[2] for it in texts)]
    assert len(axis) > 3
    units = {" s": 1e6, " ms": 1e3, " µs": 1.0}
    (unit,) = {text[text.index(" ") :] for text, _ in axis}
    at = [float(text.split()[0]) * units[unit] for text, _ in axis]
    steps, pixels = np.diff(at), np.diff([x for _, x in axis])
    np.testing.assert_allclose(steps, steps[0], rtol=1e-6)  # labels are exact
    np.testing.assert_allclose(steps[0] / pixels, duration * 1.04 / 1100, rtol=0.1)  # and where they say


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium to draw the page with")
def test_what_has_no_room_or_no_events_in_view_is_left_out(tmp_path: Path) -> None:
    events = [run(0, 10), Event("compile", "group", 0, 9, 9, {}), run(500, 1000)]
    wide, at = ["QLinearConv" * 20, "MatMul", "Relu"], 501.0
    for number in range(40):
        name, duration = (wide[number], 200.0) if number < 3 else (f"Narrow{number}", 0.5 * number)
        events.append(dispatch(at, duration, name))
        at += duration
    texts, boxes, document = drawn(Timeline(events, {"model": "m.onnx", "nodes_on_cpu": "3"}), tmp_path)
    assert ">nodes on the CPU<" in document and "nodes_on_cpu" not in re.findall(r"<dl.*?</dl>", document, re.DOTALL)[0]
    assert "thread 7" in [text for text, _, _ in texts] and "thread 9" not in [text for text, _, _ in texts]
    assert not [it for it in boxes if it[0] and it[1] > 0], "no text is wider than its box"
    assert {name for text, _, name in boxes if text == name} >= {"MatMul", "Relu", "all"}
    (long,) = {text for text, _, name in boxes if name == wide[0]}
    assert wide[0].startswith(long[:-1]) and long.endswith("…") and len(long) > 6
    narrow = [(text, name) for text, _, name in boxes if name.startswith("Narrow")]
    assert {text for text, _ in narrow} >= {""} and all(text in ("", name) or len(text) > 3 for text, name in narrow)


def test_the_trace_is_chromes_format_with_a_named_track_for_the_gpu(profile: Timeline) -> None:
    data = json.loads(json.dumps(trace(profile)))
    names = {it["tid"]: it["args"]["name"] for it in data["traceEvents"] if it["name"] == "thread_name"}
    complete = [it for it in data["traceEvents"] if it["ph"] == "X"]
    assert len(complete) == len(profile.events)
    for it in complete:
        assert it["tid"] > 0 and it["dur"] >= 0
        assert names[it["tid"]].startswith("GPU") == (it["cat"] == "dispatch")


def test_spans_and_onnx_runtimes_json_give_the_same_events(tmp_path: Path) -> None:
    span = Span("upload", "weight", 5_000, 7_000, 3, {"bytes": 64})
    gpu = Span("dispatch", "map: a", 9_000, 12_000, GPU_THREAD, {"operators": "Add", "flops": 4})
    written = [
        {"cat": "Kernel", "pid": 1, "tid": -1, "dur": 3, "ts": 109, "ph": "X", "name": "map: a",
         "args": {"kind": "dispatch", "operators": "Add", "flops": "4"}},
        {"cat": "Api", "pid": 1, "tid": 3, "dur": 2, "ts": 105, "ph": "X", "name": "weight",
         "args": {"kind": "upload", "bytes": "64"}},
    ]  # fmt: skip
    path = tmp_path / "ort.json"
    path.write_text(json.dumps(written))
    assert from_ort(path) == from_spans([span, gpu])


@pytest.mark.parametrize("text", ["no JSON", '{"a": 1}', "[1]", '[{"ph": "X"}]'])
def test_another_file_is_refused_by_name(text: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"other\.json is not a profile of ONNX Runtime"):
        from_ort(path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], "product"), helper.make_node("Relu", ["a"], ["y"], "relu")]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", 1, ["n", 8])],
        [helper.make_tensor_value_info("y", 1, ["n", 4])],
        [numpy_helper.from_array(np.ones((8, 4), np.float32), "w")],
    )
    path = tmp_path / "small.onnx"
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


@timed
def test_a_model_becomes_a_page_a_trace_and_tables(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = tmp_path / "result"
    arguments = ["profile", str(model), "--shape", "x=3,8", "--runs", "2", "--output", str(prefix)]
    assert cli.main([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    total, (operator,) = data["summary"], data["tables"]["operators"]
    assert operator["name"] == "MatMul, Relu" and operator["calls"] == 1
    assert total["runs"] == 3 and total["dispatches"] == 1
    assert total["flops"] == 2 * 3 * 8 * 4 + 3 * 4
    shown = embedded(Path(data["page"]).read_text(encoding="utf-8"))
    assert {"run", "plan", "upload", "download", "submit", "dispatch"} <= {event[0] for event in shown["events"]}
    assert shown["summary"]["peak_flops"] == total["peak_flops"] > 0
    written = json.loads(Path(data["trace"]).read_text(encoding="utf-8"))
    assert sum(it.get("cat") == "dispatch" for it in written["traceEvents"]) == 3


@timed
@pytest.mark.skipif(int(ort.__version__.split(".")[1]) < 25, reason="ONNX Runtime has no profilers of providers")
def test_a_profile_that_onnx_runtime_wrote_becomes_a_page(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import onnxruntime_ep_wgpu as webgpu_ep

    settings = ort.SessionOptions()
    settings.enable_profiling = True
    settings.profile_file_prefix = str(tmp_path / "ort")
    session = webgpu_ep.session(model, sess_options=settings)
    for _ in range(2):
        session.run(None, {"x": np.ones((3, 8), np.float32)})
    prefix = tmp_path / "from"
    assert cli.main(["profile", session.end_profiling(), "--output", str(prefix)]) == 0
    printed = capsys.readouterr().out
    assert "MatMul, Relu" in printed and adapters()[0].name in printed
    assert embedded(Path(f"{prefix}.html").read_text(encoding="utf-8"))["summary"]["runs"] == 2


def test_without_timestamps_the_page_shows_the_cpu_and_a_line_says_why(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Device, "has_timestamps", False)
    assert cli.main(["profile", str(model), "--dim", "n=1", "--runs", "1", "--output", str(tmp_path / "p")]) == 0
    expected = f"warning: the adapter {adapters()[0].name} has no timestamps (feature timestamp-query)"
    assert expected in capsys.readouterr().err
    shown = embedded((tmp_path / "p.html").read_text(encoding="utf-8"))
    assert shown["summary"]["gpu"] is None and shown["summary"]["runs"] == 2
    assert "submit" in {event[0] for event in shown["events"]}


def test_a_missing_file_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("none.onnx", "none.json"):
        assert cli.main(["profile", name]) == 2
        assert capsys.readouterr().err == f"error: there is no file {name}\n"


@timed
def test_the_peak_is_measured_once_and_above_what_a_kernel_reaches() -> None:
    device = open_device(adapters()[0])
    best = peak(device)
    assert best.flops > 1e8 and best.bytes > 1e7
    before = device.counters["submits"]
    assert peak(device) is best
    assert device.counters["submits"] == before
