"""A series has for each of its sizes the numbers of a layout that was made for these alone, and memory and grids that do for it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from onnxruntime_ep_wgpu.errors import InputError, LimitError
from onnxruntime_ep_wgpu.program.layout import Layout, Layouts
from onnxruntime_ep_wgpu.program.program import Program, Storage
from onnxruntime_ep_wgpu.program.series import AllSeries, Series

from .programs import EMPTY, axes, dispatch, drawn, every, kernel, value


def series_of(
    program: Program, symbols: tuple[int, ...], more: tuple[int, ...], like: tuple[int, ...] | None = None
) -> Series | None:
    layouts = Layouts(program)
    return AllSeries(layouts).series(symbols, more, layouts.layout(like or symbols), 12)


def check(program: Program, series: Series, number: int, alone: Layout) -> None:
    """The run with this number does what a layout for its sizes says."""
    last = series.last
    assert [it.dispatch for it in alone.steps] == [it.dispatch for it in last.steps]
    for step, large in zip(alone.steps, last.steps, strict=True):
        block = series.blocks.get(step.dispatch)
        assert step.uniforms == (large.uniforms if block is None else tuple(block.words[number].tolist()))
        assert replace(step, uniforms=(), grid=large.grid) == replace(large, uniforms=())
        assert step.grid[0] * step.grid[1] <= large.grid[0] * large.grid[1]
        assert step.grid == large.grid or block is not None
    assert all(a <= b and bool(a) == bool(b) for a, b in zip(alone.nbytes, last.nbytes, strict=True))
    for v, elements in alone.elements.items():
        found = series.elements.get(v)
        assert elements == (last.elements[v] if found is None else tuple(found[number].tolist()))
    assert alone.slot_of.keys() == last.slot_of.keys() and alone.aliases == last.aliases
    for v, (first, more) in zip(program.outputs, series.outputs, strict=True):
        assert alone.shapes[v] == tuple([a + number * by for a, by in zip(first, more, strict=True)])


def check_all(
    program: Program, symbols: tuple[int, ...], more: tuple[int, ...], like: tuple[int, ...] | None = None
) -> int:
    """How many sizes the series has."""
    try:
        series = series_of(program, symbols, more, like)
    except (InputError, LimitError):
        return 0
    if series is None:
        return 1
    for number in range(series.count):
        here = [a + number * by for a, by in zip(symbols, more, strict=True)]
        check(program, series, number, Layouts(program).layout(here))
    return series.count


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_series_is_its_layouts(data: st.DataObject) -> None:
    program = drawn(data)
    more = data.draw(st.sampled_from([(0, 1), (1, 0), (1, 1), (2, 1), (0, 3)]))
    symbols, like = ((data.draw(st.integers(0, 4)), data.draw(st.integers(0, 3))) for _ in range(2))
    check_all(program, symbols, more, like)


def test_the_series_of_programs_with_every_feature_are_their_layouts() -> None:
    found = []
    for program, cases in every():
        for symbols in cases:
            for axis in range(len(symbols)):
                more = tuple([int(axis == k) for k in range(len(symbols))])
                found.append(check_all(program, symbols, more))
                for like in cases:
                    check_all(program, symbols, more, like)
    assert max(found) == 12
    assert len(set(found)) > 4, "some end where a layout is another one"


def program_of(
    guard: str | int = 1, workgroups: str | int = "$n 3 + 4 //", uniforms: tuple[str, ...] = ("$n",)
) -> Program:
    """x (n) -> y (n) by a kernel with two variants."""
    return replace(
        EMPTY, name="grows", symbols=axes("n"), inputs=(0,), outputs=(1,),
        values=(value("x", Storage.INPUT, "$n"), value("y", Storage.OUTPUT, "$n")), kernels=(kernel("rw", len(uniforms), 2),),
        dispatches=(dispatch(0, (0, 1), uniforms, (guard, 1), (workgroups, 1)),),
    )  # fmt: skip


def test_it_ends_where_another_variant_runs() -> None:
    series = series_of(program_of("$n 10 <"), (5,), (1,))
    assert series is not None and series.count == 5
    assert series.blocks[0].words.tolist() == [[5], [6], [7], [8], [9]]
    assert series.last.steps[0].grid == (3, 1, 1)
    assert series_of(program_of("$n 10 <"), (9,), (1,)) is None


def test_grids_grow_only_where_kernels_read_how_many_workgroups_there_are() -> None:
    series = series_of(program_of(uniforms=()), (5,), (1,))
    assert series is not None and series.count == 4


def test_nothing_that_shrinks_or_is_empty_is_in_one() -> None:
    assert series_of(program_of(workgroups="$n -1 * 100 +"), (5,), (1,)) is None
    assert series_of(program_of(), (0,), (1,)) is None


def test_memory_of_intermediate_values_does_not_grow_much() -> None:
    program = program_of()
    middle = value("t", Storage.TEMP, "$n", 1 << 16)
    program = replace(
        program, values=(*program.values, middle), kernels=(*program.kernels, kernel("rw", 1)),
        dispatches=(dispatch(1, (0, 2), ("$n",), workgroups=("$n",)), dispatch(1, (2, 1), ("$n",), workgroups=("$n",))),
    )  # fmt: skip
    series = series_of(program, (100,), (10,))
    assert series is not None and 1 < series.count < 12
    assert series_of(program, (100,), (200,)) is None
