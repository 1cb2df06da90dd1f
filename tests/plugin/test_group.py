"""A compiled group runs at any size: its graph is compiled for sizes beyond a limit, by its owner and not by the runtime."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx_ir as ir
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.device import Device, Place
from onnxruntime_ep_wgpu.errors import ExtentError, InputError, LimitError, UnsupportedError
from onnxruntime_ep_wgpu.plugin.group import MAX_SPECIALISED, CompiledGroup, GroupOnDevice
from onnxruntime_ep_wgpu.plugin.specialise import Specialiser
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.runtime.executable import Executable
from onnxruntime_ep_wgpu.runtime.inputs import DeviceTensor
from onnxruntime_ep_wgpu.runtime.settings import RunSettings
from onnxruntime_ep_wgpu.runtime.weight_sources import in_memory
from tests import patience
from tests.plugin.loss import device_of, lose
from tests.support import make_model

F = np.float32
LIMIT = 4096  # bytes of a binding, which 102 rows of ten take
W = np.random.default_rng(3).standard_normal((10, 10), F)


class Counted(Specialiser):
    """Notes what it is asked for; `held` keeps it from answering."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.asked: list[dict[str, int]] = []
        self.held = threading.Event()
        self.held.set()

    def __call__(self, values: Mapping[str, int]) -> Program:
        self.asked.append(dict(values))
        assert self.held.wait(patience.SECONDS)
        return super().__call__(values)


def compiled(on: Device, rows: object = "n") -> tuple[Program, Counted]:
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Softmax", ["p"], ["y"])]
    module = ir.from_proto(make_model(nodes, {"x": (F, [rows, 10])}, {"w": W}))
    target = dataclasses.replace(on.target, max_binding_bytes=LIMIT)
    program = compile_graph(module.graph, module.opset_imports, target, "rows")
    return program, Counted(module.graph, module.opset_imports, target, "rows")


def run(runnable: GroupOnDevice, rows: int) -> None:
    """A run of so many rows, whose result must be right."""
    on, x = runnable.device, np.random.default_rng(rows).standard_normal((rows, 10), F)
    given, made = on.buffer(x.nbytes), on.buffer(x.nbytes)
    on.upload(given, 0, x.reshape(-1).view(np.uint8).data)
    with runnable.prepare(lambda _valued: [DeviceTensor(DType.FLOAT32, x.shape, given)]) as prepared:
        (shape,) = (shape for _, shape in prepared.outputs)
        prepared.submit([Place(made, 0)])
    got = np.empty(math.prod(shape), F)
    on.download(made, 0, got.view(np.uint8).data)
    e = np.exp(x @ W)
    np.testing.assert_allclose(got.reshape(shape), e / e.sum(-1, keepdims=True), rtol=1e-5, atol=1e-6)


def group_of(number: int, rows: object = "n") -> tuple[CompiledGroup, Counted]:
    program, specialise = compiled(device_of(number), rows)
    return CompiledGroup(program, lambda: device_of(number), RunSettings(), in_memory, specialise), specialise


def rows_of(asked: Sequence[Mapping[str, int]]) -> list[int]:
    return [next(iter(it.values())) for it in asked]


def test_a_size_beyond_a_limit_is_compiled_once_and_others_are_not() -> None:
    group, specialise = group_of(35)
    for rows in (5, 150, 102, 150, 103, 5, 103):
        run(group.on_device(), rows)
    assert rows_of(specialise.asked) == [150, 103]


def test_what_was_compiled_for_many_sizes_ends_with_the_one_used_longest_ago() -> None:
    group, specialise = group_of(35)
    sizes = [150, *range(200, 200 + MAX_SPECIALISED - 1)]
    for rows in (*sizes, 150, 300, 150, 200):
        run(group.on_device(), rows)
    assert rows_of(specialise.asked) == [*sizes, 300, 200]
    assert len(group.on_device().specialised) == MAX_SPECIALISED


def test_threads_that_want_one_size_wait_for_one_compilation() -> None:
    group, specialise = group_of(35)
    together = threading.Barrier(8)

    def work(_: int) -> None:
        together.wait(patience.SECONDS)
        run(group.on_device(), 150)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert rows_of(specialise.asked) == [150]


def test_runs_of_other_sizes_go_on_while_one_is_compiled() -> None:
    group, specialise = group_of(35)
    run(group.on_device(), 150)
    specialise.held.clear()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run, group.on_device(), 160)
        while len(specialise.asked) < 2:
            assert not waiting.done()
        for rows in (5, 6, 150):
            run(group.on_device(), rows)
        assert not waiting.done()
        specialise.held.set()
        waiting.result(patience.SECONDS)


def test_after_a_loss_they_are_compiled_for_the_next_device() -> None:
    group, specialise = group_of(36)
    before = group.on_device()
    run(before, 150)
    lose(before.device)
    with pytest.raises(Exception, match="was lost"):
        run(before, 150)
    after = group.on_device()
    assert after is not before and group.on_device() is after
    for rows in (5, 150):
        run(after, rows)
    assert rows_of(specialise.asked) == [150, 150]


def test_sizes_that_do_not_compile_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    group, _ = group_of(35)
    tried = []

    def refuse(*arguments: object) -> None:
        tried.append(arguments[-1])
        raise UnsupportedError("too large")

    monkeypatch.setattr("onnxruntime_ep_wgpu.plugin.specialise.compile_graph", refuse)
    for rows in (150, 160, 150, 160):
        with pytest.raises(LimitError, match=f"too large, with .*{rows}"):
            run(group.on_device(), rows)
    assert rows_of(tried) == [150, 160]
    run(group.on_device(), 5)


def test_a_limit_names_the_sizes_that_are_beyond_it() -> None:
    on = device_of(35)
    program, _ = compiled(on)
    runnable = GroupOnDevice(Executable(program, on), None)
    run(runnable, 102)
    with pytest.raises(LimitError, match=r"shape \[103, 10\] takes 4120 bytes") as caught:
        run(runnable, 103)
    assert list(caught.value.sizes.values()) == [103]


def test_wrong_inputs_are_no_matter_of_sizes() -> None:
    group, specialise = group_of(35)
    x = DeviceTensor(DType.FLOAT32, (5, 9), device_of(35).buffer(256))
    with pytest.raises(InputError, match="9 elements along axis 1"):
        group.on_device().prepare(lambda _valued: [x])
    assert not specialise.asked


class OfExtent:
    """An executable for inputs of one extent; with `valued`, of which it must have the value."""

    def __init__(self, extent: int, valued: bool) -> None:
        self.extent, self.valued_inputs = extent, frozenset({0} if valued else ())

    def key(self, inputs: Sequence[DeviceTensor]) -> object:
        return [tensor.shape for tensor in inputs]

    def prepare(self, inputs: Sequence[DeviceTensor]) -> OfExtent:
        (tensor,) = inputs
        if tensor.shape != (self.extent,):
            raise ExtentError(f"{tensor.shape} is not {self.extent}")
        if self.valued_inputs:
            assert tensor.value is not None, "an input that sets a shape has no value"
        return self

    def compiled_for(self, program: Program, _constants: object) -> OfExtent:
        return OfExtent(program, True)  # type: ignore[arg-type]

    def leave(self) -> None:
        """Nothing of it is kept."""


class ToExtent:
    """Compiles for the extent that a run has, which it gives instead of a Program; the values of inputs are wanted then."""

    constants = frozenset[str]()

    def __init__(self, extent: int = 0) -> None:
        self.extent = extent

    def relaxed(self, shapes: Sequence[tuple[int, ...]]) -> ToExtent:
        return ToExtent(shapes[0][0])

    def __call__(self) -> int:
        return self.extent


def given(extent: int, valued: frozenset[int]) -> list[DeviceTensor]:
    value = np.zeros(extent, np.int64) if 0 in valued else None
    return [DeviceTensor(DType.INT64, (extent,), None, 0, value)]


@pytest.mark.parametrize("other", [None, 7, 9], ids=["alone", "the same sizes", "other sizes"])
@pytest.mark.parametrize("before", [False, True], ids=["after the inputs", "before the inputs"])
def test_inputs_have_the_values_that_the_executable_wants_which_runs_them(other: int | None, before: bool) -> None:
    """Another thread may put an executable in place that wants more values, while a run looks at its inputs."""
    group = GroupOnDevice(OfExtent(5, False), ToExtent())  # type: ignore[arg-type]
    others = [other]

    def relax() -> None:
        size = others.pop() if others else None
        if size is not None:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(group.prepare, lambda valued: given(size, valued)).result(patience.SECONDS)

    def inputs(valued: frozenset[int]) -> list[DeviceTensor]:
        if before:
            relax()
        found = given(7, valued)
        relax()
        return found

    run = group.prepare(inputs)
    assert run is group.executable and (run.extent, run.valued_inputs) == (7, {0})  # type: ignore[attr-defined]


def test_a_run_that_began_with_an_executable_ends_with_it() -> None:
    """The one in its place wants values that these inputs do not have, and is not asked."""
    group = GroupOnDevice(first := OfExtent(5, False), ToExtent())  # type: ignore[arg-type]

    def inputs(valued: frozenset[int]) -> list[DeviceTensor]:
        if group.executable is first:  # type: ignore[comparison-overlap]
            group.prepare(lambda valued: given(7, valued))
        return given(5, valued)

    assert group.prepare(inputs) is first  # type: ignore[comparison-overlap]
