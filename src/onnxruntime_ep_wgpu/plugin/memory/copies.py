"""Copies between pointers, each to host or to device memory.

In: pointers and byte counts. Out: the same bytes at the destination. Many copies cost about as much as one. Small tensors from
the host keep a host copy. Invariant: a copy to the host returns after the GPU work before it. A copy to the device may return
earlier.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..._ort import ffi
from ...device import Place
from ...errors import DeviceError, LimitError, OutOfMemoryError
from .. import watch
from ..abi import address
from . import allocation
from . import space as memory

if TYPE_CHECKING:
    from ...device import Buffer, Device


def host_bytes(pointer: Any, nbytes: int) -> Any:
    """Returns the host memory at a pointer as writable bytes that alias it."""
    return ffi.buffer(pointer, nbytes)


def copy(source: Any, destination: Any, nbytes: int) -> None:
    """Copies `nbytes` between two pointers, each host or device. Raises DeviceError for a NULL pointer."""
    with Batch() as batch:
        batch.copy(source, destination, nbytes)


class Batch:
    """Copies in order, used as `with Batch() as batch`.

    Copies between two places on one device share one submission, and so do copies from one device to the host. All are
    submitted or done at the end of the `with`. A copy that depends on a pending one submits the pending ones first.
    """

    def __init__(self) -> None:
        self._space = memory.space()
        self._device: Device | None = None
        self._copies: list[tuple[Buffer, int, Buffer, int, int]] = []
        self._downloads: list[tuple[Buffer, int, Any]] = []
        # The starts of the ranges that pending copies read and write.
        self._read: set[int] = set()
        self._written: set[int] = set()

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, error: Any, *_: Any) -> None:
        if error is None:
            self.flush()

    def flush(self) -> None:
        """Submits the pending copies."""
        device, copies, downloads = self._device, self._copies, self._downloads
        self._device, self._copies, self._downloads = None, [], []
        self._read, self._written = set(), set()
        if device is not None and copies:
            device.submit((), copies)
        if device is not None and downloads:
            device.download_all(downloads)

    def copy(self, source: Any, destination: Any, nbytes: int) -> None:
        """Copies `nbytes` between two pointers, each host or device. Raises DeviceError for a NULL pointer."""
        if nbytes == 0:
            return
        if not source or not destination:
            raise DeviceError(f"no memory for a tensor of {nbytes} bytes: ONNX Runtime passed a null pointer")
        space = self._space
        from_address, to_address = address(source), address(destination)
        from_device, to_device = space.owns(from_address), space.owns(to_address)
        if from_device and to_device:
            self._within(from_address, to_address, nbytes)
        elif to_device:
            self._upload(source, to_address, nbytes)
        elif from_device:
            self._download(from_address, destination, nbytes)
        else:
            self.flush()
            ffi.memmove(destination, source, nbytes)

    def join(self, parts: Sequence[tuple[Any, int]], destination: Any) -> None:
        """Copies tensors, each (pointer, bytes), one after another to device memory.

        They are copied in one submission if all lie on one device at whole words, else through the host.
        """
        self.flush()
        space = self._space
        parts = [(source, nbytes) for source, nbytes in parts if nbytes]
        if not parts:
            return
        device, (buffer, begin) = space.write(address(destination), sum(nbytes for _, nbytes in parts))
        there = itertools.accumulate((nbytes for _, nbytes in parts[:-1]), initial=begin)
        wanted = [allocation.Located(device, Place(buffer, place)) for place in there]
        if all(space.owns(address(source)) for source, _ in parts):
            found = [space.read(address(source), nbytes) for source, nbytes in parts]
            if all(map(allocation.copies_on_device, found, wanted)):
                self._on(device)
                sizes = (nbytes for _, nbytes in parts)
                self._copies = [(*a.place, *b.place, n) for a, b, n in zip(found, wanted, sizes, strict=True)]
                self.flush()
                return
        data = [bytearray(nbytes) for _, nbytes in parts]
        for (source, nbytes), into in zip(parts, data, strict=True):
            self.copy(source, ffi.from_buffer(into), nbytes)
        self.flush()
        device.upload(buffer, begin, b"".join(data))

    def _upload(self, source: Any, to_address: int, nbytes: int) -> None:
        # An upload happens before work that is submitted later, even if that work was recorded earlier.
        if self._downloads or self._space.start_of(to_address) in self._read | self._written:
            self.flush()
        try:
            device, (buffer, offset) = self._space.write(to_address, nbytes)
        except (LimitError, OutOfMemoryError) as error:
            # ONNX Runtime copies inputs before it calls a node, and does not pass their names.
            name = watch.inputs_of_bytes(nbytes)
            if not name:
                raise
            raise type(error)(f"{name}: {error}") from None
        if nbytes <= allocation.MIRROR_BYTES:
            data = bytes(host_bytes(source, nbytes))
            device.upload(buffer, offset, data)
            self._space.set_mirror(to_address, data)
        else:
            device.upload(buffer, offset, host_bytes(source, nbytes))
        self._space.record_upload(to_address)

    def _download(self, from_address: int, destination: Any, nbytes: int) -> None:
        start = self._space.start_of(from_address)
        if self._copies or start in self._written:
            self.flush()
        known = self._space.mirror(from_address, nbytes)
        if known is not None:
            host_bytes(destination, nbytes)[:] = known
            return
        device, (buffer, offset) = self._space.read(from_address, nbytes)
        self._on(device)
        self._downloads.append((buffer, offset, host_bytes(destination, nbytes)))
        self._read.add(start)

    def _within(self, from_address: int, to_address: int, nbytes: int) -> None:
        space = self._space
        source, target = space.start_of(from_address), space.start_of(to_address)
        if self._downloads or source in self._written or target in self._read | self._written:
            self.flush()
        # The host copy of the source is read first, because `write` may drop it if both are in one range.
        kept = space.mirror(from_address, nbytes) if nbytes <= allocation.MIRROR_BYTES else None
        here, there = space.read(from_address, nbytes), space.write(to_address, nbytes)
        if allocation.copies_on_device(here, there):
            self._on(here.device)
            self._copies.append((*here.place, *there.place, nbytes))
            self._read.add(source)
            self._written.add(target)
        else:
            self.flush()
            allocation.copy(here, there, nbytes)
        if kept is not None:
            space.set_mirror(to_address, kept)

    def _on(self, device: Device) -> None:
        """Submits the pending copies if they are on another device."""
        if self._device is not device:
            self.flush()
            self._device = device
