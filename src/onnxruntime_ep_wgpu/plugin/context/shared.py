"""Weights that groups of several sessions have in common, once on a device: `ep.share_ep_contexts`.

In: the Programs of compiled models with weights in files. Out: the buffers that another group has of the same bytes, by the names
of weights. Invariants: weights are the same where they are the same bytes of the same file, in the same order of axes; nothing here
keeps a group or a buffer.
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
"""Which file, from which byte on, how many; the order of axes where it is another one."""


Shared = Callable[["Device"], Mapping[str, "Buffer"]]
"""Gives weights by name that a device has already."""


def nothing_shared(_device: Device) -> Mapping[str, Buffer]:
    return {}


class SharedWeights:
    """The weights of one group that lie in files; `in_files` says of memory, by its address, where."""

    def __init__(self, program: Program, in_files: Mapping[int, FilePlace]) -> None:
        self._known: dict[str, _Bytes] = {}
        for name, weight in zip(weight_names(program), program.weights, strict=True):
            permutation = weight.permutation if isinstance(weight, Permuted) else None
            array = weight_array(weight.data if isinstance(weight, Permuted) else weight)
            place = in_files.get(array.__array_interface__["data"][0])
            if name and place is not None and place.identity is not None and place.span.nbytes == array.nbytes:
                self._known[name] = place.identity, place.span.offset, array.nbytes, permutation
        self._group: Callable[[], CompiledGroup | None] = lambda: None

    def are_of(self, group: CompiledGroup) -> None:
        """From here on others find them."""
        self._group = weakref.ref(group)

    def on(self, device: Device) -> dict[_Bytes, Buffer]:
        """What the group has on a device."""
        group = self._group()
        executable = None if group is None else group.executable_on(device)
        if executable is None:
            return {}
        there = executable.weights_of({model_name(name)[0] for name in self._known})
        return {self._known[name]: it for name, it in there.items() if name in self._known}

    def of_others(self, others: Callable[[], Iterable[SharedWeights]]) -> Shared:
        """Gives those of these weights that others have."""

        def found(device: Device) -> dict[str, Buffer]:
            there = {of: buffer for it in others() if it is not self for of, buffer in it.on(device).items()}
            return {name: there[of] for name, of in self._known.items() if of in there}

        return found
