"""What a graph becomes that takes several Programs, and that a file of one is looked at before it is used."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest

from onnxruntime_ep_wgpu.api.flow.compiled import flows_of
from onnxruntime_ep_wgpu.api.web_export import SOFTWARE, export
from onnxruntime_ep_wgpu.api.web_files import read_flows
from onnxruntime_ep_wgpu.program.file import header
from onnxruntime_ep_wgpu.program.flow import Flow, Part, flow_header, flow_of, leaves
from onnxruntime_ep_wgpu.program.program import Program, Storage
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE
from onnxruntime_ep_wgpu.program.weights import weight_array

from . import flows

CASES = {it.name: it for it in flows.CASES}


def flow(name: str) -> Flow:
    (found,) = flows_of(ir.from_proto(CASES[name].model), [WEB_BASELINE], "g")
    return found


def parts(found: Program | Flow, kind: str) -> list[tuple[Flow, Part]]:
    """All parts of a kind, those of bodies included."""
    if isinstance(found, Program):
        return []
    own = [(found, it) for it in found.parts if it.kind == kind]
    return own + [it for program in found.programs for it in parts(program, kind)]


def numbered(found: Flow) -> list[dict[str, Any]]:
    """Its headers as in a file, as JSON gives them back; the first one is its own."""
    headers: list[dict[str, Any]] = [{}]

    def of(program: Program | Flow) -> dict[str, Any]:
        if isinstance(program, Program):
            return header(program, [weight_array(it) for it in program.weights])
        numbers = []
        for it in program.programs:
            made = of(it)
            numbers.append(len(headers))
            headers.append(made)
        return flow_header(program, numbers)

    headers[0] = of(found)
    whole: list[dict[str, Any]] = json.loads(json.dumps(headers))
    return whole


def names(found: Flow, numbers: tuple[int, ...]) -> list[str]:
    return [found.values[it].name for it in numbers]


def test_what_a_host_calculates_takes_no_kernel_and_plans_do_not_depend_on_it() -> None:
    """The counter and the condition are a Program of their own; that with the kernels has no element for a symbol."""
    ((_, loop),) = parts(found := flow("rounds that the host counts"), "loop")
    body = found.programs[loop.programs[0]]
    assert isinstance(body, Flow)
    on_host, on_device = (body.programs[it.programs[0]] for it in body.parts if it.kind == "run")
    assert isinstance(on_host, Program) and isinstance(on_device, Program)
    assert not on_host.dispatches and all(on_host.values[it].storage is Storage.HOST for it in on_host.outputs)
    assert on_device.dispatches and not any(it.is_element for it in on_device.symbols)


def test_the_number_of_the_round_is_read_by_kernels_where_they_can() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]> g (float[n,3] x, int64 m) => (float[r,3] o) {
        o = Loop (m, ) <body = b (int64 i, bool c) => (bool c2, float[3] row) { row = Gather (x, i)  c2 = Identity (c) }> }""")
    (found,) = flows_of(ir.from_proto(model), [WEB_BASELINE], "g")
    gather = next(it for it in leaves(found) if it.dispatches)
    assert not any(it.is_element for it in gather.symbols)


def test_a_branch_that_runs_in_every_run_takes_the_place_of_its_if() -> None:
    text = """(float[2,3] x, int64 m) => (float[a,b] y) <int64 two = {2}, int64 zero = {0}> {
        s = Shape (x)  rows = Gather (s, zero)  c = Equal (rows, two)  e = Neg (x)
        f = If (c) <then_branch = t () => (float[p,q] v) { v = Exp (e) }, else_branch = e () => (float[q] u) { u = Squeeze (e) }>
        y = Loop (m, , f) <body = b (int64 i, bool d, float[p,q] k) => (bool d2, float[p,q] k2) {
            k2 = Add (k, f)  d2 = Identity (d) }> }"""
    (found,) = flows_of(ir.from_proto(flows.Case("", text, []).model), [WEB_BASELINE], "g")
    assert not parts(found, "if") and len(parts(found, "loop")) == 1


def test_nodes_between_two_decisions_are_one_program() -> None:
    found = flow("as many elements as data says")
    assert [it.kind for it in found.parts] == ["run", "run"]
    first, second = found.programs
    assert isinstance(first, Program) and len(first.sized) == 2 and isinstance(second, Program)
    assert names(found, found.parts[1].args) == ["p"]


@pytest.mark.parametrize("name", [it.name for it in flows.CASES])
def test_what_is_written_is_read_again(name: str, tmp_path: Path) -> None:
    onnx.save(CASES[name].model, tmp_path / "m.onnx")
    found = export(tmp_path / "m.onnx")
    read = read_flows(found.path)
    assert [it.target.name for it in read] == list(found.targets)
    assert flow_of(numbered(flow(name))) is not None
    assert sum(len(it.dispatches) for it in leaves(read[-1])) == found.dispatches
    if SOFTWARE.name in found.targets:
        assert read[0].target.software


def test_a_program_of_several_bodies_is_in_a_file_once(tmp_path: Path) -> None:
    """Two loops with one body; the headers within the flows are as many as there are different ones."""
    body = "body = b (int64 i, bool c, float[p] s) => (bool c2, float[p] s2) { s2 = Sin (s)  c2 = Identity (c) }"
    text = f"(float[n] x, int64 m) => (float[p] z) {{ y = Loop (m, , x) <{body}> z = Loop (m, , y) <{body}> }}"
    (twice,) = flows_of(ir.from_proto(flows.Case("", text, []).model), [WEB_BASELINE], "g")
    first, second = (twice.programs[it.programs[0]] for it in twice.parts)
    assert first == second


HEADERS = numbered(flow("branches in a loop"))
WHERE = next(k for k, it in enumerate(HEADERS) if any(row[0] == "loop" for row in it.get("parts", ())))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda it: it["parts"].append(["walk", [], [], [], 0]), "not a part of a flow"),
        (lambda it: it["parts"].append(["if", [0], [0], [1], 0]), "has 1 programs"),
        (lambda it: it["parts"].append(["run", [99], [0], [1], 0]), r"has the programs \(99,\)"),
        (lambda it: it["parts"].append(["same", [], [99], [1], 0]), "has the value 99"),
        (
            lambda it: it["parts"].insert(0, ["same", [], [len(it["values"]) - 1], [2], 0]),
            "is read before it is written",
        ),
        (lambda it: it["parts"].append(it["parts"][-1]), "is written twice"),
        (lambda it: it["parts"].pop(), "an output of a flow is not written"),
        (lambda it: it["programs"].__setitem__(0, 0), "contains itself"),
        (lambda it: it["programs"].__setitem__(0, "x"), "has the programs"),
        (lambda it: next(row for row in it["parts"] if row[0] == "loop").__setitem__(4, 7), "7 states"),
        (lambda it: next(row for row in it["parts"] if row[0] == "loop")[2].append(0), "does not fit"),
    ],
)
def test_a_damaged_flow_is_refused(change: Callable[[Any], None], message: str) -> None:
    headers = copy.deepcopy(HEADERS)
    change(headers[WHERE])
    with pytest.raises(ValueError, match=message):
        flow_of(headers)
