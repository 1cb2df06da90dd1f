"""The models of the test suite, exported whole and run by the web runtime in Node, against the CPU provider."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxruntime_ep_wgpu.api.web_export import export
from onnxruntime_ep_wgpu.program.dtypes import DType
from tests import zoo
from tests.models.test_models import case, cpu_session, error, tolerance

from . import node

FIRST = ("cnn_int8_qoperator", "t5_decoder_step")
NAMES = [pytest.param(name, marks=() if name in FIRST else pytest.mark.exhaustive) for name in zoo.NAMES]


def run(model: Path, inputs: dict[str, Any], folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    """What a session of the web runtime gives, by name."""
    described = {}
    for k, (name, array) in enumerate(inputs.items()):
        path = folder / f"in{k}"
        path.write_bytes(np.ascontiguousarray(array).tobytes())
        described[name] = {"file": str(path), "type": DType.of_numpy(array.dtype).label, "dims": list(array.shape)}
    (folder / "cases.json").write_text(
        json.dumps([{"model": str(model), "inputs": described, "output": str(folder / "out")}])
    )
    done = node.node("test/run_models.mjs", folder / "cases.json")
    found = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {"error": done.stderr[-2000:]}
    assert "error" not in found, found["error"]
    return {
        it["name"]: np.fromfile(folder / f"out.{k}", it["type"]).reshape(it["dims"])
        for k, it in enumerate(found["outputs"])
    }


@pytest.mark.costly
@pytest.mark.parametrize("name", NAMES)
def test_a_model_gives_what_the_cpu_provider_gives(name: str, built: None, tmp_path: Path) -> None:
    found = export(case(name).path, tmp_path / "model.onnx.wgpu")
    got = run(found.path, case(name).inputs(0), tmp_path)
    assert list(got) == [it.name for it in cpu_session(name).get_outputs()]
    assert error(name, 0, list(got.values())) <= tolerance(name)
