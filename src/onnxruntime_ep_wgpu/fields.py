"""Fields of settings that say which options they are made of, so that nobody between passes an option on.

In: a frozen dataclass whose fields are `set_by` options, and the options of a session. Out: the settings. Fields of which
options say too little, as what `dawnBackendType` means for an adapter, are given by their owner (`plugin/settings.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Made = TypeVar("Made")


def set_by(*options: str, default: Any, value: Callable[..., Any] | None = None) -> Any:
    """A field that provider options set: to the option's value, or to `value` of those of all `options` in their order."""
    return dataclasses.field(default=default, metadata={"options": options, "value": value})


def options_of(setting: dataclasses.Field[Any]) -> tuple[str, ...]:
    """The provider options that set a field."""
    return tuple(setting.metadata.get("options", ()))


def made_of(kind: type[Made], options: Mapping[str, Any], **others: Any) -> Made:
    """The settings that options ask for; `others` are fields of which their owner knows more than the options say."""
    values = dict(others)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        names = options_of(field)
        if names and field.name not in values:
            given = [options[name] for name in names]
            value = field.metadata["value"]
            values[field.name] = given[0] if value is None else value(*given)
    return kind(**values)
