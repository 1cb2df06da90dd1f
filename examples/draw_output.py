"""Renders a model's output without a copy to the host: `python examples/draw_output.py [picture.png]`.

The session runs on a `wgpu.GPUDevice` that this program created, and its output is a `wgpu.GPUBuffer` that a fragment shader
reads. It renders offscreen, so it needs no window. With a canvas of rendercanvas, or in pygfx, the texture is the canvas's.
"""

from __future__ import annotations

import argparse
import struct
import zlib
from typing import Any

import numpy as np
import wgpu
from onnx import TensorProto, helper

import onnxruntime_ep_wgpu as webgpu_ep

SIZE = 256

DRAW = """
@group(0) @binding(0) var<storage, read> height: array<f32>;

@vertex fn corner(@builtin(vertex_index) i: u32) -> @builtin(position) vec4f {
  return vec4f(f32(i & 1u) * 4.0 - 1.0, f32(i >> 1u) * 4.0 - 1.0, 0.0, 1.0);  // one triangle over the whole picture
}

@fragment fn colour(@builtin(position) at: vec4f) -> @location(0) vec4f {
  let v = height[u32(at.y) * SIZEu + u32(at.x)];
  return vec4f(v, v * v, 1.0 - v, 1.0);
}
""".replace("SIZE", str(SIZE))


def ripples() -> bytes:
    """Returns a model: (SIZE, 1) and (1, SIZE) coordinates to a (SIZE, SIZE) picture of ripples with values 0 to 1."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["xx"]),
        helper.make_node("Mul", ["y", "y"], ["yy"]),
        helper.make_node("Add", ["xx", "yy"], ["square"]),
        helper.make_node("Sqrt", ["square"], ["radius"]),
        helper.make_node("Sin", ["radius"], ["wave"]),
        helper.make_node("Mul", ["wave", "half"], ["low"]),
        helper.make_node("Add", ["low", "half"], ["height"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "ripples",
        [value("x", TensorProto.FLOAT, [1, SIZE]), value("y", TensorProto.FLOAT, [SIZE, 1])],
        [value("height", TensorProto.FLOAT, [SIZE, SIZE])],
        [helper.make_tensor("half", TensorProto.FLOAT, [], [0.5])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def draw(device: Any, buffer: Any, offset: int, nbytes: int) -> Any:
    """Renders the heights in a buffer to a new texture."""
    texture = device.create_texture(
        size=(SIZE, SIZE, 1),
        format="rgba8unorm",
        usage=wgpu.TextureUsage.RENDER_ATTACHMENT | wgpu.TextureUsage.COPY_SRC,
    )
    shader = device.create_shader_module(code=DRAW)
    pipeline = device.create_render_pipeline(
        layout="auto",
        vertex={"module": shader, "entry_point": "corner"},
        primitive={"topology": "triangle-list"},
        fragment={"module": shader, "entry_point": "colour", "targets": [{"format": "rgba8unorm"}]},
    )
    group = device.create_bind_group(
        layout=pipeline.get_bind_group_layout(0),
        entries=[{"binding": 0, "resource": {"buffer": buffer, "offset": offset, "size": nbytes}}],
    )
    encoder = device.create_command_encoder()
    attachment = {"view": texture.create_view(), "load_op": "clear", "store_op": "store", "clear_value": (0, 0, 0, 1)}
    render = encoder.begin_render_pass(color_attachments=[attachment])
    render.set_pipeline(pipeline)
    render.set_bind_group(0, group)
    render.draw(3)
    render.end()
    device.queue.submit([encoder.finish()])
    return texture


def picture(device: Any, texture: Any) -> np.ndarray:
    """Returns the pixels of a texture, (SIZE, SIZE, 4) bytes. Only the file needs them; a window shows the texture itself."""
    data = device.queue.read_texture(
        {"texture": texture}, {"bytes_per_row": 4 * SIZE, "rows_per_image": SIZE}, (SIZE, SIZE, 1)
    )
    return np.frombuffer(data, np.uint8).reshape(SIZE, SIZE, 4)


def png(pixels: np.ndarray) -> bytes:
    """Returns (height, width, 4) bytes as a PNG file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", nargs="?", default="ripples.png", help="the PNG file to write (%(default)s)")
    name = parser.parse_args().picture
    pixels = calculated()
    with open(name, "wb") as file:
        file.write(png(pixels))
    print(f"wrote {name}")


def calculated() -> np.ndarray:
    """Returns the picture, (SIZE, SIZE, 4) bytes."""
    device = wgpu.gpu.request_adapter_sync(power_preference="high-performance").request_device_sync()
    session = webgpu_ep.session(ripples(), wgpu_device=device)

    # The output is the program's own buffer. For a tensor that ONNX Runtime allocated, use `webgpu_ep.buffer_of(value)`.
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
    heights = device.create_buffer(size=4 * SIZE * SIZE, usage=usage)
    line = np.linspace(-30, 30, SIZE, dtype=np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("x", line[None, :])
    binding.bind_cpu_input("y", line[:, None])
    binding.bind_ortvalue_output("height", webgpu_ep.ort_value_from(heights, np.float32, [SIZE, SIZE]))
    session.run_with_iobinding(binding)

    return picture(device, draw(device, heights, 0, heights.size))


if __name__ == "__main__":
    main()
