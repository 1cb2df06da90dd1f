"""Fields of settings that say which options they are made of, so that no code between passes an option on.

In: a frozen dataclass whose fields are `set_by` options, and the options of a session. Out: the settings. What an option means
may depend on the adapter: such fields are `set_by_adapter`, and their values are given by code that has it (`plugin/settings.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Made = TypeVar("Made")


def set_by(*options: str, default: Any, value: Callable[..., Any] | None = None) -> Any:
    """A field that provider options set: to the option's value, or to `value` of those of all `options` in their order."""
    return dataclasses.field(default=default, metadata={"options": options, "value": value})


def set_by_adapter(option: str, default: Any) -> Any:
    """A field that an option sets, to what it means for the adapter, an argument of `settings_from`. `default` is what the
    option's default means for every adapter."""
    return dataclasses.field(default=default, metadata={"options": (option,), "value": None, "adapter": True})


def option_names(setting: dataclasses.Field[Any]) -> tuple[str, ...]:
    """The provider options that set a field."""
    return tuple(setting.metadata.get("options", ()))


def settings_from(kind: type[Made], options: Mapping[str, Any], **others: Any) -> Made:
    """The settings that options ask for; `others` are the fields that are `set_by_adapter`."""
    values = dict(others)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        names = option_names(field)
        if field.metadata.get("adapter", False) != (field.name in others):
            raise TypeError(f"{kind.__name__}.{field.name}: what an adapter decides is given, and nothing else")
        if names and field.name not in values:
            given = [options[name] for name in names]
            value = field.metadata["value"]
            values[field.name] = given[0] if value is None else value(*given)
    return kind(**values)
