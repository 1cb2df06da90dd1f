"""Deploys a model on Ray Serve, with replicas that batch concurrent requests.

In: requests by handle, as arrays by name, or by HTTP, as a file of `numpy.savez`. Out: the outputs by name, in the same form.
Invariants: a faulty request does not fail others. If the device is lost, current requests run on a reopened session, and the
replica reports itself as unhealthy, so that Serve replaces it.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from ..errors import DeviceError, DeviceLostError
from ..options.types import ProviderOptions
from .on_ray import library, runner_of
from .requests import Outputs, Request
from .waiting import Groups


def application(
    model: Any,
    *,
    max_batch: int = 1,
    max_wait: float = 0.0,
    num_gpus: float = 1.0,
    device: Any = None,
    output_names: Sequence[str] | None = None,
    deployment: Mapping[str, Any] | None = None,
    free_dimensions: Mapping[str, int] | None = None,
    allow_cpu_only: bool = False,
    **options: Unpack[ProviderOptions],
) -> Any:
    """Returns an application for `serve.run`: `serve.run(application("model.onnx", max_batch=16, max_wait=0.005))`.

    - `model`: a path that exists on every node, bytes, or `ray.put` of bytes.
    - `num_gpus`: the GPUs of each replica's actor.
    - `device`: by default the GPU that Ray assigned. Each replica has one session on it.
    - `max_batch`, `max_wait`: those of `@serve.batch`: the limit of joined requests, and the seconds that the first one waits
      for others. Requests are joined as in SessionPool.
    - `deployment`: further arguments of `serve.deployment`, {"num_replicas": 8}.
    - The other arguments are those of `session()`.

    `handle.infer.remote({"x": array})` returns the outputs by name. By HTTP, request and response are files of `numpy.savez`,
    and an invalid request gets status 400. Raises ImportError without Ray.
    """
    library()
    from ray import serve

    usual = {
        "name": "Server",
        "max_ongoing_requests": max(5, 2 * max_batch),  # one batch waits while another one runs
        "ray_actor_options": {"num_gpus": num_gpus},
    }
    made = serve.deployment(Server, **(usual | dict(deployment or {})))
    more = {"free_dimensions": free_dimensions, "allow_cpu_only": allow_cpu_only, **options}
    return made.bind(model, device, output_names, max_batch, max_wait, more)


class Server:
    """A replica, as `application` deploys it."""

    def __init__(
        self,
        model: Any,
        device: Any,
        output_names: Sequence[str] | None,
        max_batch: int,
        max_wait: float,
        options: dict[str, Any],
    ) -> None:
        from ray import serve

        self._runner = runner_of(model, device, output_names, max_batch > 1, options)
        self._outputs = list(output_names or (it.name for it in self._runner.session.get_outputs()))
        self._max_batch = max_batch
        self._failure: DeviceError | None = None
        self._batched: Any = serve.batch(max_batch_size=max_batch, batch_wait_timeout_s=max_wait)(self._answer)

    async def infer(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the outputs of one request by name. Raises InputError, and what the run raises."""
        axis = self._runner.axis
        outcome = await self._batched(Request(feeds) if axis is None else Request(*axis.measure(feeds)))
        if isinstance(outcome, Exception):
            raise outcome
        return dict(zip(self._outputs, outcome, strict=True))

    async def __call__(self, request: Any) -> Any:
        """Handles an HTTP request: starlette's Request in, Response out."""
        from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
        from starlette.responses import Response

        try:
            with np.load(io.BytesIO(await request.body()), allow_pickle=False) as arrays:
                feeds = dict(arrays)
        except Exception as error:  # numpy raises many types for invalid bytes
            return Response(f"the body is not a file of numpy.savez: {error}", 400, media_type="text/plain")
        try:
            outputs = await self.infer(feeds)
        except (ValueError, InvalidArgument) as error:
            return Response(f"{type(error).__name__}: {error}", 400, media_type="text/plain")
        answer = io.BytesIO()
        np.savez(answer, **outputs)
        return Response(answer.getvalue(), media_type="application/octet-stream")

    async def _answer(self, requests: list[Request]) -> list[Outputs | Exception]:
        """Runs several requests on a thread, so that the event loop still answers health checks."""
        return await asyncio.to_thread(self._run, requests)

    def _run(self, requests: list[Request]) -> list[Outputs | Exception]:
        groups, outcomes = Groups(self._max_batch, 0.0), dict[int, Outputs | Exception]()
        for request in requests:
            groups.add(request)
        while batch := groups.take(0.0, at_once=True):
            try:
                found = self._runner.run([it.feeds for it in batch], [it.rows for it in batch])
            except Exception as error:  # the session cannot be reopened
                self._failure = DeviceError(f"no session can be created again: {error}")
                found = [self._failure] * len(batch)
            outcomes |= {id(request): outcome for request, outcome in zip(batch, found, strict=True)}
        if self._runner.reopened and self._failure is None:
            self._failure = DeviceLostError("the device was lost; this replica continues until another one replaces it")
        return [outcomes[id(request)] for request in requests]

    def check_health(self) -> None:
        """Raises if the device was lost; then Serve replaces the replica."""
        if self._failure is not None:
            raise self._failure
