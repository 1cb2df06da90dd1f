"""Nodes that the user keeps on the CPU, by name.

In: names, and every graph that ONNX Runtime shows. Out: the nodes of a graph that must not be claimed, and the names that
no node had. Invariant: what ONNX Runtime made of a named node stays on the CPU as the node would have: the nodes of a
function that it called, whose names say nothing of it, and a node that it was fused into under its own name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...errors import OptionError, cut
from ...records import dataclass
from ..abi import INFO, WARNING
from .shown import ShownGraph, ShownValue

# What ONNX Runtime puts behind the name of a node that it fuses another one into: `dense/MatMulAddFusion`.
_FUSED = re.compile(r"(/\w*Fusion\w*)+/?$")


@dataclass(frozen=True)
class _Named:
    """A named node: what it read and made, and the nodes that were there beside it."""

    inputs: frozenset[str]
    outputs: frozenset[str]
    beside: frozenset[str]


class Forced:
    """The names of one session."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)
        self._found: dict[str, list[_Named]] = {}
        self._all: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether a node of this name stays on the CPU."""
        return name in self._names

    def among(self, graph: ShownGraph) -> frozenset[str]:
        """The names of the nodes in `graph` that stay on the CPU. Bodies of control flow are graphs of their own."""
        if not self._names:
            return frozenset()
        nodes = list(graph)
        here = {node.name or "" for node in nodes}
        self._all |= here
        found: dict[str, str] = {}  # the nodes by the name that the user knows
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
        """The nodes that now make what a node made, from what it read."""
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
        """When all graphs of the model at `source` have been shown: what to log about names that no node had, with severities.
        Raises OptionError for one that is wrong. `others`: other providers took nodes before."""
        missing = sorted(self._names - self._found.keys())
        written = names_in_model(source) if source and missing else frozenset()
        for name in missing:
            problem = self._problem(name)
            if name in written:
                yield INFO, f"{problem}: ONNX Runtime's optimisation took it out of the graph"
            elif others:
                yield WARNING, f"{problem}; another provider may have taken it"
            else:
                hint = "" if source else ", or ONNX Runtime's optimisation took it out of the graph"
                raise OptionError(f"{problem}{hint}; `report(session).nodes` of a session without it lists the nodes")

    def _problem(self, name: str) -> str:
        from difflib import get_close_matches  # only where a name is wrong

        near = get_close_matches(name, self._all, n=1)
        nearest = f" (did you mean {near[0]!r}?)" if near else ""
        return f"option 'forceCpuNodeNames': no node is called {cut(name)}{nearest}"


def names_in_model(model: str | bytes) -> frozenset[str]:
    """The names of all nodes in an ONNX file or its bytes, bodies and functions included; none when it is not readable."""
    found = loaded(model)
    if found is None:
        return frozenset()
    return frozenset(_walk([*found.graph.node, *(node for it in found.functions for node in it.node)]))


def loaded(model: str | bytes) -> Any:
    """The model, whose weights in other files are left where they are; None when it is not readable."""
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
