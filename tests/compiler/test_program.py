"""Programs are data: saved, loaded and run without onnx; a damaged or foreign one is refused by name."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.errors import ProgramError
from onnxruntime_ep_wgpu.program.file import load, save
from onnxruntime_ep_wgpu.program.target import UNSTORED, WEB_BASELINE, MatrixUnit, Target, check_target
from onnxruntime_ep_wgpu.program.tuning import Choice
from onnxruntime_ep_wgpu.runtime.executable import Executable
from tests import patience
from tests.support import Runner, compile_model, device, make_model, target

F = np.float32
WEIGHT = np.arange(12, dtype=F).reshape(4, 3) / 7


@pytest.fixture(scope="module")
def model():
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Softmax", ["m"], ["s"]), node("Shape", ["x"], ["n"])]
    return make_model(nodes, {"x": (F, ["batch", 4])}, {"w": WEIGHT})


def test_a_loaded_program_is_equal_and_gives_equal_results(model, tmp_path):
    program = compile_model(model)
    save(program, tmp_path / "p.wgpu")
    loaded = load(tmp_path / "p.wgpu", target())
    assert dataclasses.replace(loaded, weights=()) == dataclasses.replace(program, weights=())
    x = np.random.rand(5, 4).astype(F)
    for got, want in zip(Runner(loaded)(x), Runner(program)(x), strict=True):
        np.testing.assert_array_equal(got, want)


def test_loading_and_running_import_neither_onnx_nor_the_compiler(model, tmp_path):
    save(compile_model(model), tmp_path / "p.wgpu")
    script = f"""
import sys
import numpy as np
from onnxruntime_ep_wgpu.device import Place, adapters, open_device
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.program.file import load
from onnxruntime_ep_wgpu.runtime.executable import Executable
from onnxruntime_ep_wgpu.runtime.inputs import DeviceTensor
device = open_device(adapters()[0])
run = Executable(load({str(tmp_path / "p.wgpu")!r}), device)
x, outputs = device.buffer(32), []
device.upload(x, 0, np.ones((2, 4), np.float32).tobytes())
with run.prepare([DeviceTensor(DType.FLOAT32, (2, 4), x)]) as prepared:
    outputs += [device.buffer(256) for _ in prepared.outputs]
    prepared.submit([Place(buffer, 0) for buffer in outputs])
y = np.empty((2, 3), np.float32)
device.download(outputs[0], 0, memoryview(y.reshape(-1).view(np.uint8)))
assert abs(y.sum() - 2) < 1e-5, y
heavy = {{"onnx", "onnx_ir", "sympy", "onnxscript", "onnxruntime"}} & set(sys.modules)
assert not heavy, heavy
compiler = [it for it in sys.modules if it.startswith("onnxruntime_ep_wgpu.compiler")]
assert not compiler, compiler
"""
    patience.run([sys.executable, "-c", script], check=True)


def test_a_damaged_file_is_refused(model, tmp_path):
    path = tmp_path / "p.wgpu"
    save(compile_model(model), path)
    whole = path.read_bytes()
    for content in (b"", b"onnx" + whole, whole[:40], whole[:16] + b"}" + whole[17:], whole[:200]):
        path.write_bytes(content)
        with pytest.raises(ProgramError, match=r"p\.wgpu"):
            load(path)


def test_another_format_version_is_refused_with_the_way_out(model, tmp_path):
    path = tmp_path / "p.wgpu"
    save(dataclasses.replace(compile_model(model), format_version=99), path)
    with pytest.raises(ProgramError, match=r"version 99.*export it again"):
        load(path)


def test_a_program_for_a_larger_target_is_refused(model, tmp_path):
    path = tmp_path / "p.wgpu"
    larger = dataclasses.replace(target(), features=frozenset({"shader-int64"}), max_storage_buffers=30)
    save(compile_model(model, larger), path)
    with pytest.raises(ProgramError, match="shader-int64"):
        load(path, WEB_BASELINE)


def worse(name: str, value: object) -> object:
    """A value of a field with which an adapter offers less than with `value`."""
    if name == "features":
        assert isinstance(value, frozenset)
        return value - {min(value)}
    if name == "software":
        return True
    if name == "matrices":
        return ()
    assert isinstance(value, int)
    return value * 2 if name == "offset_alignment" else value - 1


@pytest.mark.parametrize("name", [it.name for it in dataclasses.fields(Target) if it.name not in ("name", *UNSTORED)])
def test_a_program_is_refused_where_any_field_of_its_target_is_not_met(name):
    features = frozenset({"shader-f16", "subgroup"})
    needs = dataclasses.replace(WEB_BASELINE, features=features, matrices=(MatrixUnit(16, 16, 16, "f16", "f32", 32),))
    less = dataclasses.replace(needs, **{name: worse(name, getattr(needs, name))})
    with pytest.raises(ProgramError, match=f"program 'p'.*({name}|needs the features)"):
        check_target(needs, less, "the program 'p'")
    check_target(less, needs, "what was made for less")


def test_the_name_of_a_target_is_for_people_and_its_choices_are_made():
    tuned = dataclasses.replace(
        WEB_BASELINE, name="another", discrete=True, tuning=(Choice("map", (("workgroup", 32),)),)
    )
    check_target(WEB_BASELINE, tuned, "a program")
    check_target(tuned, WEB_BASELINE, "a program")


def test_a_program_for_hardware_does_not_run_on_a_software_adapter(model):
    program = compile_model(model, dataclasses.replace(target(), software=False))
    if target().software:
        with pytest.raises(ProgramError, match="software False, this adapter has True"):
            Executable(program, device())
    check_target(dataclasses.replace(target(), software=True), dataclasses.replace(target(), software=False), "another")
