"""Slots of intermediate memory, from liveness.

In: a Program, the bytes of its values, and which of its dispatches run. Out: the bytes of each slot, and the slot of every TEMP
value that one of these dispatches uses. Invariant: two values that are live at the same time never share a slot. Values that no
running dispatch uses take no memory, such as the parts of an attention that is not split.
"""

from __future__ import annotations

from collections.abc import Sequence

from .program import Program, Storage


def slots_of(program: Program, nbytes: Sequence[int], running: Sequence[int]) -> tuple[tuple[int, ...], dict[int, int]]:
    """Returns the slots. A slot is free after the last dispatch that uses its value.

    `running` has the numbers of the dispatches that run, in order.
    """
    last = {arg: k for k in running for arg in program.dispatches[k].args}
    slots: list[int] = []
    free: list[int] = []
    slot_of: dict[int, int] = {}
    for k in running:
        args = dict.fromkeys(arg for arg in program.dispatches[k].args if program.values[arg].storage is Storage.TEMP)
        for arg in args:
            if arg not in slot_of:
                slot_of[arg] = _best_slot(slots, free, nbytes[arg])
        free += [slot_of[arg] for arg in args if last[arg] == k]
    return tuple(slots), slot_of


def _best_slot(slots: list[int], free: list[int], nbytes: int) -> int:
    """Returns the free slot that wastes least. If none is large enough, grows the largest; if none is free, adds one."""
    if not free:
        slots.append(nbytes)
        return len(slots) - 1
    fitting = [s for s in free if slots[s] >= nbytes]
    slot = min(fitting, key=lambda s: slots[s]) if fitting else max(free, key=lambda s: slots[s])
    free.remove(slot)
    slots[slot] = max(slots[slot], nbytes)
    return slot
