"""Functions of templates that are written out where they are called."""

from __future__ import annotations

import pytest

from onnxruntime_ep_wgpu.compiler.templates.inline import inlined
from onnxruntime_ep_wgpu.compiler.templates.preprocess import preprocess


def test_calls_become_the_text_with_their_arguments() -> None:
    text = "#inline at_row(row, k) rows[(row) * 4u + (k)]\nlet v = at_row(i + 1u, f(j, k)) + at_row(0u, n[g(1u, 2u)]);"
    assert inlined(text) == "let v = rows[(i + 1u) * 4u + (f(j, k))] + rows[(0u) * 4u + (n[g(1u, 2u)])];"


def test_a_call_in_an_argument_or_in_another_text_is_written_out_too() -> None:
    text = "#inline twice(x) 2u * (x)\n#inline more(x) twice(x) + 1u\nlet v = more(twice(i));\nlet more = twiced(1u);"
    assert inlined(text) == "let v = 2u * (2u * (i)) + 1u;\nlet more = twiced(1u);"


def test_names_of_parameters_are_whole_words_and_stay_in_what_was_given() -> None:
    assert inlined("#inline put(at, v) t[at] = v[0]; u[at] = v[1]\nput(v, at);") == "t[v] = at[0]; u[v] = at[1];"


def test_a_call_of_another_form_is_an_error() -> None:
    with pytest.raises(ValueError, match="f takes 2 arguments, and has a"):
        inlined("#inline f(x, y) x + y\nf(a)")
    with pytest.raises(ValueError, match="does not close the call on its line"):
        inlined("#inline f(x) x\nf(a,\n  b)")


def test_repetitions_and_choices_come_first() -> None:
    text = "#if FOURS\n#inline vector(at) vec4f(#[t[4u * (at) + #eu] for e 2])\n#end\n#for i 2\nlet v#i = vector(b + #iu);\n#end"
    assert preprocess(text, {"FOURS": True}) == "\n".join(
        f"let v{i} = vec4f(t[4u * (b + {i}u) + 0u], t[4u * (b + {i}u) + 1u]);" for i in range(2)
    )
