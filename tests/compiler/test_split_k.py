"""Products cut along k, as small ones are on GPUs: the same results whatever the operands are views of, and a sum behind them
that takes what follows. The shapes are generated; a choice of the test makes parts of small ones."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import Target
from tests import targets
from tests.compiler import attention_models
from tests.compiler.attention_models import Sizes
from tests.support import Runner, compile_model, make_model, target

way = targets.each(targets.Way("gpu"))


def cut(parts: int, columns: int = 4) -> Target:
    """A Target whose products of one tile are cut into so many parts, or the most that divide k."""
    return dataclasses.replace(target(), tuning=(tune.use(tune.products.SplitK(parts, columns)),))


def products(program: Program) -> list[str]:
    labels = [program.kernels[it.kernel].label for it in program.dispatches]
    return [it for it in labels if it in ("matmul", "matvec", "packed_rows")]


def compare(model: onnx.ModelProto, program: Program, *given: np.ndarray, tolerance: float = 2e-6) -> None:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, dict(zip((it.name for it in model.graph.input), given, strict=True)))
    for got, want in zip(Runner(program)(*given), wanted, strict=True):
        scale = max(1.0, np.abs(want.astype(np.float64)).max(initial=0))
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), atol=tolerance * scale)


def normal(seed: int, *shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(24))
def test_matrices(seed: int) -> None:
    """Batches, transposed weights, what follows and elements of f16, in up to eight parts."""
    rng = np.random.default_rng(seed)
    parts = int(rng.choice([2, 3, 4, 8]))
    m, n = (int(rng.integers(9, 40)) for _ in range(2))
    k = parts * (int(rng.integers(2, 12)) * 4 if parts != 3 else int(rng.choice([5, 7, 12])))
    dtype = rng.choice([np.float32, np.float16])
    if seed % 2:
        turned = int(rng.integers(2))
        weights = normal(seed, *((n, k) if turned else (k, n)), dtype=dtype)
        nodes = [node("Gemm", ["a", "b", "c"], ["g"], transB=turned), node("Relu", ["g"], ["r"])]
        weight = {"b": weights, "c": normal(2, n, dtype=dtype)}
        shape = (m, k)
    else:
        batch = int(rng.integers(2, 4))
        nodes = [node("MatMul", ["a", "b"], ["g"]), node("Abs", ["g"], ["r"])]
        weight = {"b": normal(seed, batch, k, n, dtype=dtype)}
        shape = (batch, m, k)
    nodes.append(node("Mul", ["r", "two"], ["y"]))
    model = make_model(nodes, {"a": (dtype, list(shape))}, {**weight, "two": np.array(2, dtype)})
    tiles = int(np.prod(shape[:-2]))
    program = compile_model(model, cut(parts * tiles))
    assert [program.kernels[it.kernel].label for it in program.dispatches] == ["matmul", "map"]
    compare(model, program, normal(seed + 100, *shape, dtype=dtype), tolerance=2e-3 if dtype == np.float16 else 2e-6)


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(24))
def test_convolutions(seed: int) -> None:
    """Windows, which are no matrix in memory, with padding, strides, dilations and groups, and a bias behind the sum."""
    rng = np.random.default_rng(seed)
    group = int(rng.choice([1, 1, 2]))
    channels, features = 4 * int(rng.integers(1, 4)), 16 * int(rng.integers(1, 3))
    kernel, size = [int(it) for it in rng.choice([1, 2, 3], 2)], [int(it) for it in rng.integers(5, 9, 2)]
    nodes = [
        node(
            "Conv", ["x", "w", "b"], ["c"], group=group, kernel_shape=kernel, strides=[int(rng.integers(1, 3))] * 2,
            pads=[int(it) for it in rng.integers(0, 2, 4)], dilations=[int(rng.integers(1, 3)), 1],
        ),
        node("Relu", ["c"], ["y"]),
    ]  # fmt: skip
    weights = {"w": normal(seed, features, channels // group, *kernel), "b": normal(seed, features)}
    model = make_model(nodes, {"x": (np.float32, [3, channels, *size])}, weights)
    program = compile_model(model, cut(2 * 3 * group, 2))
    assert "PARTED" not in " ".join(it.wgsl[0] for it in program.kernels)
    parted = "let k_end = min(" in " ".join(it.wgsl[0] for it in program.kernels)
    assert parted == (products(program) == ["matmul"] and channels // group * kernel[0] * kernel[1] >= 4), seed
    compare(model, program, normal(seed + 1, 3, channels, *size))


def test_operands_are_read_as_without_parts() -> None:
    """A part is where a workgroup begins in k: nothing is divided to find an element."""
    model = make_model(
        [node("Conv", ["x", "w"], ["y"], pads=[1] * 4)],
        {"x": (np.float32, [2, 8, 6, 6])},
        {"w": normal(0, 16, 8, 3, 3)},
    )
    found = []
    for on in (cut(1), cut(4)):
        (text,) = (it.wgsl[0] for it in compile_model(model, on).kernels if it.label == "matmul")
        found.append(text[text.index("fn a_at4(") : text.index("fn y_put")])
    assert found[0] == found[1]


@pytest.mark.costly
@pytest.mark.parametrize("steps", [8, 24, 40])
def test_a_part_is_whole_steps_of_a_tile(steps: int) -> None:
    """Also of a tile of a user's table; what is left of k is in the last part, which may be empty."""
    tile = tune.products.Tile(16, 16, steps, 4, 4, 1, 4) if steps != 24 else tune.products.Tile(16, 16, 12, 4, 4, 2, 4)
    for k in (steps, 2 * steps + 3, 5 * steps - 1, 97):
        model = make_model([node("MatMul", ["a", "b"], ["y"])], {"a": (np.float32, [16, k])}, {"b": normal(k, k, 16)})
        on = dataclasses.replace(target(), tuning=(tune.use(tune.products.SplitK(5, 4)), tune.use(tile)))
        compare(model, compile_model(model, on), normal(1, 16, k))


@pytest.mark.costly
@pytest.mark.parametrize("spelling", ["transposed", "sliced", "reversed", "repeated"])
def test_operands_that_are_views(spelling: str) -> None:
    k, weights = 48, {"b": normal(3, 48, 20), "starts": np.array([47]), "ends": np.array([-(1 << 40)])}
    weights |= {"axes": np.array([0]), "steps": np.array([-1]), "first": np.array([5]), "shape": np.array([3, 1, 1])}
    weights |= {"size": np.array([53]), "last": np.array([1])}
    nodes = {
        "transposed": [node("Transpose", ["a"], ["t"], perm=[1, 0]), node("MatMul", ["t", "b"], ["y"])],
        "sliced": [node("Slice", ["a", "first", "size", "last"], ["t"]), node("MatMul", ["t", "b"], ["y"])],
        "reversed": [node("Slice", ["b", "starts", "ends", "axes", "steps"], ["t"]), node("MatMul", ["a", "t"], ["y"])],
        "repeated": [node("Expand", ["a", "shape"], ["t"]), node("MatMul", ["t", "b"], ["y"])],
    }[spelling]
    shape = {"transposed": [k, 17], "sliced": [17, 60]}.get(spelling, [17, k])
    used = {name for it in nodes for name in it.input}
    model = make_model(nodes, {"a": (np.float32, shape)}, {n: w for n, w in weights.items() if n in used})
    program = compile_model(model, cut(12))
    assert "map" in {kernel.label for kernel in program.kernels}
    compare(model, program, normal(5, *shape))


def test_sizes_of_a_run_are_not_cut() -> None:
    model = make_model([node("MatMul", ["a", "b"], ["y"])], {"a": (np.float32, ["m", 48])}, {"b": normal(1, 48, 20)})
    program = compile_model(model, cut(8))
    assert len(program.dispatches) == 1
    compare(model, program, normal(2, 5, 48))


def test_attention_is_found_first() -> None:
    """Its products are one kernel; nothing is cut that another rule has taken."""
    sizes = Sizes(1, 2, 40, 40, 32, 32)
    made = attention_models.attention_model("scores", "none", sizes)
    arrays = attention_models.feeds(made, "none", sizes, np.random.default_rng(0))
    program = compile_model(made, cut(64))
    assert {program.kernels[it.kernel].label for it in program.dispatches} >= {"flash_attention"}
    assert products(program) == []
    want = attention_models.expected("scores", "none", sizes, arrays)
    np.testing.assert_allclose(Runner(program)(*arrays)[0], want, atol=1e-5)


def test_special_values_are_in_the_sum() -> None:
    a, b = np.ones((16, 32), np.float32), np.ones((32, 16), np.float32)
    a[1, 3], a[2, 20], a[3, 5], a[3, 30], b[9, 4] = np.nan, np.inf, np.inf, -np.inf, -np.inf
    model = make_model([node("MatMul", ["a", "b"], ["y"])], {"a": (np.float32, [16, 32])}, {"b": b})
    program = compile_model(model, cut(4))
    assert len(program.dispatches) == 2
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(Runner(program)(a)[0], a @ b)


def test_the_shipped_choice() -> None:
    """A GPU with memory of its own needs more workgroups than others; large products are whole on both."""
    for discrete, m, k, n, parts in (
        (True, 1576, 3072, 768, 3),
        (True, 512, 768, 768, 3),
        (True, 4096, 4096, 4096, 1),
        (False, 1576, 3072, 768, 1),
        (False, 64, 4608, 49, 9),
        (True, 64, 257, 64, 1),
    ):
        on = dataclasses.replace(Target(), discrete=discrete)
        assert tune.k_splits(1, m, n, k, on) == parts, (discrete, m, k, n)
    assert tune.k_splits(1, 64, 64, 4096, dataclasses.replace(Target(), software=True)) == 1
    assert not Target(discrete=True).needs.discrete
    # A sum of k terms is no expression of as many: k of 2^18 has no more parts than a map adds.
    assert tune.k_splits(1, 48, 1 << 18, 48, dataclasses.replace(Target(), discrete=True)) == 1
    assert tune.k_splits(1, 48, 48, 1 << 18, dataclasses.replace(Target(), discrete=True)) == tune.products.MOST_SPLITS
