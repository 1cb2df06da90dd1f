"""From a seed to a graph. The same seed makes the same graph in every process."""

from __future__ import annotations

from collections import Counter

import numpy as np

from . import values
from .builder import Dice, Graph
from .case import Case, Node
from .check import measured_on_cpu
from .recipes import RECIPES

OPSETS = (17, 18, 20, 21, 23, 24, 26)
MOST_ATTEMPTS = 12  # per node
REMOVED = ("Constant", "Dropout", "Identity")
"""What ONNX Runtime takes out of every graph."""


def generate(seed: int, reasons: Counter[str] | None = None) -> tuple[Case, Graph]:
    """A case of 5 to 60 nodes and the graph with all its values; `reasons` counts why recipes were rejected."""
    dice = Dice(seed)
    runs = dice.between(3, 4)
    g = Graph(seed, dice.of(OPSETS), runs, {name: size[:runs] for name, size in sizes(dice).items()})
    wanted = min(5 + int(dice.numbers.geometric(0.1)), 60)
    for _ in range(dice.between(1, 3)):
        first_tensor(g)
    functions = [function for function, _ in RECIPES]
    weights = np.array([weight for _, weight in RECIPES])
    weights = weights * np.where(dice.numbers.random(len(weights)) < 0.3, 4.0, 1.0)  # each graph has its favourites
    weights /= weights.sum()
    for _ in range(wanted * MOST_ATTEMPTS):
        if len(g.nodes) >= wanted:
            break
        if dice.chance(0.04):
            first_tensor(g)
        reason = g.attempt(functions[int(dice.numbers.choice(len(functions), p=weights))])
        if reason and reasons is not None:
            reasons[reason.split("\n")[0][:100]] += 1
    optimise = dice.chance(0.4)
    on_cpu = [] if optimise or dice.chance(0.6) else [n.name for n in g.nodes if dice.chance(0.2) and _may_move(n, g)]
    return g.done(optimise, on_cpu, dice.chance(0.5)), g


def _may_move(node: Node, g: Graph) -> bool:
    """Whether the CPU provider surely has the node's types and is a measure of it."""
    read = [g.by_name[name] for name in node.inputs if name]
    kinds = {v.dtype for v in read} | set(node.types)
    return node.op not in REMOVED and kinds <= {"float32", "int64", "int32", "bool"} and measured_on_cpu(node, read)


def sizes(dice: Dice) -> dict[str, tuple[int, ...]]:
    """Named sizes: a different one in most runs, with 1 and sometimes 0 among them; the last run repeats the first."""
    found = {}
    for name in ("N", "M", "K")[: dice.between(1, 3)]:
        runs = [int(k) for k in dice.numbers.permutation([2, 3, 4, 5, 6])[:4]]
        if dice.chance(0.6):
            runs[dice.between(0, 2)] = 1
        if dice.chance(0.25):
            runs[dice.between(1, 2)] = 0
        runs[3] = runs[0]
        found[name] = tuple(runs)
    return found


def first_tensor(g: Graph) -> None:
    """An input to begin with."""
    dice = g.dice
    dtype = dice.of(
        ["float32"] * 6 + ["float16", "bfloat16", "int64", "int64", "int32", "bool", dice.of(list(values.CODES))]
    )
    for _ in range(20):
        rank = dice.of([0, 1, 2, 2, 3, 3, 3, 4, 4])
        extents = []
        for _axis in range(rank):
            size = dice.of([1, 1, 2, 2, 3, 4, 4, 5, 6, 8, 12])
            extents.append(dice.of(list(g.sizes.values())) if dice.chance(0.5) else (size,) * g.runs)
        shapes = [tuple(e[run] for e in extents) for run in range(g.runs)]
        if max(int(np.prod(s)) for s in shapes) <= 300:
            g.tensor(dtype, shapes, constant=0.05)
            return
