"""A file is written whole or not at all; what the disk refuses is an error that names the file and the reason."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxruntime_ep_wgpu
from onnxruntime_ep_wgpu import cli
from onnxruntime_ep_wgpu.api.web_export import export
from onnxruntime_ep_wgpu.errors import WgpuEpError, WriteError
from onnxruntime_ep_wgpu.program.file import load, save
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE
from onnxruntime_ep_wgpu.program.tuning import Choice, write_choices
from onnxruntime_ep_wgpu.writing import atomic_file, atomic_folder, copy_file, new_file, write_file
from tests import patience
from tests.support import compile_model

from .worker import small_model

PACKAGE = Path(onnxruntime_ep_wgpu.__file__).parent
CHOICES = [Choice("matmul", (("m", 1),))]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("old")
    return path


def only(path: Path) -> bool:
    """Whether nothing else is in its folder."""
    return [it.name for it in path.parent.iterdir()] == [path.name]


# ---- files that are there


def test_a_program_saved_where_it_was_loaded_from_keeps_its_weights(tmp_path: Path) -> None:
    path = tmp_path / "p.wgpu"
    save(compile_model(small_model(), WEB_BASELINE), path)
    before, loaded = path.read_bytes(), load(path)
    (weight,) = loaded.weights
    values = np.array(weight)
    save(loaded, path)
    assert path.read_bytes() == before
    np.testing.assert_array_equal(weight, values)  # still mapped
    np.testing.assert_array_equal(load(path).weights[0], values)
    link = tmp_path / "link"
    link.symlink_to(path)
    save(load(link), path)
    save(load(path), link)
    assert path.read_bytes() == before


def test_an_error_of_the_caller_leaves_the_file_and_nothing_beside_it(place: Path) -> None:
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), atomic_file(place) as file:
            file.write(b"half")
            raise error
        assert place.read_text() == "old" and only(place)


def test_permissions_stay(place: Path) -> None:
    place.chmod(0o640)
    write_file(place, "new")
    assert stat.S_IMODE(place.stat().st_mode) == 0o640
    other = place.with_name("other")
    made = place.with_name("made")
    write_file(other, b"new")
    made.touch()
    assert other.stat().st_mode == made.stat().st_mode  # as any other file


def test_a_link_stays_one(tmp_path: Path) -> None:
    folder = tmp_path / "real"
    folder.mkdir()
    file, link, ahead = folder / "file", tmp_path / "link", tmp_path / "ahead"
    link.symlink_to(file)
    write_file(link, "ahead of the file")
    assert file.read_text() == "ahead of the file"
    ahead.symlink_to(Path("link"))
    write_file(ahead, "new")
    assert file.read_text() == "new" and link.is_symlink() and ahead.is_symlink() and only(file)


def test_a_name_as_long_as_names_can_be_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("\u4e2d" * 84)
    write_file(path, "whole")
    assert path.read_text() == "whole" and only(path)


def test_half_a_pair_of_utf_16_is_written_as_an_escape(place: Path) -> None:
    write_file(place, '"\ud800"')
    assert place.read_text() == '"\\ud800"'


def test_many_writers_of_one_file_leave_the_whole_of_one(place: Path) -> None:
    texts = [str(k) * 100_000 for k in range(8)]
    threads = [threading.Thread(target=write_file, args=(place, text)) for text in texts]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    assert place.read_text() in texts and only(place)


def test_a_pipe_gets_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=write_choices, args=(CHOICES, path, "a"))
    writer.start()
    text = path.read_text()
    writer.join()
    assert '"adapter": "a"' in text and stat.S_ISFIFO(path.stat().st_mode)


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    place = tmp_path / "made"
    with pytest.raises(KeyboardInterrupt), atomic_folder(place) as folder:
        (folder / "made").mkdir()
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
    with atomic_folder(place) as folder:
        (folder / "made").mkdir()
        with new_file(folder / "made" / "file") as file:
            file.write(b"text")
        (folder / "scrap").touch()
    assert (place / "file").read_text() == "text" and only(place)
    with pytest.raises(FileExistsError), atomic_folder(place) as folder:
        (folder / "made").touch()
    assert (place / "file").read_text() == "text" and only(place)


def test_what_was_there_stays_when_the_new_one_cannot_take_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "made"
    place.write_text("before")
    rename = os.rename

    def refused(source: Path, target: Path) -> None:
        if target == place and source.name == "made":
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "rename", refused)
    with pytest.raises(WriteError, match="No space left"), atomic_folder(place, lambda _place: None) as folder:
        (folder / "made").write_text("after")
    assert place.read_text() == "before" and only(place)
    monkeypatch.setattr(os, "rename", rename)
    with atomic_folder(place, lambda _place: None) as folder:
        (folder / "made").write_text("after")
    assert place.read_text() == "after" and only(place)


@pytest.mark.parametrize("name", ["reduced", "packed", "files", "m.onnx", "\u4e2d" * 84])
@pytest.mark.parametrize("single_file", [False, True])
def test_an_export_may_have_any_name(name: str, single_file: bool, tmp_path: Path) -> None:
    onnx.save(small_model(), tmp_path / "m.onnx")
    (tmp_path / "out").mkdir()
    export(tmp_path / "m.onnx", tmp_path / "out" / name, single_file=single_file)
    assert (tmp_path / "out" / name).is_dir() != single_file and only(tmp_path / "out" / name)


# ---- file systems that refuse


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a file system of 64 KiB with these options, or mounts it again; skips where that is not allowed."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options: str) -> Path:
        again = "remount," if os.path.ismount(folder) else ""
        command = ["mount", "-t", "tmpfs", "-o", f"{again}size=64k,{options}", "tmpfs", str(folder)]
        if not shutil.which("mount") or patience.run(command).returncode:
            pytest.skip("no file system can be mounted here")
        return folder

    yield mount
    if os.path.ismount(folder):
        patience.run(["umount", "-l", str(folder)], check=True)


def exported_model(folder: Path, place: Path) -> None:
    onnx.save(small_model(), folder / "m.onnx")
    export(folder / "m.onnx", place)


WRITES: dict[str, Callable[[Path, Path], object]] = {
    "table": lambda place, _: write_choices(CHOICES * 900, place, "a"),
    "program": lambda place, folder: save(compile_model(small_model(), WEB_BASELINE), place),
    "text": lambda place, _: write_file(place, "new" * 9000),
    "copy": lambda place, folder: copy_file(PACKAGE / "cli.py", place),
}


@pytest.mark.parametrize("what", WRITES)
def test_a_full_disk_is_an_error_and_leaves_the_file(what: str, mounted: Callable[[str], Path], tmp_path: Path) -> None:
    disk = mounted("rw")
    place = disk / "file"
    place.write_bytes(b"old" * 100)
    with contextlib.suppress(OSError), open(disk / "filler", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    with pytest.raises(
        WriteError, match=f"{place} cannot be written: No space left on device; name another place"
    ) as caught:
        WRITES[what](place, tmp_path)
    assert isinstance(caught.value, WgpuEpError) and isinstance(caught.value, OSError)
    assert caught.value.errno == 28
    assert place.read_bytes() == b"old" * 100 and {it.name for it in disk.iterdir()} == {"file", "filler"}


@pytest.mark.parametrize("what", WRITES)
def test_a_file_system_that_is_read_only_is_an_error(what: str, mounted: Callable[[str], Path], tmp_path: Path) -> None:
    place = mounted("rw") / "file"
    place.write_text("old")
    mounted("ro")
    with pytest.raises(WriteError, match=f"{place} cannot be written: Read-only file system"):
        WRITES[what](place, tmp_path)
    assert place.read_text() == "old"


def test_an_export_onto_a_full_disk_leaves_nothing(mounted: Callable[[str], Path], tmp_path: Path) -> None:
    disk = mounted("rw,nr_inodes=6")
    onnx.save(small_model(), tmp_path / "m.onnx")
    for single_file in (False, True):
        with pytest.raises(WriteError, match=f"{disk / 'm.wgpu'} cannot be written: No space left on device"):
            export(tmp_path / "m.onnx", disk / "m.wgpu", single_file=single_file)
        assert not list(disk.iterdir())


@pytest.mark.parametrize("what", WRITES)
def test_a_folder_that_is_away_is_an_error(what: str, tmp_path: Path) -> None:
    with pytest.raises(WriteError, match=f"{tmp_path}/away/file cannot be written: No such file or directory"):
        WRITES[what](tmp_path / "away" / "file", tmp_path)


def test_a_folder_that_goes_away_meanwhile_is_an_error(tmp_path: Path) -> None:
    place = tmp_path / "away" / "file"
    place.parent.mkdir()
    with (
        pytest.raises(WriteError, match=f"{place} cannot be written: No such file or directory"),
        atomic_file(place) as file,
    ):
        file.write(b"text")
        shutil.rmtree(place.parent)
    with pytest.raises(WriteError, match=f"{place} cannot be written"):
        place.parent.mkdir()
        with atomic_folder(place) as folder:
            shutil.rmtree(place.parent)
            with new_file(folder / "file") as file:
                file.write(b"text")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is full")
@pytest.mark.parametrize("what", WRITES)
def test_a_device_that_is_full_is_an_error(what: str, tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="/dev/full cannot be written: No space left on device"):
        WRITES[what](Path("/dev/full"), tmp_path)


@pytest.mark.parametrize("name", ["nul\0", "x" * 300, "folder"])
def test_a_name_that_is_no_file_is_an_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(WriteError, match="cannot be written"):
        write_file(tmp_path / name, "text")
    assert [it.name for it in tmp_path.iterdir()] == ["folder"]


@pytest.mark.costly
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is full")
@pytest.mark.parametrize("command", ["options", "options --json", "info --adapter 0"])
def test_printing_onto_a_full_disk_is_an_error(command: str) -> None:
    line = [sys.executable, "-m", "onnxruntime_ep_wgpu", *command.split()]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with open("/dev/full", "w") as full:
        done = patience.run(line, stdout=full, stderr=subprocess.PIPE, env=environment)
    reason = "standard output cannot be written: No space left on device; name another place, or make room"
    as_json = json.dumps({"error": {"type": "WriteError", "message": reason}})
    said = as_json if "--json" in command else f"error: {reason}"
    assert (done.returncode, done.stderr) == (2, said + "\n")


def test_outputs_of_a_run_are_whole_or_an_error_in_one_line(
    mounted: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = mounted("rw")
    onnx.save(small_model(), tmp_path / "m.onnx")
    command = ["run", str(tmp_path / "m.onnx"), "--runs", "0", "--output", str(disk), "--dim"]
    assert cli.main([*command, "n=8"]) == 0
    before = (disk / "y.npy").read_bytes()
    assert np.load(disk / "y.npy").shape == (8, 200)
    capsys.readouterr()
    assert cli.main([*command, "n=200"]) == 2
    error = f"error: {disk}/y.npy cannot be written: No space left on device; name another place, or make room\n"
    assert capsys.readouterr().err.endswith(error)
    assert (disk / "y.npy").read_bytes() == before and only(disk / "y.npy")


# ---- one way

METHODS = {"write_text", "write_bytes", "tofile", "touch"}
FUNCTIONS = {
    "onnx.save",
    "onnx.save_model",
    "ir.save",
    "os.replace",
    "os.rename",
    "os.open",
    "json.dump",
    "pickle.dump",
}
MODULES = ("shutil.copy", "shutil.move", "np.save", "tempfile.NamedTemporary", "tempfile.mkstemp", "zipfile.")


def writes(source: str) -> Iterator[str]:
    """The calls in a file that may write to a file that a path names."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        name = called.rpartition(".")[2]
        if name == "open" and called != "os.open":
            place = (
                1 if called in ("open", "io.open") else 0
            )  # of the mode, behind the path unless that is what is opened
            modes = [*node.args[place : place + 1], *(it.value for it in node.keywords if it.arg == "mode")]
            found = any(not isinstance(it, ast.Constant) or set(str(it.value)) & set("wax+") for it in modes)
        else:
            found = name in METHODS or called in FUNCTIONS or called.startswith(MODULES)
        if found:
            yield ast.unparse(node)


def test_nothing_else_writes_files() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {call}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for call in writes(path.read_text())
    }  # fmt: skip
    assert found == {
        "scale/ray_serve.py: np.savez(answer, **outputs)",  # to memory
        "writing.py: open(path, 'wb', opener=_open_private if private else None)",
        "writing.py: os.open(path, flags, 384)",
        "writing.py: open(path, 'r+b')",  # to wait for the disk
        "writing.py: shutil.copyfileobj(file, output, 1 << 20)",
        "writing.py: os.open(folder, os.O_RDONLY)",
        "writing.py: os.replace(partial, real)",
        "writing.py: os.rename(made, place)",
        "writing.py: os.rename(place, before)",
        "writing.py: os.rename(before, place)",
        # What has no other end.
        "cli.py: open(os.devnull, 'w')",
        "cli.py: os.open(os.devnull, os.O_WRONLY)",
        # To read what is no link.
        "kept/folder.py: os.open(path, flags)",
        # Into a file of `atomic_file`, and into temporary folders.
        "tools/run.py: np.save(file, value.astype(str) if text else value, allow_pickle=False)",
        "api/stand_in.py: onnx.save(model, made)",
        "api/verify.py: ir.save(ir.Model(graph, ir_version=10), path, external_data='weights')",
        "api/precision.py: onnx.save(changed, path, save_as_external_data=True,"
        " location=f'{model.name}.data', size_threshold=1024)",
    }
