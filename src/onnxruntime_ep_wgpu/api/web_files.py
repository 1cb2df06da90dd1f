"""The files of an exported model: manifest, Programs, and weights in chunks; in a folder, or one after another in a file.

In: Programs over the same weights. Out: what was written. Invariants: each file is named in the manifest with its size and
SHA-256; a weight is there once, and so are lines of WGSL, for all Programs.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ..program.file import header
from ..program.program import Program
from ..program.weights import weight_array, weight_bytes

MANIFEST_VERSION = 2
GRAIN = 16  # bytes; weights and chunks begin at multiples of it
PROGRAMS = "programs.json.deflated"
_PACK = b"wgpupack"  # one file: this, the manifest's version, length and SHA-256, the manifest, then the files that it lists


def write_folder(folder: Path, programs: list[Program], chunk_bytes: int) -> dict[str, Any]:
    """Writes all files of an export to a folder; chunks have at most `chunk_bytes`. Gives the manifest."""
    with _Chunks(folder, chunk_bytes) as chunks:
        offsets = [[chunks.add(weight_bytes(weight_array(it))) for it in program.weights] for program in programs]
    (folder / PROGRAMS).write_bytes(_programs(programs, offsets))
    base = programs[-1]
    manifest: dict[str, Any] = {
        "format": "onnxruntime-ep-wgpu",
        "version": MANIFEST_VERSION,
        "name": base.name,
        "inputs": [_described(base, it) for it in base.inputs],
        "outputs": [_described(base, it) for it in base.outputs],
        "targets": [program.target.as_json() for program in programs],
        "programs": _entry(folder / PROGRAMS),
        "weights": {"bytes": chunks.written, "chunks": [_entry(path) for path in chunks.paths]},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, separators=(",", ":")) + "\n")
    return manifest


def pack(path: Path, folder: Path, manifest: dict[str, Any]) -> None:
    """The files of a folder in one, at multiples of GRAIN, in the order of the manifest."""
    text = (folder / "manifest.json").read_bytes()
    with open(path, "wb") as file:
        file.write(_PACK + struct.pack("<II", MANIFEST_VERSION, len(text)) + hashlib.sha256(text).digest() + text)
        for entry in (manifest["programs"], *manifest["weights"]["chunks"]):
            file.write(bytes(-file.tell() % GRAIN))
            with open(folder / entry["file"], "rb") as part:
                shutil.copyfileobj(part, file, 1 << 20)


# ---- Programs


def read_programs(folder: Path) -> list[dict[str, Any]]:
    """The headers of a folder's Programs, with a row `[type, shape, bytes, offset]` for each weight."""
    found = json.loads(zlib.decompress((folder / PROGRAMS).read_bytes()))
    lines = found["lines"].split("\n")
    for it in found["programs"]:
        for kernel in it["kernels"]:
            kernel[1] = [_expanded(ranges, lines) for ranges in kernel[1]]
    return list(found["programs"])


def _programs(programs: list[Program], offsets: list[list[int]]) -> bytes:
    """All headers as JSON, deflated. Kernels repeat each other, so a text is ranges `[first, count, ...]` of lines of all."""
    numbers: dict[str, int] = {}
    headers = []
    for program, places in zip(programs, offsets, strict=True):
        found = header(program, [weight_array(it) for it in program.weights])
        found["kernels"] = [
            [label, [_ranges(text, numbers) for text in wgsl], *rest] for label, wgsl, *rest in found["kernels"]
        ]
        found["weights"] = [[*row, place] for row, place in zip(found["weights"], places, strict=True)]
        found["declined"] = []  # for those who compile
        headers.append(found)
    whole = {"lines": "\n".join(numbers), "programs": headers}
    return zlib.compress(json.dumps(whole, separators=(",", ":")).encode(), 9)


def _ranges(text: str, numbers: dict[str, int]) -> list[int]:
    """The lines of a text as ranges, without indentation and comments; new ones get the next numbers."""
    ranges: list[int] = []
    for line in _code(text):
        number = numbers.setdefault(line, len(numbers))
        if ranges and ranges[-2] + ranges[-1] == number:
            ranges[-1] += 1
        else:
            ranges += [number, 1]
    return ranges


def _code(text: str) -> Iterator[str]:
    """Lines of WGSL, which has no texts in quotes that could hold the beginning of a comment."""
    for line in text.split("\n"):
        code = re.sub(r"//.*", "", line).strip()
        if code:
            yield code


def _expanded(ranges: list[int], lines: list[str]) -> str:
    pairs = zip(ranges[::2], ranges[1::2], strict=True)
    return "\n".join(line for first, count in pairs for line in lines[first : first + count])


def _described(program: Program, value: int) -> dict[str, Any]:
    it = program.values[value]
    shape = [d if isinstance(d, int) else " ".join(map(str, d)).replace("$", "") for d in it.shape]
    return {"name": it.name, "type": it.dtype.label, "shape": shape}


# ---- files


def _entry(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": digest}


class _Chunks:
    """Writes bytes one after another into files of at most `size` bytes; equal bytes are there once."""

    def __init__(self, folder: Path, size: int) -> None:
        self.paths: list[Path] = []
        self.written = 0
        self._folder, self._size = folder, size
        self._places: dict[bytes, int] = {}
        self._file: BinaryIO | None = None

    def __enter__(self) -> _Chunks:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, data: memoryview) -> int:
        """The offset of these bytes in all chunks together."""
        digest = hashlib.sha256(data).digest()
        if digest not in self._places:
            self._places[digest] = self.written
            self._write(data)
            self._write(memoryview(bytes(-self.written % GRAIN)))
        return self._places[digest]

    def _write(self, data: memoryview) -> None:
        while data:
            if self._file is None or self.written % self._size == 0:
                self._next()
            assert self._file is not None
            part = data[: self._size - self.written % self._size]
            self._file.write(part)
            self.written += len(part)
            data = data[len(part) :]

    def _next(self) -> None:
        if self._file is not None:
            self._file.close()
        self.paths.append(self._folder / f"weights-{len(self.paths):03}.bin")
        self._file = open(self.paths[-1], "wb")  # noqa: SIM115  closed by the next one, or at the end
