"""A context as bytes: the Program of a group, the group's graph, and the target and options of the Program.

In: a compiled group. Out: bytes; and a `GroupContext` of untrusted bytes, or an EntryError. Invariant: changed or truncated
bytes are an error, and reading executes nothing of them. With the graph, the group can be compiled again for another adapter,
other options or another version, or for a run that the Program does not cover.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from ...errors import ModelError
from ...kept.entry import Entry, EntryError, digest_of, read, understood, written
from ...program.ties import Ties
from ...program.weights import Permuted
from ...records import dataclass
from ..assign.shown import STRING, ShownGraph, ShownNode, TiedConstant
from ..store import programs
from .build_key import BuildKey
from .graphs import graph_from_json, graph_to_json
from .references import ReferenceReader, ReferenceWriter

KIND = "context"


@dataclass(frozen=True)
class WrittenGroup:
    """A compiled group.

    * `names`: the names of its graph's constants, by the identity of their tensors.
    * `inputs`, `outputs`: those of its EPContext node, in the node's order.
    * `declared`: the inputs of the model.
    * `elsewhere`: the nodes of the model that run elsewhere, by their first output, with the reasons.
    * `body_entries`: entries for bodies, by key.
    """

    graph: ShownGraph
    stored: programs.StoredProgram
    names: Mapping[int, str]
    ties: Ties
    inputs: Sequence[str]
    outputs: Sequence[str]
    declared: frozenset[str]
    elsewhere: Mapping[str, str]
    body_entries: Mapping[str, bytes] = field(default_factory=dict)


def bytes_of(group: WrittenGroup, build_key: BuildKey, writer: ReferenceWriter) -> bytes:
    """Returns the context of a group."""
    return written(KIND, entry_of(group, build_key, writer))


def entry_of(group: WrittenGroup, build_key: BuildKey, writer: ReferenceWriter) -> Entry:
    """Returns the context as an entry, without references to memory of the group's constants."""
    graph = graph_to_json(group.graph, lambda name, it: [] if name in group.ties else writer.keep(name, it))
    found = programs.content_of(group.stored, group.names, whole=True)
    assert found is not None
    program, data = found
    at = writer.append(memoryview(data))
    content = {
        "made_for": build_key.as_json(),
        "graph": graph,
        "program": program,
        "calculated": [at, len(data)],
        "ties": [[name, it.of, it.permutation] for name, it in group.ties.items()],
        "inputs": list(group.inputs),
        "outputs": list(group.outputs),
        "declared": sorted(group.declared.intersection(it.name for it in group.graph.inputs)),
        "left": dict(group.elsewhere),
        "carried": {key: [writer.append(memoryview(it)), len(it)] for key, it in group.body_entries.items()},
        "files": writer.files,
    }
    about = {"graph": group.graph.name, "adapter": build_key.adapter}
    return Entry(KIND, {}, content, about, memoryview(writer.data))


class GroupContext:
    """The content of a context's bytes. Raises EntryError.

    `compiled`: the path of the compiled model, "" for one in memory. `apart`: the file of constants that are in no other file,
    if there is one.
    """

    def __init__(self, data: bytes, compiled: str, apart: Path | None = None) -> None:
        self.digest = digest_of(data)
        self._entry = read(data, KIND, KIND)
        self._compiled, self._apart = compiled, apart
        found = self._entry.content
        with understood():
            self.build_key = BuildKey.read(found["made_for"])
            self.inputs, self.outputs, self.declared = (_texts(found[it]) for it in ("inputs", "outputs", "declared"))
            self.elsewhere: dict[str, str] = {
                str(name): reason
                for name, reason in zip(found["left"], _texts(list(found["left"].values())), strict=True)
            }
            self.body_entries = {
                key: self._part(*place) for key, place in found.get("carried", {}).items() if type(key) is str
            }

    def _part(self, at: Any, nbytes: Any) -> bytes:
        data = memoryview(self._entry.data)
        if type(at) is not int or type(nbytes) is not int or not 0 <= at <= at + nbytes <= len(data):
            raise EntryError("the entries of its bodies are truncated")
        return bytes(data[at : at + nbytes])

    def graph(self, name: str) -> tuple[ShownGraph, Ties]:
        """Returns the group's graph with its constants, and its ties. Raises EntryError; ModelError for a changed weight."""
        found = self._entry.content
        with understood():
            reader = ReferenceReader(found["files"], memoryview(self._entry.data), self._compiled, self._apart)
            graph = graph_from_json(found["graph"], name, reader.find)
            graph.in_files = reader.in_files
            ties = {tied: _tie(graph, tied, of, permutation) for tied, of, permutation in found["ties"]}
            _check_elements(graph, ties)
        inputs, outputs = ({it.name for it in them} for them in (graph.inputs, graph.outputs))
        if not inputs <= {*self.inputs} or not {*self.outputs} <= outputs:
            raise EntryError("the inputs or outputs of its node do not match its graph")
        return graph, ties

    def program(self, graph: ShownGraph) -> programs.StoredProgram:
        """Returns the Program of `graph`. Raises EntryError."""
        found = self._entry.content
        with understood():
            at, nbytes = found["calculated"]
            if type(at) is not int or type(nbytes) is not int or min(at, nbytes) < 0:
                raise EntryError("the place of its data is invalid")
            data = memoryview(self._entry.data)[at : at + nbytes]
            return programs.program_of(found["program"], data, graph, graph.name)


def renamed(
    node: ShownNode, context: GroupContext, stored: programs.StoredProgram
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the inputs and outputs of a Program under the names of its node's values, which ONNX Runtime may have renamed.
    Raises ModelError."""
    if any(it is None for it in node.inputs):
        raise ModelError(f"an input of {node.name!r} is missing, which its context requires")
    inputs = dict(zip(context.inputs, [it.name for it in node.inputs if it is not None], strict=True))
    outputs = dict(zip(context.outputs, [it.name for it in node.outputs], strict=True))
    return tuple(inputs[it] for it in stored.inputs), tuple(outputs[it] for it in stored.outputs)


def _texts(it: Any) -> tuple[str, ...]:
    if type(it) is not list or any(type(text) is not str for text in it):
        raise EntryError("expected strings")
    return tuple(it)


def _tie(graph: ShownGraph, name: Any, of: Any, permutation: Any) -> Permuted:
    tied, other = (graph.initializers[it].constant for it in (name, of))
    if tied is None or other is None or sorted(permutation) != list(range(len(other.shape))):
        raise EntryError("the constants or the permutation of a tie are invalid")
    if tied.code != other.code or tied.shape != tuple(other.shape[axis] for axis in permutation):
        raise EntryError("the type or shape of a tied constant is invalid")
    if other.bits not in (8, 16, 32, 64):
        raise EntryError("the elements of a tied constant are not whole bytes")
    graph.initializers[name].constant = TiedConstant(other, tuple(permutation))
    return Permuted(of, tuple(permutation))


def _check_elements(graph: ShownGraph, ties: Ties) -> None:
    """Raises EntryError unless each constant has elements of its own, or is tied to a constant with its own elements."""
    if any(it.of in ties for it in ties.values()):
        raise EntryError("a constant is tied to one that is tied itself")
    for it in (value.constant for value in graph.initializers.values()):
        if it is None or isinstance(it, TiedConstant) or it.code == STRING:
            continue
        if len(it.raw) != -(-math.prod(it.shape) * it.bits // 8):
            raise EntryError("the number of bytes of a constant does not fit its shape")
