"""Attributes that are one of a few texts or numbers: how a parameter declares them, and what a node's text stands for.

A parameter is annotated with the name of a `Literal` in its module, and takes these texts as they are written. `Annotated` adds
other spellings that the CPU provider takes, as in `AutoPad`. A lowering function gets one of the Literal's texts. A `Flag` is a
number: of others than 0 and 1, kernels of the CPU provider make the one or the other, each as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Annotated, Any, Literal, get_args, get_origin

from ....errors import UnsupportedError, cut
from ....records import dataclass


@dataclass(frozen=True)
class Spelled:
    """Spellings beside those of a Literal: in `any_case`, and `also`, the text that another one stands for."""

    any_case: bool = False
    also: Mapping[str, str] = field(default_factory=dict)


AutoPad = Annotated[Literal["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"], Spelled(also={"": "NOTSET"})]


@dataclass(frozen=True)
class Choices:
    """The texts that an attribute may have."""

    values: tuple[str, ...]
    spelled: Spelled

    def of(self, name: str, text: str) -> str:
        """Which of the values a node's text is. Raises UnsupportedError, which names the attribute, for any other text."""
        given = self.spelled.also.get(text, text)
        for value in self.values:
            if given == value or (self.spelled.any_case and given.lower() == value.lower()):
                return value
        raise UnsupportedError(f"attribute {name}={cut(text)} is none of {', '.join(map(repr, self.values))}")


@dataclass(frozen=True)
class Numbers:
    """The whole numbers that an attribute may have."""

    values: tuple[int, ...]

    def of(self, name: str, number: int) -> int:
        """The number. Raises UnsupportedError, which names the attribute, for any other."""
        if number not in self.values:
            raise UnsupportedError(f"attribute {name}={number} is none of {', '.join(map(str, self.values))}")
        return number


Flag = Annotated[int, Numbers((0, 1))]


def choices_of(annotation: Any, function: Callable[..., Any]) -> Choices | Numbers | None:
    """What an annotation says, itself or its text in the module of `function`; None for one that allows any value."""
    if isinstance(annotation, str):
        annotation = getattr(function, "__globals__", {}).get(annotation.removesuffix(" | None"))
    spelled = Spelled()
    if get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        if numbers := next((it for it in more if isinstance(it, Numbers)), None):
            return numbers
        spelled = next((it for it in more if isinstance(it, Spelled)), spelled)
    return Choices(get_args(annotation), spelled) if get_origin(annotation) is Literal else None
