"""A SessionPool of real sessions: on the adapters of this machine, several on one, and on a device that is lost."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device import adapters
from onnxruntime_ep_wgpu.scale import SessionPool
from tests import patience
from tests.plugin import models
from tests.plugin.loss import device_of, lose

RNG = np.random.default_rng(11)
REQUESTS = [RNG.standard_normal((rows, 8), np.float32) for rows in (1, 5, 0, 2, 1, 7, 3)]


def check(found: list[list[Any]]) -> None:
    for (y,), x in zip(found, REQUESTS, strict=True):
        np.testing.assert_allclose(y, models.chain_reference(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("max_batch", [1, 4, 64])
def test_results_are_those_of_a_session(max_batch: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(models.chain())
    with SessionPool(path, devices=[0, 0], max_batch=max_batch) as pool:
        check(list(pool.map({"x": x} for x in REQUESTS)))
        check([pool.run({"x": x}) for x in REQUESTS])
    assert pool.statistics().completed == 2 * len(REQUESTS)


def test_all_requests_may_be_one_batch() -> None:
    pool = SessionPool(models.chain(), devices=[0], max_batch=1000, max_wait=3600)
    futures = [pool.submit({"x": x}) for x in REQUESTS]
    pool.close()
    check([it.result() for it in futures])
    assert pool.statistics().devices[0].batches == 1


def test_a_wrong_request_fails_alone() -> None:
    requests = [{"x": x} for x in REQUESTS]
    requests[3] = {"x": np.zeros((2, 9), np.float32)}
    requests[4] = {"x": np.zeros((1, 8), np.float64)}
    pool = SessionPool(models.chain(), devices=[0], max_batch=1000, max_wait=3600)
    futures = [pool.submit(it) for it in requests]
    pool.close()
    for k, (future, x) in enumerate(zip(futures, REQUESTS, strict=True)):
        if k in (3, 4):
            assert future.exception() is not None
        else:
            np.testing.assert_allclose(future.result()[0], models.chain_reference(x), rtol=1e-4, atol=1e-4)


def test_a_lost_device_fails_no_request() -> None:
    with SessionPool(models.chain(), devices=[0], deviceId=41) as pool:
        check([pool.run({"x": x}) for x in REQUESTS])
        before = device_of(41)
        lose(before)
        del before
        check([pool.run({"x": x}) for x in REQUESTS])
        (device,) = pool.statistics().devices
        assert (device.reopened, device.failed) == (1, 0)


def test_by_default_there_is_a_session_on_each_adapter_of_the_best_kind() -> None:
    hardware = [it.name for it in adapters() if not it.software]
    with SessionPool(models.square()) as pool:
        names = [it.name for it in pool.statistics().devices]
    assert names == (hardware or [it.name for it in adapters()])


def test_options_and_outputs_are_those_of_the_session() -> None:
    with pytest.raises(webgpu_ep.OptionError, match="unknown option 'layout'"):
        SessionPool(models.chain(), layout="NHWC")  # type: ignore[call-arg]
    with pytest.raises(webgpu_ep.BatchError, match=r"input 'x' of shape \[3, 8\]"):
        SessionPool(models.chain(), devices=[0], max_batch=2, free_dimensions={"N": 3})
    x, d = REQUESTS[1], REQUESTS[1].astype(np.float64)
    with SessionPool(models.doubles_beside(), devices=[0], output_names=["z", "y"], max_batch=8) as pool:
        z, y = pool.run({"x": x, "d": d})
    np.testing.assert_allclose(z, d / np.linalg.norm(d, axis=-1, keepdims=True))
    np.testing.assert_allclose(y, x * x)


def test_sessions_may_be_made_by_a_function() -> None:
    def opens(device: int) -> ort.InferenceSession:
        settings = ort.SessionOptions()
        settings.intra_op_num_threads = 1
        return webgpu_ep.session(models.chain(), device=device, sess_options=settings)

    with SessionPool(opens, devices=[0, 0], max_batch=4) as pool:
        check(list(pool.map({"x": x} for x in REQUESTS)))


def test_a_model_that_cannot_be_opened_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"absent\.onnx"):
        SessionPool(tmp_path / "absent.onnx", devices=[0])


@pytest.mark.exhaustive
@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)", "1 / 0"])
def test_a_process_may_end_while_a_pool_runs(ending: str) -> None:
    script = f"""
import numpy as np
from onnxruntime_ep_wgpu.scale import SessionPool
from tests.plugin import models
pool = SessionPool(models.slow(), devices=[0, 0])
futures = [pool.submit({{"x": np.ones((8, 64), np.float32)}}) for _ in range(200)]
print(futures[0].result()[0].sum(), flush=True)
{ending}
"""
    done = patience.run([sys.executable, "-c", script], env=patience.here())
    assert done.returncode == {"": 0, "raise SystemExit(3)": 3, "1 / 0": 1}[ending], done.stderr
    assert done.stdout.strip() == "512.0"
    assert ("ZeroDivisionError" in done.stderr) == (ending == "1 / 0")
