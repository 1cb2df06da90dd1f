"""Collections of weak references.

In: objects that support weak references. Out: those that are still alive.

Invariants:

- No code runs when an object dies, so Ctrl-C cannot interrupt such code halfway. Python prints and drops an exception that is
  raised in a finaliser or in a callback of a weak reference.
- No method takes a lock, and each changes the collection in one step. All methods may be called from anywhere.
- Iteration first copies the dict by `copy()`, which is one step of the interpreter. `list(d.items())` is not: it allocates
  tuples, which may start the garbage collector, and a finaliser may let another thread change the dict.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

_Object = TypeVar("_Object")
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")

_SMALL = 64


class LiveMap(Generic[_Key, _Object]):
    """A mapping from keys to objects that are referenced weakly. Dead objects are absent."""

    def __init__(self) -> None:
        self._refs: dict[_Key, weakref.ref[_Object]] = {}
        self._prune_at = _SMALL

    def get(self, key: _Key) -> _Object | None:
        ref = self._refs.get(key)
        return None if ref is None else ref()

    def set(self, key: _Key, value: _Object) -> None:
        self._refs[key] = weakref.ref(value)
        if len(self._refs) >= self._prune_at:
            self._prune()

    def _prune(self) -> None:
        """Removes dead references. The interval grows with the size, so the amortised cost of adding is constant."""
        for key, ref in self._refs.copy().items():
            if ref() is None and self._refs.get(key) is ref:
                self._refs.pop(key, None)
        self._prune_at = 2 * len(self._refs) + _SMALL

    def __iter__(self) -> Iterator[_Object]:
        """Iterates over the live objects in insertion order."""
        for ref in self._refs.copy().values():
            value = ref()
            if value is not None:
                yield value

    def __len__(self) -> int:
        return sum(1 for _ in self)


class LiveSet(Generic[_Object]):
    """A set of weakly referenced objects, by identity."""

    def __init__(self) -> None:
        # Keys are numbers and not `id(...)`, because Python reuses the ids of dead objects.
        self._objects: LiveMap[int, _Object] = LiveMap()
        self._numbers = itertools.count()

    def add(self, value: _Object) -> None:
        self._objects.set(next(self._numbers), value)

    def discard(self, value: _Object) -> None:
        for key, ref in self._objects._refs.copy().items():
            if ref() is value:
                self._objects._refs.pop(key, None)

    def __iter__(self) -> Iterator[_Object]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    def __bool__(self) -> bool:
        return any(True for _ in self)


class WeakAttributes(Generic[_Object, _Value]):
    """Values attached to objects that are referenced weakly. Entries of dead objects are removed when others are added."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[_Object], _Value]] = {}
        self._prune_at = _SMALL

    def get(self, about: _Object) -> _Value | None:
        entry = self._entries.get(id(about))
        return entry[1] if entry is not None and entry[0]() is about else None

    def set(self, about: _Object, value: _Value) -> None:
        self._entries[id(about)] = weakref.ref(about), value
        if len(self._entries) >= self._prune_at:
            for key, entry in self._entries.copy().items():
                if entry[0]() is None and self._entries.get(key) is entry:
                    self._entries.pop(key, None)
            self._prune_at = 2 * len(self._entries) + _SMALL
