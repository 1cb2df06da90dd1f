"""Applies every rule to every call of a lowered graph.

In: a graph without dead nodes, with `users`. Out: the graph with all replacements, again without dead nodes, and with the reasons
of rules that declined. Rules run in rounds; each round sees the results of the rounds before.

Invariants:

- A round replaces a node at most once, and its rules see the graph as it was before the round.
- A replacement fits the target's bindings and stands after its operands. The engine checks both, not the rules.
- A match with nodes that another rule replaced is recorded as declined.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ...program.program import Declined
from ...program.target import Target
from ..ir import Call, LoweredGraph, Node
from ..nodes.divide import too_many_bindings
from ..passes.dead import remove_dead
from ..passes.order import in_order
from .attention import ATTENTION
from .extremes import EXTREMES
from .gated import GATED
from .picked import PICKED
from .rule import Replace, Rule
from .spelled import NORMALISATION, SOFTMAX
from .split_k import SPLIT_K
from .squeeze_excite import SQUEEZE_EXCITE
from .visible_keys import VISIBLE_KEYS

Round = tuple[Rule, ...]
ROUNDS: tuple[Round, ...] = (
    (NORMALISATION, SOFTMAX),
    (ATTENTION, SQUEEZE_EXCITE),
    (GATED,),
    (VISIBLE_KEYS, SPLIT_K, EXTREMES, PICKED),
)


def rewrite(graph: LoweredGraph, target: Target, rounds: tuple[Round, ...] = ROUNDS) -> LoweredGraph:
    """Returns the graph after all rules."""
    for rules in rounds:
        graph = _rewritten(graph, target, rules)
    return graph


def _reason(found: Replace, replaced: set[Node], target: Target) -> str | None:
    """Returns why a replacement cannot be applied, independent of the rule."""
    if not replaced.isdisjoint(found.nodes):
        return "another rule already replaced some of its nodes"
    return next((reason for node in found.instead if (reason := too_many_bindings(node, target))), None)


def _rewritten(graph: LoweredGraph, target: Target, rules: Round) -> LoweredGraph:
    replaced: set[Node] = set()
    declined = list(graph.declined)
    found: list[tuple[Rule, Call, Replace]] = []
    for call in graph.nodes:
        for rule in rules:
            if not isinstance(call, Call) or call.template != rule.anchor:
                continue
            answer = rule.match(call, target)
            if isinstance(answer, Replace):
                answer = _reason(answer, replaced, target) or answer
            if isinstance(answer, str):
                declined.append(Declined(rule.name, answer, call.origin))
            elif isinstance(answer, Replace):
                replaced.update(answer.nodes)
                found.append((rule, call, answer))
    nodes, cycle = _with_replacements(graph, found)
    while cycle:
        last = max(k for k, (_, _, answer) in enumerate(found) if not set(answer.instead).isdisjoint(cycle))
        rule, call, _ = found.pop(last)
        declined.append(Declined(rule.name, "its operands depend on its results", call.origin))
        nodes, cycle = _with_replacements(graph, found)
    return remove_dead(replace(graph, nodes=nodes, declined=declined)) if found or declined else graph


def _with_replacements(
    graph: LoweredGraph, found: Sequence[tuple[Rule, Call, Replace]]
) -> tuple[list[Node], Collection[Node]]:
    """Returns the nodes of the graph with these replacements, in order, and the nodes of a cycle that the replacements cause."""
    position = {node: place for place, node in enumerate(graph.nodes)}
    replacements = {max(it.nodes, key=position.__getitem__): it.instead for _, _, it in found}
    for node in (*graph.nodes, *(it for added in replacements.values() for it in added)):
        for tensor in node.outputs:
            tensor.producer = node
    if not found:
        return graph.nodes, ()
    nodes = [it for node in graph.nodes for it in replacements.get(node, (node,))]
    return in_order([node for node in nodes if any(tensor.producer is node for tensor in node.outputs)])
