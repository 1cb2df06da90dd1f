"""The memory of a device: buffers, and bytes in and out of them.

In: sizes, bytes of the host. Out: buffers, bytes. Invariants: a size above the adapter's limit is refused by name; the queue runs
uploads and downloads in the order of the calls; waiting for the GPU holds no lock.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import DeviceError, LimitError, OutOfMemoryError
from ..live import LiveSet
from ..program.target import Target
from ..trace import span
from .buffers import Buffer
from .cache import Caches
from .queue import Queue
from .readback import Reader
from .settings import Settings
from .sizes import padded
from .timing import RESOLVE_USAGE
from .uploads import LEAST_BYTES, Uploads
from .webgpu.header import USAGE_COPY_DST, USAGE_COPY_SRC, USAGE_MAP_READ, USAGE_STORAGE, USAGE_UNIFORM, ffi, new

# What buffers of each kind of cache are for.
_USAGE = {
    "storage": USAGE_STORAGE | USAGE_COPY_SRC | USAGE_COPY_DST,
    "uniform": USAGE_UNIFORM | USAGE_COPY_DST,
    "query_resolve": RESOLVE_USAGE,
    "default": USAGE_MAP_READ | USAGE_COPY_DST,
}


class Memory:
    """Buffers of one device. Methods may be called from many threads."""

    def __init__(self, queue: Queue, name: str, target: Target, settings: Settings) -> None:
        self._queue, self._name, self._target = queue, name, target
        self._buffers: LiveSet[Buffer] = LiveSet()
        this = weakref.ref(self)  # the caches do not keep what makes their buffers
        self.caches = Caches(
            settings,
            lambda *what: _alive(this)._of_kind(*what),
            target.max_buffer_bytes,
            lambda: queue.reused,
            lambda: queue.read_in_c,
            lambda: int(queue.shared.submits),
        )
        self.reader = Reader(queue, self.caches.default, self.caches.storage.mode == "bucket")
        self._kept: deque[Uploads] = deque(
            maxlen=1
        )  # for large writes, where the library allocates for each of its own

    @property
    def sizes(self) -> list[int]:
        """Bytes of each buffer that lives."""
        return [buffer.size for buffer in self._buffers]

    def _new(self, size: int, usage: int, label: str) -> Buffer:
        self._queue.check_not_lost()
        descriptor = new("WGPUBufferDescriptor *")
        descriptor.usage = usage
        descriptor.size = size
        handle = self._queue.owner.own("Buffer", self._queue.lib.wgpuDeviceCreateBuffer, self._queue.device, descriptor)
        problem = self._queue.problem()
        if problem:
            raise OutOfMemoryError(
                f"the device {self._name!r} has no memory for {label or 'a tensor'}, {size} bytes: {problem};"
                " use a smaller input or batch, or end other sessions"
            )
        buffer = Buffer(handle, size, usage, label)
        self._buffers.add(buffer)
        return buffer

    def _of_kind(self, kind: str, nbytes: int, label: str) -> Buffer:
        """A new buffer for the cache of a kind."""
        return self._buffer(nbytes, _USAGE[kind], label)

    def buffer(self, nbytes: int, label: str = "") -> Buffer:
        """A new, zeroed storage buffer of at least `nbytes` bytes. Raises LimitError above the adapter's buffer limit.

        `caches.storage` has used ones.
        """
        return self._buffer(nbytes, _USAGE["storage"], label)

    def _buffer(self, nbytes: int, usage: int, label: str) -> Buffer:
        size = padded(nbytes)
        limit = self._target.max_buffer_bytes
        if size > limit:
            raise LimitError(
                f"{label or 'a tensor'} needs {nbytes} bytes in one buffer;"
                f" the adapter {self._name!r} allows {limit} (max-buffer-size)"
            )
        return self._new(size, usage, label)

    def adopt(self, handle: Any, size: int, usage: int, label: str) -> Buffer:
        """A buffer of this device that was made elsewhere, with a reference of its own. Not counted."""
        return Buffer(self._queue.owner.shared("Buffer", handle), size, usage, label, lent=True)

    def uniform(self, data: bytes) -> Buffer:
        """A uniform buffer that holds `data`, padded with zeros to a multiple of 16 bytes. Raises LimitError.

        It comes from `caches.uniform`, where it may be given back. A binding of it is held to a lower limit than a buffer.
        """
        buffer = self.caches.uniform.take(len(data), "uniforms")
        size = padded(len(data))
        self._queue.write(buffer.handle, 0, ffi.from_buffer(data.ljust(size, b"\0")), size)
        return buffer

    def upload(self, buffer: Buffer, offset: int, data: Any) -> bool:
        """Writes `data` (a C-contiguous buffer of any number of bytes) at `offset` bytes; it is copied before this returns.
        Whether there was anything to write.

        GPU memory is written in words of 4 bytes: the up to 3 bytes after the data in its last word become zero, and
        an `offset` inside a word costs a readback of that word.
        """
        # Released at once, also when an error leaves: a traceback may end in a cycle, and collecting a memoryview that is still
        # read through cffi ends a CPython 3.11 process.
        with ffi.from_buffer(data) as source:
            nbytes = len(source)
            if nbytes:
                _check_range(buffer, offset, nbytes, "upload")
                with span("upload", buffer.label or "tensor", bytes=nbytes):
                    self._upload(buffer, offset, source, nbytes)
            return nbytes > 0

    def uploads(self) -> Uploads:
        """For much at once, in a `with`."""
        return Uploads(self._queue, self.reader)

    def upload_much(self, uploads: Uploads, buffer: Buffer, data: Any) -> bool:
        """The same as `upload`, at the beginning of a buffer."""
        with ffi.from_buffer(data) as source:
            nbytes = len(source)
            if nbytes < LEAST_BYTES:
                return self.upload(buffer, 0, data)
            _check_range(buffer, 0, nbytes, "upload")
            with span("upload", buffer.label or "tensor", bytes=nbytes):
                uploads.write(buffer, source, nbytes)
        return True

    def _upload(self, buffer: Buffer, offset: int, source: Any, nbytes: int) -> None:
        if nbytes >= LEAST_BYTES and not offset & 3 and not self._queue.library.keeps_staging:
            # One that an interrupt leaves half way is not put back.
            try:
                uploads = self._kept.pop()
            except IndexError:  # there is none, or another thread has it
                uploads = self.uploads()
            uploads.write(buffer, source, nbytes, offset)
            self._kept.append(uploads)
            return
        handle, write = buffer.handle, self._queue.write
        lead = offset & 3
        done = 0
        if lead:
            word = bytearray(4)
            self.reader.read([(buffer, offset - lead, ffi.from_buffer(word), 4)])
            done = min(4 - lead, nbytes)
            word[lead : lead + done] = ffi.buffer(source, done)[:]
            write(handle, offset - lead, ffi.from_buffer(word), 4)
        whole = (nbytes - done) & ~3
        if whole:
            write(handle, offset + done, source + done, whole)
            done += whole
        if done < nbytes:
            last = ffi.buffer(source + done, nbytes - done)[:].ljust(4, b"\0")
            write(handle, offset + done, ffi.from_buffer(last), 4)

    def download(self, ranges: Iterable[tuple[Buffer, int, Any]], begin: Callable[[int], Callable[[], None]]) -> None:
        """Fills what each (buffer, offset, into) has last, a C-contiguous, writable buffer, after everything submitted so far has
        run. `begin` gets how many there are, and gives what to call when they are read; not when nothing is to be read."""
        self._queue.check_not_lost()
        wanted: list[tuple[Buffer, int, Any, int]] = []
        try:
            for buffer, offset, into in ranges:
                target = ffi.from_buffer("char[]", into, require_writable=True)
                wanted.append((buffer, offset, target, len(target)))
                _check_range(buffer, offset, len(target), "download")
            self._download([it for it in wanted if it[3]], begin)
        finally:
            for _, _, target, _ in wanted:
                ffi.release(target)  # see `upload`

    def _download(
        self, wanted: Sequence[tuple[Buffer, int, Any, int]], begin: Callable[[int], Callable[[], None]]
    ) -> None:
        if not wanted:
            return
        done = begin(len(wanted))
        what = wanted[0][0].label or "tensor" if len(wanted) == 1 else f"{len(wanted)} tensors"
        with span("download", what, bytes=sum(nbytes for *_, nbytes in wanted)):
            self.reader.read(wanted)
        done()


def _alive(memory: weakref.ref[Memory]) -> Memory:
    """The memory of a device whose method is running."""
    here = memory()
    assert here is not None
    return here


def _check_range(buffer: Buffer, offset: int, nbytes: int, what: str) -> None:
    if offset < 0 or offset + nbytes > buffer.size:
        raise DeviceError(f"{what} of {nbytes} bytes at offset {offset} leaves {buffer!r}")
