"""Models that take several Programs run in the page as on the CPU provider: If, Loop, Scan, sizes that data decides.

All cases are exported and run by one process of Node, which also counts how often a run waits for the GPU.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from onnxruntime_ep_wgpu.api.web_export import export
from onnxruntime_ep_wgpu.program.dtypes import DType

from . import flows, node


@pytest.fixture(scope="module")
def ran(built: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What the runs of each case gave, in order: `reads`, and arrays by name, or the error."""
    folder, asked = tmp_path_factory.mktemp("flows"), []
    for number, case in enumerate(flows.CASES):
        path = folder / f"{number}.onnx"
        onnx.save(case.model, path)
        found = export(path)
        for run, inputs in enumerate(case.runs):
            described = {}
            for k, (name, array) in enumerate(inputs.items()):
                file = folder / f"{number}.{run}.in{k}"
                file.write_bytes(np.ascontiguousarray(array).tobytes())
                described[name] = {
                    "file": str(file),
                    "type": DType.of_numpy(array.dtype).label,
                    "dims": list(array.shape),
                }
            asked.append(
                {
                    "case": case.name,
                    "model": str(found.path),
                    "inputs": described,
                    "output": str(folder / f"{number}.{run}"),
                }
            )
    (folder / "cases.json").write_text(json.dumps(asked))
    done = node.node("test/run_models.mjs", folder / "cases.json")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == len(asked), done.stderr[-2000:]
    results: dict[str, list[Any]] = {}
    for it, line in zip(asked, lines, strict=True):
        if "outputs" in line:
            line["outputs"] = {
                output["name"]: np.fromfile(f"{it['output']}.{k}", output["type"]).reshape(output["dims"])
                for k, output in enumerate(line["outputs"])
            }
        results.setdefault(it["case"], []).append(line)
    return results


@pytest.mark.parametrize("case", flows.CASES, ids=lambda it: it.name)
def test_a_flow_gives_what_the_cpu_provider_gives(case: flows.Case, ran: dict[str, list[Any]]) -> None:
    session = ort.InferenceSession(case.model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [it.name for it in session.get_outputs()]
    for inputs, got in zip(case.runs, ran[case.name], strict=True):
        assert "error" not in got, got["error"]
        for name, want in zip(names, session.run(None, inputs), strict=True):
            found = got["outputs"][name]
            assert found.shape == want.shape and found.dtype == want.dtype
            np.testing.assert_allclose(found.astype(np.float64), want.astype(np.float64), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", [it for it in flows.CASES if it.reads is not None], ids=lambda it: it.name)
def test_nothing_is_read_back_but_what_kernels_decide(case: flows.Case, ran: dict[str, list[Any]]) -> None:
    assert case.reads is not None
    assert [it["reads"] for it in ran[case.name]] == case.reads
