"""Chat templates are programs of strangers: whatever one does becomes one error with its line; memory and steps are bounded.

The bounds are small here, so that what would run on is stopped at once; steps are counted, and nothing is measured in time.
"""

from __future__ import annotations

import random
import sys
import tracemalloc
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from onnxruntime_ep_wgpu.api.language import template_budget
from onnxruntime_ep_wgpu.api.language.folder import Template
from onnxruntime_ep_wgpu.api.language.template import LONGEST, render
from onnxruntime_ep_wgpu.errors import ModelError

from .templates import GROWING, REAL, template

pytestmark = pytest.mark.filterwarnings("ignore::SyntaxWarning")  # of the Python that jinja2 makes
MESSAGES = [{"role": role, "content": f"text {k}"} for k, role in enumerate(["system", "user", "assistant", "user"])]
PATH = Path("folder") / "chat_template.jinja"


def rendered(text: str, messages: Any = MESSAGES, **tokens: str) -> str:
    return render(Template(text, PATH), messages, tokens)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_budget, "STEPS", 3_000)
    monkeypatch.setattr(template_budget, "LARGEST", 20_000)


RAISED = {
    "{{ 1/0 }}": "division by zero", "{{ 1+'a' }}": "TypeError", "{% include 'x' %}": "requests another template, 'x'",
    "{% import 'x' as y %}": "another template", "{% extends 'x' %}": "another template", "{{ nothing.at.all }}": "undefined",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}": "too deep", "{% block b %}{{ self.b() }}{% endblock %}": "too deep",
    "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}": "too deep", "{{ range(10**9) }}": "Range too big",
    "{% for %}": "Expected an expression", "{{ ''.__class__.x }}": "unsafe", "{{ messages.append(1) }}": "unsafe",
    "{{ messages|nofilter }}": "No filter", "{{ messages[0].content.none() }}": "no attribute", "{{ dict(**messages) }}": "mapping",
    "{{ 'a'|urlize }}": "No filter", "{% nothing %}": "unknown tag", "{{ 1e999 }}": "inf", "{{ 'x'|int.y }}": "No filter",
}  # fmt: skip


@pytest.mark.parametrize("text", RAISED)
def test_what_a_template_raises_is_an_error_that_shows_its_line(text: str) -> None:
    with pytest.raises(ModelError, match=rf"chat_template\.jinja does not work: .*({RAISED[text]}).*, in line 3: "):
        rendered(f"{{# a comment #}}\n{{{{ 'text' }}}}\n{text}\n")


TOO_DEEP = {
    "parentheses": "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}", "sum": "{{ " + "1+" * 9_000 + "1 }}",
    "signs": "{{ " + "-" * 60_000 + "1 }}", "conditions": "{% if x %}" * 5000 + "{% endif %}" * 5000,
    "attributes": "{{ a" + ".b" * 9_000 + " }}", "lists": "{{ " + "[" * 900 + "]" * 900 + " }}",
    "loops": "{% for i in x %}" * 30 + "{% endfor %}" * 30, "digits": "{{ " + "9" * 5000 + " }}", "break": "{% break %}",
    "unclosed": "{{ '", "surrogate": "{{ nothing.x }}\ud800",
}  # fmt: skip


@pytest.mark.parametrize("kind", TOO_DEEP)
def test_a_template_that_cannot_be_compiled_is_an_error(kind: str) -> None:
    with pytest.raises(ModelError, match=r"chat_template\.jinja does not work: ") as error:
        rendered(TOO_DEEP[kind])
    assert len(str(error.value)) < 1500


def test_a_template_has_a_length() -> None:
    with pytest.raises(ModelError, match=r"has 200,001 characters; the limit is 200,000"):
        rendered("a" * (LONGEST + 1))


def test_a_template_may_refuse_a_conversation() -> None:
    with pytest.raises(ModelError, match="the chat template refuses the conversation: no such role"):
        rendered("{{ raise_exception('no such role') }}")


@pytest.mark.parametrize("text", GROWING)
@pytest.mark.usefixtures("small")
def test_neither_memory_nor_steps_of_a_template_grow(text: str) -> None:
    """By far: memory as it is traced, and the functions of Python and C that are called."""
    most, calls = 8 << 20, 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > 500_000:
            raise AssertionError("it runs on")

    tracemalloc.start()
    sys.setprofile(count)
    try:
        with pytest.raises(
            ModelError, match=r"does not work: (it takes more|it makes|it uses the encoding|'lipsum' is|its parts)"
        ):
            rendered(text)
    finally:
        sys.setprofile(None)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < most


@pytest.mark.parametrize("seed", [pytest.param(k, marks=[pytest.mark.exhaustive] * (k > 0)) for k in range(10)])
@pytest.mark.usefixtures("small")
def test_random_templates_end_with_a_text_or_our_error(seed: int) -> None:
    rng, good = random.Random(seed), 0
    for _ in range(20 if seed == 0 else 200):
        text = template(rng)
        tracemalloc.start()
        try:
            good += len(rendered(text)) <= template_budget.LARGEST
        except ModelError as error:
            assert str(PATH) in str(error)
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak < 16 << 20, text
    assert good or seed == 0


@pytest.mark.costly
@pytest.mark.parametrize("text", REAL)
def test_a_template_gives_what_jinja2_gives(text: str) -> None:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    for messages in (MESSAGES, MESSAGES[1:], [{"role": "user", "content": "<think>a</think>\nb & c"}]):
        tokens = {"bos_token": "<s>", "eos_token": "</s>"}
        expected = environment.from_string(text).render(messages=messages, add_generation_prompt=True, **tokens)
        assert rendered(text, messages, **tokens) == expected


@pytest.mark.parametrize("text", REAL)
def test_a_long_conversation_is_within_the_budget(text: str) -> None:
    """Of a thousand messages, and of a text of a megabyte."""
    turns = [{"role": role, "content": f"text {k}"} for k in range(500) for role in ("user", "assistant")]
    assert len(rendered(text, turns, bos_token="", eos_token="")) > 1000
    long = [{"role": "user", "content": "a text of many words\n" * 50_000}]
    assert rendered(text, long, bos_token="", eos_token="")


def test_a_conversation_that_is_too_long_is_an_error() -> None:
    with pytest.raises(ModelError, match="more than 10,000,000 characters"):
        rendered("{{ messages[0].content }}", [{"role": "user", "content": "a" * 10_000_001}])


def test_templates_have_what_transformers_gives_them() -> None:
    assert (
        rendered("{% for m in messages %}{% if loop.index == 2 %}{% break %}{% endif %}{{ m.role }}{% endfor %}")
        == "system"
    )
    assert rendered("{% generation %}{{ 'a' }}{% endgeneration %}b") == "ab"
    assert rendered("{{ {'a': '<é>'}|tojson }}{{ [1]|tojson(indent=1) }}") == '{"a": "<é>"}[\n 1\n]'
    assert len(rendered("{{ strftime_now('%Y-%m-%d') }}")) == 10
