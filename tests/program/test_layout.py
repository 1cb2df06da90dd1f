"""A layout is plain numbers: the same on every host, and what the expressions of its Program say."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxruntime_ep_wgpu.program.file import header
from onnxruntime_ep_wgpu.program.layout import MAX_GROUPS, Layout, Layouts, fold_grid
from onnxruntime_ep_wgpu.program.postfix import OPERATIONS, Postfix, arity
from onnxruntime_ep_wgpu.program.program import REPETITION, Program, Storage
from tests import patience
from tests.program import programs
from tests.program.golden import FOLDER, as_json, laid_out, read, without_texts

FILES = sorted(FOLDER.glob("*.json"))
names = pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])


@names
def test_layouts_are_those_that_other_hosts_are_compared_with(path: Path) -> None:
    program, cases = read(path)
    layouts = Layouts(program)
    assert cases
    for case in cases:
        assert laid_out(layouts, case["symbols"]) == case


@pytest.mark.parametrize("case", list(programs.every()), ids=[program.name for program, _ in programs.every()])
def test_the_files_are_of_these_programs(case: programs.Case) -> None:
    program, cases = case
    stored, found = read(FOLDER / f"{program.name}.json")
    assert as_json(header(without_texts(program))) == as_json(header(stored))
    assert [it["symbols"] for it in found] == as_json(cases)


@names
@pytest.mark.parametrize("seed", range(3))
def test_a_layout_is_the_same_whichever_it_is_like(path: Path, seed: int) -> None:
    """It has in common with that one what does not differ, and nothing else."""
    program, cases = read(path)
    layouts, order, like = Layouts(program), np.random.default_rng(seed), None
    for k in order.integers(0, len(cases), 3 * len(cases)):
        assert laid_out(layouts, cases[k]["symbols"], like) == cases[k]
        if "error" not in cases[k]:
            made = layouts.layout(cases[k]["symbols"], like)
            if like is not None and made.symbols == like.symbols:
                once = {k for k, it in enumerate(program.dispatches) if it.repeats == 1 and not any(it.ranges)}
                assert all(a is b for a, b in zip(made.steps, like.steps, strict=True) if a.dispatch in once)
                assert made.slots is like.slots
            like = made


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_layout_says_which_dispatches_another_one_has_too(data: st.DataObject) -> None:
    """Whichever it was made like: exactly those whose steps, bytes or places of values differ are others; what was made for the
    rest is right where the other steps are put in between."""
    program = programs.drawn(data)
    layouts, made = Layouts(program), list[Layout]()
    for symbols in data.draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=2, max_size=6)):
        like = data.draw(st.sampled_from([None, *made]))
        now, fresh = layouts.layout(symbols, like), Layouts(program).layout(symbols)
        assert now == fresh and now.basis.steps == fresh.basis.steps
        moved = data.draw(st.sets(st.integers(0, len(program.values) - 1), max_size=2))
        for then in [*made, now]:
            changed = now.changed_since(then, moved)
            others = moved | {v for v, nbytes in enumerate(then.nbytes) if nbytes != fresh.nbytes[v]}
            steps = list(then.steps)
            for number, it in reversed(list(enumerate(program.dispatches))):
                mine = now.steps[now.places(number)]
                assert mine == tuple(step for step in fresh.steps if step.dispatch == number)
                differs = mine != then.steps[then.places(number)] or not others.isdisjoint(it.args)
                assert (number in changed) == differs
                if number in changed:
                    steps[then.places(number)] = mine
            assert steps == list(fresh.steps)
            users = {
                k for k, step in enumerate(now.steps) if not moved.isdisjoint(program.dispatches[step.dispatch].args)
            }
            assert now.places_with(moved) == users
        made.append(now)


class Values:
    """Dims calculated one token after the other."""

    def __init__(self, program: Program, symbols: list[int], repetition: int = 0) -> None:
        self.known = {it.name: value for it, value in zip(program.symbols, symbols, strict=True)}
        self.known[REPETITION] = repetition
        for name, expression in program.definitions:
            self.known[name] = self(expression)

    def __call__(self, expression: Postfix) -> int:
        stack: list[int] = []
        for token in (expression,) if isinstance(expression, int) else expression:
            if isinstance(token, str) and not token.startswith("$"):
                operands = [stack.pop() for _ in range(arity(token))][::-1]
                stack.append(OPERATIONS[token](*operands))
            else:
                stack.append(token if isinstance(token, int) else self.known[token[1:]])
        (result,) = stack
        return result


@names
def test_every_number_is_what_its_expression_says(path: Path) -> None:
    program, cases = read(path)
    for case in cases:
        if "error" in case:
            continue
        symbols, layout = case["symbols"], Layouts(program).layout(case["symbols"])
        values = Values(program, symbols)
        assert [list(map(values, it.shape)) for it in program.values] == list(map(list, layout.shapes))
        for number, it in enumerate(program.values):
            if it.storage is Storage.HOST:
                assert tuple(map(values, it.elements)) == layout.elements[number]
        assert layout.allowed == tuple((values(it.low), values(it.high)) for it in program.assertions)
        assert all(values(check.condition) for check in program.checks)
        ran = 0
        for number, it in enumerate(program.dispatches):
            steps = [step for step in layout.steps if step.dispatch == number]
            variant = next(k for k, guard in enumerate(it.guards) if values(guard))
            groups = values(it.workgroups[variant])
            results = [
                a for a, kind in zip(it.args, program.kernels[it.kernel].bindings, strict=True) if kind != "read"
            ]
            if not groups or not any(layout.nbytes[a] for a in results):
                assert not steps
                continue
            assert [step.repetition for step in steps] == list(range(max(1, values(it.repeats))))
            assert {step.repeats for step in steps} == {len(steps)}
            ran += len(steps)
            for step in steps:
                each = Values(program, symbols, step.repetition)
                assert step.variant == variant and step.grid == fold_grid(groups)
                assert list(step.uniforms) == [each(uniform) % 2**32 for uniform in it.uniforms]
                ranges = [byte_range and tuple(map(each, byte_range)) for byte_range in it.ranges]
                assert list(step.ranges) == ranges
        assert ran == len(layout.steps)


def check_slots(program: Program, layout: Layout) -> None:
    """Values that some dispatch needs at the same time have slots of their own, each as large as it must be; those that no
    dispatch has that runs have none."""
    temps = [k for k, it in enumerate(program.values) if it.storage is Storage.TEMP]
    running = sorted({step.dispatch for step in layout.steps})
    lives = {k: [n for n in running if k in program.dispatches[n].args] for k in temps}
    used = {k: range(min(it), max(it) + 1) for k, it in lives.items() if it}
    assert set(layout.slot_of) == set(used)
    for a in used:
        assert layout.slots[layout.slot_of[a]] >= layout.nbytes[a]
        for b in used:
            if a < b and set(used[a]) & set(used[b]):
                assert layout.slot_of[a] != layout.slot_of[b], (a, b)
    most = max((sum(n in it for it in used.values()) for n in range(len(program.dispatches))), default=0)
    assert len(layout.slots) <= most
    assert set(layout.slot_of.values()) == set(range(len(layout.slots)))
    assert all(
        nbytes == max(layout.nbytes[v] for v, it in layout.slot_of.items() if it == slot)
        for slot, nbytes in enumerate(layout.slots)
    )


@names
def test_values_that_live_at_once_have_slots_of_their_own(path: Path) -> None:
    program, cases = read(path)
    for case in cases:
        if "error" not in case:
            check_slots(program, Layouts(program).layout(case["symbols"]))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_slots_of_any_program(data: st.DataObject) -> None:
    """Dispatches write one value and read some of those before it, the last of them the output; not all of them run."""
    count = data.draw(st.integers(1, 12))
    values = [programs.value("x", Storage.INPUT, 1)]
    steps = []
    for k in range(1, count + 1):
        extent = data.draw(st.integers(0, 50))
        values.append(programs.value(f"t{k}", Storage.OUTPUT if k == count else Storage.TEMP, extent))
        steps.append([*data.draw(st.lists(st.integers(0, k - 1), min_size=1, max_size=3)), k])
    groups = data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    program = replace(
        programs.EMPTY, inputs=(0,), outputs=(count,), values=tuple(values),
        kernels=tuple(programs.kernel("r" * (len(it) - 1) + "w") for it in steps),
        dispatches=tuple(programs.dispatch(k, it, workgroups=(groups[k],)) for k, it in enumerate(steps)),
    )  # fmt: skip
    check_slots(program, Layouts(program).layout([]))


@given(st.integers(1, 2**32))
def test_a_grid_has_enough_workgroups_and_few_more(count: int) -> None:
    x, y, z = fold_grid(count)
    assert z == 1 and x <= MAX_GROUPS and count <= x * y < count + y
    assert y == 1 or count > MAX_GROUPS


def test_an_unknown_symbol_is_named() -> None:
    program = replace(programs.EMPTY, values=(programs.value("x", Storage.INPUT, "$n"),))
    with pytest.raises(KeyError, match="'n' is not defined"):
        Layouts(program)


def test_it_needs_numpy_at_most() -> None:
    script = """
import sys
import onnxruntime_ep_wgpu.program.layout
import onnxruntime_ep_wgpu.program.file
parts = ("device", "compiler", "runtime", "plugin", "api")
loaded = [it for it in sys.modules if it.startswith(tuple(f"onnxruntime_ep_wgpu.{part}" for part in parts))]
assert not loaded, loaded
other = {"onnx", "onnx_ir", "onnxruntime", "wgpu", "cffi", "_cffi_backend", "sympy"} & set(sys.modules)
assert not other, other
"""
    patience.run([sys.executable, "-c", script], check=True)
