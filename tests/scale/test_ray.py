"""Models on Ray: an actor per GPU, each with a session, on a local cluster with a software adapter in the place of GPUs.

Ray is large, so `make test` does not install it: `make test-ray` does, and runs these tests.
"""

from __future__ import annotations

import io
import logging
import os
import secrets
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.scale import Predictor, application
from tests import patience
from tests.plugin import models
from tests.tools.test_documents import blocks
from tests.tools.test_documents import folder as folder

ray = pytest.importorskip("ray", reason="needs Ray, which `make test-ray` installs: 200 MB")
pytestmark = pytest.mark.exhaustive

X = np.random.default_rng(3).standard_normal((48, 8), np.float32)
WANTED = models.chain_reference(X)
ON = {"device": "software"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without GPUs and two nodes of one GPU each, all of them processes here."""
    from ray.cluster_utils import Cluster

    os.environ |= {
        "PYTHONPATH": patience.here()["PYTHONPATH"],  # of its workers
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),  # else Ray writes one to the user's folder
    }
    memory = 100 << 20
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 0, "object_store_memory": memory})
    for _ in range(2):
        made.add_node(num_cpus=2, num_gpus=1, object_store_memory=memory)
    ray.init(address=made.address, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    yield made
    ray.shutdown()
    made.shutdown()


def dataset() -> Any:
    return ray.data.from_items([{"x": x, "id": k} for k, x in enumerate(X)], override_num_blocks=6)


def mapped(kind: type, arguments: dict[str, Any], size: int = 2, **more: Any) -> list[dict[str, Any]]:
    """The rows of the dataset with what the actors add, in the order of their ids."""
    pool = ray.data.ActorPoolStrategy(size=size)
    kwargs = {"batch_size": 8, "num_gpus": 1, "compute": pool, "fn_constructor_kwargs": ON | arguments}
    return sorted(dataset().map_batches(kind, **(kwargs | more)).take_all(), key=lambda row: row["id"])


def check(found: list[dict[str, Any]]) -> None:
    assert [row["id"] for row in found] == list(range(len(X)))
    np.testing.assert_allclose(np.stack([row["y"] for row in found]), WANTED, rtol=1e-4, atol=1e-4)


def test_a_dataset_goes_through_several_actors(cluster: Any) -> None:
    found = mapped(Predictor, {"model": ray.put(models.chain())})
    check(found)
    assert set(found[0]) == {"id", "y"}, "columns that are no inputs, and outputs"


def test_each_node_has_an_actor_for_its_gpu(cluster: Any) -> None:
    from .ray_actors import Placed

    model = ray.put(models.chain())
    actors = [ray.remote(Placed).options(num_gpus=1).remote(model, **ON) for _ in range(2)]
    found = [ray.get(actor.__call__.remote({"x": X})) for actor in actors]
    for it in found:
        np.testing.assert_allclose(it["y"], WANTED, rtol=1e-4, atol=1e-4)
    assert len({it["node"][0] for it in found}) == 2
    for actor in actors:
        ray.kill(actor)


def test_a_model_may_be_a_path_and_columns_may_be_named(cluster: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(models.chain())
    arguments = {"model": str(path), "columns": {"x": "image"}, "keep": ["id", "image"], **ON}
    renamed = dataset().rename_columns({"x": "image"})
    pool = ray.data.ActorPoolStrategy(size=1)
    found = renamed.map_batches(
        Predictor, fn_constructor_kwargs=arguments, batch_size=None, num_cpus=1, compute=pool
    ).take_all()
    found.sort(key=lambda row: row["id"])
    check(found)
    np.testing.assert_array_equal(np.stack([row["image"] for row in found]), X)


def test_a_lost_device_restarts_its_actor_and_no_row_is_missing(cluster: Any, tmp_path: Path) -> None:
    from .ray_actors import Losing

    arguments = {"model": ray.put(models.chain()), "file": str(tmp_path / "lost")}
    check(mapped(Losing, arguments, max_restarts=3, max_task_retries=3))
    assert (tmp_path / "lost").exists()


def test_a_batch_that_always_loses_the_device_ends_the_dataset(cluster: Any, tmp_path: Path) -> None:
    from .ray_actors import Losing

    arguments = {"model": ray.put(models.chain()), "file": str(tmp_path / "lost"), "poison": 17}
    with pytest.raises(ray.exceptions.RayActorError):
        mapped(Losing, arguments, size=1, max_restarts=1, max_task_retries=1)


def test_an_error_of_a_batch_ends_no_actor(cluster: Any) -> None:
    actor = ray.remote(Predictor).options(num_gpus=1).remote(models.chain(), **ON)
    call = actor.__call__.remote
    with pytest.raises(webgpu_ep.InputError, match="the batch has no column 'x' for input 'x'; it has 'z'"):
        ray.get(call({"z": X}))
    with pytest.raises(Exception, match="Got invalid dimensions for input: x"):
        ray.get(call({"x": X[:, :3]}))
    np.testing.assert_allclose(ray.get(call({"x": X}))["y"], WANTED, rtol=1e-4, atol=1e-4)
    assert ray.get(actor.check_health.remote()) is None
    ray.kill(actor)


@pytest.mark.skipif(
    any("software" not in it.ep_metadata for it in webgpu_ep.devices()), reason="this machine has a GPU to assign"
)
def test_an_assigned_gpu_that_vulkan_does_not_see_is_an_error(cluster: Any) -> None:
    actor = ray.remote(Predictor).options(num_gpus=1).remote(models.chain())
    with pytest.raises(ray.exceptions.RayActorError, match="Ray assigned GPU '0', and this process sees 0 adapters of"):
        ray.get(actor.check_health.remote())


@pytest.fixture(scope="module")
def started(cluster: Any) -> Iterator[Any]:
    from ray import serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.port = port
    yield serve
    serve.shutdown()


@pytest.fixture
def serve(started: Any) -> Iterator[Any]:
    """What a test deploys has both GPUs until its end."""
    yield started
    for name in started.status().applications:
        started.delete(name)


def test_requests_of_a_deployment_are_joined_and_fail_alone(serve: Any) -> None:
    from .ray_actors import Watched

    made = serve.deployment(Watched, num_replicas=1, max_ongoing_requests=100, ray_actor_options={"num_gpus": 1})
    handle = serve.run(made.bind(models.chain(), "software", None, 16, 3600.0, {}), name="joined", route_prefix=None)
    sent = [{"x": X[k : k + 2]} for k in range(0, 32, 2)]
    sent[5] = {"x": X[:2, :7]}
    answers = [handle.infer.remote(it) for it in sent]
    for k, (answer, feeds) in enumerate(zip(answers, sent, strict=True)):
        if k == 5:
            with pytest.raises(Exception, match="Got invalid dimensions for input: x"):
                answer.result()
        else:
            found = answer.result()["y"]
            np.testing.assert_allclose(found, models.chain_reference(feeds["x"]), rtol=1e-4, atol=1e-4)
    with pytest.raises(webgpu_ep.InputError, match="lacks 'x'"):
        handle.infer.remote({"z": X}).result()
    sizes = handle.runs.remote().result()
    assert sorted(sizes, reverse=True)[:2] == [16, 14], "16 rows are a run; the wrong request is of another kind"


def test_a_replica_that_lost_its_device_answers_and_is_replaced(serve: Any) -> None:
    from .ray_actors import Watched

    options = {"num_replicas": 1, "health_check_period_s": 0.1, "ray_actor_options": {"num_gpus": 1}}
    made = serve.deployment(Watched, **options)
    handle = serve.run(made.bind(models.chain(), "software", None, 4, 0.0, {}), name="lost", route_prefix=None)
    old = handle.lose.remote().result()
    np.testing.assert_allclose(handle.infer.remote({"x": X}).result()["y"], WANTED, rtol=1e-4, atol=1e-4)
    while handle.process.remote().result() == old:
        pass
    np.testing.assert_allclose(handle.infer.remote({"x": X}).result()["y"], WANTED, rtol=1e-4, atol=1e-4)


def test_a_deployment_answers_http(serve: Any) -> None:
    served = application(ray.put(models.chain()), max_batch=8, num_gpus=0, **ON)
    serve.run(served, name="http", route_prefix="/chain")
    address = f"http://127.0.0.1:{serve.port}/chain"

    def asked(**arrays: np.ndarray) -> bytes:
        body = io.BytesIO()
        np.savez(body, **arrays)
        return posted(body.getvalue())

    def posted(body: bytes) -> bytes:
        answer: bytes = urllib.request.urlopen(urllib.request.Request(address, body)).read()
        return answer

    with np.load(io.BytesIO(asked(x=X))) as arrays:
        np.testing.assert_allclose(arrays["y"], WANTED, rtol=1e-4, atol=1e-4)
    for send, message in (
        (lambda: asked(z=X), "lacks 'x' and has 'z'"),
        (lambda: asked(x=X[:, :5]), "Got invalid dimensions for input: x"),
        (lambda: posted(b"not a file"), "the body is not a file of numpy.savez"),
    ):
        with pytest.raises(urllib.error.HTTPError) as error:
            send()
        assert error.value.code == 400 and message in error.value.read().decode()


@pytest.mark.parametrize("number", [1, 2])
def test_the_programs_in_the_document_run(
    number: int, folder: Path, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the software adapter in the place of GPUs, and one actor for each."""
    monkeypatch.chdir(folder)
    block = blocks("python", "docs/scale.md")[number].replace("serve.shutdown()", "")
    for printed, here in (
        ('"model": "model.onnx"', f'"model": "{folder}/model.onnx", "device": "software"'),
        ('application("model.onnx"', f'application("{folder}/model.onnx", device="software"'),
    ):
        block = block.replace(printed, here)
    assert "software" in block
    exec(compile(block, "docs/scale.md", "exec"), {})
