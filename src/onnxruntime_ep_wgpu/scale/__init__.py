"""Serves many requests on several devices of this process, or on the nodes of a Ray cluster.

    with SessionPool("model.onnx", max_batch=16, max_wait=0.005) as pool:     # a session on every GPU of this process
        future = pool.submit({"x": x})                                         # a concurrent.futures.Future
        for outputs in pool.map({"x": x} for x in images): ...                # in order

Files, in the order data flows:

- `clock`: time, replaceable in tests
- `requests`: a request and its future
- `batching`: joins requests to a batch and splits the results
- `waiting`: the bounded queue
- `runner`: a session that is reopened when its device is lost
- `statistics`, `workers` (a thread per device), `pool`

For Ray, with the extra `ray`: `on_ray` (the assigned device, models from the object store), `ray_data` (a class for
`map_batches`), `ray_serve` (a deployment).

Modules are imported on first use, and Ray only by the modules that need it.
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

# The same names for lazy imports at run time. A test compares the two lists.
_PLACES = {
    "DeviceStatistics": "statistics",
    "PoolStatistics": "statistics",
    "Predictor": "ray_data",
    "Server": "ray_serve",
    "SessionPool": "pool",
    "application": "ray_serve",
}
__all__ = sorted(_PLACES)


if not TYPE_CHECKING:  # type checkers use the imports above, and report any other name

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f".{_PLACES[name]}", __name__), name)
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
