"""What the device tests share: the first adapter's device, and a small kernel."""

from __future__ import annotations

import numpy as np
import pytest

from onnxruntime_ep_wgpu.device import BindGroup, Buffer, Device, Pipeline, adapters, adapters_problem, open_device

ADD_ONE = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> count: u32;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x < count) { y[id.x] = x[id.x] + 1.0; }
}
"""
ADD_ONE_BINDINGS = ("read", "read_write", "uniform")


class AddOne:
    """`y = x + 1` over `count` floats on a device."""

    def __init__(self, device: Device, count: int) -> None:
        self.device = device
        self.count = count
        self.pipeline: Pipeline = device.pipeline(ADD_ONE, ADD_ONE_BINDINGS, "add one")
        self.uniform = device.memory.uniform(np.array([count], np.uint32).tobytes())
        self.groups = ((count + 63) // 64, 1, 1)

    def bind(self, x: Buffer, y: Buffer) -> BindGroup:
        size = 4 * self.count
        return self.device.bind_group(self.pipeline, [(x, 0, size), (y, 0, size), (self.uniform, 0, 16)])

    def dispatch(self, x: Buffer, y: Buffer) -> tuple[Pipeline, BindGroup, tuple[int, int, int]]:
        return self.pipeline, self.bind(x, y), self.groups


@pytest.fixture(scope="session")
def device() -> Device:
    assert adapters(), adapters_problem()
    return open_device(adapters()[0], context=1000)  # a context of its own: the counters are nobody else's


def put(device: Device, array: np.ndarray) -> Buffer:
    buffer = device.buffer(array.nbytes)
    device.upload(buffer, 0, array.data)
    return buffer


def get(device: Device, buffer: Buffer, like: np.ndarray) -> np.ndarray:
    result = np.empty_like(like)
    device.download(buffer, 0, result.data)
    return result
