"""From a graph that fails to a small one that fails in the same way.

Outputs, options and runs go first; then values are cut off (an input with the expected elements takes a node's place), nodes are
bypassed, sizes made smaller. What is left is written as a listing, a model and its inputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx

from . import check, values
from .builder import replayed
from .case import Case, Node, Source, listing, pruned
from .check import Outcome
from .rounding import Reject

Judge = Callable[[Case], Outcome]
TRIES = 500


def judge(case: Case) -> Outcome:
    """The outcome of a case at hand as data; `right` when it is no fair test."""
    try:
        known = replayed(case)
    except Reject as reason:
        return Outcome(check.RIGHT, "rejected", str(reason))
    return check.run(case, known)


def shrink(case: Case, outcome: Outcome, of: Judge = judge, tries: int = TRIES) -> tuple[Case, Outcome]:
    """The smallest of so many cases that fails with the status of `outcome`, and its outcome."""
    again = of(case)
    if again.status != outcome.status:
        return case, dataclasses.replace(outcome, detail=f"{outcome.detail} (not again when repeated: {again.status})")
    outcome, progress = again, True
    while progress and tries:
        progress = False
        for candidate in _smaller(case, outcome):
            if not tries:
                break
            tries -= 1
            found = of(candidate)
            if found.status == outcome.status and (found.status == "wrong" or found.kind == outcome.kind):
                case, outcome, progress = candidate, found, True
                break
    return case, outcome


def _smaller(case: Case, outcome: Outcome) -> Iterator[Case]:
    if len(case.outputs) > 1:
        if outcome.output:
            yield pruned(case, [outcome.output])
        for name, _, _ in case.outputs:
            yield pruned(case, [name])
    if case.on_cpu:
        yield dataclasses.replace(case, on_cpu=())
        for name in case.on_cpu:
            yield dataclasses.replace(case, on_cpu=tuple(n for n in case.on_cpu if n != name))
    if case.alias:
        yield dataclasses.replace(case, alias=False)
    if case.optimise:
        yield dataclasses.replace(case, optimise=False)
    if case.runs > 1:
        for run in range(case.runs):
            yield _with_runs(case, [run])
        for run in range(case.runs):
            yield _with_runs(case, [r for r in range(case.runs) if r != run])
    try:
        known = replayed(case)
    except Reject:
        return
    for node in reversed(case.nodes[:-1]):
        yield _cut(case, [node], known)
    for node in case.nodes:
        source = next((i for i in node.inputs if i), None)
        if source and known[source].dtype == node.types[0] and known[source].shapes == known[node.outputs[0]].shapes:
            yield _bypassed(case, node, source)
    if case.runs == 1 and any(not isinstance(d, int) for s in case.inputs for d in s.dims):
        yield dataclasses.replace(case, sources=tuple(_fixed(s) for s in case.sources))
    extents = {e for s in case.inputs for e in zip(*[a.shape for a in s.arrays], strict=True)}
    for extent in sorted(extents, key=max, reverse=True):
        for size in (1, 2, 3):
            if size < max(extent):
                yield dataclasses.replace(
                    case, sources=tuple(_cropped(s, extent, size, case.runs) for s in case.sources)
                )


def _with_runs(case: Case, runs: list[int]) -> Case:
    def kept(source: Source) -> Source:
        return source if source.constant else dataclasses.replace(source, arrays=tuple(source.arrays[r] for r in runs))

    return dataclasses.replace(case, runs=len(runs), sources=tuple(kept(s) for s in case.sources))


def _cut(case: Case, nodes: list[Node], known: dict[str, values.Value]) -> Case:
    """Inputs with the expected elements in place of these nodes' results."""
    gone = {node.name for node in nodes}
    made = []
    for node in nodes:
        for name in node.outputs:
            value = known[name]
            arrays = tuple(values.stored(samples[0], value.dtype) for samples in value.runs)
            made.append(Source(name, value.dtype, arrays, _dims(arrays, name)))
    left = dataclasses.replace(
        case,
        nodes=tuple(n for n in case.nodes if n.name not in gone),
        sources=(*case.sources, *made),
        on_cpu=tuple(n for n in case.on_cpu if n not in gone),
        outputs=tuple(o for o in case.outputs if o[0] not in {s.name for s in made}),
    )
    return pruned(left, [name for name, _, _ in left.outputs])


def _dims(arrays: tuple[np.ndarray, ...], name: str) -> tuple[int | str | None, ...]:
    extents = zip(*[a.shape for a in arrays], strict=True)
    return tuple(e[0] if len(set(e)) == 1 else f"{name}_{k}" for k, e in enumerate(extents))


def _bypassed(case: Case, node: Node, source: str) -> Case:
    renamed = {node.outputs[0]: source}
    nodes = [
        dataclasses.replace(n, inputs=tuple(renamed.get(i, i) for i in n.inputs))
        for n in case.nodes
        if n.name != node.name
    ]
    left = dataclasses.replace(
        case, nodes=tuple(nodes), outputs=tuple(o for o in case.outputs if o[0] not in node.outputs)
    )
    return pruned(left, [name for name, _, _ in left.outputs])


def _fixed(source: Source) -> Source:
    return dataclasses.replace(source, dims=() if source.constant else tuple(source.arrays[0].shape))


def _cropped(source: Source, extent: tuple[int, ...], size: int, runs: int) -> Source:
    """The source with every axis of this extent cut to `size`."""
    arrays = source.arrays if not source.constant else source.arrays * runs
    if not arrays[0].ndim:
        return source
    axes = [k for k, e in enumerate(zip(*[a.shape for a in arrays], strict=True)) if e == extent]
    for axis in axes:
        arrays = tuple(np.take(a, range(min(size, a.shape[axis])), axis) for a in arrays)
    dims = tuple(min(size, d) if k in axes and isinstance(d, int) else d for k, d in enumerate(source.dims))
    return dataclasses.replace(source, arrays=arrays[:1] if source.constant else arrays, dims=dims)


def write(case: Case, outcome: Outcome, folder: Path) -> str:
    """Writes listing.txt, model.onnx and a run's inputs as run0.npz; gives the listing."""
    folder.mkdir(parents=True, exist_ok=True)
    text = f"{listing(case)}\n  {outcome.status}: {outcome.detail}\n"
    (folder / "listing.txt").write_text(text)
    onnx.save(case.model(), folder / "model.onnx")
    for run in range(case.runs):
        np.savez(folder / f"run{run}.npz", **case.feeds(run))
    return text
