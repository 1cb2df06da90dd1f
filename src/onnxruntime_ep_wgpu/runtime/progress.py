"""How far the making of a session is, and the names of its parts."""

from __future__ import annotations

from ..records import dataclass

READING, CLAIMING, COMPILING = "reading", "claiming", "compiling"
DEVICE, WEIGHTS, PIPELINES = "device", "weights", "pipelines"
PARTS = (READING, CLAIMING, COMPILING, DEVICE, WEIGHTS, PIPELINES)


@dataclass(frozen=True)
class Progress:
    """How far the making of a session is.

    `part` is one of these:

    * "reading": ONNX Runtime reads and optimises the model;
    * "claiming": it is decided which nodes run here;
    * "compiling": kernels are written, as WGSL;
    * "device": the GPU is opened;
    * "weights": they go to the GPU;
    * "pipelines": the driver compiles the kernels that every run needs.

    `done` of `total` are bytes of the weights of a group, or pipelines. Both are 0 where no number is known. `seconds` have passed
    since the beginning.
    """

    part: str
    done: int
    total: int
    seconds: float
