"""Finds the nodes that the user keeps on the CPU, by name.

In: names, and every graph from ONNX Runtime. Out: the nodes of a graph that must not be claimed, and the names that match no
node. Invariant: nodes that ONNX Runtime puts in place of a named node stay on the CPU too. They are the nodes of a function
that the node called, which have unrelated names, and a fused node with a name derived from its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...errors import OptionError, cut
from ...records import dataclass
from ..abi import INFO, WARNING
from .shown import ShownGraph, ShownValue

# The suffix that ONNX Runtime appends to the name of a node when it fuses another one into it: `dense/MatMulAddFusion`.
_FUSED = re.compile(r"(/\w*Fusion\w*)+/?$")


@dataclass(frozen=True)
class _Named:
    """A named node: its inputs and outputs, and the other nodes of its graph at that time."""

    inputs: frozenset[str]
    outputs: frozenset[str]
    beside: frozenset[str]


class Forced:
    """The node names in the option of one session."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)
        self._found: dict[str, list[_Named]] = {}
        self._all: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether a node with this name stays on the CPU."""
        return name in self._names

    def among(self, graph: ShownGraph) -> frozenset[str]:
        """Returns the names of the nodes in `graph` that stay on the CPU. Bodies of control flow are separate graphs."""
        if not self._names:
            return frozenset()
        nodes = list(graph)
        here = {node.name or "" for node in nodes}
        self._all |= here
        found: dict[str, str] = {}  # the present node names, by the names in the option
        for node in nodes:
            name = node.name or ""
            wanted = name if name in self._names else _FUSED.sub("", name)
            if wanted in self._names:
                found[wanted] = name
                known = _Named(_names(node.inputs), _names(node.outputs), frozenset(here) - {name})
                if known not in self._found.setdefault(wanted, []):
                    self._found[wanted].append(known)
        gone = [named for name, all_named in self._found.items() if name not in found for named in all_named]
        return frozenset(found.values()).union(*(self._in_place_of(named, graph) for named in gone))

    def _in_place_of(self, named: _Named, graph: ShownGraph) -> set[str]:
        """Returns the nodes that now compute the outputs of a removed node from its inputs."""
        makers = {value.name: node for node in graph for value in node.outputs}
        open_values, found = list(named.outputs), set()
        while open_values:
            maker = makers.get(open_values.pop())
            if maker is None or maker.name in found or maker.name in named.beside:
                continue
            found.add(maker.name or "")
            open_values += [name for name in _names(maker.inputs) if name not in named.inputs]
        return found

    def check_found(self, source: str | bytes, others: bool) -> Iterator[tuple[int, str]]:
        """Yields severities and log lines about names that match no node, after all graphs of the model at `source` were read.

        `others`: other providers claimed nodes before. Raises OptionError for a name that must be wrong.
        """
        missing = sorted(self._names - self._found.keys())
        written = names_in_model(source) if source and missing else frozenset()
        for name in missing:
            problem = self._problem(name)
            if name in written:
                yield INFO, f"{problem}: ONNX Runtime's optimisation removed it from the graph"
            elif others:
                yield WARNING, f"{problem}; another provider may have claimed it"
            else:
                hint = "" if source else ", or ONNX Runtime's optimisation removed it from the graph"
                raise OptionError(f"{problem}{hint}; `report(session).nodes` of a session without it lists the nodes")

    def _problem(self, name: str) -> str:
        from difflib import get_close_matches  # imported only if a name is wrong

        near = get_close_matches(name, self._all, n=1)
        nearest = f" (did you mean {near[0]!r}?)" if near else ""
        return f"option 'forceCpuNodeNames': no node has the name {cut(name)}{nearest}"


def names_in_model(model: str | bytes) -> frozenset[str]:
    """Returns the names of all nodes in an ONNX file or its bytes, with bodies and functions; none if it is not readable."""
    found = loaded(model)
    if found is None:
        return frozenset()
    return frozenset(_walk([*found.graph.node, *(node for it in found.functions for node in it.node)]))


def loaded(model: str | bytes) -> Any:
    """Returns the model without its weights in other files; None if it is not readable."""
    import onnx

    try:
        return onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model, load_external_data=False)
    except Exception:
        return None


def _walk(nodes: Iterable[Any]) -> Iterator[str]:
    for node in nodes:
        yield node.name
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _walk(body.node)


def _names(values: Sequence[ShownValue | None]) -> frozenset[str]:
    return frozenset(value.name for value in values if value is not None and value.name)
