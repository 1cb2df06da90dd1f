"""What a session leaves for a compiled model of its own: `session()` keeps that for the next one of the same model.

In: the main graph when it is decided on, and its group when that is compiled. Out: a `MadeModel`, or why there is none.
Invariants: it has the whole graph in one group, without a body; its weights lie in files that are certain to be the same, and those
that no file has beside it. It is made of what was compiled anyway, while the constants are in memory.
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
from .referred import Referring, UnsettledError

if TYPE_CHECKING:
    from ...program.program import Program
    from ...runtime.weight_sources import Array, FromModel
    from ..cached_compiler import CompiledProgram
    from .made_for import MadeFor


NOT_WHOLE = "not all nodes of the model run here in one group, or one of them has a body"


@dataclass(frozen=True)
class MadeModel:
    """A compiled model: its context, and what the file of constants that no other file has is to have; the name, inputs and outputs
    of its node, those of the model, and the names of the model's nodes in its order."""

    context: Entry
    apart: Sequence[Array]
    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    given: Sequence[ShownValue]
    results: Sequence[ShownValue]
    nodes: Sequence[str]


class Keeping:
    """That of one session. `why` is the reason why nothing is `made`, where later sessions of the same files have it too."""

    def __init__(self) -> None:
        self._whole: ShownGraph | None = None
        self._groups = 0
        self.made: MadeModel | None = None
        self.why = NOT_WHOLE

    def decided(self, graph: ShownGraph, whole: bool) -> None:
        """Notes the main graph before its groups are compiled, and whether one has all of it."""
        self._whole = graph if whole and not any(it.has_body for it in graph) else None

    def compiled(
        self,
        graph: ShownGraph,
        answer: CompiledProgram,
        name: str,
        ends: tuple[Sequence[str], Sequence[str]],
        model: FromModel,
        made_for: MadeFor,
    ) -> None:
        """A group was compiled, whose node is called `name` and has inputs and outputs of these names."""
        self._groups += 1
        self.made = None
        whole, (inputs, outputs) = self._whole, ends
        if whole is None or self._groups > 1 or not {it.name for it in whole.outputs} <= {*outputs}:
            return
        declared = frozenset(it.name for it in whole.inputs)
        ties = ties_in(graph) if answer.ties is None else answer.ties
        names = answer.names or _names(answer.stored.program, graph)
        group = WrittenGroup(graph, answer.stored, names, ties, inputs, outputs, declared, {})
        root = os.path.abspath(os.sep)  # below which all files are
        referring = Referring(root, model, lasting=False, most=MOST_ENTRY_BYTES, most_apart=MOST_APART_BYTES)
        try:
            entry = entry_of(group, made_for, referring)
        except UnsettledError:
            self.why = ""
        except EntryError as error:
            self.why = str(error)
        else:
            nodes = [it.name for it in whole]
            self.made = MadeModel(entry, referring.apart, name, inputs, outputs, whole.inputs, whole.outputs, nodes)


def _names(program: Program, graph: ShownGraph) -> dict[int, str]:
    """Names of weights that are memory of the graph's constants, by their identity."""
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
