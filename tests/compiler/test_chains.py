"""A kernel and what follows it, in whatever shapes: results equal the CPU provider's, on the kernels of both kinds of adapter."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests.compiler.chains import ANCHORS, chain
from tests.support import Runner, compile_model, target

SEEDS = range(2)


@cache
def _case(anchor: str, seed: int, dynamic: bool) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]], list]:
    model, feeds = chain(anchor, seed, dynamic)
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    return model, feeds, [session.run(None, it) for it in feeds]


@pytest.mark.costly
@pytest.mark.parametrize("software", [True, False], ids=["software", "hardware"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("anchor", ANCHORS)
def test_results_keep_their_values_through_reshapes_and_back(anchor: str, dynamic: bool, software: bool) -> None:
    on = dataclasses.replace(target(), software=software)
    for seed in SEEDS:
        model, feeds, wanted = _case(anchor, seed, dynamic)
        run = Runner(compile_model(model, on))
        for given, want in zip(feeds, wanted, strict=True):
            for output, ours, theirs in zip(model.graph.output, run(*given.values()), want, strict=True):
                assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
                loose = 40 if ours.dtype == np.float16 else 1
                np.testing.assert_allclose(
                    ours.astype(np.float64),
                    theirs.astype(np.float64),
                    rtol=3e-5 * loose,
                    atol=3e-5 * loose,
                    err_msg=f"{anchor}, seed {seed}: {output.name}",
                )
