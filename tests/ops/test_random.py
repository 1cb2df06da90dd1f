"""Random numbers: the generator against its published answers, what is made of it against Python, and distributions.

Seeds are fixed, so that a test of a distribution gives the same answer each time.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from onnx import AttributeProto, TensorProto, helper

from onnxruntime_ep_wgpu.compiler.emit import prelude
from onnxruntime_ep_wgpu.device import BufferBinding
from onnxruntime_ep_wgpu.errors import UnsupportedError
from onnxruntime_ep_wgpu.program.file import load, save
from tests import support

from . import philox
from .compare import both_ways, random

# Counter, key and words of philox4x32_10, as `kat_vectors` of the authors' library Random123 has them.
ANSWERS = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]
TYPES = {"shape": AttributeProto.INTS}  # which an empty list does not tell
SIZES = [0, 1, 2, 5, 1023, 70_000]


def of_node(op: str, *arrays: np.ndarray, outputs: Any = (np.float32,), opset: int = 22, **how: Any) -> support.Runner:
    """What runs a graph of one node; inputs have sizes that a run tells."""
    names = [f"x{k}" for k in range(len(arrays))]
    node = helper.make_node(op, names, [f"y{k}" for k in range(len(outputs))], name=op)
    node.attribute.extend(helper.make_attribute(k, it, attr_type=TYPES.get(k)) for k, it in how.items())
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(it.dtype), [f"{name}.{a}" for a in range(it.ndim)]
        )
        for name, it in zip(names, arrays, strict=True)
    ]
    results = [
        helper.make_tensor_value_info(f"y{k}", helper.np_dtype_to_tensor_dtype(np.dtype(it)), None)
        for k, it in enumerate(outputs)
    ]
    graph = helper.make_graph([node], op, inputs, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return support.Runner(support.compile_model(model, support.target()))


def distance(sorted_sample: np.ndarray, cumulative: np.ndarray) -> float:
    """Kolmogorov's and Smirnov's distance of a sample, times the root of its size; above 1.95 once in a thousand samples."""
    n = len(sorted_sample)
    steps = np.arange(n + 1) / n
    return float(max((steps[1:] - cumulative).max(), (cumulative - steps[:-1]).max()) * math.sqrt(n))


def normal_distribution(x: np.ndarray) -> np.ndarray:
    return np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])


# ---- the generator


@pytest.mark.parametrize("counter, key, wanted", ANSWERS)
def test_the_reference_gives_the_published_answers(counter: list[int], key: list[int], wanted: list[int]) -> None:
    assert philox.philox(counter, key) == wanted


def test_the_reference_is_the_generator_of_numpy() -> None:
    counter, key = [2**64 - 1, 7, 2**63, 3], [2**64 - 1, 5]
    numpys = np.random.Philox(counter=np.array(counter, np.uint64), key=np.array(key, np.uint64))
    following = [0, 8, *counter[2:]]  # numpy counts before it draws
    assert philox.philox(following, key, 64) == numpys.random_raw(4).tolist()


def test_the_generator_of_kernels_gives_the_published_answers() -> None:
    text = """
@group(0) @binding(0) var<storage, read> given: array<u32>;
@group(0) @binding(1) var<storage, read_write> made: array<u32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) id: vec3u) {
  let w = id.x;
  let at = w * 6u;
  let counter = vec4<u32>(given[at], given[at + 1u], given[at + 2u], given[at + 3u]);
  let words = philox(counter, vec2<u32>(given[at + 4u], given[at + 5u]));
  for (var k = 0u; k < 4u; k++) { made[w * 4u + k] = words[k]; }
}
"""
    device, count = support.device(), len(ANSWERS)
    given = np.array([counter + key for counter, key, _ in ANSWERS], np.uint32)
    made = np.empty((count, 4), np.uint32)
    source, target = device.buffer(given.nbytes), device.buffer(made.nbytes)
    device.upload(source, 0, given.reshape(-1).view(np.uint8).data)
    pipeline = device.pipeline(prelude.with_needed(text, False), ("read", "read_write"), "philox")
    bindings = [BufferBinding(source, 0, given.nbytes), BufferBinding(target, 0, made.nbytes)]
    device.submit([(pipeline, device.bind_group(pipeline, bindings), (count, 1, 1))])
    device.download(target, 0, made.reshape(-1).view(np.uint8).data)
    np.testing.assert_array_equal(made, np.array([wanted for *_, wanted in ANSWERS], np.uint32))


# ---- numbers


@pytest.mark.parametrize("size", SIZES)
def test_uniform_numbers_are_those_of_the_reference_run_by_run(size: int) -> None:
    run = of_node("RandomUniform", shape=[size], seed=2.5)
    for number in (1, 2, 3):
        (got,) = run()
        np.testing.assert_array_equal(got, philox.unit(philox.words(size, philox.of_seed(2.5), number)))


@pytest.mark.parametrize("size", SIZES)
def test_normal_numbers_are_those_of_the_reference(size: int) -> None:
    run, whole = of_node("RandomNormal", shape=[size], seed=-1.0), -(-size // 2) * 2
    for number in (1, 2):
        (got,) = run()
        wanted = philox.normal(philox.words(whole, philox.of_seed(-1), number))[:size]
        np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=2e-7)


def test_numbers_that_several_dispatches_draw_are_the_same() -> None:
    node = helper.make_node("RandomUniform", [], ["y"], shape=[70_000], seed=2.0)
    target = dataclasses.replace(support.target(), max_binding_bytes=1 << 14)
    program = support.compile_model(support.make_model([node], {}), target)
    assert program.dispatches[-1].repeats != 1
    run = support.Runner(program)
    for number in (1, 2):
        np.testing.assert_array_equal(run()[0], philox.unit(philox.words(70_000, philox.of_seed(2), number)))


@pytest.mark.parametrize("shape", [[], [1], [3, 4, 5], [2, 0, 3]], ids=str)
@pytest.mark.parametrize("op", ["RandomNormal", "RandomUniform"])
def test_shapes(op: str, shape: list[int]) -> None:
    run = of_node(op, shape=shape, seed=1.0)
    (got,) = run()
    assert got.shape == tuple(shape) and got.dtype == np.float32
    (flat,) = of_node(op, shape=[math.prod(shape)], seed=1.0)()
    np.testing.assert_array_equal(got.reshape(-1), flat)


@pytest.mark.parametrize("dtype", [np.float16, bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("op", ["RandomNormal", "RandomUniform"])
def test_types_are_roundings_of_one_number(op: str, dtype: Any) -> None:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    (wide,) = of_node(op, shape=[999], seed=1.0)()
    (got,) = of_node(op, outputs=[dtype], shape=[999], seed=1.0, dtype=code)()
    assert got.dtype == dtype
    if op == "RandomUniform" and dtype != np.float64:  # below 1 in the narrow type too
        wide = np.minimum(wide, np.nextafter(np.array(1, dtype), np.array(0, dtype)).astype(np.float32))
    np.testing.assert_array_equal(got, wide.astype(dtype))


@pytest.mark.parametrize("dtype", [TensorProto.BOOL, TensorProto.INT32])
@pytest.mark.parametrize("op", ["RandomNormal", "RandomUniform"])
def test_other_types_are_refused_by_name(op: str, dtype: int) -> None:
    with pytest.raises(UnsupportedError, match=r"random numbers of type (bool|int32)"):
        of_node(op, shape=[3], dtype=dtype)


@pytest.mark.parametrize("low, high", [(-3.0, 5.0), (1.0, 2.0), (1e30, 2e30), (7.0, 7.0), (1.0, 1.0000001)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_uniform_numbers_are_within_their_bounds(low: float, high: float, dtype: Any) -> None:
    if dtype == np.float16 and high > 6e4:
        pytest.skip("no bounds of halves")
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    (got,) = of_node("RandomUniform", outputs=[dtype], shape=[70_000], low=low, high=high, seed=3.0, dtype=code)()
    least, most = np.array([low, high], np.float32).astype(dtype)
    assert (got >= least).all() and ((got < most).all() or least == most)
    if high - low > 1e-3:
        part = (got.astype(np.float64) - low) / (high - low)
        assert abs(part.mean() - 0.5) < 0.005 and part.min() < 0.001 and part.max() > 0.998


def test_bounds_without_a_finite_distance_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="too far apart"):
        of_node("RandomUniform", shape=[3], low=-3e38, high=3e38)


def test_mean_and_scale() -> None:
    (plain,), (got,) = (of_node("RandomNormal", shape=[500], seed=4.0, **it)() for it in ({}, {"mean": -3, "scale": 2}))
    np.testing.assert_allclose(got, plain * 2 - 3, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("op", ["RandomNormal", "RandomUniform"])
@pytest.mark.parametrize("x", [random(3, 5), random(7, dtype=np.int64), random(2, 0), random(dtype=bool)], ids=str)
def test_like_another_tensor(op: str, x: np.ndarray) -> None:
    run = of_node(f"{op}Like", x, seed=9.0, dtype=1)
    (got,), (wanted,) = run(x), of_node(op, shape=list(x.shape), seed=9.0)()
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, wanted)


def test_like_another_tensor_in_its_type_and_size() -> None:
    halves = random(3, 5, dtype=np.float16)
    run = of_node("RandomNormalLike", halves, outputs=[np.float16], seed=9.0)
    (first,), (larger,) = run(halves), run(random(300, 50, dtype=np.float16))
    assert first.dtype == larger.dtype == np.float16 and larger.shape == (300, 50)
    wanted = philox.normal(philox.words(15_000, philox.of_seed(9), 2))
    np.testing.assert_allclose(larger.reshape(-1), wanted, rtol=1e-3, atol=1e-3)  # the second run, whatever its size
    with pytest.raises(UnsupportedError, match="random numbers of type int64"):
        of_node("RandomNormalLike", random(3, dtype=np.int64))


# ---- distributions


@pytest.mark.parametrize("size", [70_000, pytest.param(10_000_000, marks=pytest.mark.exhaustive)])
def test_uniform_numbers_are_uniform(size: int) -> None:
    (got,) = of_node("RandomUniform", shape=[size], seed=11.0)()
    exact = got.astype(np.float64)
    assert abs(exact.mean() - 0.5) < 4 * math.sqrt(1 / 12 / size)
    assert abs(exact.var() - 1 / 12) < 4 * math.sqrt(1 / 180 / size)
    ordered = np.sort(exact)
    assert distance(ordered, ordered) < 1.95
    assert ordered[0] >= 0 and ordered[-1] < 1


@pytest.mark.parametrize("size", [70_000, pytest.param(10_000_000, marks=pytest.mark.exhaustive)])
def test_normal_numbers_are_normal(size: int) -> None:
    (got,) = of_node("RandomNormal", shape=[size], seed=11.0)()
    exact = got.astype(np.float64)
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3)):
        spread = math.sqrt((math.prod(range(2 * power - 1, 0, -2)) - moment**2) / size)
        assert abs((exact**power).mean() - moment) < 4 * spread, f"moment {power}"
    ordered = np.sort(exact)[:: max(1, size // 70_000)]
    if len(ordered) == size:
        assert distance(ordered, normal_distribution(ordered)) < 1.95
    else:  # every so many of a sorted sample: as near to its quantiles as all are, but for a step
        cumulative = normal_distribution(ordered)
        places = np.arange(len(ordered)) * max(1, size // 70_000) / size
        assert np.abs(cumulative - places).max() * math.sqrt(size) < 2.0


def test_neighbours_runs_and_seeds_are_independent() -> None:
    run = of_node("RandomNormal", shape=[70_000], seed=5.0)
    (first,), (second,) = run(), run()
    (other,) = of_node("RandomNormal", shape=[70_000], seed=6.0)()
    pairs = {"runs": (first, second), "seeds": (first, other)}
    pairs |= {f"{lag} apart": (first[:-lag], first[lag:]) for lag in (1, 2, 3, 4, 64)}
    for what, (a, b) in pairs.items():
        for one, two in ((a, b), (np.abs(a), np.abs(b))):
            assert abs(np.corrcoef(one, two)[0, 1]) < 4 / math.sqrt(len(a)), what


# ---- seeds and runs


def two_nodes(**how: Any) -> support.Runner:
    nodes = [helper.make_node("RandomUniform", [], [name], shape=[1000], **how) for name in ("a", "b")]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1000]) for name in ("a", "b")]
    graph = helper.make_graph(nodes, "two", [], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return support.Runner(support.compile_model(model))


def test_nodes_without_a_seed_draw_apart_and_differ_between_executables() -> None:
    run, again = two_nodes(), two_nodes()
    drawn = [*run(), *run(), *again()]
    for k, one in enumerate(drawn):
        for other in drawn[:k]:
            assert (one == other).mean() < 0.01
            assert abs(np.corrcoef(one, other)[0, 1]) < 0.15


def test_nodes_of_one_seed_draw_the_same() -> None:
    for a, b in (two_nodes(seed=1.0)(), two_nodes(seed=1.0)()):
        np.testing.assert_array_equal(a, b)


def test_a_saved_program_draws_by_its_seed_or_anew(tmp_path: Any) -> None:
    for seeded, how in ((True, {"seed": 3.0}), (False, {})):
        run = of_node("RandomNormal", shape=[64], **how)
        path = tmp_path / f"{seeded}.wgpu"
        save(run.executable.program, path)
        (one,), (other,) = run(), support.Runner(load(path))()
        assert np.array_equal(one, other) == seeded


def test_the_number_of_a_run_has_64_bits() -> None:
    run = of_node("RandomUniform", shape=[9], seed=1.0)
    run()
    executable = run.executable
    (state,) = executable._plans.of_graph.states(executable.program).values()
    key = philox.of_seed(1)
    run.device.upload(state, 0, np.array([*key, 0xFFFFFFFF, 6], np.uint32).tobytes())
    for number in (7 << 32, (7 << 32) + 1):
        np.testing.assert_array_equal(run()[0], philox.unit(philox.words(9, key, number)))


def test_a_program_for_certain_sizes_goes_on_with_the_runs_of_the_graph() -> None:
    run = of_node("RandomUniform", shape=[9], seed=1.0)
    executable = run.executable
    run()
    run.sized = type(run.sized)(executable.compiled_for(executable.program, ()), None)
    np.testing.assert_array_equal(run()[0], philox.unit(philox.words(9, philox.of_seed(1), 2)))


# ---- Bernoulli


@pytest.mark.parametrize(
    ("dtype", "int64"),
    both_ways([np.float32, np.float64, np.float16, bool, np.int8, np.uint8, np.int16, np.int32, np.int64]),
)
def test_bernoulli_draws_ones_as_often_as_it_should(dtype: Any, int64: str) -> None:
    p = np.repeat(np.array([[0], [0.125], [0.5], [0.875], [1], [np.nan], [2], [-1]], np.float32), 20_000, axis=1)
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    (got,) = of_node("Bernoulli", p, outputs=[dtype], seed=1.0, dtype=code)(p)
    assert got.dtype == dtype and got.shape == p.shape
    assert set(np.unique(got.astype(np.float32))) <= {0, 1}
    wanted = philox.unit(philox.words(p.size, philox.of_seed(1), 1)).reshape(p.shape) < p
    np.testing.assert_array_equal(got.astype(bool), wanted)
    assert wanted[0].sum() == wanted[5].sum() == wanted[7].sum() == 0 and wanted[4].all() and wanted[6].all()
    assert np.abs(wanted[1:4].mean(1) - p[1:4, 0]).max() < 4 * math.sqrt(0.25 / 20_000)


def test_bernoulli_of_probabilities_in_64_bits() -> None:
    p = np.random.default_rng(0).random(1000)
    drawn = philox.unit(philox.words(1000, philox.of_seed(1), 1)).astype(np.float64)
    p[:4] = drawn[:4]  # not below
    p[4:8] = np.nextafter(drawn[4:8], 1)  # below, as no float of 32 bits shows
    (got,) = of_node("Bernoulli", p, outputs=[np.float64], seed=1.0)(p)
    np.testing.assert_array_equal(got, (drawn < p).astype(np.float64))
    assert not got[:4].any() and got[4:8].all()


@pytest.mark.parametrize("shape", [(), (1,), (0, 3)], ids=str)
def test_bernoulli_in_the_type_of_its_operand(shape: tuple[int, ...]) -> None:
    p = np.ones(shape, np.float16)
    (got,) = of_node("Bernoulli", p, outputs=[np.float16])(p)
    np.testing.assert_array_equal(got, p)


# ---- Multinomial


def chi_square(counts: np.ndarray, weights: np.ndarray) -> float:
    """Pearson's statistic, less its mean, in standard deviations."""
    expected = counts.sum() * weights / weights.sum()
    drawn = expected > 0
    freedom = drawn.sum() - 1
    return float((((counts - expected)[drawn] ** 2 / expected[drawn]).sum() - freedom) / math.sqrt(2 * freedom))


@pytest.mark.parametrize("classes", [2, 7, 300, pytest.param(70_000, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_multinomial_draws_classes_as_often_as_they_weigh(classes: int, dtype: Any) -> None:
    rng = np.random.default_rng(classes)
    weights = rng.uniform(0.1, 1, (3, classes))
    weights[1, ::2] = 0
    with np.errstate(divide="ignore"):
        x = (np.log(weights) + np.array([[0], [80], [-300]])).astype(np.float32)
    count, code = max(20_000, 8 * classes), helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    (got,) = of_node("Multinomial", x, outputs=[dtype], sample_size=count, seed=7.0, dtype=code)(x)
    assert got.dtype == dtype and got.shape == (3, count)
    for row, own in zip(got, weights, strict=True):
        counts = np.bincount(row, minlength=classes)
        assert len(counts) == classes and not counts[own == 0].any()
        assert (own > 0).sum() == 1 or abs(chi_square(counts, own)) < 4
    assert (got[0] == got[2]).mean() < 0.9, "rows are drawn apart"


def test_multinomial_never_draws_what_is_not_finite() -> None:
    x = np.array([[np.nan, 0, -np.inf, 1, np.inf, 0.5]], np.float32)
    (got,) = of_node("Multinomial", x, outputs=[np.int32], sample_size=3000, seed=1.0)(x)
    assert set(np.unique(got)) == {1, 3, 5}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_multinomial_of_few(dtype: Any) -> None:
    one = np.array([[-5], [3]], dtype)
    (got,) = of_node("Multinomial", one, outputs=[np.int32], sample_size=4)(one)
    np.testing.assert_array_equal(got, np.zeros((2, 4), np.int32))
    none = np.zeros((0, 3), dtype)
    assert of_node("Multinomial", none, outputs=[np.int32])(none)[0].shape == (0, 1)


def test_multinomial_without_classes_or_samples_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="sample_size=0"):
        of_node("Multinomial", np.zeros((2, 3), np.float32), sample_size=0)
    run = of_node("Multinomial", np.zeros((2, 3), np.float32), outputs=[np.int32])
    with pytest.raises(Exception, match="cannot draw from 0 classes"):
        run(np.zeros((2, 0), np.float32))


# ---- Dropout in training


def dropped(x: np.ndarray, ratio: Any, training: Any = True, seed: int = 5, run: support.Runner | None = None) -> Any:
    arrays = [x, np.asarray(ratio), np.asarray(training)]
    run = run or of_node("Dropout", *arrays, outputs=[x.dtype, bool], seed=seed)
    return run(*arrays)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, bfloat16, np.float64])
@pytest.mark.parametrize("ratio", [0.25, 0.5, 0.9])
def test_dropout_drops_a_part_and_makes_the_others_larger(dtype: Any, ratio: float) -> None:
    x, ratio_in = random(200, 351).astype(dtype), np.array(ratio, np.float32)
    y, mask = dropped(x, ratio_in)
    np.testing.assert_array_equal(mask, philox.unit(philox.words(x.size, (5, 0), 1)).reshape(x.shape) >= ratio_in)
    assert abs(1 - mask.mean() - ratio) < 4 * math.sqrt(ratio * (1 - ratio) / x.size)
    wanted = (x.astype(np.float64) * mask / (1 - ratio_in)).astype(dtype).astype(np.float64)
    rtol = {np.float64: 1e-15, np.float32: 1e-6, np.float16: 1e-3, bfloat16: 8e-3}[dtype]
    np.testing.assert_allclose(y.astype(np.float64), wanted, rtol=rtol, atol=0 if dtype == np.float64 else 1e-6)


def test_dropout_of_what_is_not_finite_is_the_product_with_the_mask() -> None:
    x = np.tile(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], np.float32), 50)
    y, mask = dropped(x, np.float32(0.5))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(y, x * mask * 2)


def test_a_run_says_whether_it_trains_and_what_it_drops() -> None:
    x = random(1000)
    run = of_node("Dropout", x, np.array(0.5, np.float32), np.array(True), outputs=[np.float32, bool], seed=5)
    for ratio, training in ((0.5, False), (0.0, True), (0.0, False)):
        y, mask = dropped(x, np.float32(ratio), training, run=run)
        np.testing.assert_array_equal(y, x)
        assert mask.all()
    _, mask = dropped(x, np.float32(0.5), run=run)
    assert 400 < mask.sum() < 600
    assert not np.array_equal(mask, dropped(x, np.float32(0.5), run=run)[1]), "each run drops others"


def test_dropout_drops_a_half_without_a_ratio() -> None:
    node = helper.make_node("Dropout", ["x", "", "t"], ["y", "mask"], seed=1 << 40 | 3)
    model = support.make_model([node], {"x": (np.float32, [70_000])}, {"t": np.array(True)})
    y, mask = support.run_model(model, np.ones(70_000, np.float32))
    np.testing.assert_array_equal(mask, philox.unit(philox.words(70_000, (3, 1 << 8), 1)) >= 0.5)
    np.testing.assert_array_equal(y, mask * np.float32(2))


def test_negative_seeds_of_dropout_are_seeds_too() -> None:
    x = random(1000)
    masks = [dropped(x, np.float32(0.5), seed=seed)[1] for seed in (-1, -1, 1)]
    assert np.array_equal(masks[0], masks[1]) and not np.array_equal(masks[0], masks[2])
