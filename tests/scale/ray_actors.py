"""Actors of the tests on Ray, which lose their devices when they are told to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from onnxruntime_ep_wgpu.scale import Predictor, Server
from tests.plugin.loss import device_of, lose

CONTEXT = 0


class Placed(Predictor):
    """Tells in a column which node calculated a row."""

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        import ray

        found = super().__call__(batch)
        node = ray.get_runtime_context().get_node_id()
        return found | {"node": np.full(len(found["y"]), node)}


class Losing(Predictor):
    """Loses its device before the first batch of all actors with this file, and always before one with the row `poison`."""

    def __init__(self, model: Any, file: str, poison: int = -1, **more: Any) -> None:
        super().__init__(model, **more)
        self._file, self._poison = Path(file), poison

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        try:
            self._file.touch(exist_ok=False)
            first = True
        except FileExistsError:
            first = False
        if first or self._poison in batch["id"]:
            lose(device_of(CONTEXT))
        return super().__call__(batch)


class Watched(Server):
    """Tells how large its runs were, and loses its device when asked."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.sizes: list[int] = []
        session = self._runner.session

        class Noting:
            def run(_, names: Any, feeds: dict[str, np.ndarray]) -> Any:
                self.sizes.append(len(feeds["x"]))
                return session.run(names, feeds)

        self._runner.session = Noting()

    async def runs(self) -> list[int]:
        return self.sizes

    async def process(self) -> int:
        return os.getpid()

    async def lose(self) -> int:
        lose(device_of(CONTEXT))
        return os.getpid()
