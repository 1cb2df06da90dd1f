"""onnxruntime-genai runs on our library as it does on the official one, and generates what the CPU provider generates."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import patience

from .models import Decoder, write

pytest.importorskip("onnxruntime_genai")
ROOT = Path(__file__).parents[2]
ALL = "greedy,continued,several,rewound"


def generated(folder: Path, provider: str, names: str, **options: str) -> dict[str, Any]:
    """What a process of its own generates; it must end by itself, with 0."""
    return process("worker", str(folder), provider, names, *(f"{k}={v}" for k, v in options.items()))


def process(module: str, *arguments: str) -> dict[str, Any]:
    """What such a process prints."""
    command = [sys.executable, "-m", f"tests.language.{module}", *arguments]
    done = patience.run(command, cwd=ROOT, env=os.environ | {"HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


# Beams are ordered by small differences, and the CPU provider rounds activations to 8 bits for weights of 4.
@pytest.mark.parametrize(
    ("kind", "names"), [("fp32", f"{ALL},beams"), pytest.param("int4-fp32", ALL, marks=pytest.mark.exhaustive)]
)
def test_ids_are_those_of_the_cpu_provider(kind: str, names: str, tmp_path: Path) -> None:
    folder = write(Decoder(kind), tmp_path / kind)
    assert generated(folder, "webgpu", names) == generated(folder, "cpu", names)


@pytest.mark.parametrize("kind", ["fp32", pytest.param("int4", marks=pytest.mark.exhaustive)])
def test_models_that_are_captured(kind: str, tmp_path: Path) -> None:
    """With ids, mask and logits on the device too, and lengths that only it knows."""
    folder = write(Decoder(kind, captured=True), tmp_path / kind)
    assert generated(folder, "webgpu", ALL, enableGraphCapture="1") == generated(folder, "cpu", ALL)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="plain"),
        pytest.param(("enableGraphCapture=1",), id="captured", marks=pytest.mark.exhaustive),
    ],
)
def test_a_step_does_nothing_in_python_but_the_readback(options: tuple[str, ...], tmp_path: Path) -> None:
    """And what comes next, while it waits for that. A step whose mask needs other memory, and the two after it, do more."""
    folder, count = write(Decoder("int4", captured=bool(options), length=256), tmp_path / "model"), 100
    calls = process("steps", str(folder), str(count), *options)["calls"]
    others = 0 if options else 3 * (count * 8 // 256 + 1)  # sizes of the mask's memory that differ
    assert calls.get("compute", 0) <= others
    assert calls.get("alloc", 0) + calls.get("free", 0) <= others
    assert calls.get("copy_tensors", 0) <= count + others
    assert calls.get("can_copy", 0) == 0


@pytest.mark.exhaustive
def test_halves_differ_where_the_cpu_provider_has_a_near_tie_alone(tmp_path: Path) -> None:
    """The ids of f32 are a third opinion: where these are clear, ours are the same."""
    halves = generated(write(Decoder("fp16"), tmp_path / "fp16"), "webgpu", "greedy,rewound")
    assert halves == generated(write(Decoder("fp32"), tmp_path / "fp32"), "cpu", "greedy,rewound")
