"""A device without a GPU, whose buffers hold bytes: what plans ask of one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from onnxruntime_ep_wgpu.device import Recording
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE

_numbers = itertools.count(1)


@dataclass(eq=False)
class Buffer:
    size: int
    data: bytes = b""
    given_back: bool = False
    number: int = field(default_factory=_numbers.__next__)


@dataclass(eq=False)
class Pipeline:
    bindings: tuple[str, ...]
    address: int = field(default_factory=_numbers.__next__)


@dataclass(eq=False)
class BindGroup:
    pipeline: Pipeline
    entries: tuple[Any, ...]
    address: int = field(default_factory=_numbers.__next__)


class Cache:
    """Gives new buffers, so that one that was given back is not seen again."""

    def take(self, size: int, _label: str) -> Buffer:
        return Buffer(size)

    def give(self, buffer: Buffer) -> None:
        assert not buffer.given_back
        buffer.given_back = True


class Device:
    def __init__(self) -> None:
        self.target = replace(WEB_BASELINE)
        self.adapter = SimpleNamespace(name="none", limits={"max-uniform-buffer-binding-size": 65536})
        self.caches = SimpleNamespace(storage=Cache(), uniform=Cache(), end_of_run=lambda: None)
        self.memory = SimpleNamespace(uniform=lambda data: Buffer(len(data), data))
        self.record: Callable[..., Recording] = Recording

    def upload(self, buffer: Buffer, offset: int, data: bytes) -> None:
        assert offset == 0
        buffer.data = data

    def prepare(self, kernels: Sequence[tuple[str, tuple[str, ...], str]], _checks: bool, _made: Any) -> list[Pipeline]:
        return [Pipeline(bindings) for _, bindings, _ in kernels]

    def bind_group(self, pipeline: Pipeline, entries: Sequence[Any]) -> BindGroup:
        return BindGroup(pipeline, tuple(entries))
