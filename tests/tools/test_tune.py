"""`wgpu-ep tune`: what it measures, when it chooses, the table that it writes, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from onnxruntime_ep_wgpu import cli, session
from onnxruntime_ep_wgpu.api import tuning
from onnxruntime_ep_wgpu.api.tuning_classes import CLASSES, KERNELS, ShapeClass, candidates
from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.device import Adapter, Device, adapters
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import INTEGER_DOTS, MatrixUnit, Target
from onnxruntime_ep_wgpu.program.tuning import Choice, read_choices
from tests.plugin import models

# A GPU's limits: what is measured there is compiled, and nothing runs.
CARD = Target(
    "card",
    features=frozenset({INTEGER_DOTS}),
    max_invocations=1024,
    max_workgroup_storage=48 << 10,
    max_binding_bytes=2 << 30,
    max_buffer_bytes=8 << 30,
)
# Where there are matrix units no other kernel multiplies halves, or bytes.
UNITS = MatrixUnit(16, 16, 16, "f16", "f32", 32), MatrixUnit(16, 16, 32, "i8", "i32", 32)
MATRICES = dataclasses.replace(CARD, matrices=UNITS)
A, B = tune.maps.Grid(32), tune.maps.Grid(128)
SMALL: dict[str, tuple[tuple[int, ...], ...]] = {
    "map": ((1 << 14,),), "vectors": ((1 << 14,),), "rows": ((64, 256),), "flash_rows": ((2, 1, 64, 128),),
    "packed_rows": ((1, 256, 64),), "matmul_parts": ((1, 32, 64, 64),),
}  # fmt: skip


def take_adapters_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels of GPUs are measured on a software adapter, too, of small sizes."""

    def opened(adapter: Adapter) -> Device:
        return Device(adapter, dataclasses.replace(adapter.target(), software=False))

    classes = [dataclasses.replace(it, sizes=SMALL.get(it.kernel, it.sizes)) for it in CLASSES]
    for name, value in (("opened", opened), ("CLASSES", classes), ("WARM_SECONDS", 0)):
        monkeypatch.setattr(tuning, name, value)


def test_every_kernel_that_can_be_chosen_is_measured() -> None:
    assert set(KERNELS) == {choice.kernel for choice in tune.GPU}


@pytest.mark.parametrize("shapes", CLASSES, ids=lambda it: f"{it.kernel} {tuning.shown_bounds(it.bounds)} {it.dtype}")
def test_graphs_lie_within_the_bounds_of_their_class(shapes: ShapeClass) -> None:
    """A choice with the bounds changes the same kernels as one without."""
    for model in shapes.graphs():
        module = ir.from_proto(model)

        def compiled(*choices: Choice) -> tuple:
            card = MATRICES if shapes.kernel in ("matmul_matrices", "matmul_bytes", "flash_matrices") else CARD
            on = dataclasses.replace(card, tuning=(*choices, *shapes.beside))
            return tuning._texts(compile_graph(module.graph, module.opset_imports, on))  # noqa: B023

        shipped = compiled()
        changed = {it: text for it in candidates(shapes.kernel) if (text := compiled(tune.use(it))) != shipped}
        assert changed, f"nothing to choose for {model.graph.name}"
        for parameters, text in changed.items():
            assert compiled(tune.use(parameters, *shapes.bounds, dtype=shapes.dtype)) == text


@pytest.mark.parametrize(
    ("times", "chosen"),
    [
        (({None: 1.0, A: 0.9, B: 0.8},), B),
        (({None: 1.0, A: 0.99, B: 1.5},), None),
        (({None: 1.0, A: 0.5, B: 0.9}, {None: 1.0, A: 1.1, B: 0.9}), B),  # not where it is slower for another size
        (({None: 1.0, A: 0.5}, {None: 1.0}), None),  # nor where it does not run
    ],
)
def test_only_what_is_clearly_faster_for_all_graphs_is_chosen(
    times: tuple[dict, ...], chosen: tune.maps.Grid | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = iter(times)
    take_adapters_for_gpus(monkeypatch)
    monkeypatch.setattr(tuning, "_measured", lambda *_: (next(rest), []))
    (shapes,) = tuning.wanted(["vectors"])
    device = tuning.opened(adapters()[0])
    outcome = tuning._outcome(device, dataclasses.replace(shapes, sizes=shapes.sizes * len(times)), 0)
    assert outcome.chosen == chosen
    assert (outcome.choice() is None) == (chosen is None)
    assert outcome.ratio == pytest.approx(1.0 if chosen is None else 1 / (0.8 if len(times) == 1 else 0.9))


def test_what_gives_other_results_is_named_and_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    run, programs = tuning._Run, list[Program]()

    class Wrong(run):
        def __init__(self, program: Program, *more: object) -> None:
            super().__init__(program, *more)
            programs.append(program)
            self.results = [it + (len(programs) > 1) for it in self.results]

        def seconds(self) -> float:
            return 1.0 if self.program is programs[0] else 0.1

    take_adapters_for_gpus(monkeypatch)
    monkeypatch.setattr(tuning, "_Run", Wrong)
    (outcome,) = tuning.tuned(tuning.opened(adapters()[0]), ["vectors"], 0)
    assert outcome.chosen is None
    assert "width 1 computes other results" in outcome.refused[0]


def test_integers_are_compared_exactly() -> None:
    """The products of bytes that matrix units calculate."""
    found, other = np.array([1 << 24], np.int32), np.array([(1 << 24) + 1], np.int32)
    assert tuning._difference([found], [found]) == ""
    assert "they differ by 1," in tuning._difference([found], [other])


def test_a_table_is_written_that_sessions_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    take_adapters_for_gpus(monkeypatch)
    path = tmp_path / "card.json"
    arguments = ["tune", "map", "rows", "flash_rows", "packed_rows", "--seconds", "0", "--output", str(path)]
    assert cli.main([*arguments, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    adapter, choices = read_choices(path)
    assert adapter == shown["adapter"]
    tune.check_choices(choices)
    measured = [it["kernel"] for it in shown["kernels"]]
    assert set(measured) == {"map", "rows", "flash_rows", "packed_rows"} and len(measured) == 11
    assert len(choices) == sum(it["chosen"] is not None for it in shown["kernels"])
    assert all(it["tried"] > 0 and min(it["shipped_ms"].values()) > 0 for it in shown["kernels"])
    made = session(models.chain(), tuningTable=str(path), deviceId=271)
    x = np.random.default_rng(0).standard_normal((5, 8), np.float32)
    (y,) = made.run(None, {"x": x})
    np.testing.assert_allclose(y, models.chain_reference(x), rtol=1e-4, atol=1e-5)


def test_it_prints_what_it_chose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    take_adapters_for_gpus(monkeypatch)
    which = ["--device", adapters()[0].name[:4]]
    assert cli.main(["tune", "vectors", *which, "--seconds", "0", "--out", str(tmp_path / "t.json")]) == 0
    said = capsys.readouterr()
    assert "times as fast" in said.out and "vectors" in said.out and "tuningTable=" in said.out


@pytest.mark.skipif(not adapters()[0].software, reason="the adapter is a GPU")
def test_a_software_adapter_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "table.json"
    assert cli.main(["tune", "vectors", "--output", str(path)]) == 2
    assert "is a software adapter, which has fixed choices: measure a GPU" in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["matmull"], "no kernel 'matmull' can be tuned (did you mean 'matmul'?)"),
        (["--adapter", "99"], "--adapter 99: no such adapter"),
        (["--device", "Voodoo"], "Voodoo"),
        (["--device", "0", "--adapter", "0"], "not allowed with argument"),
        (["--output", "nowhere/at/all.json"], "--output nowhere/at/all.json"),
        (["--seconds", "soon"], "'soon' is not an integer"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tune", *arguments]) == 2
    assert said in capsys.readouterr().err
