"""Makes a compiled model from a session's compiled group. `session()` caches it for later sessions of the same model.

In: the main graph at its decision, and its group when it is compiled. Out: a `MadeModel`, or why there is none.
Invariants: the model has the whole graph in one group, without a body. Its weights are in files with settled identities; those
in no file are in a file of its own. It needs no further compilation, and is made while the constants are in memory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...kept.entry import Entry, EntryError
from ...kept.folder import MOST_APART_BYTES, MOST_ENTRY_BYTES
from ...program.weights import Permuted, weight_array
from ...records import dataclass
from ..assign.shown import ShownGraph, ShownValue, ties_in
from .content import WrittenGroup, entry_of
from .references import ReferenceWriter, UnsettledError

if TYPE_CHECKING:
    from ...program.program import Program
    from ...runtime.weight_sources import Array, FromModel
    from ..cached_compiler import CompiledProgram
    from .build_key import BuildKey


NOT_WHOLE = "not all nodes of the model run here in one group, or one of them has a body"


@dataclass(frozen=True)
class MadeModel:
    """A compiled model.

    * `context`: its context. `apart`: the content of the file for constants that are in no other file.
    * `name`, `inputs`, `outputs`: those of its node. `given`, `results`: inputs and outputs of the model.
    * `nodes`: the names of the model's nodes, in its order.
    """

    context: Entry
    apart: Sequence[Array]
    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    given: Sequence[ShownValue]
    results: Sequence[ShownValue]
    nodes: Sequence[str]


class Keeping:
    """The compiled model of one session.

    `why`: why there is none, if the reason also holds for later sessions of the same files; otherwise "".
    """

    def __init__(self) -> None:
        self._whole: ShownGraph | None = None
        self._groups = 0
        self.made: MadeModel | None = None
        self.reason = NOT_WHOLE

    def decided(self, graph: ShownGraph, whole: bool) -> None:
        """Records the main graph before its groups are compiled. `whole`: one group contains all of it."""
        self._whole = graph if whole and not any(it.has_body for it in graph) else None

    def compiled(
        self,
        graph: ShownGraph,
        answer: CompiledProgram,
        name: str,
        ends: tuple[Sequence[str], Sequence[str]],
        model: FromModel,
        build_key: BuildKey,
    ) -> None:
        """Records a compiled group. `name`, `ends`: the name of its node, and the names of the node's inputs and outputs."""
        self._groups += 1
        self.made = None
        whole, (inputs, outputs) = self._whole, ends
        if whole is None or self._groups > 1 or not {it.name for it in whole.outputs} <= {*outputs}:
            return
        declared = frozenset(it.name for it in whole.inputs)
        ties = ties_in(graph) if answer.ties is None else answer.ties
        names = answer.names or _names(answer.stored.program, graph)
        group = WrittenGroup(graph, answer.stored, names, ties, inputs, outputs, declared, {})
        root = os.path.abspath(os.sep)  # all files are below it
        writer = ReferenceWriter(root, model, lasting=False, most=MOST_ENTRY_BYTES, most_apart=MOST_APART_BYTES)
        try:
            entry = entry_of(group, build_key, writer)
        except UnsettledError:
            self.reason = ""
        except EntryError as error:
            self.reason = str(error)
        else:
            nodes = [it.name for it in whole]
            self.made = MadeModel(entry, writer.apart, name, inputs, outputs, whole.inputs, whole.outputs, nodes)


def _names(program: Program, graph: ShownGraph) -> dict[int, str]:
    """Returns the names of weights that share memory with the graph's constants, by identity."""
    memory = {
        (it.raw.ctypes.data, it.raw.nbytes): name
        for name, value in graph.initializers.items()
        if (it := value.constant) is not None and it.raw.nbytes
    }
    found = {}
    for weight in program.weights:
        source = weight.data if isinstance(weight, Permuted) else weight
        array = weight_array(source)
        name = memory.get((array.__array_interface__["data"][0], array.nbytes))
        if name is not None:
            found[id(source)] = name
    return found
