"""The checks when a plan is made and when callers' buffers are bound, before anything runs.

In: the tensors of a plan, the buffers of a dispatch. Out: nothing, or LimitError or InputError that names the tensor.
Invariant: nothing is modified. So omitting `sizes` and `aliasing` (validationMode disabled or wgpuOnly) changes no result.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..device import BufferBinding, Device
from ..errors import InputError, LimitError
from ..program.layout import Layout
from ..program.program import Program
from .planned import PlannedDispatch


def limits(device: Device, program: Program, layout: Layout) -> None:
    """Checks that every tensor that a dispatch of the layout binds whole fits a binding. Raises LimitError."""
    limit = program.target.max_binding_bytes
    if max(layout.nbytes, default=0) <= limit:
        return
    bound: set[int] = set()
    for step in layout.steps:
        args = program.dispatches[step.dispatch].args
        ranges = step.ranges or (None,) * len(args)
        bound.update(arg for arg, byte_range in zip(args, ranges, strict=True) if byte_range is None)
    for number in sorted(bound):
        value, shape, size = program.values[number], layout.shapes[number], layout.nbytes[number]
        if size > limit:
            raise LimitError(
                f"the tensor {value.name or 'of an intermediate result'} of shape {list(shape)} takes {size} bytes and"
                f" {device.adapter.name} binds at most {limit} (max-storage-buffer-binding-size, or the option"
                " maxStorageBufferBindingSize where it is lower): use a smaller input",
                program.sizes(layout.symbols),
            )


def bindings(
    planned: PlannedDispatch, program: Program, entries: Sequence[BufferBinding], nbytes: Sequence[int]
) -> None:
    """Checks the buffers of a dispatch: each holds its tensor (`nbytes`), and none is written and used otherwise.

    Raises InputError.
    """
    # A fast path: different buffers cannot overlap, and names are only needed for messages.
    large_enough = all(wanted <= it.buffer.size - it.offset for it, wanted in zip(entries, nbytes, strict=True))
    if large_enough and len({id(it.buffer) for it in entries}) == len(entries):
        return
    names = [program.values[arg].name or "an intermediate result" for arg in planned.args]
    sizes(names, entries, nbytes)
    aliasing(planned.label, names, entries, [kind == "read_write" for kind in planned.pipeline.bindings])


def sizes(names: Sequence[str], entries: Sequence[BufferBinding], nbytes: Sequence[int]) -> None:
    """Checks that every buffer holds its tensor, `nbytes` per entry. Raises InputError."""
    for name, (buffer, offset, _), wanted in zip(names, entries, nbytes, strict=True):
        if wanted > buffer.size - offset:
            raise InputError(
                f"the tensor {name!r} takes {wanted} bytes, its buffer has {max(0, buffer.size - offset)} from offset"
                f" {offset} on: pass a larger buffer"
            )


def aliasing(label: str, names: Sequence[str], entries: Sequence[BufferBinding], written: Sequence[bool]) -> None:
    """Checks that no tensor that a dispatch writes shares bytes with another of its tensors, or a buffer with one that it reads.

    WebGPU forbids both. wgpu reports the second only when the work is encoded, and the first never. Raises InputError.
    """
    for place, (buffer, offset, size) in enumerate(entries):
        if not written[place]:
            continue
        for other, (beside, start, length) in enumerate(entries):
            overlap = offset < start + length and start < offset + size
            if other != place and beside is buffer and (overlap or not written[other]):
                raise InputError(
                    f"the kernel {label!r} writes {names[place]!r} and uses {names[other]!r}, which"
                    f" {'overlap' if overlap else 'are in one buffer'}: give them separate buffers"
                )
