"""Loops of a template that are written out before WGSL sees them.

In: text with lines `#for i COUNT` ... `#end`, COUNT a number or a constant of the kernel, and `#i` inside. Out: the lines COUNT
times, `#i` the number of the repetition: `sum#i_#j` names a variable. For what has to stay in registers: an array that a loop
indexes does only when the compiler unrolls that loop, and it stops to when the body is large.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..ir import Constant

_FOR = re.compile(r"\s*#for (?P<name>[a-z]) (?P<count>\w+)\s*")
_END = re.compile(r"\s*#end\s*")


def unroll(text: str, constants: Mapping[str, Constant]) -> str:
    """The text without `#for`. Raises ValueError for blocks that do not match and KeyError for an unknown count."""
    if "#for" not in text:
        return text
    open_blocks: list[tuple[str, int, list[str]]] = [("", 1, [])]
    for line in text.split("\n"):
        if found := _FOR.fullmatch(line):
            count = int(found["count"]) if found["count"].isdigit() else constants[found["count"]]
            if not isinstance(count, int):
                raise ValueError(f"{line.strip()!r}: {found['count']} is {count!r}, no number of repetitions")
            open_blocks.append((found["name"], count, []))
        elif _END.fullmatch(line):
            if len(open_blocks) == 1:
                raise ValueError("#end without #for")
            name, count, lines = open_blocks.pop()
            body = "\n".join(lines)
            open_blocks[-1][2].extend(body.replace(f"#{name}", str(k)) for k in range(count))
        else:
            open_blocks[-1][2].append(line)
    if len(open_blocks) > 1:
        raise ValueError(f"#for {open_blocks[-1][0]} without #end")
    return "\n".join(open_blocks[0][2])
