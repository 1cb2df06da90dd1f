"""The files of an exported model: manifest, Programs, and weights in chunks; in a folder, or concatenated in one file.

In: Programs over the same weights. Out: a description of the written files.

Invariants:

- The manifest has the size and the SHA-256 of each file.
- Each weight is stored once for all Programs.
- A page fetches only the Programs for its kind of adapter. They are tried in order: those for software adapters first, the one
  for every adapter last.
- Weights are deflated only if all files together then are no larger than the model, and no more than necessary, because
  inflating takes the page time.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..errors import ProgramError, cause_of, cut
from ..program.flow import Flow, flow_of, leaves
from ..program.program import Program
from ..program.reading import parsed
from ..program.target import WEB_BASELINE
from ..program.weights import weight_bytes
from ..writing import OutputFile, append_file, new_file
from .web_programs import decode, encode, stored_array

MANIFEST_VERSION = 5
GRAIN = 16  # bytes; the alignment of weights and chunks
FIRST_BYTES = 1 << 20  # limit of the first chunk; deflating floats saves 7 % and more, about the size of the kernels
MOST_INFLATED = 16 << 20  # limit of a deflated chunk in bytes; a page takes a tenth of a second to inflate it
_MARKED = len('.deflated,"inflated":') + 12  # bytes that the manifest needs to mark a chunk as deflated
_FILE = re.compile(
    r"[a-z][a-z\d-]*(\.[a-z\d]+)+"
)  # the pattern of an export's file names, so that no name leads out of its folder
_PACK = b"wgpupack"  # a single file is: this, the manifest's version, length and SHA-256, the manifest, and the listed files
_HEAD = 48  # bytes before the manifest


def is_export(path: Path) -> bool:
    """Returns whether the path is an export, as a folder or as one file."""
    if path.is_dir():
        manifest = path / "manifest.json"
        return manifest.is_file() and b'"onnxruntime-ep-wgpu"' in manifest.read_bytes()[:100]
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(_PACK)) == _PACK


def files_of(folder: Path) -> frozenset[str]:
    """Returns the names of an export's files in its folder; only the manifest's if that is damaged."""
    try:
        manifest = parsed((folder / "manifest.json").read_bytes())
        entries = [*manifest["programs"], *manifest["weights"]["chunks"]]
        return frozenset({"manifest.json", *(str(it["file"]) for it in entries)})
    except (ValueError, KeyError, TypeError, OSError, RecursionError):
        return frozenset({"manifest.json"})


def write_folder(
    folder: Path,
    programs: Sequence[Program | Flow],
    chunk_bytes: int,
    wanted: int = 0,
    onnx: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Writes all files of an export to a folder, in chunks of at most `chunk_bytes`, and returns the manifest.

    `wanted` is the desired limit in bytes of all files, or of the one file from `pack`. `onnx` goes into the manifest and
    describes the original model."""
    with _Chunks(folder, chunk_bytes) as chunks:
        offsets = {
            id(leaf): [chunks.add(weight_bytes(stored_array(it))) for it in leaf.weights]
            for program in programs
            for leaf in leaves(program)
        }
    manifest: dict[str, Any] = {
        "format": "onnxruntime-ep-wgpu",
        "version": MANIFEST_VERSION,
        "name": programs[-1].name,
        "programs": list(_programs(folder, programs, offsets)),
        "weights": {"bytes": chunks.written, "chunks": [_entry(path) for path in chunks.paths]},
        **({"onnx": dict(onnx)} if onnx else {}),
    }
    _write_manifest(folder, manifest)
    excess = sum(it.stat().st_size + GRAIN for it in folder.iterdir()) + _HEAD - wanted
    smaller = _deflated(chunks.paths, excess) if excess > 0 else []
    for entry, (path, data) in zip(manifest["weights"]["chunks"], smaller, strict=False):
        inflated = entry["bytes"]
        path.unlink()
        path = path.with_name(f"{path.name}.deflated")
        with new_file(path) as file:
            file.write(data)
        entry.update(_entry(path), inflated=inflated)
    _write_manifest(folder, manifest)
    return manifest


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    with new_file(folder / "manifest.json") as file:
        file.write(json.dumps(manifest, separators=(",", ":")).encode() + b"\n")


def _deflated(chunks: Sequence[Path], excess: int) -> list[tuple[Path, bytes]]:
    """Returns the first chunks in deflated form, as many as save `excess` bytes; none if all of them save less."""
    found = []
    for path in chunks:
        if path.stat().st_size > MOST_INFLATED:
            break
        data = path.read_bytes()
        found.append((path, zlib.compress(data, 9)))
        excess += _MARKED + len(found[-1][1]) - len(data)
        if excess <= 0:
            return found
        if len(data) - len(found[-1][1]) < len(data) // 50:  # the weights hardly compress
            break
    return []


def pack(path: Path, folder: Path, manifest: dict[str, Any]) -> None:
    """Concatenates the files of a folder in manifest order, aligned to GRAIN."""
    text = (folder / "manifest.json").read_bytes()
    with new_file(path) as output:
        head = _PACK + struct.pack("<II", MANIFEST_VERSION, len(text)) + hashlib.sha256(text).digest()
        assert len(head) == _HEAD
        output.write(head + text)
        for entry in (*manifest["programs"], *manifest["weights"]["chunks"]):
            output.write(bytes(-output.tell() % GRAIN))
            with open(folder / entry["file"], "rb") as part:
                append_file(part, output)


def read_programs(folder: Path) -> list[dict[str, Any]]:
    """Returns the headers of a folder's Programs in manifest order. Raises ProgramError if the folder is damaged.

    `program/flow.py` makes Programs and Flows of one file's headers."""
    return [header for headers, count in _read(folder) for header in headers[:count]]


def read_flows(folder: Path) -> list[Program | Flow]:
    """Returns the Programs of a folder without weights, and Flows of them, in manifest order. Raises ProgramError."""
    try:
        return [flow_of(headers, number) for headers, count in _read(folder) for number in range(count)]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ProgramError(f"{folder} is damaged: {cause_of(error)}") from error


def _read(folder: Path) -> list[tuple[list[dict[str, Any]], int]]:
    """Returns for each file its headers, and how many of the first ones are whole Programs. The rest are parts of Flows."""
    found, least = [], WEB_BASELINE.as_json()
    try:
        for entry in parsed((folder / "manifest.json").read_bytes())["programs"]:
            if not _FILE.fullmatch(entry["file"]):
                raise ValueError(f"it names the file {cut(entry['file'])}")
            headers, targets = decode((folder / entry["file"]).read_bytes()), entry["targets"]
            if len(headers) < len(targets):
                raise ValueError(f"{entry['file']} has {len(headers)} programs for {len(targets)} targets")
            whole = [it | {"target": least | target} for it, target in zip(headers, targets, strict=False)]
            # The parts of a Flow are compiled for its Target, or for all.
            within = [it | {"target": least} for it in headers[len(targets) :]]
            found.append((whole + within, len(targets)))
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        raise ProgramError(f"{folder} is damaged: {cause_of(error)}") from error
    return found


def _programs(
    folder: Path, programs: Sequence[Program | Flow], offsets: Mapping[int, Sequence[int]]
) -> Iterator[dict[str, Any]]:
    """Writes one file for each kind of adapter, because its Programs share most texts, and yields the manifest entries."""
    least = WEB_BASELINE.as_json()
    for software in (True, False):
        chosen = [k for k, it in enumerate(programs) if it.target.software == software]
        if not chosen:
            continue
        path = folder / f"programs{'-software' * software}.json.deflated"
        with new_file(path) as file:
            file.write(encode([programs[k] for k in chosen], lambda leaf: offsets[id(leaf)]))
        # Only the fields that differ from the Target for all adapters.
        all_of = [programs[k].target.as_json() for k in chosen]
        targets = [{name: it[name] for name in it if it[name] != least.get(name)} for it in all_of]
        yield {"targets": targets, **_entry(path)}


# ---- files


def described(path: Path, of: str, file: str) -> dict[str, Any]:
    """Returns the manifest entry of the export `of` about its ONNX model `file`."""
    return {"of": of} | _entry(path) | {"file": file}


def _entry(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": digest}


class _Chunks:
    """Writes bytes to successive files of at most `size` bytes, the first one at most FIRST_BYTES. Equal bytes are stored
    once."""

    def __init__(self, folder: Path, size: int) -> None:
        self.paths: list[Path] = []
        self.written = 0
        self._folder, self._size, self._end = folder, size, 0
        self._places: dict[bytes, int] = {}
        self._opened = ExitStack()  # owns the file that is open for writing
        self._file: OutputFile | None = None

    def __enter__(self) -> _Chunks:
        return self

    def __exit__(self, *error: Any) -> None:
        self._opened.__exit__(*error)

    def add(self, data: memoryview) -> int:
        """Writes bytes unless they exist, and returns their offset over all chunks."""
        digest = hashlib.sha256(data).digest()
        if digest not in self._places:
            self._places[digest] = self.written
            self._write(data)
            self._write(memoryview(bytes(-self.written % GRAIN)))
        return self._places[digest]

    def _write(self, data: memoryview) -> None:
        while data:
            if self.written == self._end:
                self._next()
            assert self._file is not None
            part = data[: self._end - self.written]
            self._file.write(part)
            self.written += len(part)
            data = data[len(part) :]

    def _next(self) -> None:
        self._opened.close()
        self._end += self._size if self.paths else min(self._size, FIRST_BYTES)
        self.paths.append(self._folder / f"weights-{len(self.paths):03}.bin")
        self._file = self._opened.enter_context(new_file(self.paths[-1]))
