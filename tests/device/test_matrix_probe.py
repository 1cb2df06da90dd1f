"""Matrix units that multiply wrongly are found once, remembered, named and not used. Their twin in plain WGSL takes their place."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxruntime_ep_wgpu import device as device_layer
from onnxruntime_ep_wgpu.compiler.emit.accessor import substitute
from onnxruntime_ep_wgpu.compiler.templates.files import template
from onnxruntime_ep_wgpu.compiler.templates.preprocess import declared, preprocess
from onnxruntime_ep_wgpu.device import Adapter, Context, Device, adapters, matrix_probe, matrix_refusals
from onnxruntime_ep_wgpu.device.choice import automatic, checked_matrices
from onnxruntime_ep_wgpu.device.webgpu import dawn
from onnxruntime_ep_wgpu.plugin.factory import metadata
from onnxruntime_ep_wgpu.program.target import SUBGROUP_MATRIX, MatrixUnit

UNITS = tuple(MatrixUnit(*it, "f16", "f32", 32) for it in ((16, 16, 16), (8, 8, 8), (8, 16, 16), (16, 8, 32)))
BYTES = MatrixUnit(16, 16, 32, "i8", "i32", 32)
WGSL = Path(device_layer.__file__).parents[1] / "compiler/emit/wgsl"
FAULTS = {
    "forgets the sums": ("var out = sum;", "var out: matrix_sum;"),
    "mixes the orders": ("load_right_across(at: u32, stride: u32) -> matrix_right { return matrix_operand(at, stride, 1u)",
                         "load_right_across(at: u32, stride: u32) -> matrix_right { return matrix_operand(at, 1u, stride)"),
    "skips a column": ("k < $UNIT_K; k++", "k < $UNIT_K - 1u; k++"),
    "takes rows for columns": ("place / $UNIT_N * left.outer", "place % $UNIT_M * left.outer"),
    "loads other sums": ("bitcast<$SUM>(matrix_memory[at + place", "bitcast<$SUM>(matrix_memory[at + 1u + place"),
    "gives NaN": ("= bitcast<u32>(sum[e])", "= select(bitcast<u32>(sum[e]), 0x7fc00000u, e == 1u)"),
    "takes bytes as unsigned": ("extractBits(bitcast<i32>(matrix_memory[at / 4u]), at % 4u * 8u, 8u)",
                                "i32(extractBits(matrix_memory[at / 4u], at % 4u * 8u, 8u))"),
}  # fmt: skip


def twin(unit: MatrixUnit, change: tuple[str, str] = ("", "")) -> str:
    """The functions in plain WGSL, changed by a replacement."""
    text, _ = declared((WGSL / "matrices_plain.wgsl").read_text(), {}, frozenset())
    text = preprocess(text, {"TOGETHER": unit.together})
    assert change[0] in text
    lines = text.replace(*change).split("\n") if change[0] else text.split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("fn eight_halves"))
    del lines[start : start + 3]  # which needs the compiler's own functions, and is of no use here
    sizes = {"UNIT_M": unit.m, "UNIT_N": unit.n, "UNIT_K": unit.k, "LANES": unit.subgroup, "TOGETHER": unit.together}
    marks = {name: f"{value}u" for name, value in sizes.items()}
    return substitute("\n".join(lines), {**marks, "OPERAND": unit.operand, "SUM": unit.result})


@pytest.mark.parametrize("unit", [*UNITS, BYTES], ids=str)
def test_right_units_pass(device: Device, unit: MatrixUnit) -> None:
    assert matrix_probe.fault(device, unit, twin) == ""


@pytest.mark.parametrize("name", FAULTS)
def test_wrong_units_are_found(device: Device, name: str) -> None:
    unit = BYTES if "bytes" in name else UNITS[1]
    assert "results are wrong" in matrix_probe.fault(device, unit, lambda unit: twin(unit, FAULTS[name]))


def test_what_is_probed_is_what_kernels_use() -> None:
    unit = MatrixUnit(8, 16, 32, "f16", "f32", 32)
    text = template("matrices_units")
    sizes = {"$UNIT_M": "8u", "$UNIT_N": "16u", "$UNIT_K": "32u", "$TOGETHER": "8u", "$OPERAND": "f16", "$SUM": "f32"}
    for name, value in sizes.items():
        text = text.replace(name, value)
    assert matrix_probe.functions(unit).endswith(text)
    assert "subgroup_matrix_left<f16, 32u, 8u>" in matrix_probe.wgsl(unit)


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[MatrixUnit]:
    """The units that were probed; those of 8 x 8 x 8 are wrong, those of 16 x 8 x 32 do not compile. What is kept lies apart."""
    monkeypatch.setenv("WGPU_EP_CACHE", str(tmp_path))
    monkeypatch.setattr(matrix_refusals, "_known", {})
    monkeypatch.setattr(dawn, "installed", lambda: True)
    seen: list[MatrixUnit] = []

    def functions(unit: MatrixUnit) -> str:
        seen.append(unit)
        return "wrong" if unit == UNITS[3] else twin(unit, FAULTS["skips a column"] if unit == UNITS[1] else ("", ""))

    monkeypatch.setattr(matrix_probe, "functions", functions)
    return seen


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Adapter]:
    """Makes the first adapter one with these units, by another driver."""
    real = adapters()[0]

    def made(units: tuple[MatrixUnit, ...] = UNITS, driver: str = "1.0") -> Adapter:
        found = dataclasses.replace(
            real, matrices=units, driver=driver, type="DiscreteGPU", features=real.features | {SUBGROUP_MATRIX}
        )
        monkeypatch.setattr(sys.modules[Adapter.__module__], "adapters", lambda: (found,))
        return found

    return made


def test_an_adapter_is_probed_once_per_driver_and_does_without_what_is_wrong(
    probes: list[MatrixUnit], pretend: Callable[..., Adapter], monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = pretend()
    assert "rejected matrix units" not in metadata_of_listing(adapter) and not probes
    assert adapter.target().matrices == () and not probes  # of units that nobody checked
    assert used(adapter) == checked_matrices(adapter) == (UNITS[0], UNITS[2])
    assert probes == [*UNITS]
    shown = metadata_of_listing(adapter)["rejected matrix units"]
    assert f"{UNITS[1]}: " in shown and "results are wrong" in shown
    assert f"{UNITS[3]}: does not compile" in shown

    monkeypatch.setattr(matrix_refusals, "_known", {})  # as in the next process
    assert "rejected matrix units" in metadata_of_listing(adapter)
    assert used(adapter) == (UNITS[0], UNITS[2]) and probes == [*UNITS]

    assert used(pretend(driver="2.0")) == (UNITS[0], UNITS[2])
    assert probes == [*UNITS] * 2


def used(adapter: Adapter) -> tuple[MatrixUnit, ...]:
    """The units that sessions may use."""
    return Context(adapter, 0).target.matrices


def metadata_of_listing(adapter: Adapter) -> dict[str, str]:
    """What `devices()` shows, which lists by a library that has no units."""
    return metadata(dataclasses.replace(adapter, matrices=(), features=adapter.features - {SUBGROUP_MATRIX}))


def test_without_a_cache_a_process_probes_once(
    probes: list[MatrixUnit], pretend: Callable[..., Adapter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WGPU_EP_CACHE", "off")
    adapter = pretend(UNITS[3:])
    assert used(adapter) == used(adapter) == ()
    assert probes == [*UNITS[3:]]


def test_an_entry_that_is_damaged_costs_a_probe(
    probes: list[MatrixUnit], pretend: Callable[..., Adapter], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    adapter = pretend(UNITS[3:])
    assert used(adapter) == ()
    (entry,) = tmp_path.rglob("*.wgpucache")
    entry.write_bytes(entry.read_bytes()[:-1])
    monkeypatch.setattr(matrix_refusals, "_known", {})
    assert used(adapter) == () and probes == [*UNITS[3:]] * 2


def test_auto_says_when_all_units_are_wrong(
    probes: list[MatrixUnit], pretend: Callable[..., Adapter], monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = pretend(UNITS[3:])
    monkeypatch.setattr(Adapter, "through", lambda self, backend, library="": self)
    name, why = automatic(adapter, lambda: {"f16"})
    assert name == "wgpu-native" and "a probe refused" in why
    adapter = pretend((UNITS[2], UNITS[3]), "2.0")
    assert automatic(adapter, lambda: {"f16"}).name == "dawn"


def test_auto_asks_for_units_of_the_types_that_a_model_multiplies(
    probes: list[MatrixUnit], pretend: Callable[..., Adapter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Adapter, "through", lambda self, backend, library="": self)
    halves, both = pretend(UNITS[:1]), pretend((UNITS[0], BYTES), "2.0")
    name, why = automatic(halves, lambda: {"i8"})
    assert name == "wgpu-native" and why == "the adapter has no matrix units for 8 bits" and not probes
    name, why = automatic(both, lambda: {"i8"})
    assert name == "dawn" and "products of 8 bits" in why
    assert probes == [UNITS[0], BYTES]


def test_units_without_a_kernel_are_not_probed(probes: list[MatrixUnit], pretend: Callable[..., Adapter]) -> None:
    others = (MatrixUnit(16, 16, 16, "f16", "f16", 32), MatrixUnit(16, 16, 32, "u8", "u32", 32))
    adapter = pretend(others)
    assert used(adapter) == others and not probes
