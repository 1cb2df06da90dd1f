"""What a Program is made for: the limits and features of an adapter, or a named baseline."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Target:
    """Limits and features that lowering may rely on. Byte limits are bytes, counts are counts.

    `int64` says how 64-bit integers are calculated: `native` (needs the feature `shader-int64`) or `pair`
    (two u32); both are exact.
    """

    name: str = "web-baseline"
    features: frozenset[str] = field(default_factory=frozenset)
    max_storage_buffers: int = 8
    max_invocations: int = 256
    max_workgroup_storage: int = 16384
    max_binding_bytes: int = 128 << 20
    max_buffer_bytes: int = 256 << 20
    max_workgroups: int = 65535
    offset_alignment: int = 256
    software: bool = False

    @property
    def int64(self) -> str:
        return "native" if "shader-int64" in self.features else "pair"


WEB_BASELINE = Target()
