"""The measurements of `tune`: for each tunable kernel, classes of shapes, graphs that represent them, and candidates.

In: the name of a kernel. Out: `ShapeClass`es, with sizes that are typical of models on GPUs. Invariant: the graphs of a class
lie within its bounds, so that measured choices apply to measured sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper

from ..compiler import tune
from ..compiler.tune.base import Parameters
from ..program.dtypes import DType
from ..program.tuning import Bound, Choice
from ..records import dataclass

FUSED = tune.use(tune.attention.AttentionForm(1))
LAST = tune.use(tune.convolutions.ChannelsLast(2))


@dataclass(frozen=True)
class ShapeClass:
    """A class of shapes with one choice. `graph(*size)` makes a representative model for each of `sizes`: one that consists
    mainly of the kernel.

    `beside` are further choices that the kernel requires."""

    kernel: str
    bounds: tuple[Bound, ...]
    graph: Callable[..., onnx.ModelProto]
    sizes: Sequence[tuple[int, ...]]
    dtype: DType | None = None
    beside: tuple[Choice, ...] = ()

    def graphs(self) -> list[onnx.ModelProto]:
        return [self.graph(*it) for it in self.sizes]


def candidates(kernel: str) -> list[Parameters]:
    """Returns a kernel's candidate parameters: those in the shipped table, and some others."""
    shipped = [tune.parameters_of(it) for it in tune.GPU if it.kernel == kernel]
    return list(dict.fromkeys([*shipped, *tune.KERNELS[kernel].candidates()]))


def arrays(model: onnx.ModelProto) -> list[np.ndarray]:
    """Returns random inputs of a model."""
    types = [it.type.tensor_type for it in model.graph.input]
    return [_random([d.dim_value for d in it.shape.dim], helper.tensor_dtype_to_np_dtype(it.elem_type)) for it in types]


# ---- graphs


def _random(shape: Sequence[int], dtype: np.dtype | type = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32).astype(dtype)


def _graph(name: str, inputs: str, nodes: str, weights: Mapping[str, np.ndarray] | None = None) -> onnx.ModelProto:
    """Makes a model with the output y. Inputs and nodes are in the syntax of `onnx.parser`. `name` is the display name."""
    opsets = '["": 20, "com.microsoft": 1]'
    model = onnx.parser.parse_model(f"<ir_version: 10, opset_import: {opsets}> graph ({inputs}) => (y) {{ {nodes} }}")
    model.graph.name = name
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in (weights or {}).items())
    return model


def _product(batch: int, m: int, k: int, n: int, *, dtype: str = "float") -> onnx.ModelProto:
    inputs = f"{dtype}[{batch}, {m}, {k}] a, {dtype}[{batch}, {k}, {n}] b"
    return _graph(f"{batch} x {m} x {k} x {n}", inputs, "y = MatMul(a, b)")


def _bytes(_: int, m: int, k: int, n: int) -> onnx.ModelProto:
    weights = {"b": np.random.default_rng(k).integers(-128, 128, (k, n)).astype(np.int8)}
    return _graph(f"{m} x {k} x {n}, 8 bits", f"int8[{m}, {k}] a", "y = MatMulInteger(a, b)", weights)


def _packed(m: int, k: int, n: int, *, level: int = 0) -> onnx.ModelProto:
    """A product with weights of 4 bits. `level` is the `accuracy_level`."""
    rng = np.random.default_rng(k)
    weights = {
        "w": rng.integers(0, 256, (n, k // 32, 16), np.uint8),
        "scales": rng.uniform(0.01, 0.02, (n * k // 32,)).astype(np.float32),
    }
    attributes = f"K={k}, N={n}, bits=4, block_size=32, accuracy_level={level}"
    name = f"{m} x {k} x {n}, 4 bits{', rounded' if level else ''}"
    return _graph(name, f"float[{m}, {k}] a", f"y = com.microsoft.MatMulNBits <{attributes}> (a, w, scales)", weights)


def _rows(rows: int, columns: int) -> onnx.ModelProto:
    """A softmax and a reduction along rows."""
    nodes = """s = Softmax(x)
               y = ReduceL2(s, axes)"""
    return _graph(f"{rows} x {columns}", f"float[{rows}, {columns}] x", nodes, {"axes": np.array([-1])})


def _across(rows: int, columns: int) -> onnx.ModelProto:
    name = f"first axis of {rows} x {columns}"
    return _graph(name, f"float[{rows}, {columns}] x", "y = ReduceSum(x, axes)", {"axes": np.array([0])})


def _maps(size: int) -> onnx.ModelProto:
    nodes = """c = Add(a, b)
               y = Sigmoid(c)"""
    return _graph(f"{size}", f"float[{size}] a, float[{size}] b", nodes)


def _grouped(channels: int, side: int, *, each: int = 1, behind: int = 0) -> onnx.ModelProto:
    """A grouped convolution with `each` channels per group.

    If `behind` is not 0, a convolution of `behind` channels makes the image; else the image is an input."""
    nodes = f"y = Conv <group={channels // each}, pads=[1, 1, 1, 1]> (x, w)"
    inputs, weights = f"float[1, {channels}, {side}, {side}] x", {"w": _random((channels, each, 3, 3))}
    if behind:
        nodes = f"x = Conv(few, spread)\n{nodes}"
        inputs, weights["spread"] = f"float[1, {behind}, {side}, {side}] few", _random((channels, behind, 1, 1))
    return _graph(f"{channels} x {side} x {side}", inputs, nodes, weights)


def _images(batch: int, channels: int, side: int) -> onnx.ModelProto:
    """A chain of convolutions."""
    relus = [f"y{k} = Conv <pads=[1, 1, 1, 1]> (x{k}, w)\nx{k + 1} = Relu(y{k})" for k in range(6)]
    nodes = "\n".join([*relus, "y = Identity(x6)"])
    inputs, weights = f"float[{batch}, {channels}, {side}, {side}] x0", {"w": _random((channels, channels, 3, 3))}
    return _graph(f"{batch} x {channels} x {side} x {side}", inputs, nodes, weights)


def _excited(batch: int, channels: int, hidden: int, side: int) -> onnx.ModelProto:
    """A squeeze-and-excite block between two convolutions: the image is scaled by gates from its mean, via `hidden`
    channels."""
    nodes = """x = Conv(few, spread)
               mean = GlobalAveragePool(x)
               h = Conv(mean, w0)
               a = Relu(h)
               g = Conv(a, w1)
               gate = Sigmoid(g)
               scaled = Mul(x, gate)
               y = Conv(scaled, w2)"""
    sizes = {"spread": (channels, 4), "w0": (hidden, channels), "w1": (channels, hidden), "w2": (channels, channels)}
    weights = {name: _random((*them, 1, 1)) for name, them in sizes.items()}
    name = f"{batch} x {channels} x {side} x {side}, {hidden}"
    return _graph(name, f"float[{batch}, 4, {side}, {side}] few", nodes, weights)


def _attention(heads: int, queries: int, keys: int, size: int, *, dtype: str = "float") -> onnx.ModelProto:
    nodes = """scaled = Mul(q, scale)
               kt = Transpose <perm=[0, 1, 3, 2]> (k)
               s = MatMul(scaled, kt)
               w = Softmax <axis=-1> (s)
               y = MatMul(w, v)"""
    q, k, v = (
        f"{dtype}[1, {heads}, {rows}, {size}] {name}" for name, rows in (("q", queries), ("k", keys), ("v", keys))
    )
    scale = np.array(size**-0.5, {"float": np.float32, "float16": np.float16}[dtype])
    return _graph(f"{heads} x {queries} x {keys} x {size}", f"{q}, {k}, {v}", nodes, {"scale": scale})


# ---- the classes


def _between(quantity: str, least: int | None, most: int | None = None) -> Bound:
    return Bound(quantity, least, most, known=True)


_LONG = ((16, 2048, 2048, 64), (12, 512, 512, 64))
_LONG_WIDE = ((32, 1024, 1024, 128), (16, 2048, 2048, 128))
_ONE = ((32, 1, 4096, 128), (32, 1, 1024, 64))
_PRODUCTS: tuple[tuple[tuple[Bound, ...], Sequence[tuple[int, int, int, int]]], ...] = (
    ((Bound("m", 1024), Bound("n", 1024)), ((1, 4096, 4096, 4096), (1, 1024, 1024, 1024))),
    ((Bound("m", 128, 1023), Bound("n", 256), Bound("batch", None, 4)), ((1, 512, 384, 1536), (1, 197, 768, 3072))),
    ((Bound("m", 5, 127), Bound("n", 256), Bound("batch", None, 4)), ((1, 48, 384, 1536), (1, 32, 2048, 2048))),
    ((Bound("m", 64, 1023), Bound("n", 64, 1023), Bound("batch", 8)), ((12, 128, 64, 128), (192, 197, 64, 197))),
)  # fmt: skip
_ROW = (Bound("m", None, 1),)
_TOKENS = {"large": ((1, 4096, 4096), (1, 4096, 11008)), "small": ((1, 2048, 2048), (1, 1024, 4096))}
_WORDS = {"large": Bound("words", 256), "small": Bound("words", None, 256)}


def _classes() -> Iterator[ShapeClass]:
    halves, rounded = partial(_product, dtype="float16"), partial(_packed, level=4)
    for bounds, sizes in _PRODUCTS:
        yield ShapeClass("matmul", bounds, _product, sizes, DType.FLOAT32)
        yield ShapeClass("matmul", bounds, halves, sizes, DType.FLOAT16)
    for bounds, sizes in _PRODUCTS:
        yield ShapeClass("matmul_matrices", bounds, halves, sizes, DType.FLOAT16)
    for bounds, sizes in _PRODUCTS:
        if all(batch == 1 for batch, *_ in sizes):
            yield ShapeClass("matmul_bytes", bounds, _bytes, sizes)
    few_tiles = ((1, 1576, 3072, 768), (1, 512, 3072, 768), (1, 512, 768, 2304))
    yield ShapeClass("matmul_parts", (_between("k", 512), _between("m", 128)), _product, few_tiles)
    vector = ((1, 1, 4096, 4096), (1, 1, 4096, 11008))
    yield ShapeClass("matvec", (*_ROW, Bound("bits", None, 31)), halves, vector, DType.FLOAT16)
    yield ShapeClass("matvec", (*_ROW, Bound("bits", 32)), _product, vector, DType.FLOAT32)
    for dots, graph in (((), _packed), ((Bound("dots", 1),), rounded)):
        for name, words in _WORDS.items():
            yield ShapeClass("packed_rows", (*_ROW, *dots, words), graph, _TOKENS[name])
    many = ((1024, 2048, 8192), (1024, 8192, 2048), (512, 2048, 3072))
    yield ShapeClass("matmul_dots", (Bound("m", 129), Bound("dots", 32)), rounded, many)
    yield ShapeClass("rows", (_between("columns", 2048),), _rows, ((1024, 8192), (4096, 2048)))
    yield ShapeClass("rows", (_between("columns", 33, 2047),), _rows, ((4096, 768), (24576, 128)))
    yield ShapeClass("rows", (_between("columns", None, 32),), _rows, ((1 << 18, 16), (1 << 17, 32)))
    yield ShapeClass("rows_across", (_between("rows", 1 << 13),), _across, ((8192, 8192), (1024, 16384)))
    yield ShapeClass("parts_across", (_between("elements", 1 << 18),), _across, ((8192, 8192), (8192, 1024)))
    yield ShapeClass("map", (_between("size", 1 << 22),), _maps, ((1 << 24,), (1 << 22,)))
    yield ShapeClass("map", (_between("size", 1 << 18, (1 << 22) - 1),), _maps, ((1 << 18,), (1 << 20,)))
    yield ShapeClass("map", (_between("size", None, (1 << 18) - 1),), _maps, ((1 << 16,), (1 << 14,)))
    yield ShapeClass("vectors", (), _maps, ((1 << 20,), (1 << 24,)))
    yield ShapeClass("channels_last", (), _images, ((16, 64, 56), (8, 256, 14)))
    yield ShapeClass("depthwise", (), _grouped, ((96, 112), (384, 28)))
    last = partial(_grouped, behind=4)
    yield ShapeClass("depthwise_last", (), last, ((96, 112), (384, 28)), beside=(LAST,))
    yield ShapeClass("grouped_last", (), partial(last, each=4), ((128, 56), (512, 14)), beside=(LAST,))
    for weights, sizes in (
        ((None, 1 << 15), ((8, 120, 30, 28), (16, 480, 20, 14))),
        (((1 << 15) + 1, 1 << 17), ((8, 336, 84, 14), (16, 480, 120, 14))),
        (((1 << 17) + 1, 1 << 19), ((16, 672, 168, 7), (8, 888, 222, 7))),
    ):
        yield ShapeClass("squeeze_excite", (_between("weights", *weights),), _excited, sizes, beside=(LAST,))
    for columns, sizes in (
        ((None, 255), ((8, 48, 12, 56), (8, 120, 30, 28))),
        ((256, 511), ((8, 336, 84, 14), (16, 480, 20, 14))),
        ((512, 1023), ((8, 888, 222, 7), (16, 672, 28, 14))),
    ):
        yield ShapeClass("gated_rows", (_between("n", *columns),), _excited, sizes, beside=(LAST,))
    halves = partial(_attention, dtype="float16")
    for sizes, least, most in ((_LONG, 33, 64), (_LONG_WIDE, 65, 128)):
        tiles = (Bound("rows", 17), Bound("value_size", least, most))
        yield ShapeClass("flash_attention", tiles, _attention, sizes, beside=(FUSED,))
        yield ShapeClass("flash_matrices", tiles, halves, sizes, DType.FLOAT16, (FUSED,))
        form = (
            *(_between(it, least, most) for it in ("size", "value_size")), _between("batch", 12), _between("rows", 512),
            _between("keys", 512), _between("scores_per_binding", 4),
        )  # fmt: skip
        yield ShapeClass("attention", form, _attention, sizes, DType.FLOAT32)
    yield ShapeClass("flash_rows", (Bound("rows", None, 1),), _attention, _ONE, beside=(FUSED,))
    yield ShapeClass("flash_parts", (Bound("rows", None, 8),), _attention, _ONE, beside=(FUSED,))


CLASSES = tuple(_classes())
KERNELS = tuple(dict.fromkeys(it.kernel for it in CLASSES))
