"""Models in f16 and bf16 are as exact as storing halves between kernels allows.

The error against f32 is at most 1.5 times that of the same model computed in f32 and rounded where our kernels store. The
environment variable EP_TEST_MODELS names a folder of further models, NAME_f16.onnx with inputs `in:...` in NAME_f16.npz.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from onnxruntime_ep_wgpu.program.target import Target
from tests import boundaries, halves, provider, support, targets, zoo

ALLOWED = 1.5
REPRESENTATIVES = ("tiny", "minilm", "resnet_f32", "vit_f32")
FOLDER = os.environ.get("EP_TEST_MODELS")


def _representatives() -> list[object]:
    return [
        pytest.param(
            name,
            half,
            native,
            marks=[pytest.mark.exhaustive] if zoo.is_slow(name) or (name == "minilm" and not native) else [],
            id=f"{name}-{label}",
        )
        for name in REPRESENTATIVES
        for half, native, label in (
            (TensorProto.FLOAT16, True, "f16"),
            (TensorProto.FLOAT16, False, "packed"),
            (TensorProto.BFLOAT16, True, "bf16"),  # packed on every adapter
        )
    ]


@pytest.mark.costly
@pytest.mark.parametrize(("name", "half", "native"), _representatives())
def test_the_error_of_halves_is_that_of_storing_them(name: str, half: int, native: bool) -> None:
    full = support.target()
    _as_exact_as_stored(
        name, half, full if native else dataclasses.replace(full, features=full.features - {"shader-f16"})
    )


@pytest.mark.parametrize("way", [targets.Way("matrices")], ids=str, indirect=True)
@pytest.mark.parametrize("name", ["tiny", pytest.param("minilm", marks=pytest.mark.exhaustive)])
def test_the_same_with_matrices_of_subgroups(name: str) -> None:
    _as_exact_as_stored(name, TensorProto.FLOAT16, support.target(), part="matrix_sum")


def _as_exact_as_stored(name: str, half: int, target: Target, part: str = "") -> None:
    """`part` is in the text of a kernel."""
    try:
        case = zoo.load(name)
    except zoo.MissingWeightsError as missing:
        pytest.skip(str(missing))
    model = halves.retyped(onnx.load(case.path), TensorProto.FLOAT, half)
    program = support.compile_model(model, target)
    assert any(part in text for kernel in program.kernels for text in kernel.wgsl)
    run = support.Runner(program)
    # Of several inputs together: the largest error among a few results of one input is a matter of luck, and so is its bound.
    error = bound = 0.0
    for variation in range(case.variations):
        feeds = {k: halves.as_type(v, TensorProto.FLOAT, half) for k, v in case.inputs(variation).items()}
        judge = boundaries.Judge(model, feeds, target)
        results = run(*feeds.values())
        assert all(np.isfinite(r.astype(np.float32)).all() for r in results)
        error, bound = error + judge.error(results), bound + judge.bound
    assert error <= ALLOWED * bound


@pytest.mark.exhaustive
@pytest.mark.skipif(FOLDER is None, reason="EP_TEST_MODELS names no folder")
@pytest.mark.parametrize("path", sorted(Path(FOLDER or "/dev/null").glob("*_f16.onnx")), ids=lambda path: path.stem)
def test_the_error_of_a_file_in_halves_is_that_of_storing_them(path: Path) -> None:
    with np.load(path.with_suffix(".npz")) as arrays:
        feeds = {name.removeprefix("in:"): arrays[name] for name in arrays.files if name.startswith("in:")}
    judge = boundaries.Judge(boundaries.optimised(path), feeds, support.target())
    assert judge.error(provider.open_session(path).run(None, feeds)) <= ALLOWED * judge.bound
