"""What a dispatch has to do, as profiles report it: arithmetic from the operators, bytes from the tensors it looks at."""

from __future__ import annotations

import numpy as np
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.program.file import load, save
from onnxruntime_ep_wgpu.program.postfix import compile_dims
from onnxruntime_ep_wgpu.program.program import Program
from tests.support import compile_model, make_model

F = np.float32


def work(program: Program, *symbols: int) -> list[tuple[tuple[str, ...], int, int]]:
    """(operators, operations, bytes) of every dispatch."""
    dims = [d for it in program.dispatches for d in (it.flops, it.traffic)]
    numbers = compile_dims(dims, [s.name for s in program.symbols], program.definitions)(symbols)
    return [(it.operators, *numbers[2 * k : 2 * k + 2]) for k, it in enumerate(program.dispatches)]


def test_a_matrix_product_counts_a_multiplication_and_an_addition_per_term() -> None:
    model = make_model([node("MatMul", ["x", "w"], ["y"])], {"x": (F, ["n", 8])}, {"w": np.ones((8, 16), F)})
    assert work(compile_model(model), 5) == [(("MatMul",), 2 * 5 * 8 * 16, 4 * (5 * 8 + 8 * 16 + 5 * 16))]


def test_what_is_fused_adds_its_own_arithmetic_and_the_bytes_of_its_operands() -> None:
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Add", ["a", "b"], ["c"]), node("Relu", ["c"], ["y"])]
    weights = {"w": np.ones((8, 16), F), "b": np.ones(16, F)}
    ((operators, flops, traffic),) = work(compile_model(make_model(nodes, {"x": (F, [4, 8])}, weights)))
    assert operators == ("MatMul", "Add", "Relu")
    assert flops == 2 * 4 * 8 * 16 + 4 * 16 + 4 * 16
    assert traffic == 4 * (4 * 8 + 8 * 16 + 16 + 4 * 16)


def test_a_convolution_counts_the_same_whatever_kernel_runs_it() -> None:
    for channels, groups in ((4, 1), (4, 4), (64, 1)):
        weight = np.ones((channels, channels // groups, 3, 3), F)
        model = make_model(
            [node("Conv", ["x", "w"], ["y"], group=groups)], {"x": (F, [2, channels, 10, 10])}, {"w": weight}
        )
        found = work(compile_model(model))
        assert sum(flops for _, flops, _ in found) == 2 * (2 * channels * 8 * 8) * (channels // groups) * 9


def test_gather_reads_the_rows_it_takes_and_not_its_table() -> None:
    model = make_model([node("Gather", ["w", "x"], ["y"])], {"x": (np.int64, [3])}, {"w": np.ones((1000, 8), F)})
    ((_, flops, traffic),) = work(compile_model(model))
    assert flops == 0
    assert traffic == 4 * 3 * 8 * 2 + 8 * 3


def test_attention_counts_both_of_its_products() -> None:
    model = make_model(
        [node("Attention", ["q", "k", "v"], ["y"])],
        {name: (F, [1, 2, 6, 4]) for name in "qkv"},
        opset=23,
    )
    found = work(compile_model(model))
    assert {operators for operators, _, _ in found} == {("Attention",)}
    assert sum(flops for _, flops, _ in found) >= 2 * (2 * 2 * 6 * 6 * 4)


def test_saved_programs_keep_it(tmp_path) -> None:
    program = compile_model(
        make_model([node("MatMul", ["x", "w"], ["y"])], {"x": (F, ["n", 8])}, {"w": np.ones((8, 16), F)})
    )
    save(program, tmp_path / "p.wgpu")
    assert work(load(tmp_path / "p.wgpu"), 5) == work(program, 5)
