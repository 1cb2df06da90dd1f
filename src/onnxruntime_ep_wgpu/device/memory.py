"""The memory of a device: buffers, uploads and downloads.

In: sizes, bytes of the host. Out: buffers, bytes. Invariants: a size above the adapter's limit is an error that names it. The
queue runs uploads and downloads in the order of the calls. Waiting for the GPU holds no lock.
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
from .webgpu.owned import release_dead

# The usage of buffers in each kind of cache.
_USAGE = {
    "storage": USAGE_STORAGE | USAGE_COPY_SRC | USAGE_COPY_DST,
    "uniform": USAGE_UNIFORM | USAGE_COPY_DST,
    "query_resolve": RESOLVE_USAGE,
    "default": USAGE_MAP_READ | USAGE_COPY_DST,
}


class Memory:
    """The buffers of one device. Thread safe."""

    def __init__(self, queue: Queue, name: str, target: Target, settings: Settings) -> None:
        self._queue, self._name, self._target = queue, name, target
        self._buffers: LiveSet[Buffer] = LiveSet()
        this = weakref.ref(self)  # weak: the caches do not keep the object that makes their buffers
        self.caches = Caches(
            settings,
            lambda *what: _alive(this)._of_kind(*what),
            target.max_buffer_bytes,
            lambda: queue.reused,
            lambda: queue.read_in_c,
            lambda: int(queue.shared.submits),
        )
        self.reader = Reader(queue, self.caches.default, self.caches.storage.mode == "bucket")
        # For large writes, if the library would allocate staging memory for each.
        self._kept: deque[Uploads] = deque(maxlen=1)

    @property
    def sizes(self) -> list[int]:
        """The sizes of the live buffers, in bytes."""
        return [buffer.size for buffer in self._buffers]

    def _new(self, size: int, usage: int, label: str) -> Buffer:
        self._queue.check_not_lost()
        descriptor = new("WGPUBufferDescriptor *")
        descriptor.usage = usage
        descriptor.size = size
        handle, problem = self._created(descriptor)
        if problem and self.caches.release_all():
            # The library frees a buffer when the work that uses it is done.
            release_dead()
            self._queue.wait()
            handle, problem = self._created(descriptor)
        if problem:
            raise OutOfMemoryError(
                f"the device {self._name!r} has no memory for {label or 'a tensor'}, {size} bytes: {problem};"
                " use a smaller input or batch, or end other sessions"
            )
        buffer = Buffer(handle, size, usage, label)
        self._buffers.add(buffer)
        return buffer

    def _created(self, descriptor: Any) -> tuple[Any, str]:
        """Returns the handle of a buffer, and the library's message if it has no memory for it."""
        create, device = self._queue.lib.wgpuDeviceCreateBuffer, self._queue.device
        return self._queue.owner.own("Buffer", create, device, descriptor), self._queue.take_problem()

    def _of_kind(self, kind: str, nbytes: int, label: str) -> Buffer:
        """Creates a buffer for the cache of a kind."""
        return self._buffer(nbytes, _USAGE[kind], label)

    def buffer(self, nbytes: int, label: str = "") -> Buffer:
        """Creates a zeroed storage buffer of at least `nbytes` bytes. Raises LimitError above the adapter's buffer limit.

        Use `caches.storage` for buffers that may be reused.
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
        """Wraps a buffer of this device that was made elsewhere, with a reference of its own. It is not counted."""
        return Buffer(self._queue.owner.shared("Buffer", handle), size, usage, label, lent=True)

    def uniform(self, data: bytes) -> Buffer:
        """Returns a uniform buffer with `data`, padded with zeros to a multiple of 16 bytes. Raises LimitError.

        The buffer comes from `caches.uniform` and may be returned there. Its bindings have a lower limit than buffers.
        """
        buffer = self.caches.uniform.take(len(data), "uniforms")
        size = padded(len(data))
        self._queue.write(buffer.handle, 0, ffi.from_buffer(data.ljust(size, b"\0")), size)
        return buffer

    def upload(self, buffer: Buffer, offset: int, data: Any) -> bool:
        """Writes `data` (a C-contiguous buffer of any number of bytes) at `offset` bytes. Returns whether there was any data.

        The data is copied before this returns. GPU memory is written in words of 4 bytes: up to 3 bytes after the data, in its
        last word, become zero. An `offset` inside a word costs a readback of that word.
        """
        # Released at once, also after an error. A traceback may be part of a cycle, and CPython 3.11 crashes if it collects a
        # memoryview that cffi still reads.
        with ffi.from_buffer(data) as source:
            nbytes = len(source)
            if nbytes:
                _check_range(buffer, offset, nbytes, "upload")
                with span("upload", buffer.label or "tensor", bytes=nbytes):
                    self._upload(buffer, offset, source, nbytes)
            return nbytes > 0

    def uploads(self) -> Uploads:
        """A context manager for many large uploads."""
        return Uploads(self._queue, self.reader)

    def upload_much(self, uploads: Uploads, buffer: Buffer, data: Any) -> bool:
        """Like `upload`, at the beginning of a buffer, through `uploads`."""
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
            # After an interrupt in `write` the object is dropped.
            try:
                uploads = self._kept.pop()
            except IndexError:  # there is none, or another thread uses it
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
        """Fills `into` of each (buffer, offset, into), a C-contiguous, writable buffer, after all work submitted so far has run.

        `begin` is called with the number of ranges and returns a function, which is called after the read. It is not called if
        nothing is to be read.
        """
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
    """The memory of a device, during a call of one of its methods."""
    here = memory()
    assert here is not None
    return here


def _check_range(buffer: Buffer, offset: int, nbytes: int, what: str) -> None:
    if offset < 0 or offset + nbytes > buffer.size:
        raise DeviceError(f"{what} of {nbytes} bytes at offset {offset} leaves {buffer!r}")
