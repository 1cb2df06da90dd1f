"""Whatever bytes are given as a saved Program, an export or a table of choices: an error that says what is wrong, or what they say.

The kinds of cases and how they are made are in `hostile.py`; `python -m tests.fuzz --count 100000 --node` reads many. One is read
again, with its traceback, by `python -m tests.fuzz --case program:17`.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from onnxruntime_ep_wgpu.errors import LimitError, ProgramError
from onnxruntime_ep_wgpu.program.file import load
from onnxruntime_ep_wgpu.program.layout import Layouts
from tests.web import node

from . import hostile, read

DEFAULT, EXHAUSTIVE = 250, 5000


def outcomes_of(kind: str, first: int, count: int, folder: Path) -> None:
    names = [f"{kind}:{number}" for number in range(first, first + count)]
    found = {name: read.read(name, folder) for name in names}
    assert not {name: it for name, it in found.items() if it.startswith("defect")}
    counted = Counter(found.values())
    # The cases are worth something when many are refused and some are not.
    assert counted["read"] >= count // 50 and count - counted["read"] >= count // 10, counted
    if kind == "table" or node.missing():
        return
    in_node = read.read_in_node(names, folder)
    assert not {name: it for name, it in in_node.items() if it.startswith("defect")}
    if kind == "program":  # a browser does not look at what it does not use; all else is the same everywhere
        # Nor has an export what follows from an element of floats.
        assert not {
            name: (it, in_node[name])
            for name, it in found.items()
            if it not in ("ProgramError", in_node[name])
            and not (in_node[name] == "ProgramError" and elements_of_floats(hostile.make(name)))
        }


def elements_of_floats(data: bytes) -> bool:
    """Whether a size of a Program follows from an element of an input of floats."""
    (length,) = struct.unpack_from("<I", data, 12)
    header = json.loads(data[16 : 16 + length])
    types = [header["values"][value][1] for value in header["inputs"]]
    return any(element and "FLOAT" in str(types[number]).upper() for _, number, _, element in header["symbols"])


@pytest.mark.costly
@pytest.mark.parametrize("kind", hostile.KINDS)
def test_no_file_does_more_than_it_says(kind: str, tmp_path: Path) -> None:
    outcomes_of(kind, 0, DEFAULT, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", hostile.KINDS)
def test_no_further_file_does_more_than_it_says(kind: str, tmp_path: Path) -> None:
    outcomes_of(kind, DEFAULT, EXHAUSTIVE, tmp_path)


def test_files_that_nothing_is_wrong_with_are_read(tmp_path: Path) -> None:
    for k, data in enumerate(hostile.base_files()):
        path = tmp_path / str(k)
        path.write_bytes(data)
        assert load(path).name == hostile.base_programs()[k].name
    for packed, _, _ in hostile.base_exports():
        assert len(list(read.exported(packed, tmp_path / "export"))) == 2


def changed(change: Callable[[dict[str, Any]], object], path: Path, base: int = -2) -> Path:
    """A saved Program, the one with weights, whose header is changed."""
    data = hostile.base_files()[base]
    (length,) = struct.unpack_from("<I", data, 12)
    header = json.loads(data[16 : 16 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(data[:12] + struct.pack("<I", len(text)) + text + data[16 + length :])
    return path


@pytest.mark.parametrize(
    "dtype", ["object", "O", "V4", "U1", "<f4", "float32,float32", "datetime64", "finfo", "int4", "", None, 4, ["f4"], "float32\0"]
)  # fmt: skip
def test_weights_are_of_types_that_there_are(dtype: object, tmp_path: Path) -> None:
    """Bytes of an array of objects are addresses, which whoever reads them follows."""
    path = changed(lambda it: it["weights"][0].__setitem__(0, dtype), tmp_path / "p")
    with pytest.raises(ProgramError, match="is damaged: "):
        load(path)


@pytest.mark.parametrize("row", [[-1], [2, 3], [1 << 40], [1 << 63], [True], [1.0], ["4"], [0, 1 << 62], [1] * 65])
def test_weights_have_as_many_bytes_as_their_value(row: list[object], tmp_path: Path) -> None:
    path = changed(lambda it: it["weights"][0].__setitem__(1, row), tmp_path / "p")
    with pytest.raises(ProgramError, match="is damaged: "):
        load(path)


@pytest.mark.costly
@pytest.mark.parametrize("count", [20, 28, 5000])
def test_sizes_do_not_grow_with_every_definition(count: int, tmp_path: Path) -> None:
    """A few definitions, each the square of the one before, have more digits than there is memory."""

    def squares(header: dict[str, Any]) -> None:
        names = [header["symbols"][0][0], *(f"q{k}" for k in range(count))]
        header["definitions"] += [[b, [f"${a}", f"${a}", "*"]] for a, b in pairwise(names)]
        header["dispatches"][0][4] = [[f"${names[-1]}", 2, "min"]]

    layouts = Layouts(load(changed(squares, tmp_path / "p", 0)))
    assert layouts.layout([1]).steps
    with pytest.raises(LimitError, match=r"a size is a number of \d{4} bits, and at most 1024 are calculated with"):
        layouts.layout([3])


def test_an_expression_that_nothing_uses_is_read_too(tmp_path: Path) -> None:
    """What is not well formed is refused when the file is read, here and in a browser, and not when a size needs it."""
    wrong: dict[str, list[object]] = {
        "two-results": [1, 2], "no-result": [], "no-operand": [1, "+"], "unknown": ["$absent"], "no-operation": [1, 2, "power"],
    }  # fmt: skip
    files = {}
    for name, tokens in {"right": [1, 2, "+"], **wrong}.items():
        path = changed(lambda it, tokens=tokens: it["definitions"].append(["unused", tokens]), tmp_path / name)
        files[name] = path.read_bytes()
        if name == "right":
            load(path)
        else:
            with pytest.raises(ProgramError, match="is damaged: "):
                load(path)
    if not node.missing():
        # The right one is laid out for sizes that are beyond every limit, too.
        assert read.bytes_in_node(files, tmp_path) == {"right": "LimitError", **dict.fromkeys(wrong, "ProgramError")}


def test_a_state_is_a_short_list_with_as_many_numbers_or_none(tmp_path: Path) -> None:
    """As a browser reads it, too: name, type, shape, storage, weight and elements."""
    rows: dict[str, list[object]] = {
        "right": ["UINT32", [4], "STATE", -1, [1, 2, 3, 4294967295]], "random": ["UINT32", [4], "STATE", -1, []],
        "type": ["FLOAT32", [4], "STATE", -1, []], "axes": ["UINT32", [2, 2], "STATE", -1, []],
        "size": ["UINT32", [["$n"]], "STATE", -1, []], "large": ["UINT32", [1 << 30], "STATE", -1, []],
        "few": ["UINT32", [4], "STATE", -1, [1, 2]], "negative": ["UINT32", [4], "STATE", -1, [1, 2, 3, -1]],
        "beyond": ["UINT32", [4], "STATE", -1, [1, 2, 3, 4294967296]], "dims": ["UINT32", [4], "STATE", -1, [1, 2, 3, ["$n"]]],
        "weight": ["UINT32", [4], "STATE", 0, []],
    }  # fmt: skip
    files = {}
    for name, row in rows.items():

        def change(header: dict[str, Any], row: list[object] = row) -> None:
            (number,) = (k for k, it in enumerate(header["values"]) if it[3] == "STATE")
            header["values"][number][1:] = row

        path = changed(change, tmp_path / name, base=-3)
        files[name] = path.read_bytes()
        if name in ("right", "random"):
            load(path)
        else:
            with pytest.raises(ProgramError, match="is damaged: "):
                load(path)
    if not node.missing():
        found = read.bytes_in_node(files, tmp_path)
        assert {name for name, error in found.items() if error == "ProgramError"} == rows.keys() - {"right", "random"}


def test_a_text_of_a_check_has_places_for_numbers_alone(tmp_path: Path) -> None:
    """A format of Python can name attributes, and widths that take all memory."""
    for text in ("{0.__class__}", "{:999999999}", "{!r}", "{0}", "{", "{}{}", ""):
        path = changed(lambda it, text=text: it["checks"].append([0, text, [1], False]), tmp_path / "p")
        with pytest.raises(ProgramError, match="is damaged: "):
            load(path)


def test_a_kernel_writes_what_is_its_own_alone(tmp_path: Path) -> None:
    """An input belongs to the caller, and weights to all runs."""

    def write_to(storage: str) -> Callable[[dict[str, Any]], None]:
        def change(header: dict[str, Any]) -> None:
            number = next(k for k, it in enumerate(header["values"]) if it[3] == storage)
            place = header["kernels"][header["dispatches"][0][0]][2].index("read_write")
            header["dispatches"][0][1][place] = number

        return change

    for storage in ("INPUT", "WEIGHT"):
        with pytest.raises(ProgramError, match=f"that it writes is a value of storage {storage}"):
            load(changed(write_to(storage), tmp_path / "p"))


def test_a_header_as_deep_as_the_stack_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "p"
    text = b"[" * 300_000
    path.write_bytes(hostile.base_files()[0][:12] + struct.pack("<I", len(text)) + text)
    with pytest.raises(ProgramError, match="is damaged: "):
        load(path)


def test_flows_as_deep_as_the_stack_are_an_error(tmp_path: Path) -> None:
    data = hostile.deep_flow(20_000)
    with pytest.raises(ProgramError, match="is damaged: "):
        read.exported(data, tmp_path / "export")
    if not node.missing():
        assert read.bytes_in_node({"deep": data}, tmp_path) == {"deep": "ProgramError"}
