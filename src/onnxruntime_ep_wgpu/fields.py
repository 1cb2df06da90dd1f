"""Dataclass fields that declare which provider options set them, so that no code in between has to pass options on.

In: a frozen dataclass with `set_by` fields, and the options of a session. Out: the settings. The meaning of some options depends
on the adapter. Their fields are `set_by_adapter`, and code that has the adapter passes the values (`plugin/settings.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Made = TypeVar("Made")


def set_by(*options: str, default: Any, value: Callable[..., Any] | None = None) -> Any:
    """Returns a field set by provider options: to the option's value, or to `value(*values)` of all `options` in order."""
    return dataclasses.field(default=default, metadata={"options": options, "value": value})


def set_by_adapter(option: str, default: Any) -> Any:
    """Returns a field for an option with an adapter-specific meaning. The caller passes its value to `settings_from`.

    `default` is the meaning of the option's default, which is the same for every adapter."""
    return dataclasses.field(default=default, metadata={"options": (option,), "value": None, "adapter": True})


def option_names(setting: dataclasses.Field[Any]) -> tuple[str, ...]:
    """Returns the names of the provider options that set a field."""
    return tuple(setting.metadata.get("options", ()))


def settings_from(kind: type[Made], options: Mapping[str, Any], **others: Any) -> Made:
    """Returns the settings for the options. `others` are the values of exactly the fields that are `set_by_adapter`."""
    values = dict(others)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        names = option_names(field)
        if field.metadata.get("adapter", False) != (field.name in others):
            raise TypeError(f"{kind.__name__}.{field.name}: pass exactly the fields that are set_by_adapter")
        if names and field.name not in values:
            given = [options[name] for name in names]
            value = field.metadata["value"]
            values[field.name] = given[0] if value is None else value(*given)
    return kind(**values)
