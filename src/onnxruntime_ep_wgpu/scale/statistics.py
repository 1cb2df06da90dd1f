"""Counters of a pool."""

from __future__ import annotations

from ..records import dataclass


@dataclass(frozen=True)
class DeviceStatistics:
    """Counters of one session.

    - `name`: the device's name.
    - `batches`: the number of runs, with `requests` and `rows` in total.
    - `failed`: requests that ended with an error.
    - `reopened`: how often the session was reopened.
    - `busy_seconds`: the total time of the runs.
    - `available`: whether the session takes requests.
    """

    name: str
    batches: int
    requests: int
    rows: int
    failed: int
    reopened: int
    busy_seconds: float
    available: bool


@dataclass(frozen=True)
class PoolStatistics:
    """Numbers of requests. `submitted` is the sum of `waiting`, `running`, `completed`, `failed` and `cancelled`.

    `refused` requests found a full queue. `waited_seconds` is the total time in the queue."""

    submitted: int
    waiting: int
    running: int
    completed: int
    failed: int
    cancelled: int
    refused: int
    waited_seconds: float
    devices: tuple[DeviceStatistics, ...]

    @property
    def rows_per_batch(self) -> float:
        """The mean size of a batch; 0 before the first one."""
        batches = sum(device.batches for device in self.devices)
        return sum(device.rows for device in self.devices) / batches if batches else 0.0
