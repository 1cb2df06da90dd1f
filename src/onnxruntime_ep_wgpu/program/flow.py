"""A graph that takes several Programs, with decisions between them at run time.

A Program is laid out before any of it runs. The branch of an If, the trip count of a Loop and the size of a NonZero result may be
known only after other Programs have run. A Flow is a list of parts over named values, in the order of execution. Shapes come with
the values. Flows are nested as bodies are.

In: nothing. Out: `Flow`, its header as JSON objects, and `flow_of`, which reads and checks one. Invariants: a value is made once,
before it is read. The inputs and outputs of a body match those of its part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from ..errors import cut
from ..records import dataclass
from .dtypes import DType
from .file import COLUMNS, from_header, row_of
from .program import FORMAT_VERSION, Program, Storage, Symbol, Value
from .reading import items, program_of
from .target import Target

UNKNOWN = -1  # an extent that the producer decides, and the number of an omitted argument
KINDS = {"run": 1, "same": 0, "if": 2, "loop": 1}  # and how many Programs a part of each has
PART_COLUMNS = ("kind", "programs", "args", "results", "states")


@dataclass(frozen=True)
class Part:
    """A step of a Flow. `programs` index those of the Flow; `args` and `results` are values.

    - `run`: runs the Program with these inputs. Results are its outputs. A result with a size that data decides has as many
      elements as there are.
    - `same`: the result is the argument.
    - `if`: the first argument is a bool. If it is not 0, the first Program runs with the other arguments, otherwise the second
      one.
    - `loop`: arguments are the number of rounds (int64) and a bool, which may both be UNKNOWN, the states, and the other values
      that the body reads. The body takes the number of the round, a bool, the states and the rest. It returns a bool, the
      states, and the parts of results that are stacked along a new first axis. The loop ends when the number of rounds is
      reached or the bool is 0. `states` is the number of states.
    """

    kind: str
    programs: tuple[int, ...]
    args: tuple[int, ...]
    results: tuple[int, ...]
    states: int = 0


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Programs, and the parts that run them one after another.

    Inputs and outputs are those of the graph, in ONNX order, and `symbols` are extents of inputs. An extent of a value is a
    number, a symbol, or UNKNOWN.
    """

    name: str
    target: Target
    symbols: tuple[Symbol, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    values: tuple[Value, ...]
    parts: tuple[Part, ...]
    programs: tuple[Program | Flow, ...]
    format_version: int = FORMAT_VERSION


def leaves(program: Program | Flow) -> Iterator[Program]:
    """Yields the Programs of a Flow, including nested ones, in the order of their numbers; or the Program itself."""
    if isinstance(program, Program):
        yield program
    else:
        for it in program.programs:
            yield from leaves(it)


def flow_header(flow: Flow, programs: Sequence[int]) -> dict[str, Any]:
    """Returns a Flow as JSON objects. Its Programs have the numbers `programs` in a file.

    It has the tables of a Program, so that one reader reads both.
    """
    empty: dict[str, Any] = {name: [] for name in COLUMNS}
    return {
        "format_version": flow.format_version,
        "name": flow.name,
        "target": flow.target.as_json(),
        **empty,
        "definitions": [],
        "message_definitions": [],
        "aliases": [],
        "symbols": [row_of(it, COLUMNS["symbols"]) for it in flow.symbols],
        "inputs": flow.inputs,
        "outputs": flow.outputs,
        "values": [row_of(it, COLUMNS["values"]) for it in flow.values],
        "parts": [[getattr(it, name) for name in PART_COLUMNS] for it in flow.parts],
        "programs": list(programs),
    }


def flow_of(headers: Sequence[Mapping[str, Any]], number: int = 0) -> Program | Flow:
    """Returns the Program or Flow of the header `number`. A Flow may refer to others of the list; each has a target.

    Raises ValueError, KeyError, TypeError or RecursionError if a part of it is damaged.
    """
    return _read(headers, number, {})


def _read(headers: Sequence[Mapping[str, Any]], number: int, known: dict[int, Program | Flow | None]) -> Program | Flow:
    """`known` has those that were read; None for one that is being read."""
    if number in known:
        whole = known[number]
        if whole is None:
            raise ValueError("a flow contains itself")
        return whole
    found = dict(headers[number])
    if "parts" not in found:
        program = known[number] = from_header(found)
        return program
    known[number] = None
    numbers = items(found.pop("programs"))
    rows = [items(it) for it in items(found.pop("parts"))]
    if any(type(it) is not int or not 0 <= it < len(headers) for it in numbers):
        raise ValueError(f"a flow has the programs {cut(numbers)}, but there are {len(headers)}")
    programs = tuple(_read(headers, it, known) for it in numbers)
    parts = []
    for row in rows:
        if len(row) != len(PART_COLUMNS) or row[0] not in KINDS:
            raise ValueError(f"{cut(row)} is not a part of a flow")
        kind, within, args, results, states = row
        parts.append(Part(kind, tuple(items(within)), tuple(items(args)), tuple(items(results)), states))
    signature = program_of(found, COLUMNS)
    flow = Flow(
        **{it.name: getattr(signature, it.name) for it in fields(Flow) if it.name not in ("parts", "programs")},
        parts=tuple(parts),
        programs=programs,
    )
    _check(flow)
    known[number] = flow
    return flow


def _check(flow: Flow) -> None:
    made = set(flow.inputs)

    def value(number: Any) -> Value:
        if type(number) is not int or not 0 <= number < len(flow.values):
            raise ValueError(f"a part of a flow has the value {cut(number)}, but there are {len(flow.values)}")
        return flow.values[number]

    for part in flow.parts:
        if len(part.programs) != KINDS[part.kind]:
            raise ValueError(f"a part {part.kind!r} has {len(part.programs)} programs")
        if any(type(it) is not int or not 0 <= it < len(flow.programs) for it in part.programs):
            raise ValueError(
                f"a part of a flow has the programs {cut(part.programs)}, but there are {len(flow.programs)}"
            )
        missing = part.kind == "loop"
        for place, it in enumerate(part.args):
            if missing and place < 2 and it == UNKNOWN:
                continue
            value(it)
            if it not in made:
                raise ValueError(f"{flow.values[it].name!r} is read before it is written")
        for it in part.results:
            if value(it).storage not in (Storage.TEMP, Storage.OUTPUT) or it in made:
                raise ValueError(f"{flow.values[it].name!r} is written twice")
            made.add(it)
        _CHECKS[part.kind](flow, part)
    if not made.issuperset(flow.outputs):
        raise ValueError("an output of a flow is not written")


def _types(flow: Flow, numbers: Sequence[int]) -> list[Any]:
    return [flow.values[it].dtype for it in numbers]


def _fits(flow: Flow, args: Sequence[Any], number: int, results: Sequence[Any]) -> None:
    """Raises ValueError if a Program's inputs or outputs have other types than these."""
    program = flow.programs[number]
    given = len(program.outputs) - (len(program.sized) if isinstance(program, Program) else 0)
    theirs = [[program.values[it].dtype for it in part] for part in (program.inputs, program.outputs[:given])]
    if theirs != [list(args), list(results)]:
        raise ValueError(f"{program.name!r} does not fit the part of {flow.name!r} that runs it")


def _check_run(flow: Flow, part: Part) -> None:
    _fits(flow, _types(flow, part.args), part.programs[0], _types(flow, part.results))


def _check_same(flow: Flow, part: Part) -> None:
    if len(part.args) != 1 or _types(flow, part.args) != _types(flow, part.results):
        raise ValueError("a result is not the same as its argument")


def _check_if(flow: Flow, part: Part) -> None:
    if _types(flow, part.args[:1]) != [DType.BOOL]:
        raise ValueError("a condition is not a bool")
    for it in part.programs:
        _fits(flow, _types(flow, part.args[1:]), it, _types(flow, part.results))


def _check_loop(flow: Flow, part: Part) -> None:
    if len(part.args) < 2:
        raise ValueError("a loop lacks arguments")
    if type(part.states) is not int or not 0 <= part.states <= min(len(part.args) - 2, len(part.results)):
        raise ValueError(f"a loop has {cut(part.states)} states")
    decides, captured = [DType.INT64, DType.BOOL], _types(flow, part.args[2:])
    if any(it != UNKNOWN and flow.values[it].dtype is not of for it, of in zip(part.args, decides, strict=False)):
        raise ValueError("a trip count is not an int64, or a condition is not a bool")
    _fits(flow, [*decides, *captured], part.programs[0], [DType.BOOL, *_types(flow, part.results)])


_CHECKS: dict[str, Callable[[Flow, Part], None]] = {
    "run": _check_run,
    "same": _check_same,
    "if": _check_if,
    "loop": _check_loop,
}
