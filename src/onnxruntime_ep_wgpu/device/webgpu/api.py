"""The protocol of a WebGPU library: everything that differs between libraries. `wgpu_native` and `dawn` implement it.

`lib` has the functions of webgpu.h. They are called with the types of `header`. Invariants of an implementation: it is opened
once per process, and not before its first use. Waiting and submitting hold no interpreter lock, because C code does both by the
functions of `Tickets`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ...program.target import MatrixUnit
from .owned import ObjectOwner

Calls = tuple[Callable[[], Any], Callable[[], Any]]  # functions that start and end a capture


class Library(Protocol):
    """One WebGPU library. Methods may be called from many threads."""

    name: str
    lib: Any  # the functions of webgpu.h (`header.FUNCTIONS`)
    owner: ObjectOwner  # its objects that Python owns
    features: Mapping[str, int]  # the number of every feature in its header
    used: frozenset[str]  # features that kernels may use, by their names in `program/target.py`
    wanted: frozenset[str]  # further features that a device is requested with if the adapter has them
    keeps_staging: bool  # whether the staging memory of a large write is reused; otherwise each write allocates
    module_checks: bool  # whether bounds checks are a property of modules; otherwise of devices

    def __hash__(self) -> int: ...

    @property
    def version(self) -> str:
        """Its version, for humans."""

    def adapters(self) -> list[Any]:
        """Handles of the adapters that Vulkan, Metal and Direct3D 12 reach. Raises ForkError."""

    def last_resort(self) -> list[Any]:
        """Handles of other adapters, for a machine without any of those."""

    def matrices(self, adapter: Any) -> Sequence[MatrixUnit]:
        """The configurations of the matrix units of an adapter with the feature SUBGROUP_MATRIX."""

    def request_device(self, adapter: Any, descriptor: Any, info: Any, checked: bool) -> None:
        """Calls wgpuAdapterRequestDevice. The callback runs before this returns, and not later.

        `info` is a pointer; this sets its mode. `checked`: kernels check every index, if that is a property of devices.
        """

    def module(self, device: Any, descriptor: Any, checked: bool) -> Any:
        """Makes a shader module, and returns its handle, which `owner` owns.

        `checked`: its kernels check every index, if that is a property of modules.
        """

    def tickets(self, device: Any, queue: Any) -> Any:
        """The functions that submit to a queue and wait for it: a `Tickets` of csrc/tickets.h, as `_submit` declares it."""

    def xcode_capture(self, device: Any) -> Calls | None:
        """The functions that capture for Xcode; None if the library has none."""

    def timestamp_period(self, queue: Any) -> float:
        """Nanoseconds per unit of a timestamp."""

    def readable(self, message: str) -> str:
        """An error message without the library's headings."""

    def line_of(self, message: str) -> int | None:
        """The line of WGSL, from 1 on, in a message about a module."""

    def means_loss(self, message: str) -> bool:
        """Whether a message reports that the device is lost."""
