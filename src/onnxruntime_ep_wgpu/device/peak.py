"""The measured peak performance of an adapter: arithmetic and memory traffic.

In: a device. Out: `Peak`. Two small kernels are timed on the GPU: independent multiply-adds in f32 without memory accesses, and a
copy of buffers larger than any cache. Invariant: the best of many measurements counts, over half a second on a GPU. An idle GPU
raises its clock only then (on an H200 from 10 to 61 TFLOP/s). A software adapter has no such clock and shares the CPU.
"""

from __future__ import annotations

import time
from typing import Any

from ..live import WeakAttributes
from ..records import dataclass
from .buffers import BufferBinding
from .device import Device

ARITHMETIC = """
@group(0) @binding(0) var<storage, read_write> y: array<vec4f>;
@group(0) @binding(1) var<uniform> rounds: u32;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = vec4f(0.999f, 0.998f, 0.997f, 0.996f);
  let c = vec4f(f32(id.x) * 1e-6f);
  var a0 = c; var a1 = c + 1f; var a2 = c + 2f; var a3 = c + 3f;
  var a4 = c + 4f; var a5 = c + 5f; var a6 = c + 6f; var a7 = c + 7f;
  for (var k = 0u; k < rounds; k++) {
    a0 = fma(a0, m, c); a1 = fma(a1, m, c); a2 = fma(a2, m, c); a3 = fma(a3, m, c);
    a4 = fma(a4, m, c); a5 = fma(a5, m, c); a6 = fma(a6, m, c); a7 = fma(a7, m, c);
  }
  y[id.x] = a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7;
}
"""
FLOPS_PER_ROUND = 8 * 4 * 2
COPY = """
@group(0) @binding(0) var<storage, read> x: array<vec4f>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4f>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) w: vec3u, @builtin(num_workgroups) count: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = (w.y * count.x + w.x) * 256u + lane;
  if (i < arrayLength(&x)) { y[i] = x[i]; }
}
"""
REPEATS = 3
LONG_ENOUGH = 0.005  # seconds of a dispatch for which its start-up time is negligible
WARM_SECONDS = 0.5
SOFTWARE_SECONDS = 0.1


@dataclass(frozen=True)
class Peak:
    """f32 operations per second, and bytes read and written per second."""

    flops: float
    bytes: float


_known: WeakAttributes[Device, Peak] = WeakAttributes()


def peak(device: Device) -> Peak:
    """Returns the adapter's peak, measured once per device. Raises UnsupportedError if the adapter has no timestamps."""
    found = _known.get(device)
    if found is None:
        found = Peak(_arithmetic(device), _copy(device))
        _known.set(device, found)
    return found


def _best(device: Device, dispatch: Any) -> float:
    """Seconds of the fastest run."""
    end = time.perf_counter() + (SOFTWARE_SECONDS if device.adapter.software else WARM_SECONDS)
    best = float("inf")
    while best == float("inf") or time.perf_counter() < end:
        best = min(best, *device.measure([dispatch] * REPEATS))
    return best


def _arithmetic(device: Device) -> float:
    groups = 256 if device.adapter.software else 16384
    pipeline = device.pipeline(ARITHMETIC, ("read_write", "uniform"), "peak arithmetic")
    results = device.buffer(64 * groups * 16, "peak")

    def dispatch(rounds: int) -> Any:
        uniform = device.memory.uniform(rounds.to_bytes(4, "little"))
        bindings = [BufferBinding(results, 0, results.size), BufferBinding(uniform, 0, 16)]
        return pipeline, device.bind_group(pipeline, bindings), (groups, 1, 1)

    rounds = 64
    # Software adapters abort long loops; see `Builder.bound_loop`.
    while rounds < 32768 and min(device.measure([dispatch(rounds)] * 2)) < LONG_ENOUGH:
        rounds *= 2
    return 64 * groups * rounds * FLOPS_PER_ROUND / _best(device, dispatch(rounds))


def _copy(device: Device) -> float:
    nbytes = min(32 << 20 if device.adapter.software else 512 << 20, device.target.max_binding_bytes)
    pipeline = device.pipeline(COPY, ("read", "read_write"), "peak copy")
    source, target = device.buffer(nbytes, "peak"), device.buffer(nbytes, "peak")
    group = device.bind_group(pipeline, [BufferBinding(source, 0, nbytes), BufferBinding(target, 0, nbytes)])
    groups = -(-nbytes // (16 * 256))
    rows = -(-groups // 65535)
    return 2 * nbytes / _best(device, (pipeline, group, (-(-groups // rows), rows, 1)))
