"""Many requests on several devices: of this process, and of the nodes of a Ray cluster.

    with SessionPool("model.onnx", max_batch=16, max_wait=0.005) as pool:     # a session on every GPU of this process
        future = pool.submit({"x": x})                                         # a concurrent.futures.Future
        for outputs in pool.map({"x": x} for x in images): ...                # in order

Files, in the order data flows: `clock` (time, which tests make up), `requests` (one request and its future), `batching` (which
requests are one run, and how results are taken apart), `waiting` (the bounded queue), `runner` (a session on a device that
is made anew when the device is lost), `statistics`, `workers` (a thread per device), `pool`.

For Ray, with the extra `ray`: `on_ray` (the device that Ray assigned, models from its object store), `ray_data` (a class for
`map_batches`), `ray_serve` (a deployment).

Nothing is imported before it is used, and Ray by its users alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .pool import SessionPool as SessionPool
    from .ray_data import Predictor as Predictor
    from .ray_serve import Server as Server
    from .ray_serve import application as application
    from .statistics import DeviceStatistics as DeviceStatistics
    from .statistics import PoolStatistics as PoolStatistics

# What the imports above are at run time; a test compares the two.
_PLACES = {
    "DeviceStatistics": "statistics",
    "PoolStatistics": "statistics",
    "Predictor": "ray_data",
    "Server": "ray_serve",
    "SessionPool": "pool",
    "application": "ray_serve",
}
__all__ = sorted(_PLACES)


if not TYPE_CHECKING:  # a type checker knows the names from above, and that there are no others

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f".{_PLACES[name]}", __name__), name)
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
