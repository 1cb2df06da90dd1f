"""The one way in which this package writes files: whole, or not at all.

In: paths and bytes. Out: files. Invariants: the file that was there stays as it was until the new one is complete and on the disk;
then the new one takes its name in one step. A write that fails is a WriteError with the path and the reason, and leaves nothing
behind. Only a process that is killed leaves its unfinished file, whose name begins with a dot and ends with `.partial`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from .errors import OptionError, PlaceTakenError, WriteError

_SHOWN = 40  # characters of a name in that of its unfinished file: all systems take four bytes for each


class OutputFile:
    """An open file of which only errors differ: they are WriteErrors with the path `named`."""

    def __init__(self, file: BinaryIO, named: str | os.PathLike[str]) -> None:
        self._file, self._named = file, named

    def write(self, data: Any) -> int:
        """Writes all of an object with a buffer."""
        with naming(self._named):
            return self._file.write(data)

    def tell(self) -> int:
        """How many bytes have been written."""
        return self._file.tell()

    def finish(self, *, sync: bool) -> None:
        """Hands everything to the system, with `sync` to the disk."""
        with naming(self._named):
            self._file.flush()
            if sync:
                os.fsync(self._file.fileno())


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """What the system refuses in this block is a WriteError about `path`."""
    try:
        yield
    except WriteError:
        raise
    except BrokenPipeError:  # the pipe has no reader any more: not the fault of its name
        raise
    except OSError as error:
        raise WriteError.of(path, error.strerror or str(error), error.errno) from error
    except ValueError as error:  # a name that no system takes
        raise WriteError.of(path, str(error)) from error


@contextmanager
def replacing(path: str | os.PathLike[str], *, lasting: bool = True, private: bool = False) -> Iterator[OutputFile]:
    """A file that has the name `path` once the block ends, with the permissions of the one that had it, and not when it raises.

    A link stays a link: the file that it leads to is replaced. Devices and pipes are written to as they are. Without `lasting` a
    system that fails may lose the file, or parts of it: for files that are checked when they are read. With one that is `private`
    other users can do nothing, and whatever had its name is gone: a link too, not what it leads to. Raises WriteError.
    """
    with naming(path):
        real = os.path.abspath(path) if private else os.path.realpath(path)
        before = os.stat(real) if not private and os.path.lexists(real) else None
    if before is not None and not stat.S_ISREG(before.st_mode):
        with creating(path) as output:
            yield output
        return
    folder, name = os.path.split(real)
    partial = os.path.join(folder, f".{name[:_SHOWN]}.{os.urandom(4).hex()}.partial")
    try:
        with creating(partial, path, sync=lasting, private=private) as output:
            yield output
        with naming(path):
            if before is not None:
                with suppress(OSError):  # another user's file, or a system without permissions
                    os.chmod(partial, stat.S_IMODE(before.st_mode))
            os.replace(partial, real)
    except BaseException:
        with suppress(OSError, ValueError):
            os.unlink(partial)
        raise
    if lasting:
        _sync_folder(folder)


@contextmanager
def creating(
    path: str | os.PathLike[str],
    named: str | os.PathLike[str] | None = None,
    *,
    sync: bool = False,
    private: bool = False,
) -> Iterator[OutputFile]:
    """The file `path`, written where it lies: for files of a folder that `appearing` gave. Raises WriteError, about `named`."""
    named = path if named is None else named
    with naming(named):
        file = open(path, "wb", opener=_for_us if private else None)  # noqa: SIM115  closed below
    try:
        output = OutputFile(file, named)
        yield output
        output.finish(sync=sync)
    finally:
        with naming(named):
            file.close()


def _for_us(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def write_file(path: str | os.PathLike[str], data: bytes | str) -> None:
    """Replaces a file by these bytes, or this text in UTF-8. Raises WriteError."""
    with replacing(path) as output:
        # Half a pair of UTF-16 has no bytes in UTF-8; as an escape it is what JSON and JavaScript call it.
        output.write(data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data)


def copy_file(source: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Copies the bytes of a file to `path`. Raises WriteError, and OSError when `source` cannot be read."""
    with open(source, "rb") as file, replacing(path) as output:
        append_file(file, output)


def append_file(file: BinaryIO, output: OutputFile) -> None:
    """Copies what is left of an open file."""
    import shutil  # which sessions do without: it loads every kind of compression

    shutil.copyfileobj(file, output, 1 << 20)


def taken(place: Path) -> None:
    """Raises PlaceTakenError, whatever lies at a place."""
    raise PlaceTakenError(f"{place} exists already")


@contextmanager
def appearing(place: str | os.PathLike[str], check: Callable[[Path], None] = taken) -> Iterator[Path]:
    """A temporary folder beside `place`. The file or folder of that name in it is `place` when the block ends.

    So `place` appears whole or not at all, and on the disk. Where something lies there then, it is replaced if `check(place)`
    raises nothing; a process that is killed between two renames leaves it in the temporary folder. Raises OptionError where no
    folder can be made, WriteError about `place` for whatever cannot be written in the block, and what `check` raises.
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
        with naming(place):
            _sync_all(made)
        before = None
        if os.path.lexists(place):
            check(place)
            before = temporary / f"{os.urandom(4).hex()}.before"
        with naming(place):
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
    """Waits until a file, or each one of a folder, is on the disk."""
    files = [place] if place.is_file() else [Path(root) / name for root, _, names in os.walk(place) for name in names]
    for path in files:
        with open(path, "r+b") as file:
            os.fsync(file.fileno())
    if place.is_dir():
        for root, _, _ in os.walk(place):
            _sync_folder(root)


def _sync_folder(folder: str | os.PathLike[str]) -> None:
    """Waits until the names in a folder are on the disk, where the system can say so of folders."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
