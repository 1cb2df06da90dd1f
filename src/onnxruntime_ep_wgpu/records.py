"""Frozen dataclasses that compile their methods on first use. A process defines hundreds of them and uses few.

In: classes with `@dataclass(frozen=True)`. Out: dataclasses with the same methods as the standard library's, which also work
with `fields`, `replace` and `asdict`. The standard library compiles the text of six methods for each class. That is a third of
the import time of a session's modules (Python 3.11). All other kinds of dataclasses come from the standard library.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """Has the signature and the result of `dataclasses.dataclass`."""
        return _frozen if cls is None and options == {"frozen": True} else dataclasses.dataclass(cls, **options)


def _frozen(cls: Any) -> Any:
    own = dict(vars(cls))
    if not cls.__doc__:  # else the standard library would compute the signature for it
        cls.__doc__ = cls.__name__
    # The standard library requires this class to be frozen if a base is frozen, and forbids it otherwise.
    found = [getattr(base, "__dataclass_params__", None) for base in cls.__mro__[1:]]
    below = any(it.frozen for it in found if it)
    dataclasses.dataclass(init=False, repr=False, eq=False, frozen=below)(cls)
    cls.__dataclass_params__.frozen = True
    names = frozenset(it.name for it in dataclasses.fields(cls))

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    @recursive_repr()
    def __repr__(self: Any) -> str:
        shown = (f"{it.name}={getattr(self, it.name)!r}" for it in dataclasses.fields(cls) if it.repr)
        return f"{self.__class__.__qualname__}({', '.join(shown)})"

    cls.__setattr__, cls.__delattr__ = __setattr__, __delattr__
    if "__repr__" not in own:
        cls.__repr__ = __repr__
    for name, text in (("__init__", _init), ("__eq__", _eq), ("__hash__", _hash)):
        # A class that defines __eq__ has __hash__ = None by default.
        if own.get(name) is None:
            setattr(cls, name, _compiled_when_called(cls, name, text))
    if "__init__" not in own:
        cls.__signature__ = _Signature()
    return cls


def _compiled_when_called(cls: Any, name: str, text: Callable[[Any], tuple[str, dict[str, Any]]]) -> Callable[..., Any]:
    """Returns a method that compiles the given text on its first call and replaces itself."""

    def method(*values: Any, **named: Any) -> Any:
        made = _compiled(name, *text(cls))
        setattr(cls, name, made)
        return made(*values, **named)

    return method


def _compiled(name: str, text: str, names: dict[str, Any]) -> Any:
    exec(text, names)
    return names[name]


class _Factory:
    """The default value of a parameter with a default factory, as `inspect.signature` shows it."""

    def __repr__(self) -> str:
        return "<factory>"


_MADE = _Factory()


def _init(cls: Any) -> tuple[str, dict[str, Any]]:
    names: dict[str, Any] = {"_set": object.__setattr__, "_MADE": _MADE}
    plain, by_name, body = ["self"], list[str](), list[str]()
    for it in dataclasses.fields(cls):
        names |= {f"_default_{it.name}": it.default, f"_make_{it.name}": it.default_factory}
        makes = it.default_factory is not dataclasses.MISSING
        default = "=_MADE" if makes else "" if it.default is dataclasses.MISSING else f"=_default_{it.name}"
        if it.init:
            (by_name if it.kw_only else plain).append(it.name + default)
        made = f"_make_{it.name}()"
        value = it.name if not makes else f"{made} if {it.name} is _MADE else {it.name}" if it.init else made
        if it.init or makes:
            body.append(f"_set(self, {it.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*plain, *(["*", *by_name] if by_name else [])])
    return f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), names


def _eq(cls: Any) -> tuple[str, dict[str, Any]]:
    mine, others = (
        _values(owner, [it.name for it in dataclasses.fields(cls) if it.compare]) for owner in ("self", "other")
    )
    same = "other.__class__ is self.__class__"
    return f"def __eq__(self, other):\n return {mine} == {others} if {same} else NotImplemented", {}


def _hash(cls: Any) -> tuple[str, dict[str, Any]]:
    names = [it.name for it in dataclasses.fields(cls) if (it.compare if it.hash is None else it.hash)]
    return f"def __hash__(self):\n return hash({_values('self', names)})", {}


def _values(owner: str, names: list[str]) -> str:
    """Returns the text of a tuple of attributes."""
    return f"({''.join(f'{owner}.{name},' for name in names)})"


class _Signature:
    """A descriptor for `__signature__`, so that `inspect.signature` works before `__init__` is compiled."""

    def __get__(self, _it: object, cls: Any) -> Any:
        from inspect import Parameter, Signature

        def default(it: dataclasses.Field[Any]) -> Any:
            if it.default_factory is not dataclasses.MISSING:
                return _MADE
            return Parameter.empty if it.default is dataclasses.MISSING else it.default

        kinds = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
        fields = sorted((it for it in dataclasses.fields(cls) if it.init), key=lambda it: bool(it.kw_only))
        given = [Parameter(it.name, kinds[bool(it.kw_only)], default=default(it), annotation=it.type) for it in fields]
        return Signature(given, return_annotation=None)
