"""The table of operators: the declaration of each, and the lookup for a node.

Defaults of attributes and the history of versions come from `onnx.defs`. A declaration applies to all versions from `since`
on, until another one with a larger `since` replaces it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from typing import Any, Unpack, get_args, get_origin, get_type_hints

from onnx import helper

from ....errors import ModelError, UnsupportedError, cut
from ....program.dtypes import DType
from ....records import dataclass
from ...graph.schemas import schema_of
from .choices import Choices, Numbers, choices_of

MICROSOFT = "com.microsoft"
OLDEST_OPSET = 7
"""The oldest supported opset. ONNX Runtime's CPU provider has no kernel for an operator that changed before it, except
Reshape. Nor has this package."""
FLOATS = frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16})
DOUBLES = frozenset({DType.FLOAT64})
REALS = FLOATS | DOUBLES
INTEGERS = frozenset(t for t in DType if t.is_integer)
NUMBERS = REALS | INTEGERS
SINGLES = FLOATS | INTEGERS
"""Numbers without f64, for operators that calculate in f32."""
BOOLS = frozenset({DType.BOOL})
MINIFLOATS = frozenset(t for t in DType if t.is_float and t.bits <= 8)
ANY = NUMBERS | BOOLS | MINIFLOATS


KnownShape = tuple[int | None, ...]
"""A shape as far as it is known before a run."""
Ranks = int | tuple[int, ...] | range
"""The rank of an operand, a choice of ranks, or a minimum (`at_least`)."""


def at_least(rank: int) -> range:
    return range(rank, 1 << 16)


@dataclass(frozen=True)
class Operator:
    """A declared operator. `types` maps an operand's parameter name to its types on the device."""

    name: str
    domain: str
    since: int
    types: Mapping[str, frozenset[DType]]
    lower: Callable[..., Any]
    operands: tuple[str, ...]
    variadic: str | None
    attributes: frozenset[str]
    any_attributes: bool = False
    # Attribute values that no node may change and that onnx does not declare: a schema of onnxruntime writes them into nodes.
    fixed: Mapping[str, Any] = field(default_factory=dict)
    needed: frozenset[str] = frozenset()  # required operands and attributes
    kinds: Mapping[str, str] = field(default_factory=dict)  # of attributes: a key of _KINDS
    choices: Mapping[str, Choices | Numbers] = field(
        default_factory=dict
    )  # of attributes with a few valid strings or numbers
    elementwise: bool = False  # each element of the result depends on those at its position; operands broadcast
    chooses_format: tuple[str, ...] = ()  # image operands, if the operator chooses the result's memory format
    keeps_format: bool = False  # the result has the memory format of its images
    any_format: bool = False  # reads images in any memory format equally well
    converts: bool = False  # converts the elements of its operand to another type
    sized: str = ""  # what the data decides, if sizes of results depend on data
    rows: tuple[str, ...] = ()  # operands that are processed row by row, along the last axis, to rows of the results
    ranks: Mapping[str, Ranks] = field(default_factory=dict)  # of operands, where ONNX does not refuse other ranks
    structures: frozenset[str] = frozenset()  # operands that may be sequences or optional values, by annotation
    positional: int = 0  # operands that are always passed, None for an omitted one


_KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "list[int]": (int,),
    "list[float]": (int, float),
    "list[str]": (str,),
}
"""Kinds of attributes, as lowering functions annotate them, with the types of their values or elements."""
_INJECTED = frozenset({"op_type", "outputs", "wanted", "result_shapes", "with_channels_last"})
"""Keyword arguments that are facts about the node, not attributes:

* its type,
* the number of its outputs,
* which outputs have a name,
* their shapes, as far as these are known before a run,
* whether its result is stored channels-last (`channels.py`).
"""
_STRUCTURES = re.compile(r"\b(SequenceValue|OptionalValue|Structure)\b")
_OPERATORS: dict[tuple[str, str], list[Operator]] = {}


def op(
    *names: str,
    since: int = 1,
    domain: str = "",
    types: frozenset[DType] = ANY,
    elementwise: bool = False,
    chooses_format: tuple[str, ...] = (),
    keeps_format: bool = False,
    any_format: bool = False,
    converts: bool = False,
    sized: str = "",
    rows: tuple[str, ...] = (),
    fixed: Mapping[str, Any] | None = None,
    ranks: Mapping[str, Ranks] | None = None,
    **by_operand: frozenset[DType],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declares `lower(builder, *operands, *, attributes...)` for operators; `op_type` is passed if the function has this
    parameter.

    Other declarations of an operator are fields of its `Operator`. Code that uses them has no list of operators of its own.
    """

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        parameters = list(inspect.signature(function).parameters.values())[1:]
        positional = tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
        variadic = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
        allowed = {n: by_operand.get(n, types) for n in (*positional, *((variadic,) if variadic else ()))}
        structures = frozenset(p.name for p in parameters if _STRUCTURES.search(str(p.annotation)))
        for name in structures:  # some of these may be tensors too
            if not re.search(r"\bOperand\b", str(next(p.annotation for p in parameters if p.name == name))):
                allowed[name] = frozenset()
        annotations = {p.name: p.annotation for p in parameters if p.kind is p.KEYWORD_ONLY}
        anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
        needed = frozenset(p.name for p in parameters if _is_required(p))
        for shared in _shared_attributes(function) if anything else ():
            anything, annotations = False, annotations | get_type_hints(shared, include_extras=True)
            needed |= shared.__required_keys__
        attributes = frozenset(annotations)
        always = sum(p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty for p in parameters)
        assert (ranks or {}).keys() <= allowed.keys(), f"{names}: ranks of names that are not operands"
        choices = {name: found for name, it in annotations.items() if (found := choices_of(it, function))}
        kinds = {name: kind for name, it in annotations.items() if (kind := _kind(it)) in _KINDS}
        kinds |= {name: "str" if isinstance(it, Choices) else "int" for name, it in choices.items()}
        for name in names:
            entry = Operator(
                name,
                domain,
                since,
                types=allowed,
                lower=function,
                operands=positional,
                variadic=variadic,
                attributes=attributes,
                any_attributes=anything,
                fixed=fixed or {},
                needed=needed,
                kinds=kinds,
                choices=choices,
                elementwise=elementwise,
                chooses_format=chooses_format,
                keeps_format=keeps_format or elementwise,
                any_format=any_format,
                converts=converts,
                sized=sized,
                rows=rows,
                ranks=ranks or {},
                structures=structures,
                positional=always,
            )
            versions = _OPERATORS.setdefault((domain, name), [])
            versions.append(entry)
            versions.sort(key=lambda o: -o.since)
        return function

    return add


def _is_required(parameter: inspect.Parameter) -> bool:
    """Whether a node must have it: an operand or attribute without a default, and not annotated `| None`."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or parameter.name in _INJECTED:
        return False
    return parameter.default is parameter.empty and not str(parameter.annotation).endswith("| None")


def _kind(annotation: Any) -> str:
    """The kind of an attribute, from a parameter's annotation as text: modules of operators do not evaluate their annotations."""
    if annotation in (int, float, str):
        return str(annotation.__name__)
    return str(annotation).removesuffix(" | None").replace("Sequence[", "list[")


def _shared_attributes(function: Callable[..., Any]) -> list[Any]:
    """Returns the TypedDict in `**attributes: Unpack[...]`, which declares attributes shared by operators; an empty list
    without it. Its required keys are required attributes."""
    keywords = [p for p in inspect.signature(function, eval_str=True).parameters.values() if p.kind is p.VAR_KEYWORD]
    return [get_args(it.annotation)[0] for it in keywords if get_origin(it.annotation) is Unpack]


@cache
def _defaults(op_type: str, domain: str, opset: int) -> dict[str, Any]:
    schema = schema_of(op_type, domain, opset)
    if schema is None:
        return {}
    values = {
        k: helper.get_attribute_value(a.default_value) for k, a in schema.attributes.items() if a.default_value.type
    }
    return {k: _decoded(v) for k, v in values.items()}


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(v) for v in value]
    return value.decode() if isinstance(value, bytes) else value


def find(op_type: str, domain: str, opset: int) -> Operator | None:
    """Returns the declaration for an operator of a model that imports `opset`, or None."""
    schema = schema_of(op_type, domain, opset)
    version = schema.since_version if schema is not None else opset
    for entry in _OPERATORS.get((domain, op_type), ()):
        if version >= entry.since:
            return entry
    return None


@cache
def declared(op_type: str, domain: str) -> Operator | None:
    """Returns what all declarations of an operator have in common, for uses without a version."""
    known = _OPERATORS.get(("" if domain == "ai.onnx" else domain, op_type))
    if not known:
        return None
    first, *rest = known
    return replace(
        first,
        elementwise=all(it.elementwise for it in known),
        keeps_format=all(it.keeps_format for it in known),
        any_format=all(it.any_format for it in known),
        chooses_format=first.chooses_format if all(it.chooses_format == first.chooses_format for it in rest) else (),
        rows=first.rows if all(it.rows == first.rows for it in rest) else (),
    )


def sized_by_data() -> list[str]:
    """ONNX's operators with result sizes that may depend on data."""
    return sorted(name for (domain, name), known in _OPERATORS.items() if not domain and any(it.sized for it in known))


def check_version(op_type: str, domain: str, opset: int) -> None:
    """Raises for an operator as it was before OLDEST_OPSET, which no provider implements: ModelError in the CPU provider's
    words, UnsupportedError for Reshape, which the CPU provider has."""
    if domain or opset >= OLDEST_OPSET:
        return
    old, new = (schema_of(op_type, domain, version) for version in (opset, OLDEST_OPSET))
    if old is None or new is None or old.since_version == new.since_version:
        return
    what = f"{op_type}({old.since_version})"
    if (op_type, old.since_version) == ("Reshape", 1):
        raise UnsupportedError(f"{what} of opset {opset} has another meaning than in opset {OLDEST_OPSET}")
    raise ModelError(
        f"Could not find an implementation for {what}: the model has opset {opset}, and ONNX Runtime begins with"
        f" {OLDEST_OPSET}. Convert it, with onnx.version_converter.convert_version(model, {OLDEST_OPSET}) or a later opset"
    )


def arguments(
    entry: Operator,
    opset: int,
    attributes: Mapping[str, Any],
    outputs: Sequence[bool],
    with_channels_last: bool = False,
    shapes: Sequence[KnownShape | None] = (),
) -> dict[str, Any]:
    """Returns the keyword arguments of a lowering function. `outputs`: whether each output of the node has a name. `shapes`:
    the known shape of each.

    Raises UnsupportedError for an attribute that the function does not support, that is missing, that has another kind, or
    that has an invalid string.
    """
    defaults = {**_defaults(entry.name, entry.domain, opset), **entry.fixed}
    out = {k: v for k, v in defaults.items() if k in entry.attributes}
    for name, value in attributes.items():
        if name in entry.attributes or entry.any_attributes:
            out[name] = value
        elif name not in defaults or defaults[name] != value:
            raise UnsupportedError(f"attribute {name}={cut(value)} is not supported")
    for name in sorted(entry.needed & entry.attributes - out.keys()):
        raise UnsupportedError(f"attribute {name} is missing")
    for name, value in out.items():
        if not _has_kind(entry.kinds.get(name), value):
            raise UnsupportedError(f"attribute {name}={cut(value)} is not of type {entry.kinds[name]}")
    out |= {name: it.of(name, out[name]) for name, it in entry.choices.items() if name in out}
    about: dict[str, Any] = {"op_type": entry.name, "outputs": len(outputs), "wanted": list(outputs)}
    about |= {"with_channels_last": with_channels_last, "result_shapes": shapes}
    return out | {name: value for name, value in about.items() if name in entry.attributes}


def _has_kind(kind: str | None, value: Any) -> bool:
    if kind is None:
        return True
    values = value if kind.startswith("list") else [value]
    return isinstance(values, list) and all(issubclass(it, _KINDS[kind]) for it in set(map(type, values)))


def check_operands(entry: Operator, operands: Sequence[tuple[DType | None, int] | None]) -> None:
    """Raises UnsupportedError if an operand is missing, or has a type or a rank that the declaration does not list.

    `operands` are type and rank of each; the type is None for a value that is no tensor. An omitted operand is None, and
    `operands` may end before omitted ones.
    """
    for name in entry.operands[len(operands) :]:
        if name in entry.needed:
            raise UnsupportedError(f"input {name} is missing")
    for k, it in enumerate(operands):
        if k < len(entry.operands):
            name = entry.operands[k]
        elif entry.variadic:
            name = entry.variadic
        else:
            raise UnsupportedError(f"input {k} is not supported")
        if it is None and (name in entry.needed or name == entry.variadic):
            raise UnsupportedError(f"input {name} is missing")
        dtype = None if it is None else it[0]
        if it is not None and dtype is None and name not in entry.structures:
            raise UnsupportedError(f"input {name} is a sequence or an optional value")
        if dtype is not None and dtype not in entry.types[name]:
            raise UnsupportedError(f"no kernel for input {name} of type {dtype.label}")
    for given, name in zip(operands, entry.operands, strict=False):
        if given is not None and name in entry.ranks and not _has_rank(entry.ranks[name], given[1]):
            raise UnsupportedError(f"input {name} has rank {given[1]}, and {_ranks_text(entry.ranks[name])} is needed")


def _has_rank(ranks: Ranks, rank: int) -> bool:
    return rank == ranks if isinstance(ranks, int) else rank in ranks


def _ranks_text(ranks: Ranks) -> str:
    if isinstance(ranks, range):
        return f"{ranks.start} or more"
    return str(ranks) if isinstance(ranks, int) else " or ".join(map(str, ranks))
