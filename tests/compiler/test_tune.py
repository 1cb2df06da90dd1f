"""Choices about kernels: a target's are tried before those that are shipped, and change nothing but which kernel runs."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.compiler.dims import symbol
from onnxruntime_ep_wgpu.compiler.ir import Variant
from onnxruntime_ep_wgpu.compiler.tune import KERNELS
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.program.file import load, save
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE, Target
from onnxruntime_ep_wgpu.program.tuning import Bound, Choice, read_choices, write_choices
from tests.support import Runner, compile_model, make_model, target

ROOT = Path(__file__).parents[2]
SMALL = tune.products.Tile(16, 32, 16, 4, 4, 1)
LARGE = tune.products.Tile(64, 64, 16, 4, 4, 1)
FLASH = tune.use(tune.attention.FlashTile(8, 8, 1, 1, 1, 1, 8, 16))
PACKED = tune.use(tune.products.PackedRows(1, 32, 1, 1, 1))
CARD = dataclasses.replace(WEB_BASELINE, max_workgroup_storage=32 << 10)
N = symbol("n")


def changed(choice: Choice, **numbers: int) -> Choice:
    return dataclasses.replace(choice, parameters=tuple({**dict(choice.parameters), **numbers}.items()))


def on(*choices: Choice) -> Target:
    return dataclasses.replace(CARD, tuning=choices)


def tiles(chosen: Target, m: object, n: int = 512, k: int = 64, dtype: DType | None = None) -> list[tuple[int, int]]:
    """The tiles of a product's variants."""
    _, variants = tune.matmul_variants(1, m, n, k, chosen, dtype)  # type: ignore[arg-type]
    found = [dict(it.constants) for it in variants]
    return [(int(it["TILE_M"]), int(it["TILE_N"])) for it in found if "TILE_M" in it]


def test_a_choice_of_the_target_comes_before_those_that_are_shipped() -> None:
    assert tiles(on(tune.use(LARGE)), 512) == [(64, 64)]
    assert tiles(on(tune.use(LARGE), tune.use(SMALL)), N) == [(64, 64)]
    shipped = tiles(CARD, N)
    assert tiles(on(tune.use(LARGE, Bound("m", 100, 200))), N) == [(64, 64), *shipped]


def groups(variants: tuple[Variant, ...]) -> list[object]:
    """What variants of rows and products of few rows differ by."""
    return [(it.guard, it.template, it.workgroup_size, it.constants) for it in variants]


def test_a_choice_takes_no_shape_from_a_kernel_that_is_tried_before_its_own() -> None:
    """Sums over the first axis, products of few rows and attention of few rows have kernels of their own."""
    table = (
        tune.use(tune.rows.Rows(32, 2)),
        tune.use(LARGE),
        tune.use(tune.attention.FlashTile(8, 8, 1, 1, 1, 1, 8, 16)),
    )
    across = groups(tune.across_variants(100_000, 1024, CARD))
    assert groups(tune.across_variants(100_000, 1024, on(*table))) == across
    assert groups(tune.row_variants(100_000, 1024, on(*table))) != groups(tune.row_variants(100_000, 1024, CARD))
    for m in (1, 4, N):
        few, own = (groups(tune.matmul_variants(1, m, 512, 512, it)[1]) for it in (CARD, on(*table)))
        kept = [it for it in few if it[1] == "matvec"]
        assert kept and own[: len(kept)] == kept
    few, own = (groups(tune.flash_variants(4, 1, 1, 512, 64, 64, 1, it)) for it in (CARD, on(*table)))
    assert few[0][1] == "flash_rows" and own[0] == few[0]


def test_a_choice_for_a_kernel_comes_before_those_that_are_shipped_for_it_alone() -> None:
    wide = tune.use(tune.rows.RowsAcross(1, 64))
    assert dict(tune.across_variants(100, 1024, on(wide))[0].constants) == {"LANES": 1, "ROWS": 64}
    vector = tune.use(tune.products.RowProduct(2, 16, 1, 128))
    template, variants = tune.matmul_variants(1, 2, 512, 512, on(tune.use(LARGE), vector))
    assert (template, [it.workgroup_size for it in variants]) == ("matvec", [128])


def test_the_order_of_choices_for_other_kernels_does_not_matter() -> None:
    table = [tune.use(LARGE), tune.use(tune.products.RowProduct(2, 16, 1, 128)), PACKED]
    first, *others = (groups(tune.matmul_variants(1, N, 512, 512, on(*it))[1]) for it in itertools.permutations(table))
    assert all(it == first for it in others)


def test_parts_of_keys_are_short_enough_for_every_tile_that_a_run_may_have() -> None:
    tiles = tune.attention.FlashTile(8, 8, 1, 1, 1, 1, 4, 4), tune.attention.FlashTile(8, 8, 1, 4, 1, 1, 8, 16)
    on = Target(software=True, tuning=(tune.use(tiles[0], Bound("rows", None, 8)), tune.use(tiles[1])))
    assert on.longest_loop is not None

    def keys_of_part(tile: tune.attention.FlashTile) -> int:
        return max(1, (on.longest_loop - tile.iterations_at_end) // tile.iterations(64)) * tile.tile_k

    least = min(map(keys_of_part, tiles))
    assert tune.flash_splits(2, N, 100_000, 64, 32, on) == -(-100_000 // least)


@pytest.mark.parametrize(("m", "taken"), [(99, False), (100, True), (200, True), (201, False)])
def test_bounds_are_inclusive(m: int, taken: bool) -> None:
    assert (tiles(on(tune.use(LARGE, Bound("m", 100, 200))), m) == [(64, 64)]) is taken


def test_a_choice_for_known_sizes_makes_no_variant_of_others() -> None:
    chosen = on(tune.use(LARGE, Bound("m", None, 200, known=True)))
    assert tiles(chosen, 150) == [(64, 64)]
    assert tiles(chosen, N) == tiles(CARD, N)


def test_a_choice_can_be_for_one_type() -> None:
    chosen = on(tune.use(LARGE, dtype=DType.FLOAT16))
    assert tiles(chosen, 512, dtype=DType.FLOAT16) == [(64, 64)]
    assert tiles(chosen, 512, dtype=DType.FLOAT32) == tiles(CARD, 512)


def test_what_does_not_fit_into_the_target_is_passed_over() -> None:
    many, much = tune.products.Tile(64, 64, 16, 4, 4, 2), tune.products.Tile(128, 128, 32, 8, 8, 1)
    assert many.invocations > CARD.max_invocations and much.workgroup_bytes > WEB_BASELINE.max_workgroup_storage
    assert tiles(on(tune.use(many)), 512) == tiles(CARD, 512)
    narrow = dataclasses.replace(WEB_BASELINE, tuning=(tune.use(much),))
    assert tiles(narrow, 512) == tiles(WEB_BASELINE, 512)


@pytest.mark.parametrize("m", [1, 5, 64, 4096, N])
def test_every_product_has_a_kernel_within_the_smallest_limits(m: object) -> None:
    _, variants = tune.matmul_variants(1, m, 512, 512, WEB_BASELINE)  # type: ignore[arg-type]
    assert variants[-1].guard == 1
    for it in variants:
        held = dict(it.constants)
        if "TILE_M" in held:
            memory = 4 * int(held["SLICES"]) * int(held["TILE_K"]) * (int(held["TILE_M"]) + int(held["TILE_N"]))
            assert memory <= WEB_BASELINE.max_workgroup_storage


def test_browsers_without_a_gpu_have_kernels_without_barriers() -> None:
    product = make_model(
        [node("MatMul", ["x", "w"], ["y"])], {"x": (np.float32, ["m", 64])}, {"w": np.ones((64, 9), np.float32)}
    )
    image = {"x": (np.float32, ["n", 3, 9, "w"])}
    weights = {"k": np.ones((4, 3, 3, 3), np.float32)}
    convolution = make_model([node("Conv", ["x", "k"], ["y"], pads=[1, 1, 1, 1])], image, weights)
    browser = Target(software=True, tuning=tune.SWIFTSHADER)
    for model in (product, convolution):
        texts = [text for kernel in compile_model(model, browser).kernels for text in kernel.wgsl]
        assert texts and not any("workgroupBarrier" in text for text in texts)


def test_every_kernel_that_can_be_tuned_has_a_choice_for_every_shape() -> None:
    for software in (False, True):
        on = Target(software=software)
        assert tune.row_variants(N, N, on)[-1].guard == tune.across_variants(N, N, on)[-1].guard == 1
        assert tune.map_shapes(N, 4, 0, on)[-1].guard == 1
        assert tune.depthwise(on).workgroup > 0
        assert tune.depthwise_last(on).workgroup > 0


def test_results_do_not_depend_on_choices() -> None:
    x = np.random.default_rng(0).integers(-4, 5, (3, 70, 130)).astype(np.float32)
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("ReduceSum", ["m", "axes"], ["s"]), node("Softmax", ["m"], ["y"])]
    w = np.random.default_rng(1).integers(-4, 5, (130, 37)).astype(np.float32)
    model = make_model(nodes, {"x": (np.float32, ["b", "m", 130])}, {"w": w, "axes": np.array([1])})
    hardware = dataclasses.replace(target(), software=False)
    others = (
        tune.use(SMALL), tune.use(tune.rows.Rows(16, 4)), tune.use(tune.rows.RowsAcross(2, 32)), tune.use(tune.maps.Grid(32, 3)),
        tune.use(tune.maps.Vectors(1)),
    )  # fmt: skip
    wanted = Runner(compile_model(model, hardware))(x)
    program = compile_model(model, dataclasses.replace(hardware, tuning=others))
    assert {k.wgsl for k in program.kernels} != {k.wgsl for k in compile_model(model, hardware).kernels}
    for found, want in zip(Runner(program)(x), wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5)


def test_a_program_does_not_need_the_choices_that_made_it(tmp_path: Path) -> None:
    model = make_model([node("MatMul", ["x", "x"], ["y"])], {"x": (np.float32, [64, 64])})
    program = compile_model(model, on(tune.use(LARGE)))
    assert program.target == CARD
    save(program, tmp_path / "p.wgpu")
    assert load(tmp_path / "p.wgpu", CARD) == program


# ---- files

TABLE = (
    tune.use(LARGE, Bound("m", 100, 200), Bound("k", None, 64, known=True), dtype=DType.FLOAT16),
    tune.use(tune.rows.Rows(16, 4), Bound("columns", 3)),
    tune.use(tune.maps.Grid(128)),
)


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    write_choices(TABLE, path, "a card (Vulkan)")
    assert read_choices(path) == ("a card (Vulkan)", TABLE)
    tune.check_choices(TABLE)


def spoilt(change: Callable[[dict], object], tmp_path: Path) -> Path:
    path = tmp_path / "table.json"
    write_choices(TABLE, path, "")
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))
    return path


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.update(format=2), "its format is 2"),
        (lambda t: t.pop("choices"), "'choices' is missing"),
        (lambda t: t["choices"][0].update(wehre={}), "wehre"),
        (lambda t: t["choices"][0].update(dtype="f17"), "'f17'"),
        (lambda t: t["choices"][0]["where"].update(m={"atleast": 3}), "atleast"),
        (lambda t: t["choices"][0]["use"].update(m="64"), "'64' is not an integer"),
        (lambda t: t["choices"][0]["use"].update(m=True), "True is not an integer"),
        (lambda t: t["choices"][0]["use"].update(m=None), "None is not an integer"),
        (lambda t: t["choices"][0]["where"].update(m={"least": None}), "None is not an integer"),
        (lambda t: t["choices"][0]["where"].update(m={"least": False}), "False is not an integer"),
        (lambda t: t["choices"][0]["where"].update(m={"known": "no"}), "known is 'no'"),
    ],
)  # fmt: skip
def test_a_damaged_table_says_where(change: Callable[[dict], object], said: str, tmp_path: Path) -> None:
    path = spoilt(change, tmp_path)
    with pytest.raises(ValueError, match=said) as caught:
        read_choices(path)
    assert str(path) in str(caught.value)


def test_what_no_json_is_is_said_too(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff{")
    with pytest.raises(ValueError, match="is not a table of choices"):
        read_choices(tmp_path / "x")


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (Choice("matmull", ()), "no kernel 'matmull'"),
        (Choice("map", (("workgruop", 64),)), "workgruop"),
        (Choice("matmul", tuple(dict(tune.use(LARGE).parameters, m=63).items())), "multiples of 4"),
        (Choice("matmul", tuple(dict(tune.use(LARGE).parameters, k=4).items())), "unrolled|evenly"),
        (Choice("map", (("workgroup", True),)), "workgroup is True"),
        (Choice("map", (("workgroup", 64.0),)), "workgroup is 64.0"),
        (changed(FLASH, depth=6), "depth is a multiple of 4"),
        (changed(FLASH, keys=12), "keys divide the 32"),
        (changed(FLASH, threads_x=5, rows4=2, keys=4), "40 invocations of a slice share 64 queries in fours evenly"),
        (changed(PACKED, words=3), "words are a power of two"),
        (Choice("matmul_direct", (("rows", 8),)), "software adapters"),
        (tune.use(tune.maps.Grid(64), Bound("colums", 8)), "about colums; known: size"),
    ],
    ids=lambda it: str(it)[:20],
)  # fmt: skip
def test_a_table_of_what_cannot_be_chosen_is_refused(choice: Choice, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        tune.check_choices((choice,))


def test_every_kernel_that_can_be_tuned_has_a_choice_that_is_shipped() -> None:
    """By which it has a place in the order in which kernels are tried."""
    assert {it.kernel for it in (*tune.GPU, *tune.SWIFTSHADER, *tune.SOFTWARE)} == set(KERNELS)


def test_shipped_tables_hold_what_can_be_chosen() -> None:
    tune.check_choices(tune.GPU)
    for choice in (*tune.SOFTWARE, *tune.SWIFTSHADER):
        tune.parameters_of(choice)


def model_of(m: onnx.ModelProto) -> list[str]:
    return [text for kernel in compile_model(m, CARD).kernels for text in kernel.wgsl]


def test_the_same_target_makes_the_same_kernels() -> None:
    model = make_model([node("MatMul", ["x", "x"], ["y"])], {"x": (np.float32, ["n", "n"])})
    assert model_of(model) == model_of(model)


def test_the_table_of_kernels_is_that_of_the_classes() -> None:
    document = runpy.run_path(str(ROOT / "scripts" / "document_tuning.py"))["document"]
    written = (ROOT / "docs" / "tuning.md").read_text()
    assert written == document(written), "run scripts/document_tuning.py"
    assert all(f"\n| `{kernel}` | " in written for kernel in KERNELS)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_text_of_a_class_names_each_of_its_parameters(kernel: str) -> None:
    said = inspect.cleandoc(KERNELS[kernel].__doc__ or "").split("\n\n")[0]
    names = {it.name for it in dataclasses.fields(KERNELS[kernel])}
    assert names and names == set(re.findall(r"`(\w+)`", said))


def test_a_class_is_among_what_can_be_tuned_by_its_name_alone() -> None:
    @dataclasses.dataclass(frozen=True)
    class Third(tune.maps.Grid):
        kernel: ClassVar[str] = "third"

    try:
        assert tune.parameters_of(tune.use(Third(32))) == Third(32)
        with pytest.raises(TypeError, match="Third is for the kernel 'third' already"):
            type("Fourth", (tune.maps.Grid,), {"kernel": "third"})
    finally:
        del KERNELS["third"]
    with pytest.raises(ValueError, match="no kernel 'third' can be tuned"):
        tiles(on(tune.use(Third(64))), 512)


def test_what_is_worth_measuring_besides_is_not_what_is_shipped() -> None:
    shipped = set(map(tune.parameters_of, tune.GPU))
    for kernel, parameters in KERNELS.items():
        more = parameters.candidates()
        assert {it.kernel for it in more} <= {kernel} and not shipped & set(more)
