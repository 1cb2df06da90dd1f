"""Bytes from anybody: a context is read as it was written, or not at all, whatever became of it."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.errors import InternalError, ModelError, WgpuEpError
from onnxruntime_ep_wgpu.kept.entry import EntryError
from onnxruntime_ep_wgpu.plugin.assign.shown import key_of
from onnxruntime_ep_wgpu.plugin.context.content import GroupContext
from onnxruntime_ep_wgpu.plugin.context.graphs import graph_from_json
from tests.store.changes import base
from tests.store.showing import shown

from .compiling import compiled_beside, wide, wide_reference
from .rewritten import rewrite, rewritten

X = np.random.default_rng(6).standard_normal((5, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a compiled model."""
    folder = tmp_path_factory.mktemp("compiled")
    compiled_beside(folder, wide())
    return folder


def data_in(place: Path) -> bytes:
    return (place / "model_ctx_0.wgpucontext").read_bytes()


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Other bytes: some changed, cut off, left out, doubled or swapped."""
    kind, at = rng.randrange(5), rng.randrange(len(data))
    until = min(len(data), at + rng.choice([1, 2, 16, 500]))
    if kind == 0:
        return data[:at] + bytes(it ^ rng.randrange(1, 256) for it in data[at:until]) + data[until:]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + data[until:]
    if kind == 3:
        return data[:until] + data[at:]
    other = rng.randrange(len(data))
    return data[:at] + data[other : other + until - at] + data[until:]


def check_bytes(place: Path, seeds: range) -> None:
    data = data_in(place)
    for seed in seeds:
        other = mutated(data, random.Random(seed))
        if other != data:
            with pytest.raises(EntryError):
                GroupContext(other, str(place / "model_ctx.onnx"))


def test_bytes_that_changed_are_no_context(place: Path) -> None:
    check_bytes(place, range(60))


@pytest.mark.exhaustive
def test_hundreds_of_changes_of_bytes(place: Path) -> None:
    check_bytes(place, range(100, 700))


def bent(content: Any, rng: random.Random) -> None:
    """Changes one thing that a content says, anywhere in it."""
    places: list[tuple[Any, Any]] = []

    def collect(it: Any) -> None:
        keys = list(it) if isinstance(it, dict) else range(len(it))
        for key in keys:
            places.append((it, key))
            if isinstance(it[key], (dict, list)):
                collect(it[key])

    collect(content)
    where, key = rng.choice(places)
    value = where[key]
    kind = rng.randrange(4)
    if kind == 0:
        del where[key]
    elif kind == 1 and isinstance(value, int) and not isinstance(value, bool):
        where[key] = rng.choice([-1, 0, 1, value + 1, value - 1, value * 1000, 1 << 40, 1 << 62])
    elif kind == 2 and isinstance(value, (list, dict)):
        where[key] = type(value)()
    else:
        where[key] = rng.choice(
            [
                None,
                True,
                "x",
                "\ud800",
                "0x1p99999",
                [],
                {},
                [0],
                3.5,
                99,
                -1,
                2**31,
                copy.deepcopy(rng.choice(places)[0]),
                1 << 50,
            ]
        )


def check_contents(place: Path, seeds: range) -> int:
    """Reads what somebody wrote; gives how many of these contexts are one."""
    data, compiled, read = data_in(place), str(place / "model_ctx.onnx"), 0
    for seed in seeds:
        other = rewritten(data, lambda it, seed=seed: bent(it, random.Random(seed)))  # type: ignore[misc]
        try:
            context = GroupContext(other, compiled)
            graph, _ = context.graph("group")
            context.program(graph)
            read += 1
        except (EntryError, ModelError):
            continue
    return read


WRONG: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "the place of data": (lambda it: it["calculated"].__setitem__(0, "x"), "the place of its data is invalid"),
    "an input of the graph": (lambda it: it["graph"]["inputs"].append(-1), "the number of a value is invalid"),
    "a kind of attribute": (lambda it: it["graph"]["nodes"][0][7].append(["a", "graph", 1]), "the kind of an attribute is invalid"),
    "a type of constant": (lambda it: it["graph"]["constants"][0].__setitem__(1, 99), "the type or shape of a constant is invalid"),
    "the place of a constant": (lambda it: it["graph"]["constants"][0].__setitem__(3, [-1]), "the place of a constant is invalid"),
    "the file of a constant": (lambda it: it.update(files=[]), "the number of a file is invalid"),
    "a file": (lambda it: it["files"][0].__setitem__(1, "x"), "the name, size or time of a file is invalid"),
    "a type of value": (lambda it: it["graph"]["values"][0].__setitem__(1, 99), "the type of a value is invalid"),
    "half a character": (lambda it: it["graph"]["nodes"][0].__setitem__(3, "\ud800"), "UnicodeEncodeError"),
    "a version": (lambda it: it["graph"]["nodes"][0].__setitem__(2, 2**31), "the version of an operator is invalid"),
    "a set of operators": (lambda it: it["graph"]["opsets"].update({"": -1}), "the version of an operator is invalid"),
    "a large float": (lambda it: it["graph"]["nodes"][0][7].append(["a", "float", "0x1p99999"]), "OverflowError"),
    "a constant that a node makes": (
        lambda it: it["graph"]["constants"][0].__setitem__(0, it["graph"]["nodes"][0][5][0]),
        "or is an output of a node",
    ),
    "a constant without a name": (
        lambda it: it["graph"]["values"][it["graph"]["constants"][0][0]].__setitem__(0, ""),
        "a constant has no name of its own",
    ),
    "for what it was made": (lambda it: it["made_for"].update(adapter=1), "it has no valid adapter, version and options"),
}  # fmt: skip


@pytest.mark.every_case
@pytest.mark.parametrize("what", WRONG)
def test_each_part_is_looked_at(place: Path, what: str) -> None:
    change, reason = WRONG[what]
    with pytest.raises(EntryError, match=reason):
        context = GroupContext(rewritten(data_in(place), change), str(place / "model_ctx.onnx"))
        context.program(context.graph("group")[0])


def test_a_context_for_a_node_with_more_inputs(tmp_path: Path) -> None:
    compiled = compiled_beside(tmp_path, wide())
    rewrite(compiled, lambda it: it["inputs"].append("more"))
    with pytest.raises(ModelError, match="its inputs or outputs do not match its node"):
        webgpu_ep.session(compiled)


def test_what_somebody_wrote_is_read_or_refused(place: Path) -> None:
    assert check_contents(place, range(80)) < 80


@pytest.mark.exhaustive
def test_hundreds_of_contents_are_read_or_refused(place: Path) -> None:
    assert check_contents(place, range(100, 1300)) < 1200


def of_another_version(content: dict[str, Any], rng: random.Random) -> None:
    """Changes the graph of a context that must be compiled again."""
    content["made_for"]["version"] = "0"
    bent(content["graph"], rng)


def check_sessions(folder: Path, seeds: range) -> None:
    """A session of what somebody wrote gives results, or an error of this package."""
    for seed in seeds:
        for it in folder.iterdir():
            it.unlink()
        compiled = compiled_beside(folder, wide())
        change = of_another_version if seed % 2 else bent
        rewrite(compiled, lambda it, seed=seed, change=change: change(it, random.Random(seed)))  # type: ignore[misc]
        try:
            webgpu_ep.session(compiled).run(None, {"x": X})
        except InternalError:
            raise
        except WgpuEpError:
            continue


def test_sessions_of_what_somebody_wrote(tmp_path: Path) -> None:
    check_sessions(tmp_path, range(8))


@pytest.mark.exhaustive
def test_hundreds_of_sessions_of_what_somebody_wrote(tmp_path: Path) -> None:
    check_sessions(tmp_path, range(100, 400))


@pytest.mark.exhaustive
def test_hundreds_of_sessions_of_changed_files(tmp_path: Path) -> None:
    """Each file beside the compiled model in turn: the right results, or an error."""
    compiled = compiled_beside(tmp_path, wide())
    kept = {it: it.read_bytes() for it in (tmp_path / "model.onnx", tmp_path / "model_ctx_0.wgpucontext")}
    right = 0
    for seed in range(300):
        rng = random.Random(seed)
        for path, data in kept.items():
            path.write_bytes(data)
        path = rng.choice(list(kept))
        path.write_bytes(mutated(kept[path], rng))
        try:
            got = webgpu_ep.session(compiled).run(None, {"x": X})[0]
        except ModelError:
            continue
        right += 1
        np.testing.assert_allclose(got, wide_reference(X), rtol=1e-4, atol=1e-5)
    assert 0 < right < 300  # of the model only the weights matter


# ---- graphs


def check_graph(seed: int) -> None:
    from onnxruntime_ep_wgpu.plugin.context.graphs import graph_to_json

    graph = shown(base(seed).model)
    kept: list[bytes] = []

    def keep(_name: str, it: Any) -> list[Any]:
        kept.append(it.raw.tobytes())
        return [len(kept) - 1]

    def find(_name: str, where: Any, nbytes: int) -> Any:
        assert len(kept[where[0]]) == nbytes
        return np.frombuffer(kept[where[0]], np.uint8)

    again = graph_from_json(graph_to_json(graph, keep), graph.name, find)
    assert key_of(again) == key_of(graph)
    assert [it.name for it in again.outputs] == [it.name for it in graph.outputs]


@pytest.mark.parametrize("seed", range(4))
def test_a_graph_is_the_same_again(seed: int) -> None:
    check_graph(seed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(100, 200))
def test_a_hundred_graphs_are_the_same_again(seed: int) -> None:
    check_graph(seed)
