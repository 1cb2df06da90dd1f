"""Drawings of compiled groups: what goes where, and pages that names cannot change."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu import cli
from onnxruntime_ep_wgpu.drawings.boxes import described, drawn, extent, in_units
from onnxruntime_ep_wgpu.drawings.layers import layers
from onnxruntime_ep_wgpu.drawings.page import page
from onnxruntime_ep_wgpu.program.axes import name_in_order
from onnxruntime_ep_wgpu.program.program import Program
from tests import patience
from tests.support import compile_model, make_model

from .test_hostile_names import CHROMIUM, NAMES, Elements


def program(name: str = "x") -> Program:
    """Two chains from one input, and what both make."""
    nodes = [
        node("MatMul", [name, "w"], ["a"], name=name),
        node("Softmax", ["a"], ["b"]),
        node("Add", ["b", name], ["c"]),
        node("CumSum", ["c", "axis"], ["y"]),
    ]
    weights = {"w": np.eye(8, dtype=np.float32), "axis": np.array(0)}
    return compile_model(make_model(nodes, {name: (np.float32, ["n", 8])}, weights))


@pytest.mark.parametrize("seed", range(20))
def test_lines_go_down_one_row_at_a_time(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.randrange(1, 40)
    lines = sorted({tuple(sorted(chance.sample(range(count), 2))) for _ in range(2 * count)}) if count > 1 else []
    found = layers(count, lines)
    places = [box for row in found.rows for box in row]
    row_of = {box: k for k, row in enumerate(found.rows) for box in row}
    assert sorted(places) == list(range(len(places))) and len(places) >= count
    for (source, target), way in zip(lines, found.ways, strict=True):
        assert (way[0], way[-1]) == (source, target)
        assert [row_of[it] for it in way] == list(range(row_of[source], row_of[target] + 1))
    passed = [it for way in found.ways for it in way[1:-1]]
    assert sorted(passed) == list(range(count, len(places)))


def test_crossings_that_need_not_be_are_not() -> None:
    """Three boxes, each with a reader, in the other order."""
    found = layers(6, [(0, 5), (1, 4), (2, 3)])
    (above, below) = found.rows
    assert [{0: 5, 1: 4, 2: 3}[it] for it in above] == below


def test_nothing_to_draw() -> None:
    assert layers(0, []).rows == []
    assert "No node runs on WebGPU" in page("m", {}, [], ["node"], [["a"]])


def test_a_line_goes_from_what_wrote_a_value_to_what_reads_it() -> None:
    made = program()
    found = drawn(made)
    assert [it.kind for it in found.boxes] == ["input", *["kernel"] * len(made.dispatches), "output"]
    assert all(it.source < it.target for it in found.lines)
    assert found.lines[-1].target == len(found.boxes) - 1
    assert found.lines[0].label == described(made.values[made.inputs[0]]) == "float32[n, 8]"
    assert "w float32[8, 8], 256 bytes" in found.boxes[1].facts["weights"]
    named = tuple(replace(it, name=name_in_order(it.name, (1, 0))) for it in made.values)
    assert "w by axes 1, 0 float32" in drawn(replace(made, values=named)).boxes[1].facts["weights"]
    assert found.boxes[1].text.startswith(made.kernels[made.dispatches[0].kernel].wgsl[0][:50])


def test_extents_and_bytes_in_words() -> None:
    assert [extent(it) for it in (4, ("$n",), ("$n", 2, "*"))] == ["4", "n", "?"]
    assert [in_units(it) for it in (12, 2048, 3 << 20, 5 << 30)] == ["12 bytes", "2 KiB", "3 MiB", "5 GiB"]


@settings(deadline=None, max_examples=60)
@given(NAMES)
def test_a_name_makes_no_element_of_the_page(name: str) -> None:
    made, plain = program(), program()
    named = [
        it if k not in made.inputs else type(it)(name, *list(vars(it).values())[1:]) for k, it in enumerate(made.values)
    ]
    object.__setattr__(made, "values", tuple(named))
    text = page(name, {name: name}, [made], ["node"], [[name]])
    wanted = page("plain", {"plain": "plain"}, [plain], ["node"], [["plain"]])
    assert [tag for tag, _ in Elements(text).found] == [tag for tag, _ in Elements(wanted).found]
    text.encode()
    begin = text.index('id="boxes">') + len('id="boxes">')
    data = text[begin : text.index("</script>", begin)]
    assert "<" not in data and json.loads(data)[0][1]["text"]


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium to draw the page with")
def test_the_command_draws_a_page_on_which_a_click_shows_a_kernel(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Softmax", ["a"], ["y"]), node("NonZero", ["s"], ["z"])]
    weights = {"w": np.eye(8, dtype=np.float32)}
    inputs = {"x": (np.float32, ["n", 8]), "s": (np.float32, [])}
    onnx.save(make_model(nodes, inputs, weights), tmp_path / "m.onnx")
    path = tmp_path / "page.html"
    assert cli.main(["explain", str(tmp_path / "m.onnx"), "--html", str(path)]) == 0
    text = path.read_text()
    assert not re.search(r"(src|href)\s*=|@import|url\(|fetch\(|https?://", text)
    click = '<script>document.querySelector("g.kernel").dispatchEvent(new Event("click"))</script>'
    path.write_text(re.sub(r"<meta http-equiv[^>]*>", "", text).replace("</body>", f"{click}</body>"))
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'user'}"]
    shown = patience.run([*command, "--enable-logging=stderr", "--dump-dom", path.as_uri()], check=True)
    assert "CONSOLE" not in shown.stderr
    assert re.search(r"<dt>nodes</dt><dd>MatMul_1</dd>", shown.stdout)
    assert re.search(r'<pre id="text">[^<]*fn main', shown.stdout)
    assert "CPUExecutionProvider" in shown.stdout
