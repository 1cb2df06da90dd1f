"""Dims in the text of kernels: constants, or members of a uniform block that all variants of a kernel share."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..dims import Dim

_LARGEST = 0xFFFFFFFF
_MARK = re.compile(r"⟨(\d+)⟩")


def literal(value: int) -> str:
    """WGSL of type u32 for a known dim. What has more elements than u32 counts is empty where it is in a kernel at all, because
    another of its sizes is 0: then any divisor does but 0. Runs in which it is not empty are refused before."""
    return f"{min(value, _LARGEST) & _LARGEST}u"


class UniformBlock:
    """Dims stand in generated text as marks. `numbered` makes members of the uniform block of those that are left in the
    final texts, so a dim that nothing uses is not in the block.

    A kernel that is `shared` between layers and sizes has a member for every place in which a dim stands, so that which
    sizes happen to be equal does not change its text. Otherwise known dims are constants and equal ones are one. Where a view
    begins is a member of its own in every kernel: the parts that Split makes, or slices that differ in nothing else, are one
    kernel, and an addition of a uniform costs what that of a constant does.
    """

    def __init__(self, shared: bool) -> None:
        self.shared = shared
        self._dims: list[Dim] = []
        self._marks: dict[Dim, str] = {}

    def text(self, value: Dim) -> str:
        """WGSL of type u32 for a dim at one place."""
        if isinstance(value, int) and (value in (0, 1) or not self.shared):
            return literal(value)
        if not self.shared and value in self._marks:
            return self._marks[value]
        self._marks[value] = self.begin(value)
        return self._marks[value]

    def begin(self, value: Dim) -> str:
        """WGSL of type u32 for a dim that is in no text: where a view begins."""
        self._dims.append(value)
        return f"⟨{len(self._dims) - 1}⟩"

    def numbered(self, texts: Sequence[str]) -> tuple[list[str], list[Dim]]:
        """The texts with members `dims.d0`, `dims.d1`... in order of first appearance, and the dims that they are."""
        members: dict[str, int] = {}

        def member(mark: re.Match[str]) -> str:
            return f"dims.d{members.setdefault(mark[1], len(members))}"

        final = [_MARK.sub(member, text) for text in texts]
        return final, [self._dims[int(number)] for number in members]
