"""Data movement in graphs: `python -m bench.moves [NAME ...] [--target gpu|own] [--time]`.

In: names of the zoo or of the graphs below, by default all of these. Out: a line per graph with the dispatches of a run, the
pure data movers among them, and the bytes of both, counted as in profiles. A mover has no arithmetic and no kernel such as a
matrix product. Graphs are compiled and laid out for one set of sizes, and do not run. With `--time`,
the graphs below are measured on the GPU, with joins and pads in place and as maps, which copy.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.compiler.passes import place
from onnxruntime_ep_wgpu.device import Device
from onnxruntime_ep_wgpu.program.layout import Layouts
from onnxruntime_ep_wgpu.program.postfix import compile_dims
from onnxruntime_ep_wgpu.program.program import REPETITION, Program
from onnxruntime_ep_wgpu.program.target import Target
from onnxruntime_ep_wgpu.tools._output import show_table
from tests import targets
from tests.support import make_model
from tests.zoo import NAMES, load
from tests.zoo.exports import EXPORTS, inputs

from .single import Run

F = np.float32
MOVERS = {"Concat", "Pad", "Slice", "Split", "Transpose", "Reshape", "Expand", "Tile", "Identity", "DepthToSpace", "SpaceToDepth",
          "Unsqueeze", "Squeeze", "Flatten", "Gather"}  # fmt: skip
SIZES = {"t5_encoder": (2, 8), "t5_decoder": (2, 1, 7, 8), "swin": (1, 28, 56), "detector": (1, 64, 96)}


def _weights(rng: np.random.Generator, **shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {name: rng.standard_normal(shape).astype(F) for name, shape in shapes.items()}


def qkv(tokens: int = 512, width: int = 768, heads: int = 12) -> onnx.ModelProto:
    """Returns GPT-2's attention: one product, split in three, heads apart, attention, heads together, a product."""
    size = width // heads
    apart = [
        step
        for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3]))
        for step in (
            node("Reshape", [name, "apart"], [f"{name}r"]),
            node("Transpose", [f"{name}r"], [f"{name}t"], perm=order),
        )
    ]
    nodes = [
        node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["qkv"]),
        node("Split", ["qkv"], ["q", "k", "v"], axis=-1, num_outputs=3), *apart,
        node("MatMul", ["qt", "kt"], ["s"]), node("Mul", ["s", "scale"], ["scaled"]),
        node("Softmax", ["scaled"], ["p"], axis=-1), node("MatMul", ["p", "vt"], ["o"]),
        node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]), node("Reshape", ["ot", "together"], ["or"]),
        node("MatMul", ["or", "wo"], ["y"]),
    ]  # fmt: skip
    shapes = {"w": (width, 3 * width), "b": (3 * width,), "wo": (width, width)}
    numbers = {"apart": np.array([0, 0, heads, size]), "together": np.array([0, 0, width]), "scale": F(size**-0.5)}
    return make_model(
        nodes, {"x": (F, [1, tokens, width])}, {**_weights(np.random.default_rng(0), **shapes), **numbers}
    )


def densenet(layers: int = 6, growth: int = 32, side: int = 28) -> onnx.ModelProto:
    """Returns a DenseNet block: each layer joins the results of all earlier ones."""
    rng, nodes, weights = np.random.default_rng(0), [], {}
    made = ["x"]
    for k in range(layers):
        inward = 64 + k * growth
        weights |= _weights(rng, **{f"a{k}": (128, inward, 1, 1), f"c{k}": (growth, 128, 3, 3)})
        nodes += [node("Concat", made, [f"j{k}"], axis=1)] if k else [node("Relu", ["x"], ["j0"])]
        nodes += [node("Conv", [f"j{k}", f"a{k}"], [f"m{k}"]), node("Relu", [f"m{k}"], [f"r{k}"]),
                  node("Conv", [f"r{k}", f"c{k}"], [f"f{k}"], pads=[1, 1, 1, 1])]  # fmt: skip
        made.append(f"f{k}")
    return make_model([*nodes, node("Concat", made, ["y"], axis=1)], {"x": (F, [1, 64, side, side])}, weights)


def shufflenet(blocks: int = 4, channels: int = 116, side: int = 28) -> onnx.ModelProto:
    """Returns units of ShuffleNet V2: half of the channels pass, half are convolved, and all are shuffled."""
    rng, nodes, half = np.random.default_rng(0), [], channels // 2
    weights = {"apart": np.array([0, 2, half, side, side]), "together": np.array([0, channels, side, side])}
    x = "x"
    for k in range(blocks):
        weights |= _weights(rng, **{f"a{k}": (half, half, 1, 1), f"d{k}": (half, 1, 3, 3), f"c{k}": (half, half, 1, 1)})
        nodes += [
            node("Split", [x], [f"l{k}", f"r{k}"], axis=1, num_outputs=2),
            node("Conv", [f"r{k}", f"a{k}"], [f"ra{k}"]), node("Relu", [f"ra{k}"], [f"rb{k}"]),
            node("Conv", [f"rb{k}", f"d{k}"], [f"rd{k}"], group=half, pads=[1, 1, 1, 1]),
            node("Conv", [f"rd{k}", f"c{k}"], [f"rc{k}"]), node("Relu", [f"rc{k}"], [f"re{k}"]),
            node("Concat", [f"l{k}", f"re{k}"], [f"j{k}"], axis=1),
            node("Reshape", [f"j{k}", "apart"], [f"p{k}"]),
            node("Transpose", [f"p{k}"], [f"t{k}"], perm=[0, 2, 1, 3, 4]),
            node("Reshape", [f"t{k}", "together"], [f"x{k}"]),
        ]  # fmt: skip
        x = f"x{k}"
    return make_model([*nodes, node("Relu", [x], ["y"])], {"x": (F, [1, channels, side, side])}, weights)


def skips(side: int = 64, channels: int = 32) -> onnx.ModelProto:
    """Returns a level of a UNet: down, up to a smaller size than before, padded to that size, and joined with the skip."""
    weights = _weights(np.random.default_rng(0), a=(channels, 3, 3, 3), b=(2 * channels, channels, 3, 3),
                       c=(2 * channels, channels, 2, 2), d=(channels, 2 * channels, 3, 3))  # fmt: skip
    nodes = [
        node("Conv", ["x", "a"], ["c0"], pads=[1, 1, 1, 1]), node("Relu", ["c0"], ["r0"]),
        node("Conv", ["r0", "b"], ["c1"], strides=[2, 2]), node("Relu", ["c1"], ["r1"]),
        node("ConvTranspose", ["r1", "c"], ["u"], strides=[2, 2]),
        node("Pad", ["u", "pads"], ["p"]), node("Concat", ["r0", "p"], ["j"], axis=1),
        node("Conv", ["j", "d"], ["y"], pads=[1, 1, 1, 1]),
    ]  # fmt: skip
    return make_model(nodes, {"x": (F, [1, 3, side, side])}, {**weights, "pads": np.array([0, 0, 0, 0, 0, 0, 2, 2])})


def uneven(side: int = 112, channels: int = 32, blocks: int = 3) -> onnx.ModelProto:
    """Returns convolutions of stride 2 after a Pad at one end, as in TensorFlow and in image autoencoders."""
    rng, nodes, weights, x = np.random.default_rng(0), [], {"pads": np.array([0, 0, 0, 0, 0, 0, 1, 1])}, "x"
    for k in range(blocks):
        weights |= _weights(
            rng, **{f"a{k}": (channels, 3 if k == 0 else channels, 3, 3), f"b{k}": (channels, channels, 3, 3)}
        )
        nodes += [node("Conv", [x, f"a{k}"], [f"c{k}"], pads=[1, 1, 1, 1]), node("Relu", [f"c{k}"], [f"r{k}"]),
                  node("Pad", [f"r{k}", "pads"], [f"p{k}"]),
                  node("Conv", [f"p{k}", f"b{k}"], [f"x{k}"], strides=[2, 2])]  # fmt: skip
        x = f"x{k}"
    return make_model([*nodes, node("Relu", [x], ["y"])], {"x": (F, [1, 3, side, side])}, weights)


def around(rows: int, columns: int, *pads: int) -> onnx.ModelProto:
    """Returns a small product with a large, padded result."""
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Pad", ["m", "pads"], ["y"])]
    weights = {**_weights(np.random.default_rng(0), w=(4, columns)), "pads": np.array(pads)}
    return make_model(nodes, {"x": (F, [rows, 4])}, weights)


GRAPHS: dict[str, Callable[[], onnx.ModelProto]] = {
    "GPT-2's split": qkv,
    "DenseNet": densenet,
    "ShuffleNet": shufflenet,
    "UNet's skip": skips,
    "uneven pads": uneven,
    "all around": lambda: around(4096, 4096, 1, 1, 1, 1),
    "behind": lambda: around(4096, 4096, 0, 0, 128, 0),
    "short rows": lambda: around(1 << 20, 14, 0, 1, 0, 1),
}


@dataclass(frozen=True)
class Moved:
    """Dispatches and bytes of one run: of all kernels, and of pure data movers."""

    dispatches: int
    moving: int
    nbytes: int
    moved: int


def moved(program: Program, shapes: dict[str, tuple[int, ...]], values: dict[str, np.ndarray]) -> Moved:
    """Returns the counts of a Program for inputs of these shapes, and for values that determine shapes."""
    named = [program.values[v].name for v in program.inputs]
    symbols = [
        int(values[named[s.input]].reshape(-1)[s.index]) if s.is_element else shapes[named[s.input]][s.index]
        for s in program.symbols
    ]
    layout = Layouts(program).layout(symbols)
    traffic = compile_dims(
        [it.traffic for it in program.dispatches], [*(s.name for s in program.symbols), REPETITION], program.definitions
    )([*symbols, 0])
    running = sorted({step.dispatch for step in layout.steps})
    movers = [
        k
        for k in running
        if set(program.dispatches[k].operators) <= MOVERS
        or program.kernels[program.dispatches[k].kernel].label == "fill"
    ]
    return Moved(len(layout.steps), len(movers), sum(traffic[k] for k in running), sum(traffic[k] for k in movers))


@contextmanager
def as_maps() -> Iterator[None]:
    """Compiles joins and pads as maps in the block."""
    kept = place._Placer._is_stored
    place._Placer._is_stored = lambda *_: False  # type: ignore[method-assign]
    try:
        yield
    finally:
        place._Placer._is_stored = kept  # type: ignore[method-assign]


def milliseconds(name: str, device: Device) -> tuple[float, float]:
    """Returns the GPU times of a graph's run, in place and as maps, measured in turns."""
    model, feeds = case(name)
    arrays = [np.random.default_rng(0).standard_normal(a.shape).astype(F) for a in feeds.values()]
    stored = Run(compiled(model, device.target), device, arrays)
    with as_maps():
        maps = Run(compiled(case(name)[0], device.target), device, arrays)
    for a, b in zip(stored.results, maps.results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
    stored.warm()
    times = [(stored.seconds(3), maps.seconds(3)) for _ in range(7)]
    return 1e3 * min(a for a, _ in times), 1e3 * min(b for _, b in times)


def compiled(model: onnx.ModelProto, on: Target) -> Program:
    module = ir.from_proto(model)
    return compile_graph(module.graph, module.opset_imports, on)


def case(name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Returns a model and its inputs."""
    if name in GRAPHS:
        made = GRAPHS[name]()
        dims = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in made.graph.input}
        return made, {n: np.zeros(shape, F) for n, shape in dims.items()}
    if name in EXPORTS:
        return EXPORTS[name](2), inputs(name, 2, *SIZES[name])
    entry = load(name)
    return onnx.load(entry.path), entry.inputs(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[*GRAPHS, *EXPORTS, *NAMES])
    parser.add_argument(
        "--target", choices=("gpu", "own"), default="gpu", help="the Target that graphs are compiled for"
    )
    parser.add_argument("--time", action="store_true", help="measure on the GPU, in place and as maps")
    args = parser.parse_args()
    device = targets.device(targets.Way(args.target))
    on, rows = device.target, []
    if args.time:
        timed = [[name, *(f"{it:.3f}" for it in milliseconds(name, device))] for name in args.names if name in GRAPHS]
        show_table(["graph", "ms", "ms as maps"], timed, device.adapter.name)
        return
    for name in args.names:
        try:
            model, feeds = case(name)
            found = moved(compiled(model, on), {n: a.shape for n, a in feeds.items()}, feeds)
        except RuntimeError as error:
            rows.append([name, f"{type(error).__name__}: {error}"[:60], "", "", ""])
            continue
        rows.append([name, found.dispatches, found.moving, f"{found.nbytes / 1e6:.3f}", f"{found.moved / 1e6:.3f}"])
    show_table(["graph", "dispatches", "moving", "MB", "MB moved"], rows)


if __name__ == "__main__":
    main()
