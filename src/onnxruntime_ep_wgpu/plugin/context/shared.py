"""Shares equal weights of several sessions' groups on a device: `ep.share_ep_contexts`.

In: the Programs of compiled models with weights in files. Out: the buffers of other groups with the same bytes, by the names of
weights. Invariants: weights are equal if they are the same bytes of the same file, in the same order of axes. This module keeps
no group or buffer alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ...program.axes import model_name
from ...program.program import Program
from ...program.weights import Permuted, weight_array, weight_names
from ...runtime.weight_file import FileIdentity
from ...runtime.weight_sources import FilePlace

if TYPE_CHECKING:
    from ...device import Buffer, Device
    from ..group import CompiledGroup

_Bytes = tuple[FileIdentity, int, int, tuple[int, ...] | None]
"""The file, the first byte, the number of bytes; the order of axes if it differs from the file's, otherwise None."""


Shared = Callable[["Device"], Mapping[str, "Buffer"]]
"""Returns weights, by name, that a device already has."""


def nothing_shared(_device: Device) -> Mapping[str, Buffer]:
    return {}


class SharedWeights:
    """The weights of one group that are in files. `in_files`: the places in files, by memory address."""

    def __init__(self, program: Program, in_files: Mapping[int, FilePlace]) -> None:
        self._known: dict[str, _Bytes] = {}
        for name, weight in zip(weight_names(program), program.weights, strict=True):
            permutation = weight.permutation if isinstance(weight, Permuted) else None
            array = weight_array(weight.data if isinstance(weight, Permuted) else weight)
            place = in_files.get(array.__array_interface__["data"][0])
            if name and place is not None and place.identity is not None and place.span.nbytes == array.nbytes:
                self._known[name] = place.identity, place.span.offset, array.nbytes, permutation
        self._group: Callable[[], CompiledGroup | None] = lambda: None

    def set_group(self, group: CompiledGroup) -> None:
        """Sets the group with these weights. From then on, other sessions find them."""
        self._group = weakref.ref(group)

    def on(self, device: Device) -> dict[_Bytes, Buffer]:
        """Returns the buffers of the group's weights on a device."""
        group = self._group()
        executable = None if group is None else group.executable_on(device)
        if executable is None:
            return {}
        there = executable.weights_of({model_name(name)[0] for name in self._known})
        return {self._known[name]: it for name, it in there.items() if name in self._known}

    def found_in_others(self, others: Callable[[], Iterable[SharedWeights]]) -> Shared:
        """Returns a function that finds these weights among those of other groups on a device."""

        def found(device: Device) -> dict[str, Buffer]:
            there = {of: buffer for it in others() if it is not self for of, buffer in it.on(device).items()}
            return {name: there[of] for name, of in self._known.items() if of in there}

        return found
