"""The table of what is written here: `RULES`, by operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]
RULES: dict[str, Function] = {}


def rule(*names: str) -> Callable[[Function], Function]:
    """Declares `function(*arrays, **attributes)`; attributes that it does not name are passed in `a`."""

    def add(function: Function) -> Function:
        for name in names:
            RULES[name] = function
        return function

    return add
