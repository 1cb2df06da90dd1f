"""Atomic file writes, used for all files of this package: a file is written completely or not at all.

In: paths and bytes. Out: files. Invariants: the old file stays until the new one is complete and on the disk; then a rename
replaces it. A failed write raises WriteError with the path and the reason, and leaves nothing behind. Only a killed process
leaves an unfinished file, with a name that begins with a dot and ends with `.partial`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from .errors import OptionError, PlaceTakenError, WriteError

_SHOWN = 40  # characters of the name in the temporary name; each may take four bytes, which fits on all systems


class OutputFile:
    """An open binary file that raises WriteErrors with the path `named`."""

    def __init__(self, file: BinaryIO, named: str | os.PathLike[str]) -> None:
        self._file, self._named = file, named

    def write(self, data: Any) -> int:
        """Writes a whole buffer and returns its bytes."""
        with errors_about(self._named):
            return self._file.write(data)

    def tell(self) -> int:
        """Returns the number of bytes written."""
        return self._file.tell()

    def finish(self, *, sync: bool) -> None:
        """Flushes to the system and, with `sync`, to the disk."""
        with errors_about(self._named):
            self._file.flush()
            if sync:
                os.fsync(self._file.fileno())


@contextmanager
def errors_about(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns the OSErrors and ValueErrors of the block into WriteErrors about `path`."""
    try:
        yield
    except WriteError:
        raise
    except BrokenPipeError:  # the reader closed the pipe; the path is not the cause
        raise
    except OSError as error:
        raise WriteError.of(path, error.strerror or str(error), error.errno) from error
    except ValueError as error:  # a name that no system accepts
        raise WriteError.of(path, str(error)) from error


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, durable: bool = True, private: bool = False) -> Iterator[OutputFile]:
    """Yields a file that replaces `path` when the block ends, with the old file's permissions; not if the block raises.

    A link stays a link, and its target is replaced. Devices and pipes are written directly. Without `durable`, a system crash
    may lose the file or parts of it: for files that are verified when read. With `private`, only this user has access, and an
    existing entry is replaced itself: a link, not its target. Raises WriteError.
    """
    with errors_about(path):
        real = os.path.abspath(path) if private else os.path.realpath(path)
        before = os.stat(real) if not private and os.path.lexists(real) else None
    if before is not None and not stat.S_ISREG(before.st_mode):
        with new_file(path) as output:
            yield output
        return
    folder, name = os.path.split(real)
    partial = os.path.join(folder, f".{name[:_SHOWN]}.{os.urandom(4).hex()}.partial")
    try:
        with new_file(partial, path, sync=durable, private=private) as output:
            yield output
        with errors_about(path):
            if before is not None:
                with suppress(OSError):  # another user's file, or a file system without permissions
                    os.chmod(partial, stat.S_IMODE(before.st_mode))
            os.replace(partial, real)
    except BaseException:
        with suppress(OSError, ValueError):
            os.unlink(partial)
        raise
    if durable:
        _sync_folder(folder)


@contextmanager
def new_file(
    path: str | os.PathLike[str],
    named: str | os.PathLike[str] | None = None,
    *,
    sync: bool = False,
    private: bool = False,
) -> Iterator[OutputFile]:
    """Yields the new file `path`, written in place: for files in a folder from `atomic_folder`. Raises WriteError about `named`."""
    named = path if named is None else named
    with errors_about(named):
        file = open(path, "wb", opener=_open_private if private else None)  # noqa: SIM115  closed below
    try:
        output = OutputFile(file, named)
        yield output
        output.finish(sync=sync)
    finally:
        with errors_about(named):
            file.close()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def write_file(path: str | os.PathLike[str], data: bytes | str) -> None:
    """Replaces a file by these bytes, or by this text in UTF-8. Raises WriteError."""
    with atomic_file(path) as output:
        # A lone surrogate has no encoding in UTF-8; it becomes an escape, which JSON and JavaScript understand.
        output.write(data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data)


def copy_file(source: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Copies the bytes of a file to `path`. Raises WriteError, and OSError if `source` cannot be read."""
    with open(source, "rb") as file, atomic_file(path) as output:
        append_file(file, output)


def append_file(file: BinaryIO, output: OutputFile) -> None:
    """Copies the rest of an open file."""
    import shutil  # here, because sessions do not need it and it imports every kind of compression

    shutil.copyfileobj(file, output, 1 << 20)


def refuse_existing(place: Path) -> None:
    """Raises PlaceTakenError for a place."""
    raise PlaceTakenError(f"{place} exists already")


@contextmanager
def atomic_folder(place: str | os.PathLike[str], check: Callable[[Path], None] = refuse_existing) -> Iterator[Path]:
    """Yields a temporary folder beside `place`. At the end of the block, its entry with the name of `place` moves to `place`.

    So `place` appears completely, and on the disk, or not at all. An existing entry is replaced if `check(place)` does not
    raise. A process that is killed between the two renames leaves the old entry in the temporary folder. Raises OptionError if
    the folder cannot be created, WriteError about `place` for failed writes in the block, and the errors of `check`.
    """
    import shutil

    place = Path(place)
    temporary = place.parent / f".{place.name[:_SHOWN]}.{os.urandom(4).hex()}.partial"
    try:
        temporary.mkdir()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OptionError(
            f"output {place}: nothing can be written in the folder {place.parent} ({reason}); name another place"
        ) from error
    try:
        yield temporary
        made = temporary / place.name
        with errors_about(place):
            _sync_all(made)
        before = None
        if os.path.lexists(place):
            check(place)
            before = temporary / f"{os.urandom(4).hex()}.before"
        with errors_about(place):
            if before is not None:
                os.rename(place, before)
            try:
                os.rename(made, place)
            except BaseException:
                if before is not None:
                    os.rename(before, place)
                raise
    except WriteError as error:
        raise WriteError.of(place, error.reason, error.errno) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _sync_folder(place.parent)


def _sync_all(place: Path) -> None:
    """Flushes a file, or all files of a folder, to the disk."""
    files = [place] if place.is_file() else [Path(root) / name for root, _, names in os.walk(place) for name in names]
    for path in files:
        with open(path, "r+b") as file:
            os.fsync(file.fileno())
    if place.is_dir():
        for root, _, _ in os.walk(place):
            _sync_folder(root)


def _sync_folder(folder: str | os.PathLike[str]) -> None:
    """Flushes the names in a folder to the disk, on systems that support it."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
