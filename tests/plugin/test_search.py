"""Operators whose kernels run their bodies themselves: nothing in the bodies is claimed, and results equal the CPU provider's.

The models run in a process of their own, which a kernel that reads an address of the GPU would end:
`python -m tests.plugin.test_search NAME...` prints a line per model.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from tests import patience

from . import search_models

NAMES = list(search_models.models())
CONTROL_FLOW = "control flow runs on the CPU"
HOST = "the kernel of the {} around it reads what its bodies make as host memory"


@pytest.fixture(scope="module")
def found() -> dict[str, dict]:
    """What became of each model that did not end the process, by name."""
    command = [sys.executable, "-m", "tests.plugin.test_search", *NAMES]
    root = Path(__file__).resolve().parents[2]
    done = patience.run(command, cwd=root)
    return {it["name"]: it for it in map(json.loads, done.stdout.splitlines())}


def run(name: str) -> dict:
    model = search_models.models()[name]
    data, feeds = model.SerializeToString(), search_models.feeds(model)
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    want = ort.InferenceSession(data, settings, providers=["CPUExecutionProvider"]).run(None, feeds)
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    session = webgpu_ep.session(data, sess_options=settings)
    equal = all(np.array_equal(session.run(None, feeds)[0], want[0]) for _ in range(2))
    nodes = [(it.within, it.name, it.reason or "") for it in webgpu_ep.report(session).nodes]
    return {"name": name, "equal": equal, "nodes": nodes}


@pytest.mark.costly
@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_a_search_is_claimed_and_its_results_are_right(found: dict[str, dict], name: str) -> None:
    assert name in found, "the process ended"
    assert found[name]["equal"]
    nodes = found[name]["nodes"]
    reasons = {reason for around, _, reason in nodes if around == "search"} - {CONTROL_FLOW}
    assert reasons == {HOST.format(name.partition("-")[0])}
    assert ["", "before", ""] in nodes and (["", "beside", ""] in nodes) == name.endswith("outer")
    # An If copies what its bodies make, in these bodies too.
    assert {reason for around, _, reason in nodes if around == "choose"} == ({""} if name.endswith("nested") else set())


def test_the_body_of_a_sequence_map_is_decided_when_it_is_that_of_a_loop() -> None:
    """ONNX Runtime replaces SequenceMap by a Loop after its body was shown, and cannot when groups are in it."""
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[N,4] x) => (float[N,4] y) {
        r = Tanh (x) k = Neg (r) s = SequenceConstruct (k, r)
        t = SequenceMap (s) <body = b (float[N,4] e) => (float[N,4] o) { o = Exp (e) }>
        y = ConcatFromSequence <axis = 0> (t) }"""
    model = onnx.parser.parse_model(text).SerializeToString()
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    reference = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    (got,) = webgpu_ep.session(model).run(None, {"x": x})
    np.testing.assert_allclose(got, reference.run(None, {"x": x})[0], rtol=1e-5)


if __name__ == "__main__":
    for each in sys.argv[1:]:
        print(json.dumps(run(each)), flush=True)
