"""Memory of a run in steps, such as a generation of text or a Loop. Each step reads the results of the step before.

Invariant: results of a step stay on the device until they are given back. Later queued work reuses memory that was given back.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import LimitError
from ..program.dtypes import DType
from ..runtime.inputs import DeviceTensor

if TYPE_CHECKING:
    from ..device import Buffer, Device

Array = np.ndarray[Any, Any]


class StepMemory:
    """Memory of one run on a device. The rest of it is given back when the `with` ends."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._taken: dict[int, Buffer] = {}
        self._kept: dict[Hashable, Buffer] = {}

    def __enter__(self) -> StepMemory:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.device.lost:
            for buffer in self._taken.values():
                self.device.caches.storage.give(buffer)
        self._taken.clear()

    def tensor(self, dtype: DType, shape: tuple[int, ...], what: str) -> DeviceTensor:
        """Returns a new tensor with undefined elements."""
        nbytes = dtype.nbytes(math.prod(shape))
        if not nbytes:
            return DeviceTensor(dtype, shape, None)
        buffer = self.device.caches.storage.take(nbytes, f"{what} of {nbytes} bytes")
        self._taken[id(buffer)] = buffer
        return DeviceTensor(dtype, shape, buffer)

    def kept(self, key: Hashable, dtype: DType, shape: tuple[int, ...], what: str, grows: bool = True) -> DeviceTensor:
        """Returns a tensor at the place of the last one with this key, which is no longer in use.

        With `grows`, it has room to grow, so that tensors that are longer in every step stay in place. Their bindings can then
        be prepared while the GPU works.
        """
        nbytes = dtype.nbytes(math.prod(shape))
        if not nbytes:
            return DeviceTensor(dtype, shape, None)
        buffer = self._kept.get(key)
        if buffer is None or buffer.size < nbytes:
            room = min(1 << (nbytes - 1).bit_length(), self.device.target.max_binding_bytes & ~15) if grows else 0
            new = self.device.caches.storage.take(max(nbytes, room), f"{what} of {nbytes} bytes")
            self._taken[id(new)] = self._kept[key] = new
            if buffer is not None:
                self.give([DeviceTensor(dtype, shape, buffer)])
            buffer = new
        return DeviceTensor(dtype, shape, buffer)

    def upload(self, array: Array, what: str) -> DeviceTensor:
        """Returns a tensor with these elements, at the place of the last upload with the same `what`."""
        data = np.asarray(array, order="C")
        made = self.kept(what, DType.of_numpy(data.dtype), data.shape, what)
        if made.buffer is not None:
            self.device.upload(made.buffer, 0, data)
        return made._replace(value=data)

    def give(self, tensors: Iterable[DeviceTensor]) -> None:
        """Takes back tensors after all work with them was queued. Ignores tensors that were not taken here."""
        for it in tensors:
            buffer = self._taken.pop(id(it.buffer), None)
            if buffer is not None:
                self.device.caches.storage.give(buffer)

    def with_room(self, tensor: DeviceTensor, times: int, room: int, what: str) -> DeviceTensor:
        """Returns a cache (rows, heads, tokens, size) with room for `room` tokens, and each row `times` times in succession."""
        rows, heads, tokens, size = tensor.shape
        made = self.tensor(tensor.dtype, (rows * times, heads, room, size), what)
        part, step = tensor.dtype.nbytes(tokens * size), tensor.dtype.nbytes(room * size)
        if tensor.buffer is None or made.buffer is None:
            return made
        if part % 4 or step % 4 or tensor.offset % 4:
            raise LimitError(f"{what}: {part} bytes of a row are not a multiple of 4, which device copies require")
        copies = [
            (
                tensor.buffer,
                tensor.offset + (row // times * heads + head) * part,
                made.buffer,
                (row * heads + head) * step,
                part,
            )
            for row in range(rows * times)
            for head in range(heads)
        ]
        self.device.submit((), copies)
        return made

    def spread(self, tensor: DeviceTensor, times: int, what: str) -> DeviceTensor:
        """Returns the tensor with each row along the first axis `times` times in succession."""
        if times == 1 or tensor.buffer is None:
            return tensor._replace(shape=(tensor.shape[0] * times, *tensor.shape[1:]))
        made = self.tensor(tensor.dtype, (tensor.shape[0] * times, *tensor.shape[1:]), what)
        assert made.buffer is not None
        row = tensor.dtype.nbytes(math.prod(tensor.shape[1:]))
        if row % 4 or tensor.offset % 4:  # copies on the device need multiples of 4
            data = np.empty((tensor.shape[0], row), np.uint8)
            self.device.download(tensor.buffer, tensor.offset, data)
            self.device.upload(made.buffer, 0, np.repeat(data, times, axis=0))
            return made
        copies = [
            (tensor.buffer, tensor.offset + place // times * row, made.buffer, place * row, row)
            for place in range(made.shape[0])
        ]
        self.device.submit((), copies)
        return made
