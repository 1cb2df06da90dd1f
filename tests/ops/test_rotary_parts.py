"""Tables of cosines in two parts, for short sequences and behind them for long ones: the option multiRotaryCacheConcatOffset."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.fields import settings_from
from onnxruntime_ep_wgpu.options import parse
from onnxruntime_ep_wgpu.program.settings import CompileSettings
from tests import support

from .compare import expected, model, random
from .test_group_query import Case

SWITCH, ROWS, HALF = 6, 20, 8
SHORT, LONG = (tuple(random(rows, HALF, seed=k + rows) for k in (0, 1)) for rows in (SWITCH, ROWS))
BOTH = tuple(np.concatenate(pair) for pair in zip(SHORT, LONG, strict=True))


def ours(built: Any, arrays: list[Any], switch: int) -> list[np.ndarray]:
    module, settings = ir.from_proto(built), CompileSettings(rotary_switch=switch)
    program = compile_graph(module.graph, module.opset_imports, support.target(), "test", settings)
    return support.Runner(program)(*[a for a in arrays if a is not None])


def part_of(length: int) -> tuple[np.ndarray, ...]:
    return LONG if length > SWITCH else SHORT


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
@pytest.mark.parametrize("begin", [0, 3, 4, 12])
def test_a_sequence_reads_the_part_for_its_length(domain: str, begin: int) -> None:
    """Of two sequences of three steps, one that begins at 0."""
    x, at = random(2, 2, 3, 2 * HALF), np.array([[0], [begin]]) + np.arange(3)
    order = [1, 2, 0] if not domain else [0, 1, 2]
    how: dict[str, Any] = {"outputs": [np.float32], "opset": 23, "domain": domain}

    def arrays(x: np.ndarray, at: np.ndarray, tables: tuple[np.ndarray, ...]) -> list[np.ndarray]:
        others = [at, *tables]
        return [x, *(others[k] for k in order)]

    given = arrays(x, at, BOTH)
    (got,) = ours(model("RotaryEmbedding", given, **how), given, SWITCH)
    for k, length in enumerate((3, begin + 3)):
        alone = arrays(x[k : k + 1], at[k : k + 1], part_of(length))
        built = model("RotaryEmbedding", alone, **how)
        (want,) = expected(built, {f"x{n}": a for n, a in enumerate(alone)})
        np.testing.assert_allclose(got[k : k + 1], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("begin", [3, 4])
def test_positions_of_the_first_step(begin: int) -> None:
    given = [random(2, 2, 3, 2 * HALF), np.array([begin]), *BOTH]
    how: dict[str, Any] = {"outputs": [np.float32], "domain": "com.microsoft"}
    (got,) = ours(model("RotaryEmbedding", given, **how), given, SWITCH)
    alone = [*given[:2], *part_of(begin + 3)]
    (want,) = expected(model("RotaryEmbedding", alone, **how), {f"x{k}": a for k, a in enumerate(alone)})
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.costly
@pytest.mark.parametrize("room", [0, 16])
@pytest.mark.parametrize("length", [0, 3, 4, 9])
def test_attention_turns_by_the_part_for_the_whole_length(length: int, room: int) -> None:
    case = Case(lengths=(length,), steps=3, room=room, size=2 * HALF, attributes=(("do_rotary", 1),))

    def arrays(tables: tuple[np.ndarray, ...]) -> list[Any]:
        given = case.inputs(np.float32)
        given[7:9] = tables
        return given

    built = case.model(np.float32)
    alone = arrays(part_of(length + 3))
    for value, array in zip((it for it in built.graph.input if it.name in ("x7", "x8")), alone[7:9], strict=True):
        value.type.tensor_type.shape.dim[0].dim_value = len(array)
    want = expected(built, {f"x{k}": a for k, a in enumerate(alone) if a is not None})
    for value in (it for it in built.graph.input if it.name in ("x7", "x8")):
        value.type.tensor_type.shape.dim[0].dim_value = SWITCH + ROWS
    got = ours(built, arrays(BOTH), SWITCH)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got[1][:, :, : length + 3], want[1][:, :, : length + 3], rtol=1e-4, atol=1e-5)


def test_the_option_sets_it() -> None:
    assert settings_from(CompileSettings, parse({"multiRotaryCacheConcatOffset": "4096"}).values) == CompileSettings(
        rotary_switch=4096
    )
    assert settings_from(CompileSettings, parse({"validationMode": "full"}).values) == CompileSettings(
        with_assertions=True
    )
