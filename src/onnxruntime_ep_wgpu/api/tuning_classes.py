"""What `tune` measures: for each kernel that can be chosen, classes of shapes, graphs that stand for them, and candidates.

In: the name of a kernel. Out: `ShapeClass`es. Sizes are those of models on GPUs; software adapters, on which this can be tried out,
get smaller ones. Invariant: the graphs of a class lie within its bounds, so that what was measured is what is chosen there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ..compiler import tune
from ..compiler.tune.base import Parameters
from ..program.dtypes import DType
from ..program.tuning import Bound, Choice

Node = onnx.NodeProto
FUSED = tune.use(tune.attention.AttentionForm(1))
LAST = tune.use(tune.convolutions.ChannelsLast(2))


@dataclass(frozen=True)
class Graph:
    """A model that runs little besides the kernel in question; `inputs` are types and shapes. `name` is for people."""

    name: str
    model: onnx.ModelProto
    inputs: tuple[tuple[type, tuple[int, ...]], ...]

    def arrays(self) -> list[np.ndarray]:
        """Random inputs."""
        return [_random(shape, dtype) for dtype, shape in self.inputs]


@dataclass(frozen=True)
class ShapeClass:
    """Shapes for which one choice is made. `graphs` makes what stands for them; `beside` are choices that have to be there for
    the kernel to run at all."""

    kernel: str
    bounds: tuple[Bound, ...]
    graphs: Callable[[bool], Sequence[Graph]]  # whether small
    dtype: DType | None = None
    beside: tuple[Choice, ...] = ()


def candidates(kernel: str) -> list[Parameters]:
    """The parameters that the shipped table has anywhere for a kernel, and some that it has not."""
    shipped = [tune.parameters_of(it) for it in tune.GPU if it.kernel == kernel]
    return list(dict.fromkeys([*shipped, *tune.KERNELS[kernel].candidates()]))


# ---- graphs


def _random(shape: Sequence[int], dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32).astype(dtype)


def _graph(
    name: str,
    nodes: Sequence[Node],
    inputs: Mapping[str, tuple[int, ...]],
    weights: Mapping[str, np.ndarray],
    dtype: type = np.float32,
) -> Graph:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        list(nodes),
        name,
        [helper.make_tensor_value_info(n, kind, shape) for n, shape in inputs.items()],
        [onnx.ValueInfoProto(name=nodes[-1].output[0])],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return Graph(
        name,
        helper.make_model(graph, opset_imports=opsets, ir_version=10),
        tuple((dtype, shape) for shape in inputs.values()),
    )


def _product(sizes: Sequence[tuple[int, int, int, int]], dtype: type, small: bool) -> list[Graph]:
    """(batch, m, k, n)"""
    out = []
    for batch, m, k, n in [(1, min(m, 32), 64, 64) for _, m, _, _ in sizes[:1]] if small else sizes:
        inputs = {"a": (batch, m, k), "b": (batch, k, n)}
        out.append(
            _graph(f"{batch} x {m} x {k} x {n}", [helper.make_node("MatMul", ["a", "b"], ["y"])], inputs, {}, dtype)
        )
    return out


def _bytes(sizes: Sequence[tuple[int, int, int, int]], small: bool) -> list[Graph]:
    """(m, k, n), by weights of 8 bits"""
    out = []
    for _, m, k, n in [(1, 32, 64, 64)] if small else sizes:
        weights = {"b": np.random.default_rng(k).integers(-128, 128, (k, n)).astype(np.int8)}
        product = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
        out.append(_graph(f"{m} x {k} x {n}, 8 bits", [product], {"a": (m, k)}, weights, np.int8))
    return out


def _packed(sizes: Sequence[tuple[int, int, int]], small: bool, *, level: int = 0) -> list[Graph]:
    """(m, k, n), by weights of 4 bits; `level` is the `accuracy_level`"""
    out = []
    for m, k, n in [(min(sizes[0][0], 130), 256, 64)] if small else sizes:
        rng = np.random.default_rng(k)
        weights = {
            "w": rng.integers(0, 256, (n, k // 32, 16), np.uint8),
            "scales": rng.uniform(0.01, 0.02, (n * k // 32,)).astype(np.float32),
        }
        how: dict[str, Any] = {"K": k, "N": n, "bits": 4, "block_size": 32, "accuracy_level": level}
        node = helper.make_node("MatMulNBits", ["a", "w", "scales"], ["y"], domain="com.microsoft", **how)
        rounded = ", rounded" if level else ""
        out.append(_graph(f"{m} x {k} x {n}, 4 bits{rounded}", [node], {"a": (m, k)}, weights))
    return out


def _rows(sizes: Sequence[tuple[int, int]], small: bool) -> list[Graph]:
    """Rows by columns, of a softmax and of sums."""
    out = []
    for rows, columns in [(64, min(sizes[0][1], 256))] if small else sizes:
        nodes = [helper.make_node("Softmax", ["x"], ["s"]), helper.make_node("ReduceL2", ["s", "axes"], ["y"])]
        out.append(_graph(f"{rows} x {columns}", nodes, {"x": (rows, columns)}, {"axes": np.array([-1])}))
    return out


def _across(sizes: Sequence[tuple[int, int]], small: bool) -> list[Graph]:
    out = []
    for rows, columns in [(64, 8192)] if small else sizes:
        nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["y"])]
        out.append(_graph(f"first axis of {rows} x {columns}", nodes, {"x": (rows, columns)}, {"axes": np.array([0])}))
    return out


def _maps(sizes: Sequence[int], small: bool) -> list[Graph]:
    out = []
    for size in sizes[:1] if small else sizes:
        nodes = [helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Sigmoid", ["c"], ["y"])]
        out.append(_graph(f"{size}", nodes, {"a": (size,), "b": (size,)}, {}))
    return out


def _grouped(sizes: Sequence[tuple[int, int]], small: bool, *, each: int = 1, behind: int = 0) -> list[Graph]:
    """Channels and side; `each` channels in a group, `behind` of how many channels the image is that a convolution makes, 0 where
    it is given."""
    out = []
    for channels, side in [(8, 16)] if small else sizes:
        nodes = [helper.make_node("Conv", ["x", "w"], ["y"], group=channels // each, pads=[1, 1, 1, 1])]
        inputs, weights = {"x": (1, channels, side, side)}, {"w": _random((channels, each, 3, 3))}
        if behind:
            nodes.insert(0, helper.make_node("Conv", ["few", "spread"], ["x"]))
            inputs, weights["spread"] = {"few": (1, behind, side, side)}, _random((channels, behind, 1, 1))
        out.append(_graph(f"{channels} x {side} x {side}", nodes, inputs, weights))
    return out


def _images(sizes: Sequence[tuple[int, int, int]], small: bool) -> list[Graph]:
    """Batch, channels and side, of convolutions one after another."""
    out = []
    for batch, channels, side in [(1, 8, 8)] if small else sizes:
        nodes = []
        for k in range(6):
            nodes += [
                helper.make_node("Conv", [f"x{k}" if k else "x", "w"], [f"y{k}"], pads=[1, 1, 1, 1]),
                helper.make_node("Relu", [f"y{k}"], [f"x{k + 1}"]),
            ]
        inputs, weights = {"x": (batch, channels, side, side)}, {"w": _random((channels, channels, 3, 3))}
        out.append(_graph(f"{batch} x {channels} x {side} x {side}", nodes, inputs, weights))
    return out


def _excited(sizes: Sequence[tuple[int, int, int, int]], small: bool) -> list[Graph]:
    """Batch, channels, hidden ones and side, of an image that a convolution makes and another one reads, scaled."""
    out = []
    for batch, channels, hidden, side in [(2, 16, 8, 4)] if small else sizes:
        nodes = [
            helper.make_node("Conv", ["few", "spread"], ["x"]),
            helper.make_node("GlobalAveragePool", ["x"], ["mean"]),
            helper.make_node("Conv", ["mean", "w0"], ["h"]),
            helper.make_node("Relu", ["h"], ["a"]),
            helper.make_node("Conv", ["a", "w1"], ["g"]),
            helper.make_node("Sigmoid", ["g"], ["gate"]),
            helper.make_node("Mul", ["x", "gate"], ["scaled"]),
            helper.make_node("Conv", ["scaled", "w2"], ["y"]),
        ]
        shapes = {"spread": (channels, 4, 1, 1), "w0": (hidden, channels, 1, 1), "w1": (channels, hidden, 1, 1)}
        shapes["w2"] = (channels, channels, 1, 1)
        weights = {name: _random(shape) for name, shape in shapes.items()}
        name = f"{batch} x {channels} x {side} x {side}, {hidden}"
        out.append(_graph(name, nodes, {"few": (batch, 4, side, side)}, weights))
    return out


def _attention(sizes: Sequence[tuple[int, int, int, int]], small: bool, *, dtype: type = np.float32) -> list[Graph]:
    """(heads, queries, keys, size)"""
    out = []
    for heads, queries, keys, size in [(2, min(it[1], 64), 64, it[3]) for it in sizes[:1]] if small else sizes:
        nodes = [
            helper.make_node("Mul", ["q", "scale"], ["scaled"]),
            helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
            helper.make_node("MatMul", ["scaled", "kt"], ["s"]),
            helper.make_node("Softmax", ["s"], ["w"], axis=-1),
            helper.make_node("MatMul", ["w", "v"], ["y"]),
        ]
        inputs = {
            "q": (1, heads, queries, size),
            "k": (1, heads, keys, size),
            "v": (1, heads, keys, size),
        }
        name = f"{heads} x {queries} x {keys} x {size}"
        out.append(_graph(name, nodes, inputs, {"scale": np.array(size**-0.5, dtype)}, dtype))
    return out


# ---- the classes


def _between(quantity: str, least: int | None, most: int | None = None) -> Bound:
    return Bound(quantity, least, most, known=True)


_LONG = ((16, 2048, 2048, 64), (12, 512, 512, 64))
_LONG_WIDE = ((32, 1024, 1024, 128), (16, 2048, 2048, 128))
_ONE = ((32, 1, 4096, 128), (32, 1, 1024, 64))
_F16 = np.float16
_PRODUCTS: tuple[tuple[tuple[Bound, ...], Sequence[tuple[int, int, int, int]]], ...] = (
    ((Bound("m", 1024), Bound("n", 1024)), ((1, 4096, 4096, 4096), (1, 1024, 1024, 1024))),
    ((Bound("m", 128, 1023), Bound("n", 256), Bound("batch", None, 4)), ((1, 512, 384, 1536), (1, 197, 768, 3072))),
    ((Bound("m", 5, 127), Bound("n", 256), Bound("batch", None, 4)), ((1, 48, 384, 1536), (1, 32, 2048, 2048))),
    ((Bound("m", 64, 1023), Bound("n", 64, 1023), Bound("batch", 8)), ((12, 128, 64, 128), (192, 197, 64, 197))),
)  # fmt: skip
_ROW = (Bound("m", None, 1),)


def _classes() -> list[ShapeClass]:
    out = [
        ShapeClass("matmul", bounds, partial(_product, sizes, kind), dtype)
        for bounds, sizes in _PRODUCTS
        for kind, dtype in ((np.float32, DType.FLOAT32), (_F16, DType.FLOAT16))
    ]
    out += [ShapeClass("matmul_matrices", it, partial(_product, sizes, _F16), DType.FLOAT16) for it, sizes in _PRODUCTS]
    unbatched = [(it, sizes) for it, sizes in _PRODUCTS if all(batch == 1 for batch, *_ in sizes)]
    out += [ShapeClass("matmul_bytes", it, partial(_bytes, sizes)) for it, sizes in unbatched]
    few_tiles = ((1, 1576, 3072, 768), (1, 512, 3072, 768), (1, 512, 768, 2304))
    out.append(
        ShapeClass("matmul_parts", (_between("k", 512), _between("m", 128)), partial(_product, few_tiles, np.float32))
    )
    vector = ((1, 1, 4096, 4096), (1, 1, 4096, 11008))
    out += [
        ShapeClass("matvec", (*_ROW, Bound("bits", None, 31)), partial(_product, vector, _F16), DType.FLOAT16),
        ShapeClass("matvec", (*_ROW, Bound("bits", 32)), partial(_product, vector, np.float32), DType.FLOAT32),
        ShapeClass("packed_rows", (*_ROW, Bound("words", 256)), partial(_packed, ((1, 4096, 4096), (1, 4096, 11008)))),
        ShapeClass(
            "packed_rows", (*_ROW, Bound("words", None, 256)), partial(_packed, ((1, 2048, 2048), (1, 1024, 4096)))
        ),
        ShapeClass(
            "packed_rows",
            (*_ROW, Bound("dots", 1), Bound("words", 256)),
            partial(_packed, ((1, 4096, 4096), (1, 4096, 11008)), level=4),
        ),
        ShapeClass(
            "packed_rows",
            (*_ROW, Bound("dots", 1), Bound("words", None, 256)),
            partial(_packed, ((1, 2048, 2048), (1, 1024, 4096)), level=4),
        ),
        ShapeClass(
            "matmul_dots",
            (Bound("m", 129), Bound("dots", 32)),
            partial(_packed, ((1024, 2048, 8192), (1024, 8192, 2048), (512, 2048, 3072)), level=4),
        ),
        ShapeClass("rows", (_between("columns", 2048),), partial(_rows, ((1024, 8192), (4096, 2048)))),
        ShapeClass("rows", (_between("columns", 33, 2047),), partial(_rows, ((4096, 768), (24576, 128)))),
        ShapeClass("rows", (_between("columns", None, 32),), partial(_rows, ((1 << 18, 16), (1 << 17, 32)))),
        ShapeClass("rows_across", (_between("rows", 1 << 13),), partial(_across, ((8192, 8192), (1024, 16384)))),
        ShapeClass("parts_across", (_between("elements", 1 << 18),), partial(_across, ((8192, 8192), (8192, 1024)))),
        ShapeClass("map", (_between("size", 1 << 22),), partial(_maps, (1 << 24, 1 << 22))),
        ShapeClass("map", (_between("size", 1 << 18, (1 << 22) - 1),), partial(_maps, (1 << 18, 1 << 20))),
        ShapeClass("map", (_between("size", None, (1 << 18) - 1),), partial(_maps, (1 << 16, 1 << 14))),
        ShapeClass("vectors", (), partial(_maps, (1 << 20, 1 << 24))),
        ShapeClass("channels_last", (), partial(_images, ((16, 64, 56), (8, 256, 14)))),
        ShapeClass("depthwise", (), partial(_grouped, ((96, 112), (384, 28)))),
        ShapeClass("depthwise_last", (), partial(_grouped, ((96, 112), (384, 28)), behind=4), beside=(LAST,)),
        ShapeClass("grouped_last", (), partial(_grouped, ((128, 56), (512, 14)), each=4, behind=4), beside=(LAST,)),
        *(
            ShapeClass("squeeze_excite", (_between("weights", *weights),), partial(_excited, sizes), beside=(LAST,))
            for weights, sizes in (
                ((None, 1 << 15), ((8, 120, 30, 28), (16, 480, 20, 14))),
                (((1 << 15) + 1, 1 << 17), ((8, 336, 84, 14), (16, 480, 120, 14))),
                (((1 << 17) + 1, 1 << 19), ((16, 672, 168, 7), (8, 888, 222, 7))),
            )
        ),
        *(
            ShapeClass("gated_rows", (_between("n", *columns),), partial(_excited, sizes), beside=(LAST,))
            for columns, sizes in (
                ((None, 255), ((8, 48, 12, 56), (8, 120, 30, 28))),
                ((256, 511), ((8, 336, 84, 14), (16, 480, 20, 14))),
                ((512, 1023), ((8, 888, 222, 7), (16, 672, 28, 14))),
            )
        ),
    ]
    tiles, rows = (Bound("rows", 17),), (Bound("rows", None, 8),)
    for sizes, least, most in ((_LONG, 33, 64), (_LONG_WIDE, 65, 128)):
        width = Bound("value_size", least, most)
        out.append(ShapeClass("flash_attention", (*tiles, width), partial(_attention, sizes), beside=(FUSED,)))
        halves = partial(_attention, sizes, dtype=_F16)
        out.append(ShapeClass("flash_matrices", (*tiles, width), halves, DType.FLOAT16, beside=(FUSED,)))
        many = (
            _between("size", least, most),
            _between("value_size", least, most),
            _between("batch", 12),
            _between("rows", 512),
        )
        form = (*many, _between("keys", 512), _between("scores_per_binding", 4))
        out.append(ShapeClass("attention", form, partial(_attention, sizes), DType.FLOAT32))
    out.append(ShapeClass("flash_rows", (Bound("rows", None, 1),), partial(_attention, _ONE), beside=(FUSED,)))
    out.append(ShapeClass("flash_parts", rows, partial(_attention, _ONE), beside=(FUSED,)))
    return out


CLASSES = tuple(_classes())
KERNELS = tuple(dict.fromkeys(it.kernel for it in CLASSES))
