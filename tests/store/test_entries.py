"""An entry of which a byte was changed, that was cut off or put in the place of another is made again, and never misread."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxruntime_ep_wgpu.kept import entry, folder
from onnxruntime_ep_wgpu.kept.folder import APART_SUFFIX, SUFFIX, Folder
from onnxruntime_ep_wgpu.program.target import Target

from .changes import convolved, folded, tied
from .showing import Answer, Asked, answer

RNG = np.random.default_rng(4)
ASKED = Asked(folded(np.random.default_rng(1)), Target())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the entries."""
    monkeypatch.setenv(folder.VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "programs"


def files(place: Path) -> list[Path]:
    return sorted(place.glob(f"*{SUFFIX}"))


def without(monkeypatch: pytest.MonkeyPatch, asked: Asked = ASKED) -> Answer:
    with monkeypatch.context() as there:
        there.setenv(folder.VARIABLE, "off")
        return answer(asked)


def check_made_again(place: Path, want: Answer, lines: int | None = 1) -> None:
    """The answer is right, with so many lines in the log, and the entry is whole again."""
    got = answer(ASKED)
    assert got.plain == want.plain
    assert got.compiled
    if lines is not None:
        assert len(got.told) == lines, got.told
        assert all(aloud and "is damaged" in line for line, aloud in got.told)
    again = answer(ASKED)
    assert again.plain == want.plain and not again.compiled and not again.told


@pytest.mark.every_case
@pytest.mark.parametrize("which", [0, 1])
def test_a_byte_that_was_changed_anywhere(place: Path, monkeypatch: pytest.MonkeyPatch, which: int) -> None:
    want = without(monkeypatch)
    answer(ASKED)
    path = files(place)[which]
    whole = path.read_bytes()
    for at in [*range(entry.HEADER_START), len(whole) - 1, *RNG.integers(entry.HEADER_START, len(whole), 30).tolist()]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << int(RNG.integers(8))]) + whole[at + 1 :])
        check_made_again(place, want)


@pytest.mark.parametrize("which", [0, 1])
def test_an_entry_that_was_cut_off_or_goes_on(place: Path, monkeypatch: pytest.MonkeyPatch, which: int) -> None:
    want = without(monkeypatch)
    answer(ASKED)
    path = files(place)[which]
    whole = path.read_bytes()
    places = (0, entry.DIGEST.start - 1, entry.DIGEST.start, entry.DIGEST.stop, entry.HEADER_START + 12)
    for data in (*(whole[:it] for it in places), whole[:-1], whole + b"\0", b"\0" * len(whole)):
        path.write_bytes(data)
        check_made_again(place, want)


def test_an_entry_in_the_place_of_another(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    want = without(monkeypatch)
    answer(Asked(tied(np.random.default_rng(1)), Target()))
    others = [it.read_bytes() for it in files(place)]
    Folder(str(place)).clear()
    answer(ASKED)
    own = files(place)
    for path in own:
        for data in (*others, *(it.read_bytes() for it in own if it != path)):
            path.write_bytes(data)
            check_made_again(place, want)


HOSTILE: list[Any] = [None, True, -1, 1 << 60, 0.5, "", "x", [], [None], {}, {"": 0}, [[0, 0]], [[1], [0]]]


def parts(it: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of everything in a header."""
    found = [path]
    for key, value in it.items() if isinstance(it, dict) else enumerate(it) if isinstance(it, list) else ():
        found += parts(value, (*path, key))
    return found


@pytest.mark.every_case
@pytest.mark.parametrize("which", [0, 1])
def test_what_only_its_writer_could_have_written(place: Path, monkeypatch: pytest.MonkeyPatch, which: int) -> None:
    """With a right digest: a header in which anything has another value is refused, or means the same. Only a number,
    which may be a size, may mean something else."""
    asked = Asked(convolved(np.random.default_rng(2)), Target())
    want = without(monkeypatch, asked)
    answer(asked)
    path = files(place)[which]
    whole = path.read_bytes()
    header, data = json.loads(entry.header_of(whole)), bytes(entry.read(whole, None).data)
    places = parts(header)
    refused, chance = 0, np.random.default_rng(which)
    for number in chance.choice(len(places), min(60, len(places)), replace=False):
        changed = json.loads(json.dumps([header]))
        inner, last, value = changed, 0, HOSTILE[int(chance.integers(len(HOSTILE)))]
        for key in places[number]:
            inner, last = inner[last], key
        inner[last] = value
        path.write_bytes(entry.packed(json.dumps(changed[0]).encode(), data))
        got = answer(asked)  # raises nothing
        refused += bool(got.compiled)
        another_size = type(value) is int and not got.compiled
        assert got.plain == want.plain or another_size, (places[number], value)
        path.write_bytes(whole)
    assert refused


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], bytes]:
    """Returns the bytes of an entry as a newer version of the format would have them."""

    def changed(whole: bytes) -> bytes:
        header, data = entry.header_of(whole), entry.read(whole, None).data
        with monkeypatch.context() as patch:
            patch.setattr(entry, "FORMAT", entry.FORMAT + 1)
            return entry.packed(header, data)

    return changed


def test_a_newer_format_is_not_read(newer: Callable[[bytes], bytes]) -> None:
    data = entry.written("key", entry.Entry("claim", {}, {}, {}))
    with pytest.raises(entry.FormatError, match="its format is"):
        entry.read(newer(data), "key", "claim")


@pytest.mark.parametrize("which", [0, 1])
def test_an_entry_of_a_newer_format_is_made_again_without_a_warning(
    place: Path, newer: Callable[[bytes], bytes], which: int
) -> None:
    want = answer(ASKED)
    path = files(place)[which]
    path.write_bytes(newer(path.read_bytes()))
    got = answer(ASKED)
    assert got.plain == want.plain and got.compiled
    ((line, aloud),) = got.told
    assert "is from another version of this package (its format is 2" in line and not aloud
    again = answer(ASKED)
    assert again.plain == want.plain and not again.compiled and not again.told


def test_the_bytes_of_an_entry_do_not_change() -> None:
    """Compiled models of users have this format."""
    made = entry.Entry("context", {"a": "b"}, {"place": [0, 2]}, {"graph": "g", "adapter": "x"}, b"\1\2")
    data = entry.written("key", made)
    assert hashlib.sha256(data).hexdigest() == "91ebb62fdeee903a5e1f3b2e944eebf7626d27b29a40e7c913cf4d824cf65639"
    assert entry.read(data, "key", "context") == made


# ---- the folder


@pytest.mark.skipif(os.name != "posix" or (os.geteuid() == 0 and not hasattr(os, "chown")), reason="POSIX has owners")
@pytest.mark.parametrize("others", ["writes the folder", "owns the folder", "writes a file", "made a link", "a file"])
def test_what_other_users_can_write_is_not_read(place: Path, monkeypatch: pytest.MonkeyPatch, others: str) -> None:
    want = without(monkeypatch)
    answer(ASKED)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert {stat.S_IMODE(it.stat().st_mode) for it in files(place)} == {0o600}
    told = 1
    if others == "writes the folder":
        place.chmod(0o777)
    elif others == "owns the folder":
        if os.geteuid():
            pytest.skip("only root gives files away")
        os.chown(place, 12345, -1)
    elif others == "writes a file":
        told = 0
        for it in files(place):
            it.chmod(0o666)
    elif others == "made a link":
        real = place.rename(place.parent / "elsewhere")
        place.symlink_to(real)
    else:
        real = place.rename(place.parent / "elsewhere")
        place.write_bytes(b"")
    got = answer(ASKED)
    assert got.plain == want.plain and got.compiled == ["", "group 0"]
    assert len(got.told) == told and not any(aloud for _, aloud in got.told)


@pytest.mark.parametrize("fault", [28, 30, 5])  # full, read-only, broken
def test_a_disk_that_takes_nothing_costs_the_caching_alone(
    place: Path, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    want = without(monkeypatch)

    def full(*_: Any) -> int:
        raise OSError(fault, os.strerror(fault))

    with monkeypatch.context() as there:
        there.setattr("onnxruntime_ep_wgpu.writing.OutputFile.write", full)
        got = answer(ASKED)
    assert got.plain == want.plain
    assert len(got.told) == 1 and os.strerror(fault) in got.told[0][0] and not got.told[0][1]
    assert list(place.iterdir()) == []


def test_a_place_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    want = without(monkeypatch)
    (tmp_path / "file").write_bytes(b"")
    for name in ("file", "file/in it", "\udc80", "x" * 300):
        monkeypatch.setenv(folder.VARIABLE, os.path.join(tmp_path, name))
        got = answer(ASKED)
        assert got.plain == want.plain
        assert len(got.told) <= 1


def test_the_oldest_entries_make_room(tmp_path: Path) -> None:
    kept = Folder(str(tmp_path / "programs"), most=1000)
    for number in range(12):
        name = f"{number:064}"
        assert kept.write(name, b"x" * 100)
        os.utime(tmp_path / "programs" / f"{name}{SUFFIX}", (number, number))
        if number == 5:
            kept.read("0" * 64)  # used last
    names = {int(it.name) for it in kept.entries()}
    assert {0, 11} <= names and 1 not in names
    assert sum(it.nbytes for it in kept.entries()) <= 1000


def test_second_files_count_and_go_with_their_entries(tmp_path: Path) -> None:
    kept = Folder(str(tmp_path / "programs"), most=1000)
    for number in range(6):
        name = f"{number:064}"
        assert kept.write_second(name, [b"y" * 150, b"z" * 50]) and kept.write(name, b"x" * 100)
        os.utime(tmp_path / "programs" / f"{name}{SUFFIX}", (number, number))
    assert [(int(it.name), it.nbytes) for it in kept.entries()] == [(4, 300), (5, 300)]
    assert sorted(it.name for it in (tmp_path / "programs").iterdir() if it.name.endswith(APART_SUFFIX)) == [
        f"{it:064}{APART_SUFFIX}" for it in (4, 5)
    ]
    assert kept.clear() == 2 and not [*(tmp_path / "programs").iterdir()]


def test_a_second_file_of_a_process_that_was_killed_goes(tmp_path: Path) -> None:
    kept = Folder(str(tmp_path / "programs"))
    for name in ("a", "b"):
        kept.write_second(name * 64, [b"y"])
    os.utime(kept.second_path("a" * 64), (1, 1))
    kept.write("c" * 64, b"x")
    assert not os.path.exists(kept.second_path("a" * 64)) and os.path.exists(kept.second_path("b" * 64))


def test_files_of_processes_that_were_killed_go(tmp_path: Path) -> None:
    kept = Folder(str(tmp_path / "programs"))
    kept.write("a" * 64, b"x")
    old, new = (tmp_path / "programs" / f".{'a' * 40}.{number:08}.partial" for number in range(2))
    for it in (old, new):
        it.write_bytes(b"half")
    os.utime(old, (1, 1))
    kept.write("b" * 64, b"x")
    assert not old.exists() and new.exists()
    assert kept.clear() == 2
    assert list((tmp_path / "programs").iterdir()) == []


@pytest.mark.parametrize("place", ["a\0b", "\ud800", "/dev/full/x", "/proc/self/x", "x" * 5000])
def test_a_folder_that_cannot_be_is_a_problem_and_no_exception(place: str) -> None:
    kept, name = Folder(place), "a" * 64
    assert kept.read(name) is None and not kept.write(name, b"x") and kept.entries() == [] and kept.clear() == 0
    assert "cannot be used" in kept.problem


def test_files_of_others_in_the_folder_stay(tmp_path: Path) -> None:
    kept = Folder(str(tmp_path / "programs"), most=1000)
    kept.write("a" * 64, b"x")
    theirs = [tmp_path / "programs" / name for name in ("download.partial", f"zz{SUFFIX}", f"{'B' * 64}{SUFFIX}")]
    for it in theirs:
        it.write_bytes(b"theirs" * 1000)
        os.utime(it, (1, 1))
    kept.write("b" * 64, b"x")
    assert [it.name[0] for it in kept.entries()] == ["a", "b"] and kept.clear() == 2
    assert all(it.exists() for it in theirs)


@pytest.mark.skipif(os.name != "posix", reason="makes links and pipes")
@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "device", "folder", "open to all"])
def test_what_has_the_name_of_an_entry_is_replaced_and_not_written_to(kind: str, tmp_path: Path) -> None:
    kept, name = Folder(str(tmp_path / "programs")), "a" * 64
    kept.write("b" * 64, b"x")
    place, victim = tmp_path / "programs" / f"{name}{SUFFIX}", tmp_path / "victim"
    if kind == "link":
        victim.write_bytes(b"precious")
        place.symlink_to(victim)
    elif kind == "dangling link":
        place.symlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "device":
        place.symlink_to("/dev/full")
    elif kind == "folder":
        place.mkdir()
    else:
        place.write_bytes(b"x")
        place.chmod(0o666)
    assert kept.read(name) is None
    assert kept.write(name, b"new") == (kind != "folder")
    assert kept.read(name) == (None if kind == "folder" else b"new")
    assert not victim.exists() or victim.read_bytes() == b"precious"
    if kind == "folder":
        assert "a" * 64 in kept.problem


@pytest.mark.parametrize(
    "system", ["linux", "linux xdg", "linux xdg relative", "darwin", "win32", "off", "Off", "0", "own"]
)
def test_the_place_follows_the_rules_of_the_system(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", system.split()[0] if system in ("darwin", "win32") else "linux")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("LOCALAPPDATA", "/profile")
    monkeypatch.setenv("XDG_CACHE_HOME", {"linux xdg": "/xdg", "linux xdg relative": "xdg"}.get(system, ""))
    monkeypatch.setenv(folder.VARIABLE, {"off": "off", "Off": "Off", "0": "0", "own": "/own"}.get(system, ""))
    name = "onnxruntime-ep-wgpu/programs"
    want = {
        **{
            "linux": f"/home/me/.cache/{name}",
            "linux xdg": f"/xdg/{name}",
            "darwin": f"/home/me/Library/Caches/{name}",
        },
        **{"linux xdg relative": f"/home/me/.cache/{name}", "win32": f"/profile/{name}", "own": "/own/programs"},
    }
    assert folder.folder_path() == want.get(system)
