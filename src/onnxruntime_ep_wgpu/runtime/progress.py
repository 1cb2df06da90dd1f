"""The progress of making a session, and the names of its parts."""

from __future__ import annotations

from ..records import dataclass

READING, CLAIMING, COMPILING = "reading", "claiming", "compiling"
DEVICE, WEIGHTS, PIPELINES = "device", "weights", "pipelines"
PARTS = (READING, CLAIMING, COMPILING, DEVICE, WEIGHTS, PIPELINES)


@dataclass(frozen=True)
class Progress:
    """The progress of making a session.

    `part` is one of these:

    * "reading": ONNX Runtime reads and optimises the model;
    * "claiming": the provider decides which nodes it runs;
    * "compiling": kernels are generated as WGSL;
    * "device": the GPU is opened;
    * "weights": weights are uploaded to the GPU;
    * "pipelines": the driver compiles the kernels that every run needs.

    `done` of `total` are bytes of the weights of a group, or pipelines. Both are 0 if the number is unknown. `seconds` is the
    time since the beginning.
    """

    part: str
    done: int
    total: int
    seconds: float
