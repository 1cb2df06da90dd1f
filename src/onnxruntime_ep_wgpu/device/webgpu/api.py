"""The protocol of a WebGPU library: all in which they differ. `wgpu_native` and `dawn` implement it.

The functions of webgpu.h itself are `lib`, called with the types of `header`. Invariants of an implementation: it is opened once
per process, and nothing of it before it is asked for; waiting and submitting hold no interpreter lock, for C code does both by the
functions of `Tickets`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ...program.target import MatrixUnit
from .owned import ObjectOwner

Calls = tuple[Callable[[], Any], Callable[[], Any]]  # start a capture, end it


class Library(Protocol):
    """One WebGPU library. Methods may be called from many threads."""

    name: str
    lib: Any  # the functions of webgpu.h (`header.FUNCTIONS`)
    owner: ObjectOwner  # its objects that Python owns
    features: Mapping[str, int]  # the number of every feature that it names
    used: frozenset[str]  # features that kernels may use, by their names in `program/target.py`
    wanted: frozenset[str]  # others that a device is asked for wherever the adapter has them
    keeps_staging: bool  # whether the memory of a large write is used again; else each allocates
    module_checks: bool  # whether bounds checks are of a module; else they are of a device

    def __hash__(self) -> int: ...

    @property
    def version(self) -> str:
        """Its version, for people."""

    def adapters(self) -> list[Any]:
        """Handles of what can be used through Vulkan, Metal and Direct3D 12. Raises ForkError."""

    def last_resort(self) -> list[Any]:
        """Handles of other adapters, for a machine that has none of those."""

    def matrices(self, adapter: Any) -> Sequence[MatrixUnit]:
        """What the matrix units of an adapter multiply that has the feature SUBGROUP_MATRIX."""

    def request_device(self, adapter: Any, descriptor: Any, info: Any, checked: bool) -> None:
        """wgpuAdapterRequestDevice, which has answered when this returns, and answers no later. `info` is a pointer, whose mode
        this sets. `checked`: kernels of the device test every index, where that is of a device."""

    def module(self, device: Any, descriptor: Any, checked: bool) -> Any:
        """A module, owned. `checked`: its kernels test every index and end every loop, where that is of a module."""

    def tickets(self, device: Any, queue: Any) -> Any:
        """How work is submitted to a queue and waited for: a `Tickets` of csrc/tickets.h, in the declarations of `_submit`."""

    def xcode_capture(self, device: Any) -> Calls | None:
        """What captures for Xcode; None where the library has no such call."""

    def timestamp_period(self, queue: Any) -> float:
        """Nanoseconds of a timestamp's unit."""

    def readable(self, message: str) -> str:
        """A message of an error without the library's headings."""

    def line_of(self, message: str) -> int | None:
        """The line of WGSL, from 1 on, that a message about a module is about."""

    def means_loss(self, message: str) -> bool:
        """Whether a message says that the device is lost."""
