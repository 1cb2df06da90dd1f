"""Attributes with a few valid strings or numbers: how a parameter declares them, and how a node's string is mapped to them.

A parameter is annotated with the name of a `Literal` in its module, and accepts these strings exactly. `Annotated` adds other
spellings that the CPU provider accepts, as in `AutoPad`. A lowering function gets one of the Literal's strings. A `Flag` is 0
or 1. For other numbers the CPU provider is not consistent: each of its kernels treats them as 0 or as 1, so they are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Annotated, Any, Literal, get_args, get_origin

from ....errors import UnsupportedError, cut
from ....records import dataclass


@dataclass(frozen=True)
class Spelled:
    """Spellings in addition to those of a Literal. `any_case`: case is ignored. `also`: maps other strings to the Literal's."""

    any_case: bool = False
    also: Mapping[str, str] = field(default_factory=dict)


AutoPad = Annotated[Literal["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"], Spelled(also={"": "NOTSET"})]


@dataclass(frozen=True)
class Choices:
    """The valid strings of an attribute."""

    values: tuple[str, ...]
    spelled: Spelled

    def of(self, name: str, text: str) -> str:
        """Returns the valid string for a node's string. Raises UnsupportedError, which names the attribute, for any other."""
        given = self.spelled.also.get(text, text)
        for value in self.values:
            if given == value or (self.spelled.any_case and given.lower() == value.lower()):
                return value
        raise UnsupportedError(f"attribute {name}={cut(text)} is not one of {', '.join(map(repr, self.values))}")


@dataclass(frozen=True)
class Numbers:
    """The valid integers of an attribute."""

    values: tuple[int, ...]

    def of(self, name: str, number: int) -> int:
        """Returns the number. Raises UnsupportedError, which names the attribute, for any other number."""
        if number not in self.values:
            raise UnsupportedError(f"attribute {name}={number} is not one of {', '.join(map(str, self.values))}")
        return number


Flag = Annotated[int, Numbers((0, 1))]


def choices_of(annotation: Any, function: Callable[..., Any]) -> Choices | Numbers | None:
    """Returns the valid values that an annotation declares: the annotation, or the object that its text names in the module
    of `function`. Returns None if any value is valid."""
    if isinstance(annotation, str):
        annotation = getattr(function, "__globals__", {}).get(annotation.removesuffix(" | None"))
    spelled = Spelled()
    if get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        if numbers := next((it for it in more if isinstance(it, Numbers)), None):
            return numbers
        spelled = next((it for it in more if isinstance(it, Spelled)), spelled)
    return Choices(get_args(annotation), spelled) if get_origin(annotation) is Literal else None
