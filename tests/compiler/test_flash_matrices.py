"""Attention by matrices of subgroups, in plain WGSL where the adapter has no units for them, beside the definition in
float64: every shape of tiles, whatever queries see and however operands lie, sizes that no tile divides, what is not
finite."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.compiler.tune.flash_matrices import FlashMatrices
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import F16, SUBGROUP_MATRIX, MatrixUnit, Target
from tests import targets
from tests.support import Runner, compile_model, target

from .attention_models import SPELLINGS, Sizes, attention_model, feeds
from .attention_models import expected as expected_of
from .test_flash import LAYOUTS, Case, arrays_of, built, check, expected, tolerance

H = np.float16
SMALL = FlashMatrices(16, 16, 1, 256)  # two invocations share a row
TILES = (
    SMALL,
    FlashMatrices(32, 32, 1, 64, 0),  # an invocation for each row, queries in memory
    FlashMatrices(32, 16, 2, 64),
    FlashMatrices(8, 32, 1, 64, 1, 8, 8, 8),  # four invocations share a row
    FlashMatrices(16, 32, 2, 64, 1, 8, 16, 16),
)
EVERYTHING = Case(2, 4, 2, 23, 37, 40, 24, left=9, right=3, softcap=3.0, mask="added", sink=True, ends=True, dtype=H)
PLAIN = Case(1, 2, 2, 20, 33, 32, 32, dtype=H)


way = targets.each(targets.Way("matrices"), targets.Way("web-matrices"))


def on(*choices: FlashMatrices | tune.attention.SplitKeys, **changes: object) -> Target:
    return dataclasses.replace(target(), tuning=tuple(tune.use(it) for it in choices), **changes)


def uses_matrices(program: Program) -> bool:
    attention = [it for it in program.kernels if it.label.startswith("flash_attention")]
    return any("matrix_sum" in text for kernel in attention for text in kernel.wgsl)


def ran(case: Case, arrays: dict[str, np.ndarray], tile: FlashMatrices = SMALL) -> np.ndarray:
    made = built(case, on(tile))
    assert uses_matrices(made.program)
    return Runner(made.program)(*(arrays[name] for name in made.names))[0]


@pytest.mark.costly
@pytest.mark.parametrize(
    "tile", TILES, ids=lambda it: f"{it.tile_q}x{it.tile_k} of {it.unit_m}x{it.unit_n}x{it.unit_k}"
)
def test_every_tile_is_the_definition(tile: FlashMatrices) -> None:
    assert uses_matrices(check(EVERYTHING, on(tile)))


CASES = {
    "groups of heads, a past": Case(2, 6, 2, 19, 50, 32, 32, starts="data", behind=True, ends=True, right=0, dtype=H),
    "a position before the keys": Case(2, 2, 2, 40, 33, 32, 32, starts=-7, left=90, right=0, dtype=H),
    "chosen keys": Case(2, 4, 1, 17, 40, 24, 48, mask="chosen", dtype=H),
    "one key": Case(1, 2, 2, 18, 1, 32, 32, dtype=H),
    "elements before steps": Case(1, 4, 2, 18, 35, 16, 16, layout="elements before steps", dtype=H),
    "tiles of one head, the last first": Case(2, 6, 2, 32, 40, 16, 16, starts=8, right=0, dtype=H),
    "wide heads": Case(1, 1, 1, 17, 40, 136, 72, layout="steps first", dtype=H),
}


@pytest.mark.costly
@pytest.mark.parametrize("name", CASES)
def test_it_is_the_definition(name: str) -> None:
    assert uses_matrices(check(CASES[name], on(SMALL)))


@pytest.mark.costly
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_graphs_that_spell_it_out_have_this_kernel(spelling: str) -> None:
    """Their results may be transposed."""
    sizes = Sizes(2, 2, 20, 35, 24, 16)
    model = attention_model(spelling, "none", sizes, H)
    program = compile_model(model, on(SMALL))
    assert uses_matrices(program)
    arrays = feeds(model, "none", sizes, np.random.default_rng(1))
    want = expected_of(spelling, "none", sizes, arrays)
    np.testing.assert_allclose(Runner(program)(*arrays)[0], want, rtol=tolerance(H), atol=4 * tolerance(H))


@pytest.mark.costly
def test_a_program_serves_every_length() -> None:
    case = dataclasses.replace(PLAIN, heads=4, ends=True, right=0, dynamic=True)
    made = built(case, on(SMALL, tune.attention.SplitKeys(1, 8, 1024)))
    assert uses_matrices(made.program)
    run = Runner(made.program)
    for batch, queries, keys in ((1, 9, 40), (2, 16, 16), (3, 50, 49), (2, 9, 0), (0, 9, 5), (2, 0, 7), (1, 33, 100)):
        this = dataclasses.replace(case, batch=max(batch, 1), queries=queries, keys=keys)
        arrays = {name: it[:batch] for name, it in arrays_of(this).items()}
        (y,) = run(*(arrays[name] for name in made.names))
        want = expected(dataclasses.replace(this, batch=batch), arrays)
        np.testing.assert_allclose(y, want, rtol=tolerance(H), atol=3 * tolerance(H), err_msg=str(this))


@pytest.mark.costly
def test_parts_of_the_keys_by_workgroups_of_their_own() -> None:
    program = check(
        Case(1, 2, 1, 9, 150, 32, 32, starts=141, right=0, sink=True, dtype=H),
        on(SMALL, tune.attention.SplitKeys(64, 8, 32)),
    )
    assert uses_matrices(program) and len(program.dispatches) == 2


@pytest.mark.parametrize("largest", [1.0, 900.0], ids=["little", "beyond a half's weights"])
def test_scores_that_rise_along_the_keys(largest: float) -> None:
    """Sums are scaled down again and again, and those of other rows of the same tile are not."""
    arrays = arrays_of(PLAIN)
    keys = np.arange(PLAIN.keys) / PLAIN.keys * 40 * largest
    arrays["q"][:], arrays["k"][:] = 0, 0
    arrays["q"][..., 0] = np.arange(PLAIN.queries) % 3 - 1  # falling, none, rising
    arrays["k"][..., 0] = keys
    want = expected(PLAIN, arrays)
    np.testing.assert_allclose(ran(PLAIN, arrays), want, rtol=tolerance(H), atol=3 * tolerance(H))


def test_what_no_query_sees_may_be_anything_and_nan_stays_in_its_row() -> None:
    case = dataclasses.replace(PLAIN, ends=True, right=0, mask="added")
    arrays = arrays_of(case)
    arrays["ends"][0] = 30
    for name in "kv":
        arrays[name][:, :, 30:] = np.nan
    arrays["mask"][0, 0, 3] = -np.inf
    arrays["mask"][0, 1, 5, 2] = np.nan
    arrays["q"][0, 1, 7, 4] = np.inf
    with np.errstate(invalid="ignore"):
        want = expected(case, arrays)
    assert (want[0, 0, 3] == 0).all() and np.isnan(want[0, 1, [5, 7]]).all() and np.isnan(want).sum() == 64
    np.testing.assert_allclose(ran(case, arrays), want, rtol=tolerance(H), atol=3 * tolerance(H))


def test_an_infinite_value_of_the_last_key_stays_infinite() -> None:
    arrays = arrays_of(PLAIN)
    arrays["q"][:] = 0  # every weight is the same
    arrays["v"][0, 0, -1] = np.inf
    y = ran(PLAIN, arrays)
    assert np.isposinf(y[0, 0]).all() and np.isfinite(y[0, 1]).all()


def test_other_types_and_sizes_have_other_kernels() -> None:
    for changed in ({"dtype": np.float32}, {"size": 36}, {"value_size": 12}, {"queries": 1}):
        case = dataclasses.replace(PLAIN, **changed)
        assert not uses_matrices(built(case, on(FlashMatrices(16, 16, 1, 64))).program), changed
    for units in ((), (MatrixUnit(16, 16, 16, "f16", "f16", 32),), (MatrixUnit(16, 16, 16, "f16", "f32", 16),)):
        assert not uses_matrices(built(PLAIN, on(SMALL, matrices=units)).program)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_units_of_an_adapter_are_in_its_text(layout: str) -> None:
    features = target().features | {F16, SUBGROUP_MATRIX}
    program = built(dataclasses.replace(PLAIN, layout=layout), on(SMALL, features=features)).program
    (text,) = program.kernels[0].wgsl
    assert text.count("subgroupMatrixMultiplyAccumulate") == 1 and "array<vec4<u32>, MEMORY>" in text


def test_memory_of_a_workgroup_is_what_the_choice_says() -> None:
    shipped = {it for it in map(tune.parameters_of, tune.GPU) if isinstance(it, FlashMatrices)}
    card = {"features": target().features | {F16, SUBGROUP_MATRIX}, "max_workgroup_storage": 64 << 10}
    assert any(it.workgroup_bytes <= 16384 for it in shipped if it.widest == 128)
    for tile in {*shipped, *FlashMatrices.candidates(), *TILES}:
        case = dataclasses.replace(PLAIN, queries=40, size=tile.widest, value_size=tile.widest)
        (text, *_) = built(case, on(tile, matrices=(tile.unit,), **card)).program.kernels[0].wgsl
        known: dict[str, int] = {"max": max}
        for name, value in re.findall(r"^const ([A-Z_]+) = ([A-Z_\da-z *+/(),]+);", text, re.MULTILINE):
            if not value.endswith("f"):
                known[name] = number(value, known)
        arrays = re.findall(r"var<workgroup> \w+: (?:array<([\w<>]+), ([^;]+)>|u32);", text)
        sizes = {"vec4<u32>": 16, "f32": 4, "": 4}
        assert sum(sizes[kind] * number(count or "1", known) for kind, count in arrays) == tile.workgroup_bytes, tile


def number(text: str, known: dict[str, int]) -> int:
    """A constant expression of WGSL."""
    return eval(re.sub(r"(\d)u\b", r"\1", text).replace("/", "//"), {}, known)


@pytest.mark.parametrize(
    "numbers",
    [(16, 16, 1, 60), (24, 16, 1, 64), (16, 24, 1, 64), (64, 16, 1, 64), (16, 8, 1, 64), (16, 16, 0, 64), (16, 16, 1, 64, 2),
     (8, 16, 1, 64, 1, 8, 8, 8), (16, 16, 1, 64, 1, 16, 16, 16, 24)],
)  # fmt: skip
def test_a_tile_that_cannot_be_is_refused(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"FlashMatrices|matrix unit"):
        FlashMatrices(*numbers)
