"""What a pool has done so far, in numbers."""

from __future__ import annotations

from ..records import dataclass


@dataclass(frozen=True)
class DeviceStatistics:
    """Of one session: `name` is the device's, `batches` are runs of `requests` with `rows` altogether, `busy_seconds` the time of
    these runs. `failed` of the requests ended with an error, `reopened` is how often the session was made anew, and `available`
    says that it takes requests."""

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
    """Numbers of requests: `submitted` is the sum of `waiting`, `running`, `completed`, `failed` and `cancelled`; `refused`
    ones found the queue full. `waited_seconds` is the sum of their times in the queue."""

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
