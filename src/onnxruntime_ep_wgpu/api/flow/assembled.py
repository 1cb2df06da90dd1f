"""Assembles a Flow from named parts: names become numbers.

In: the inputs and outputs of a graph, and its parts in execution order. Out: the Flow for one Target. Invariant: each value has
its own number. A part makes each output, also one that is an input or occurs twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...compiler.graph.inference.value_info import ValueInfo
from ...compiler.lower.graph_inputs import unnamed
from ...errors import UnsupportedError
from ...program.dtypes import DType
from ...program.flow import UNKNOWN, Flow, Part
from ...program.postfix import Postfix
from ...program.program import Program, Storage, Symbol, Value
from ...program.target import Target
from ...records import dataclass


@dataclass(frozen=True)
class KnownValue:
    """A value of a graph, with its inferred type and shape."""

    name: str
    info: ValueInfo


@dataclass(frozen=True)
class NamedPart:
    """A part of a Flow with named values; "" is an absent one. Each item of `programs` has one Program per Target."""

    kind: str
    args: tuple[str, ...]
    results: tuple[str, ...]
    programs: tuple[Sequence[Program | Flow], ...] = ()
    states: int = 0


def assembled(
    target: Target,
    number: int,
    name: str,
    given: Sequence[KnownValue],
    outputs: Sequence[KnownValue],
    steps: Sequence[NamedPart],
) -> Flow:
    """Returns the Flow for `target`, which has index `number` in the Programs. Raises UnsupportedError for non-tensor
    inputs."""
    symbols = _symbols(given)
    known = {it.name for it in symbols}
    info = {it.name: it.info for it in outputs}
    values = [_input(it, known) for it in given]
    numbers = {it.name: k for k, it in enumerate(given)}
    makes = {it for step in steps for it in step.results}
    gives = [it.name in makes and it not in outputs[:k] for k, it in enumerate(outputs)]
    own = {it.name for it, made in zip(outputs, gives, strict=True) if made}
    programs: list[Program | Flow] = []
    parts = []
    for step in steps:
        first = len(programs)
        programs += [it[number] for it in step.programs]
        args = tuple(numbers[it] if it else UNKNOWN for it in step.args)
        results = []
        for result, dtype in zip(step.results, _types(step), strict=True):
            storage = Storage.OUTPUT if result in own else Storage.TEMP
            numbers[result] = len(values)
            results.append(len(values))
            values.append(Value(result, dtype, _shape(result, info.get(result), known), storage))
        parts.append(Part(step.kind, tuple(range(first, len(programs))), args, tuple(results), step.states))
    results = []
    for it, made in zip(outputs, gives, strict=True):
        source = numbers[it.name]
        if not made:
            parts.append(Part("same", (), (source,), (len(values),)))
            source = len(values)
            values.append(
                Value(it.name, values[numbers[it.name]].dtype, _shape(it.name, it.info, known), Storage.OUTPUT)
            )
        results.append(source)
    return Flow(
        name=name,
        target=target.needs,
        symbols=symbols,
        inputs=tuple(range(len(given))),
        outputs=tuple(results),
        values=tuple(values),
        parts=tuple(parts),
        programs=tuple(programs),
    )


def _symbols(given: Sequence[KnownValue]) -> tuple[Symbol, ...]:
    """Returns the free extents of the inputs as symbols, without duplicates."""
    found: dict[str, Symbol] = {}
    for number, it in enumerate(given):
        for axis, extent in enumerate(it.info.shape or ()):
            if not isinstance(extent, int):
                label = extent or unnamed(it.name, axis)
                found.setdefault(label, Symbol(label, number, axis, False))
    return tuple(found.values())


def _input(it: KnownValue, known: set[str]) -> Value:
    if it.info.dtype is None or it.info.shape is None:
        raise UnsupportedError(f"the type or rank of {it.name!r} is unknown, or it is not a tensor")
    return Value(it.name, DType.of(int(it.info.dtype)), _shape(it.name, it.info, known), Storage.INPUT)


def _shape(name: str, info: ValueInfo | None, known: set[str]) -> tuple[Postfix, ...]:
    def extent(axis: int, it: int | str | None) -> Postfix:
        label = it or unnamed(name, axis)
        return it if isinstance(it, int) else (f"${label}",) if label in known else UNKNOWN

    shape = info.shape if info is not None and info.shape is not None else ()
    return tuple(extent(axis, it) for axis, it in enumerate(shape))


def _types(step: NamedPart) -> list[DType]:
    """Returns the types of a part's results. A loop body has the continue flag as an additional first output."""
    program = step.programs[0][0]
    places = program.outputs[step.kind == "loop" :]
    return [program.values[it].dtype for it in places[: len(step.results)]]
