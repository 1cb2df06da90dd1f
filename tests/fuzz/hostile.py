"""Files that a stranger may have made: saved Programs, exports and tables of choices with something wrong in them.

In: `kind:number`. Out: bytes. Invariants: the same name gives the same bytes in every process; most are still JSON with lengths and
hashes that fit, so that what is wrong is found by those who look at its meaning.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import random
import struct
import tempfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.api.flow.compiled import flows_of
from onnxruntime_ep_wgpu.api.web_files import GRAIN, pack, write_folder
from onnxruntime_ep_wgpu.compiler.tune.shipped import GPU
from onnxruntime_ep_wgpu.program.file import write
from onnxruntime_ep_wgpu.program.flow import Flow
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE, MatrixUnit
from onnxruntime_ep_wgpu.program.tuning import write_choices
from onnxruntime_ep_wgpu.writing import OutputFile
from tests.program import programs
from tests.support import compile_model, make_model
from tests.web import flows

from .cases import NUMBERS, mutate

KINDS = ("program", "export", "table")
_MAGIC, _PACK, _HEAD = b"wgpuprog", b"wgpupack", 48
LARGE = (2**40, 2**64, -(2**64), 2**200, 10**40)
TEXTS = (
    "", "$", "$n", "@repetition", "$@repetition", "object", "O", "V99999999", "float32,int32", "finfo", "FLOAT32", "STRING",
    "INT4", "INPUT", "WEIGHT", "HOST", "TEMP", "OUTPUT", "read", "read_write", "{}", "{0}", "{0.__class__}", "{:99999999999}",
    "{!r}", "{", "}}{{", "*", "+", "?", "//", "scaled", "constructor", "__proto__", "toString", "\0", "\0" + "1", "\ud800",
    "x" * 300, "../../x", "/etc/passwd", "a/b.bin", "weights-000.bin",
)  # fmt: skip


# ---- what is right


@cache
def base_programs() -> tuple[Program, ...]:
    """Programs that between them have every table, with and without weights."""
    f = np.float32
    weights = {"w": np.arange(12, dtype=f).reshape(4, 3), "b": np.ones(3, f)}
    layers = [
        node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["a"]), node("Softmax", ["a"], ["s"]),
        node("Shape", ["x"], ["n"]),
    ]  # fmt: skip
    shaped = [node("Reshape", ["x", "shape"], ["r"]), node("Relu", ["r"], ["y"])]
    compiled = (
        make_model(layers, {"x": (f, ["n", 4])}, weights),
        make_model(shaped, {"x": (f, ["n", "m"]), "shape": (np.int64, [2])}),
    )
    units = MatrixUnit(16, 16, 16, "f16", "f32", 32), MatrixUnit(8, 16, 32, "u8", "u32", 16)  # as `read_files.mjs` has
    made = [compile_model(it, replace(WEB_BASELINE, matrices=units[:k])) for k, it in enumerate(compiled, 1)]
    drawn = make_model([node("RandomUniformLike", ["x"], ["u"], seed=1.0)], {"x": (f, ["n"])})
    return (*(program for program, _ in programs.every()), compile_model(drawn, WEB_BASELINE), *made)


@cache
def base_files() -> tuple[bytes, ...]:
    """The same as files, but for those that have weights without bytes."""
    files = []
    for program in base_programs():
        file = io.BytesIO()
        write(program, OutputFile(file, "memory"))
        files.append(file.getvalue())
    return tuple(files)


@cache
def base_flows() -> tuple[Flow, ...]:
    """Flows that between them have every kind of part, and bodies within bodies."""
    named = {it.name: it for it in flows.CASES}
    chosen = (
        "branches in a loop",
        "no round",
        "inputs and constants that come out again",
        "as many elements as data says",
    )
    return tuple(flows_of(ir.from_proto(named[it].model), [WEB_BASELINE], "g")[0] for it in chosen)


@cache
def base_exports() -> tuple[tuple[bytes, dict[str, Any], dict[str, bytes]], ...]:
    """Exports: as one file, and their manifests with the files that these name."""
    made = []
    with tempfile.TemporaryDirectory() as temporary:
        for k, program in enumerate((*base_programs(), *base_flows())):
            folder = Path(temporary) / str(k)
            folder.mkdir()
            manifest = write_folder(folder, [program, program], GRAIN * 4)
            pack(folder / "packed", folder, manifest)
            named = (*manifest["programs"], *manifest["weights"]["chunks"])
            files = {it["file"]: (folder / it["file"]).read_bytes() for it in named}
            made.append(((folder / "packed").read_bytes(), manifest, files))
    return tuple(made)


@cache
def base_table() -> bytes:
    """Choices for every kernel."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "table"
        write_choices(GPU, path, "")
        return path.read_bytes()


# ---- what is wrong


def make(name: str) -> bytes:
    """The case called `kind:number`."""
    kind = name.split(":")[0]
    chance = random.Random(name)
    if kind == "program":
        return _program(chance)
    if kind == "export":
        return _export(chance)
    if kind == "table":
        return _table(chance)
    raise ValueError(f"no kind of case is called {kind!r}; there are {KINDS}")


def _program(chance: random.Random) -> bytes:
    data = chance.choice(base_files())
    if chance.random() < 0.1:
        return mutate(data, chance)
    (length,) = struct.unpack_from("<I", data, 12)
    text = _changed_text(json.loads(data[16 : 16 + length]), chance)
    length = len(text) if chance.random() < 0.98 else chance.choice((0, 1, 2**31, 2**32 - 1))
    return data[:12] + struct.pack("<I", length) + text + data[16 + length :]


def _export(chance: random.Random) -> bytes:
    packed, manifest, files = chance.choice(base_exports())
    what = chance.random()
    if what < 0.1:
        return mutate(packed, chance)
    manifest, files = copy.deepcopy(manifest), dict(files)
    if what < 0.7:
        entry = chance.choice(manifest["programs"])
        found = json.loads(zlib.decompress(files[entry["file"]]))
        text = _bomb(found) if chance.random() < 0.01 else _changed_text(found, chance)
        data = zlib.compress(text)
        files[entry["file"]] = data if chance.random() < 0.98 else mutate(data, chance)
        entry.update(bytes=len(files[entry["file"]]), sha256=hashlib.sha256(files[entry["file"]]).hexdigest())
        text = json.dumps(manifest).encode()
    else:
        text = _changed_text(manifest, chance)
    return _packed(text, files)


def _packed(text: bytes, files: Mapping[str, bytes]) -> bytes:
    """The one file of an export with this manifest."""
    out = bytearray(_PACK + struct.pack("<II", 4, len(text)) + hashlib.sha256(text).digest() + text)
    for part in files.values():
        out += bytes(-len(out) % GRAIN) + part
    return bytes(out)


def deep_flow(depth: int) -> bytes:
    """An export of a flow with so many flows within each other."""
    _, manifest, files = copy.deepcopy(base_exports()[-1])
    (entry,) = manifest["programs"]
    found = json.loads(zlib.decompress(files[entry["file"]]))
    top = found["programs"][0]
    found["programs"] = [top | {"programs": [k + 1] * len(top["programs"])} for k in range(depth)] + [top]
    data = files[entry["file"]] = zlib.compress(json.dumps(found).encode())
    entry.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    return _packed(json.dumps(manifest).encode(), files)


def _bomb(found: dict[str, Any]) -> bytes:
    """Few bytes that stand for many: texts that are all lines, each of many kernels."""
    found["lines"] = "\n".join(["x" * 1000] * 2000)
    found["texts"] = [[0, -2000] * 100] * len(found["texts"])
    return json.dumps(found).encode()


def _table(chance: random.Random) -> bytes:
    data = base_table()
    if chance.random() < 0.1:
        return mutate(data, chance)
    found = json.loads(data)
    found["choices"] = chance.sample(found["choices"], chance.choice((1, 1, 2, 5)))
    if chance.random() < 0.7:
        row = chance.choice(found["choices"])
        if chance.random() < 0.5:  # it is for whatever there is
            row["where"] = {}
            row.pop("dtype", None)
        where = chance.choice((row["use"], row["use"], row["where"]))
        if where:
            key = chance.choice(list(where))
            number = chance.choice(
                (0, 1, 2, 3, 4, 8, 16, 32, 64, 128, 255, 256, 1024, 4096, 2**16, 2**20, 2**31 - 1, -1, 2**64)
            )
            where[key] = number if where is row["use"] else {"least": number}
        return json.dumps(found).encode()
    return _changed_text(found, chance)


def _changed_text(found: Any, chance: random.Random) -> bytes:
    """JSON of a tree in which some places are wrong."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        with suppress(
            TypeError, KeyError, IndexError, ValueError, AttributeError, ZeroDivisionError
        ):  # where another change left nothing to change
            chance.choice(CHANGES)(found, chance)
    text = json.dumps(found, separators=(",", ":"), ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
    if chance.random() < 0.01:
        text = b"[" * 200_000 + text
    if chance.random() < 0.01:
        text = text.replace(str(chance.randrange(9)).encode(), b"9" * 6000, 1)
    return text


def _places(found: Any) -> list[tuple[Any, Any]]:
    """Every place in a tree: what holds it, and its key or number there."""
    places: list[tuple[Any, Any]] = []
    todo = [found]
    while todo:
        it = todo.pop()
        keys: Any = it.keys() if isinstance(it, dict) else range(len(it)) if isinstance(it, list) else ()
        for key in keys:
            places.append((it, key))
            todo.append(it[key])
    return places


def _strange(chance: random.Random) -> Any:
    deep: Any = 1
    for _ in range(50):
        deep = [deep]
    return chance.choice(
        (
            chance.choice(NUMBERS), chance.choice(NUMBERS), chance.choice(LARGE), chance.choice(TEXTS), chance.choice(TEXTS), None,
            True, False, 0.5, 1e300, float("nan"), [], {}, deep, [chance.choice(NUMBERS), chance.choice(TEXTS)],
            ["$n", "$n", "*"], [2, 3, "+"], ["*"], [0] * 70,
        )
    )  # fmt: skip


def _place(found: Any, chance: random.Random) -> tuple[Any, Any]:
    """Any place, each depth as likely as others."""
    holder, key, it = found, None, found
    while key is None or chance.random() > 0.15:
        keys = list(it.keys()) if isinstance(it, dict) else list(range(len(it))) if isinstance(it, list) else []
        if not keys:
            break
        holder, key = it, chance.choice(keys)
        it = holder[key]
    return holder, key


def _replace(found: Any, chance: random.Random) -> None:
    holder, key = _place(found, chance)
    holder[key] = _strange(chance)


def _nearby(found: Any, chance: random.Random) -> None:
    """A whole number that is one more or less, or a number of something else."""
    numbers = [(it, key) for it, key in _places(found) if type(it[key]) is int]
    if numbers:
        holder, key = chance.choice(numbers)
        holder[key] = chance.choice((holder[key] + 1, holder[key] - 1, -1, 0, 1, 2, 7, 2**31))


def _exchange(found: Any, chance: random.Random) -> None:
    a, b = _place(found, chance), _place(found, chance)
    a[0][a[1]] = copy.deepcopy(b[0][b[1]])


def _remove(found: Any, chance: random.Random) -> None:
    holder, key = _place(found, chance)
    del holder[key]


def _insert(found: Any, chance: random.Random) -> None:
    holder, key = _place(found, chance)
    if isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]) if chance.random() < 0.5 else _strange(chance))
    else:
        holder[chance.choice(TEXTS)] = _strange(chance)


def _weights(found: Any, chance: random.Random) -> None:
    """A weight of another type or shape, of as many bytes."""
    row = chance.choice(found["weights"])
    kind, size = chance.choice(
        (("object", 8), ("O", 8), ("V4", 4), ("U1", 4), ("M8[s]", 8), ("float64", 8), ("uint8", 1), ("bool", 1))
    )
    row[0], row[1] = kind, chance.choice(([row[2] // size], [-1], [row[2] // size, 1], [2**60, 16, 0]))


def _checks(found: Any, chance: random.Random) -> None:
    """A check that fails and has something to say."""
    text, dims = chance.choice(
        (("{0.__class__.__mro__}", [1]), ("{:>99999999999}", [1]), ("{!r:{}}", [1, 2**31]), ("{}{}", [1]))
    )
    found["checks"].append([0, text, dims, False])


def _squares(found: Any, chance: random.Random) -> None:
    """Sizes that double their digits with each definition."""
    header = found["programs"][0] if found.get("programs") else found
    if not isinstance(header, dict) or not isinstance(header.get("definitions"), list) or not header.get("symbols"):
        return
    try:
        name = f"${header['symbols'][0][0]}"
    except (TypeError, IndexError, KeyError):
        return
    for k in range(chance.choice((5, 28, 64))):
        header["definitions"].append([f"q{k}", [name, name, "*"]])
        name = f"$q{k}"
    _use(header, name, chance)


def _use(header: dict[str, Any], name: str, chance: random.Random) -> None:
    """Puts a name into an expression of a table."""
    expressions = [
        (it, key) for table in ("values", "dispatches", "checks", "message_definitions") for it, key in _places(header.get(table))
        if isinstance(it[key], list) and it[key] and isinstance(it[key][-1], str)
    ]  # fmt: skip
    if expressions:
        holder, key = chance.choice(expressions)
        holder[key] = [name, 3, chance.choice(("*", "%", "//", "+"))]


CHANGES: tuple[Callable[[Any, random.Random], None], ...] = (
    _replace, _replace, _replace, _nearby, _nearby, _exchange, _remove, _insert, _squares, _weights, _checks,
)  # fmt: skip
