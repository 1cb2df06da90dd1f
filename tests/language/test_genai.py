"""onnxruntime-genai runs on our library as it does on the official one, and generates what the CPU provider generates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .models import Decoder, write

pytest.importorskip("onnxruntime_genai")
ROOT = Path(__file__).parents[2]
ALL = "greedy,continued,several,rewound"


def generated(folder: Path, provider: str, names: str, **options: str) -> dict[str, Any]:
    """What a process of its own generates; it must end by itself, with 0."""
    command = [sys.executable, "-m", "tests.language.worker", str(folder), provider, names]
    command += [f"{k}={v}" for k, v in options.items()]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=os.environ | {"HF_HUB_OFFLINE": "1"}, timeout=400
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


# Beams are ordered by small differences, and the CPU provider rounds activations to 8 bits for weights of 4.
@pytest.mark.parametrize(("kind", "names"), [("fp32", f"{ALL},beams"), ("int4-fp32", ALL)])
def test_ids_are_those_of_the_cpu_provider(kind: str, names: str, tmp_path: Path) -> None:
    folder = write(Decoder(kind), tmp_path / kind)
    assert generated(folder, "webgpu", names) == generated(folder, "cpu", names)


@pytest.mark.parametrize("kind", ["fp32", "int4"])
def test_models_that_are_captured(kind: str, tmp_path: Path) -> None:
    """With ids, mask and logits on the device too, and lengths that only it knows."""
    folder = write(Decoder(kind, captured=True), tmp_path / kind)
    assert generated(folder, "webgpu", ALL, enableGraphCapture="1") == generated(folder, "cpu", ALL)


def test_halves_differ_where_the_cpu_provider_has_a_near_tie_alone(tmp_path: Path) -> None:
    """The ids of f32 are a third opinion: where these are clear, ours are the same."""
    halves = generated(write(Decoder("fp16"), tmp_path / "fp16"), "webgpu", "greedy,rewound")
    assert halves == generated(write(Decoder("fp32"), tmp_path / "fp32"), "cpu", "greedy,rewound")
