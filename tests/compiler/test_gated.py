"""Images scaled by gates that are made of them: a product behind scales them where it loads them, and gives the same bits."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.compiler.tune.squeeze import GatedRows, SqueezeExcite
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import Target
from tests import halves
from tests.compiler.test_squeeze_excite import block, normal
from tests.ops.compare import expected
from tests.support import Runner, compile_model, target
from tests.targets import Way, each

F = np.float32


way = each(Way("channels"))


def on(inlined: int, *more: Any) -> Target:
    here = target()
    return dataclasses.replace(here, tuning=(*map(tune.use, (GatedRows(inlined), *more)), *here.tuning))


def gated(
    channels: int = 20,
    features: int = 24,
    image: list[Any] | None = None,
    kernel: int = 1,
    outputs: tuple[str, ...] = ("z",),
    product: str = "Conv",
) -> onnx.ModelProto:
    """A block and a convolution behind it."""
    made = block((channels, 8, channels), image, product=product, outputs=outputs)
    made.graph.node.append(node("Conv", ["y", "last"], ["c"], pads=[kernel // 2] * 4))
    made.graph.node.append(node("Relu", ["c"], ["z"]))
    made.graph.initializer.append(numpy_helper.from_array(normal(9, features, channels, kernel, kernel), "last"))
    return made


def maps(program: Program) -> int:
    """Kernels that only scale the image."""
    return sum(it.origin == ("Mul(y)",) for it in program.dispatches)


def reasons(program: Program) -> list[str]:
    return [it.reason for it in program.declined if it.rule == "gated"]


@pytest.mark.costly
@pytest.mark.parametrize("fused", [3, 2, 0])
@pytest.mark.parametrize("product", ["Conv", "MatMul"])
def test_the_image_is_scaled_where_it_is_loaded(product: str, fused: int) -> None:
    """However the gate is made."""
    made, x = gated(product=product), normal(3, 3, 5, 9, 7)
    x[1, 2, 3, 4], x[2, 1] = np.nan, np.inf
    block = SqueezeExcite(fused, 64, 1)
    inlined, apart = (compile_model(made, on(it, block)) for it in (1, 0))
    assert (maps(inlined), maps(apart)) == (0, 1)
    (got,), (want,) = (Runner(it)(x) for it in (inlined, apart))
    np.testing.assert_array_equal(got, want)
    (text,) = {it.wgsl[0] for it in inlined.kernels if it.label == "matmul" and "b / 63u" in it.wgsl[0]}
    assert "a_at(" not in text  # four neighbours of both at a time


def test_sizes_of_a_run() -> None:
    made = gated(image=["n", 5, "h", "w"])
    program = compile_model(made, on(1))
    assert maps(program) == 0
    runner = Runner(program)
    for n, h, w in ((1, 3, 4), (0, 3, 4), (3, 1, 1), (2, 9, 5)):
        x = normal(n, n, 5, h, w)
        np.testing.assert_allclose(runner(x)[0], expected(made, {"x": x})[0], rtol=1e-4, atol=1e-4)


@pytest.mark.costly
@pytest.mark.parametrize("kind", halves.HALVES)
def test_halves(kind: int) -> None:
    """What is not stored is not rounded."""
    made = halves.retyped(gated(), onnx.TensorProto.FLOAT, kind)
    given = halves.as_type(normal(3, 3, 5, 9, 7), onnx.TensorProto.FLOAT, kind)
    (want,) = expected(halves.widened(made), {"x": given.astype(F)})
    program = compile_model(made, on(1))
    assert maps(program) == 0
    (got,) = Runner(program)(given)
    step = float(ml_dtypes.finfo(got.dtype).eps)
    np.testing.assert_allclose(got.astype(F), want, rtol=4 * step, atol=4 * step * np.abs(want).max())


def test_parts_of_a_product_scale_theirs() -> None:
    made, x = gated(), normal(3, 3, 5, 9, 7)
    program = compile_model(made, on(1, tune.products.SplitK(64, 8)))
    assert maps(program) == 0
    assert any("PARTED" not in it.wgsl[0] and "let k_end = min(" in it.wgsl[0] for it in program.kernels)
    np.testing.assert_allclose(Runner(program)(x)[0], expected(made, {"x": x})[0], rtol=1e-4, atol=1e-4)


def test_many_columns() -> None:
    """By the shipped choice."""
    for features, count in ((512, 0), (516, 1)):
        program = compile_model(gated(features=features))
        assert maps(program) == count
        assert any("columns take so many tiles" in it for it in reasons(program)) == bool(count)


def test_scaled_images_that_others_read() -> None:
    made, x = gated(outputs=("z", "y")), normal(3, 3, 5, 9, 7)
    program = compile_model(made, on(1))
    assert reasons(program) == ["the scaled image has another reader"]
    for got, want in zip(Runner(program)(x), expected(made, {"x": x}), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_windows_of_scaled_images() -> None:
    """Whose elements are read once for each tap."""
    made, x = gated(kernel=3), normal(3, 3, 5, 9, 7)
    program = compile_model(made, on(1))
    assert maps(program) == 1
    np.testing.assert_allclose(Runner(program)(x)[0], expected(made, {"x": x})[0], rtol=1e-4, atol=1e-4)


def test_what_follows_the_image_stays_with_what_makes_it() -> None:
    """A scale that is not made of the image is fused into its kernel."""
    made = gated()
    for it in made.graph.node:
        if it.output[0] == "y":
            it.input[1] = "scale"
    made.graph.initializer.append(numpy_helper.from_array(normal(5, 1, 20, 1, 1), "scale"))
    program = compile_model(made, on(1))
    assert (maps(program), reasons(program)) == (0, [])
