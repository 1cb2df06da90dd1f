"""The copies of iterations as dispatches.

WebGPU has no copy within a pass, and GPUs take longer to change passes than to dispatch.

In: the work of two alternating iterations, as in `rounds.py`. Out: the same without copies, or None if they cannot be dispatches.
A dispatch reads the number of its iteration from one of two words, one for the even and one for the odd iterations. The last
dispatch of an iteration writes the next number into the other word.

Invariant: a dispatch reads nothing that it writes, and binds no buffer for both reading and writing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from .buffers import Buffer, BufferBinding
from .encoding import Dispatch, Recording
from .rounds import Round, SteppedCopy

if TYPE_CHECKING:
    from .device import Device

LEAST = 16  # iterations: for fewer, compiling the kernels costs more than they save
MOST_BYTES = 4 << 20  # of a copy: the library's own copies are as fast if they take longer than a change of passes
MOST_TOGETHER = 3  # copies per dispatch: each binds two buffers, and the numbers are one of the eight
_WORKGROUP = 64


class SteppedCopies:
    """Makes the dispatches for the copies of `count` iterations on a device.

    `numbers` has two words for the number of an iteration, which are set to 0 here.
    """

    def __init__(self, device: Device, numbers: Buffer, count: int) -> None:
        self._device, self._numbers, self._count = device, numbers, count
        self._uniforms: list[Buffer] = []
        device.memory.upload(numbers, 0, array("I", [0, 0]))

    def rounds(self, two: Sequence[Round]) -> list[Round] | None:
        """Returns iterations with dispatches in place of copies, or None."""
        if not all(self._fits(copy) for it in two for copy in (*it.before, *it.after)):
            return None
        made = []
        for kind, it in enumerate(two):
            before = [self._dispatch(kind, group, False) for group in _together(it.before)]
            *others, last = _together(it.after) or [[]]
            after = [*(self._dispatch(kind, group, False) for group in others), self._dispatch(kind, last, True)]
            made.append(Round(Recording([*before, *it.recording, *after]), (), ()))
        return made

    def give(self) -> None:
        """Returns the uniform buffers to the cache. Call it after the dispatches were submitted."""
        for buffer in self._uniforms:
            self._device.caches.uniform.give(buffer)
        self._uniforms = []

    def _fits(self, copy: SteppedCopy) -> bool:
        if copy.source is copy.destination or copy.nbytes > MOST_BYTES:
            return False
        source, _ = self._bound(copy.source, copy.start, copy.step, copy.nbytes)
        target, _ = self._bound(copy.destination, copy.place, copy.place_step, copy.nbytes)
        return max(source.size, target.size) <= self._device.target.max_binding_bytes

    def _dispatch(self, kind: int, copies: Sequence[SteppedCopy], counts: bool) -> Dispatch:
        device = self._device
        kernel, bindings = _kernel(len(copies))
        pipeline = device.pipeline(kernel, bindings, f"{len(copies)} copies of an iteration")
        entries = [BufferBinding(self._numbers, 0, 8)]
        words = array("I", [kind, counts, 0, 0])
        for it in copies:
            source, start = self._bound(it.source, it.start, it.step, it.nbytes)
            target, place = self._bound(it.destination, it.place, it.place_step, it.nbytes)
            entries += [source, target]
            words.extend((_words(it.nbytes), start, it.step // 4, place, it.place_step // 4, 0, 0, 0))
        uniform = device.memory.uniform(words.tobytes())
        self._uniforms.append(uniform)
        group = device.bind_group(pipeline, [*entries, BufferBinding(uniform, 0, 4 * len(words))])
        most = max((_words(it.nbytes) for it in copies), default=1)
        return pipeline, group, (-(-most // _WORKGROUP), 1, 1)

    def _bound(self, buffer: Buffer, start: int, step: int, nbytes: int) -> tuple[BufferBinding, int]:
        """Returns the range of a buffer for all iterations, and the word in it where the first iteration's begins."""
        offset = start - start % self._device.target.offset_alignment
        size = start - offset + step * (self._count - 1) + 4 * _words(nbytes)
        return BufferBinding(buffer, offset, size), (start - offset) // 4


def _words(nbytes: int) -> int:
    return -(-nbytes // 4)


def _together(copies: Iterable[SteppedCopy]) -> list[list[SteppedCopy]]:
    """Groups copies that can run in parallel: none reads or writes what another one of the group writes."""
    groups: list[list[SteppedCopy]] = []
    for copy in copies:
        last = groups[-1] if groups else []
        written = {id(it.destination) for it in last}
        read = {id(it.source) for it in last}
        apart = {id(copy.source), id(copy.destination)}.isdisjoint(written) and id(copy.destination) not in read
        if not last or not apart or len(last) == MOST_TOGETHER:
            groups.append([copy])
        else:
            last.append(copy)
    return groups


@cache
def _kernel(count: int) -> tuple[str, tuple[str, ...]]:
    """The kernel for this number of copies, and its bindings."""
    declared, lines = [], []
    for k in range(count):
        declared += [
            f"@group(0) @binding({2 * k + 1}) var<storage, read> source{k}: array<u32>;",
            f"@group(0) @binding({2 * k + 2}) var<storage, read_write> target{k}: array<u32>;",
        ]
        lines += [
            f"  let from{k} = it.copies[{2 * k}];  // words, where they are, how far apart, where they belong",
            f"  let place{k} = from{k}.w + number * it.copies[{2 * k + 1}].x + i;",
            f"  if (i < from{k}.x) {{ target{k}[place{k}] = source{k}[from{k}.y + number * from{k}.z + i]; }}",
        ]
    members = f"kind: vec4<u32>, copies: array<vec4<u32>, {2 * count}>" if count else "kind: vec4<u32>"
    text = [
        "@group(0) @binding(0) var<storage, read_write> numbers: array<u32, 2>;",
        *declared,
        f"struct Copies {{ {members} }}",
        f"@group(0) @binding({2 * count + 1}) var<uniform> it: Copies;",
        f"@compute @workgroup_size({_WORKGROUP})",
        "fn main(@builtin(global_invocation_id) id: vec3<u32>) {",
        "  let i = id.x;",
        "  let number = numbers[it.kind.x & 1u];",
        *lines,
        "  if (i == 0u && it.kind.y != 0u) { numbers[1u - (it.kind.x & 1u)] = number + 1u; }",
        "}",
    ]
    return "\n".join(text), ("read_write", *(("read", "read_write") * count), "uniform")
