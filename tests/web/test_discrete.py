"""Programs for a GPU with memory of its own: kernels and layouts are as the native provider chooses them there. What such a Program
reads of the weights in another order than the model has them is in an export once; a page transposes it on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.helper import make_node as make

from onnxruntime_ep_wgpu.api.web_export import MATRICES, export
from onnxruntime_ep_wgpu.api.web_files import read_flows, write_folder
from onnxruntime_ep_wgpu.program.target import DISCRETE, SUBGROUP_MATRIX, WEB_BASELINE
from onnxruntime_ep_wgpu.program.weights import Permuted
from tests.support import Runner, compile_model, make_model

from .test_models import run

F, H = np.float32, np.float16
RNG = np.random.default_rng(11)


def _convolutions(dtype: Any = F) -> onnx.ModelProto:
    """Convolutions that read each other's images, which have their channels last on such a GPU."""
    nodes = [
        make("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        make("Relu", ["c"], ["r"]),
        make("Conv", ["r", "v"], ["d"], pads=[1, 1, 1, 1], strides=[2, 2]),
        make("GlobalAveragePool", ["d"], ["y"]),
    ]
    shapes = {"w": (24, 8, 3, 3), "b": (24,), "v": (36, 24, 3, 3)}
    weights = {name: (RNG.normal(size=shape) / 8).astype(dtype) for name, shape in shapes.items()}
    return make_model(nodes, {"x": (dtype, [2, 8, 19, 23])}, weights)


CASES: dict[str, Callable[[], onnx.ModelProto]] = {"floats": _convolutions, "halves": lambda: _convolutions(H)}


@pytest.mark.costly
@pytest.mark.parametrize("name", CASES)
def test_a_page_transposes_weights_that_an_export_has_as_the_model(name: str, built: None, tmp_path: Path) -> None:
    model = CASES[name]()
    program, plain = (compile_model(model, replace(WEB_BASELINE, discrete=it)) for it in (True, False))
    moved = [it for it in program.weights if isinstance(it, Permuted)]
    assert [it.of for it in moved] == ["v"] and moved[0].transposed()
    folder = tmp_path / "model.onnx.wgpu"
    folder.mkdir()
    # The last one is what a software adapter runs.
    manifest = write_folder(folder, [plain, program], 1 << 14)
    stored = [-(-numpy_helper.to_array(it).nbytes // 16) * 16 for it in model.graph.initializer]
    assert manifest["weights"]["bytes"] == sum(stored) and len(manifest["weights"]["chunks"]) > 1
    x = RNG.normal(size=(2, 8, 19, 23)).astype(F if name == "floats" else H)
    (found,) = run(folder, {"x": x}, tmp_path).values()
    (wanted,) = Runner(compile_model(model, WEB_BASELINE))(x)
    np.testing.assert_allclose(
        found, wanted, rtol=2e-5 if name == "floats" else 2e-3, atol=1e-5 if name == "floats" else 1e-3
    )


@pytest.mark.parametrize(
    ("permutation", "wanted"),
    [
        ((0, 2, 3, 1), (6, 20, 32)),
        ((0, 3, 1, 2), (24, 5, 32)),
        ((1, 2, 3, 0), (2, 120, 32)),
        ((0, 1, 3, 2), (4, 5, 32)),
        ((0, 1, 2, 3), None),
        ((0, 3, 2, 1), None),
        ((1, 0, 2, 3), None),
    ],
)
def test_permutations_that_transpose_matrices(permutation: tuple[int, ...], wanted: tuple[int, ...] | None) -> None:
    array = np.arange(240, dtype=F).reshape(2, 6, 4, 5)
    weight = Permuted("w", permutation, array)
    found = weight.transposed()
    assert found == wanted
    if found:
        rows, columns, _ = found
        moved = array.reshape(-1, rows, columns).swapaxes(1, 2)
        np.testing.assert_array_equal(moved.reshape(-1), weight.numpy().reshape(-1))


def test_axes_of_one_element_and_wide_elements() -> None:
    assert Permuted("w", (0, 2, 3, 1), np.zeros((4, 8, 1, 3), H)).transposed() == (8, 3, 16)
    assert Permuted("w", (0, 2, 3, 1), np.zeros((4, 8, 1, 1), F)).transposed() is None
    assert Permuted("w", (1, 0), np.zeros((4, 8), np.int64)).transposed() is None


@pytest.mark.parametrize("name", CASES)
def test_an_export_has_programs_for_it_and_for_matrix_units(name: str, tmp_path: Path) -> None:
    onnx.save(CASES[name](), tmp_path / "m.onnx")
    found = export(tmp_path / "m.onnx")
    programs = {it.target.name: it.target for it in read_flows(found.path)}
    discrete = [it for it in programs.values() if DISCRETE in it.features]
    units = [it for it in discrete if SUBGROUP_MATRIX in it.features]
    assert len(units) == (name == "halves") and len(discrete) == 1 + len(units)
    assert all(it.matrices == MATRICES for it in units) and not discrete[-1].matrices
    # Each is tried before what it is better than.
    names = [it for it in programs if "software" not in it]
    assert names[: len(discrete)] == [it.name for it in units] + [it.name for it in discrete if it not in units]
