"""Directives of templates and bodies: what is repeated, chosen and calculated before WGSL sees a text."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import pytest

from onnxruntime_ep_wgpu.compiler.templates.files import map_body, template
from onnxruntime_ep_wgpu.compiler.templates.preprocess import declared, preprocess


def lines(text: str, **constants: Any) -> list[str]:
    return preprocess(text, constants).split("\n")


def test_loops_of_a_template_are_written_out() -> None:
    text = "#for i ROWS\n#for j 2\nlet sum#i_#j = #iu;\n#end\n#end\nend"
    assert lines(text, ROWS=2) == [
        "let sum0_0 = 0u;", "let sum0_1 = 0u;", "let sum1_0 = 1u;", "let sum1_1 = 1u;", "end"]  # fmt: skip
    assert lines("#for e 2\n#for d 1\n#e#d\n#end\n#end") == ["00", "10"]  # names with which directives begin
    assert lines("#for k RANK down\n#k\n#end", RANK=3) == ["2", "1", "0"]
    assert lines("#for k RANK - 1\n#k\n#end\n-", RANK=1) == ["-"]
    assert lines("#for k 2\n#for c COUNT#k\n#k#c\n#end\n#end", COUNT0=1, COUNT1=2) == ["00", "10", "11"]


def test_lines_are_chosen() -> None:
    text = '#if MODE == "linear"\na\n#else\nb\n#end'
    assert lines(text, MODE="linear") == ["a"]
    assert lines(text, MODE="cubic") == ["b"]
    assert lines("#if FLAG\na\n#end\nb", FLAG=False) == ["b"]
    assert lines("#for k 3\n#if KEPT#k\n#k\n#else\n#if #k == 2\nlast\n#end\n#end\n#end", KEPT0=1, KEPT1=0, KEPT2=0) == [
        "0", "last"]  # fmt: skip


def test_a_condition_has_a_name() -> None:
    text = "#let BOTH A and B == 2\n#if BOTH\na\n#else\nb\n#end\n#(BOTH)"
    assert lines(text, A=True, B=2) == ["a", "True"]
    assert lines(text, A=True, B=3) == ["b", "False"]
    assert lines("#for k 2\n#let N #k + A\nx#(N)\n#end", A=3) == ["x3", "x4"]
    with pytest.raises(KeyError, match="N"):
        lines("#if A\n#let N 1\n#end\n#(N)", A=1)
    for wrong in ("#let a 1", "#let A 1", "#let N"):
        with pytest.raises(ValueError, match="with a new name"):
            lines(wrong, A=1)


def test_what_is_not_chosen_is_not_looked_at() -> None:
    assert lines("#if FLAG\n#for k UNKNOWN\n#(OTHER)\n#end\n#end\na", FLAG=0) == ["a"]


def test_lists_and_expressions_are_written_out() -> None:
    assert lines("f(x, #[i#k for k RANK])", RANK=2) == ["f(x, i0, i1)"]
    assert lines("#[w#k for k 3 by *];") == ["w0 * w1 * w2;"]
    assert lines("v#(2 * COUNT + 1)_#(A)f #(1 / A)f", COUNT=3, A=0.25) == ["v7_0.25f 4.0f"]
    # WGSL has no literal of what is infinite or no number, or only becomes so.
    assert lines("#(A)f #(-A)f #(B * 10)f #(C)f", A=float("inf"), B=1e38, C=float("nan")) == [
        "float_bits(0x7f800000u) float_bits(0xff800000u) float_bits(0x7f800000u) float_bits(0x7fc00000u)"
    ]
    assert lines("vec#(A)f(#(B)f)", A=4, B=2) == ["vec4f(2f)"]
    assert lines('#[#("i#k" if #k == AXIS else "at#k") for k RANK]', AXIS=1, RANK=3) == ["at0, i1, at2"]
    assert lines("#for c 2\n#[v#(#c * STRIDE + #t) for t 2 by +]\n#end", STRIDE=2) == ["v0 + v1", "v2 + v3"]


def test_a_template_declares_constants_for_callers_that_give_none() -> None:
    text = '// A kernel.\n#default SPLIT has("levels")\n#default PARTS 4 if SPLIT else COUNT\n#for k PARTS\nx#k\n#end\n'
    assert preprocess(*declared(text, {"COUNT": 2})) == "// A kernel.\nx0\nx1\n"
    assert preprocess(*declared(text, {"COUNT": 2}, {"levels"})).count("x") == 4
    assert preprocess(*declared(text, {"COUNT": 2, "PARTS": 1}, {"levels"})).count("x") == 1
    assert declared("y_put(0u);\n", {"COUNT": 2}) == ("y_put(0u);\n", {"COUNT": 2})


def test_mistakes_name_the_directive() -> None:
    for text, message in (
        ("#for i 2\n", "'#for i 2' without #end"),
        ("#if 1\n#for i 2\n#end", "'#if 1' without #end"),
        ("#for i 2\n#end\n#end", "#end without a block"),
        ("#else\n#end", "#else without a block"),
        ("#for i 2\n#else\n#end", "'#for i 2' has an #else"),
        ("#for 2\n#end", "'#for 2' is not"),
        ("#for i FLOAT\n#end", "FLOAT is 0.5, not a number of repetitions"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            lines(text, FLOAT=0.5)
    for text in ("#for i ROWS\n#end", "#if ROWS\n#end", "#(ROWS)", "#[x for k ROWS]"):
        with pytest.raises(KeyError, match="ROWS"):
            lines(text)


def test_texts_without_directives_are_as_they_are() -> None:
    assert preprocess("let a = $COUNT;  // 1", {}) == "let a = $COUNT;  // 1"


BODIES = sorted(
    it.name.removesuffix(".wgsl") for it in (files("onnxruntime_ep_wgpu.compiler.emit") / "wgsl/bodies").iterdir()
)


@pytest.mark.parametrize("name", BODIES)
def test_a_body_says_what_it_is_and_has_no_comments_in_kernels(name: str) -> None:
    assert template(f"bodies/{name}").startswith("// ")
    assert "//" not in map_body(name).replace(" // ", "")  # but for divisions in expressions
    assert "#include" not in map_body(name)
