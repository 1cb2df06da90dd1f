"""Frozen dataclasses whose methods are compiled late are those of the standard library to everybody who looks."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import pytest

from onnxruntime_ep_wgpu import records

DECORATORS: list[Callable[..., Any]] = [dataclasses.dataclass, records.dataclass]


def made(dataclass: Callable[..., Any]) -> tuple[Any, Any]:
    """A class with fields of all kinds, and one that adds to it."""

    @dataclass(frozen=True)
    class Point:
        """A place."""

        x: float
        y: float = 2.0
        tags: list[str] = dataclasses.field(default_factory=list, compare=False)
        secret: int = dataclasses.field(default=0, repr=False, hash=False)
        kind: ClassVar[str] = "point"

        def __post_init__(self) -> None:
            if self.x < -100:
                raise ValueError(f"x {self.x}")

        @cached_property
        def length(self) -> float:
            return abs(self.x) + abs(self.y)

    @dataclass(frozen=True)
    class Named(Point):
        """A place with a name."""

        name: str = dataclasses.field(default="a", kw_only=True)

    return Point, Named


@pytest.mark.parametrize("which", [0, 1], ids=["base", "derived"])
def test_they_do_what_those_of_the_standard_library_do(which: int) -> None:
    def seen(cls: Any) -> list[Any]:
        one, other, third = cls(1.0), cls(1.0, 2.0, ["t"]), cls(x=1.0, y=3.0, secret=4)
        found: list[Any] = [str(inspect.signature(cls)), cls.__match_args__, cls.__doc__]
        found += [repr(one), repr(third), one == other, one == third, one != third, hash(one) == hash(other)]
        found += [hash(one), hash(third), one.length, one.tags is not cls(1.0).tags, one == 1, len({one, other, third})]
        found += [dataclasses.asdict(third), [it.name for it in dataclasses.fields(cls)], dataclasses.is_dataclass(one)]
        found += [
            repr(dataclasses.replace(one, y=9.0)),
            copy.deepcopy(third) == third,
            cls(float("nan")) == cls(float("nan")),
        ]
        for act in (
            lambda: setattr(one, "x", 2.0),
            lambda: setattr(one, "new", 2.0),
            lambda: delattr(one, "x"),
            lambda: cls(),
            lambda: cls(1.0, z=3),
            lambda: cls(-101.0),
        ):
            with pytest.raises((dataclasses.FrozenInstanceError, TypeError, ValueError)) as raised:
                act()
            found.append((raised.type, str(raised.value).replace("made.<locals>.", "").rpartition(".")[2]))
        return found

    stock, ours = ([*map(seen, made(it))][which] for it in DECORATORS)
    assert ours == stock


def test_a_method_of_the_class_stays() -> None:
    @records.dataclass(frozen=True)
    class Own:
        """It says itself what it is."""

        x: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "own"

    assert Own(1) == Own(2) and hash(Own(1)) == 7 and repr(Own(1)) == "own"


def test_nothing_is_compiled_with_a_class() -> None:
    """Methods that are called are compiled once."""

    class _Unused(Exception):
        """Is raised by who compiles."""

    def compiled(*_of: Any) -> Any:
        raise _Unused

    found, records._compiled = records._compiled, compiled
    try:
        point, _ = made(records.dataclass)
        with pytest.raises(_Unused):
            point(1.0)
    finally:
        records._compiled = found
    assert point(1.0) == point(1.0)
    records._compiled = compiled
    try:
        assert point(1.0) == point(1.0)
    finally:
        records._compiled = found


def test_other_kinds_are_those_of_the_standard_library() -> None:
    @records.dataclass
    class Plain:
        """It changes."""

        x: int = 1

    it = Plain()
    it.x = 5
    assert it == Plain(5) and not vars(Plain)["__dataclass_params__"].frozen


@pytest.mark.parametrize("decorators", [DECORATORS, DECORATORS[::-1]])
def test_each_may_be_the_base_of_the_other(decorators: list[Callable[..., Any]]) -> None:
    base = made(decorators[0])[0]

    @decorators[1](frozen=True)
    class Derived(base):  # type: ignore[misc]
        """A place with a weight."""

        weight: float = 0.5

    derived = Derived(1.0, weight=2.0)
    assert derived == Derived(1.0, weight=2.0) != Derived(1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        derived.x = 3.0


Kept = made(records.dataclass)[0]
Kept.__qualname__ = "Kept"


def test_they_are_pickled() -> None:
    assert pickle.loads(pickle.dumps(Kept(3.0, tags=["a"]))) == Kept(3.0)
