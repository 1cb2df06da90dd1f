"""Dims in the text of kernels: constants, or members of a uniform block that all variants of a kernel share."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..dims import Dim

_LARGEST = 0xFFFFFFFF
_MARK = re.compile(r"⟨(\d+)⟩")


def literal(value: int) -> str:
    """Returns the WGSL, of type u32, for a known dim.

    A tensor with more elements than u32 can count only reaches a kernel if it is empty, because another size is 0. Then any
    divisor except 0 is correct. Runs in which it is not empty are rejected earlier.
    """
    return f"{min(value, _LARGEST) & _LARGEST}u"


class UniformBlock:
    """A collection of dims, which are marks in generated text. `numbered` turns the marks left in the final texts into members of
    the uniform block, so unused dims are not in the block.

    A kernel that is `shared` between layers and sizes has one member per occurrence of a dim, so that coincidentally equal sizes
    do not change its text. Otherwise known dims are constants, and equal dims share a member. The beginning of a view is a
    separate member in every kernel. So the parts of Split, or slices that differ in nothing else, share a kernel. Adding a
    uniform costs the same as adding a constant.
    """

    def __init__(self, shared: bool) -> None:
        self.shared = shared
        self._dims: list[Dim] = []
        self._marks: dict[Dim, str] = {}

    def text(self, value: Dim) -> str:
        """Returns the WGSL, of type u32, for an occurrence of a dim."""
        if isinstance(value, int) and (value in (0, 1) or not self.shared):
            return literal(value)
        if not self.shared and value in self._marks:
            return self._marks[value]
        self._marks[value] = self.begin(value)
        return self._marks[value]

    def begin(self, value: Dim) -> str:
        """Returns the WGSL, of type u32, for the beginning of a view, which is never a constant in the text."""
        self._dims.append(value)
        return f"⟨{len(self._dims) - 1}⟩"

    def numbered(self, texts: Sequence[str]) -> tuple[list[str], list[Dim]]:
        """Returns the texts with members `dims.d0`, `dims.d1`... in order of first appearance, and the dims of these members."""
        members: dict[str, int] = {}

        def member(mark: re.Match[str]) -> str:
            return f"dims.d{members.setdefault(mark[1], len(members))}"

        final = [_MARK.sub(member, text) for text in texts]
        return final, [self._dims[int(number)] for number in members]
