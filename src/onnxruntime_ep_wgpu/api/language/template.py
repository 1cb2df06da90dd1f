"""Renders a jinja2 chat template with the functions that transformers offers, within a budget.

In: the template and a conversation. Out: the text. Any failure of the template raises ModelError with the template's line.

The template's syntax tree is changed before compilation. Every body that may repeat first counts its steps, and values are
measured where they are created or compared. The sandbox intercepts calls, filters and operators.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import wraps
from types import TracebackType
from typing import Any, NoReturn

from jinja2 import BaseLoader, Environment, TemplateError, TemplateNotFound, TemplateSyntaxError, nodes, pass_context
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from ...errors import ModelError, cut
from .folder import Template
from .template_budget import CHARACTERS, Budget

LONGEST = 200_000
"""Limit of a template in characters."""
_SHOWN = 1000  # limit of a template's message in characters
# Filters for HTML and debugging, which no conversation needs. Their time grows faster than their input.
LEFT_OUT = ("pprint", "striptags", "urlize", "wordwrap", "xmlattr")
# Names that no template can spell.
_STEPS, _MEASURE, _JOIN = "steps of a body", "look at a value", "join texts"


def render(template: Template, messages: Sequence[Mapping[str, str]], tokens: Mapping[str, str]) -> str:
    """Returns the text of a conversation, up to the start of the assistant's answer."""
    if len(template.text) > LONGEST:
        raise ModelError(
            f"the chat template of {template.path} has {len(template.text):,} characters; the limit is {LONGEST:,}"
        )
    given, parts, size = list(messages), [], 0
    try:
        budget = Budget(given)
        compiled = _Environment(budget).bounded(template.text)
        for part in compiled.generate(messages=given, add_generation_prompt=True, **tokens):
            size += len(part)
            budget.fits(size)
            parts.append(part)
        return "".join(parts)
    except ModelError:
        raise
    except Exception as error:  # a template is a program and may raise any exception
        raise _error(template, error) from error


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self, budget: Budget) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[loopcontrols, _Generation],
            loader=_NoLoader(), finalize=_finalize,
        )  # fmt: skip
        self.budget = budget
        del self.globals["lipsum"]
        self.globals |= {"namespace": _Namespace, "raise_exception": _raise_exception, "strftime_now": _strftime_now}
        filters: dict[str, Any] = {name: it for name, it in self.filters.items() if name not in LEFT_OUT}
        tests: dict[str, Any] = self.tests
        self.filters = {name: self._with_budget(name, it) for name, it in filters.items()}
        self.tests = {name: self._with_budget(name, it) for name, it in tests.items()}
        self.filters |= {"tojson": self._to_json, _STEPS: self._steps, _MEASURE: self._measured, _JOIN: self._joined}

    def bounded(self, source: str) -> Any:
        """Compiles a template with the budget built in."""
        tree = _BudgetInserter().visit(self.parse(source))
        tree.set_environment(self)
        return self.from_string(tree)

    # ---- hooks of the sandbox

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self.budget.binary(operator, left, right)
        return self._measured(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Measures arguments of methods of Python's own types before the call. Macros and loops count their own steps."""
        owner = getattr(__obj, "__self__", None)
        __self.budget.spend(1)
        if isinstance(owner, str | bytes | int | float | list | tuple | dict):
            args = _counted_once(__obj.__name__, args)
            __self.budget.call(__obj.__name__, (owner, *args, *kwargs.values()))
        return __self._measured(super().call(__context, __obj, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            wrapped.__self__ = value.__self__  # type: ignore[attr-defined]
        return wrapped

    def _with_budget(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a filter or a test so that its arguments and its result are measured."""
        passed = hasattr(function, "jinja_pass_arg")  # jinja2 then passes a context or environment first

        @wraps(function)
        def bounded(*args: Any, **kwargs: Any) -> Any:
            first, values = args[:passed], args[passed:]
            values = _counted_once(name, values)
            self.budget.call(name, (*values, *kwargs.values()))
            return self._measured(function(*first, *values, **kwargs))

        return bounded

    def _measured(self, value: Any) -> Any:
        """Measures a value and returns it. An iterator is wrapped to count its elements."""
        if isinstance(value, Iterator) and not hasattr(value, "__len__"):
            return self._counted(value)
        self.budget.count_values(value)
        return value

    def _counted(self, values: Iterator[Any]) -> Iterator[Any]:
        for it in values:
            self.budget.spend(1)
            yield it

    def _steps(self, count: int) -> bool:
        self.budget.spend(count)
        return True

    def _joined(self, parts: Sequence[Any]) -> str:
        self.budget.count_values(parts)
        return "".join(map(str, parts))

    def _to_json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """Like the filter of transformers: without HTML escapes, and with non-ASCII characters unescaped."""
        self.budget.call("center", ("", indent))
        encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        parts, size = [], 0
        for part in encoder.iterencode(value):
            size += len(part)
            self.budget.fits(size)
            self.budget.spend(1)
            parts.append(part)
        return "".join(parts)


class _BudgetInserter(NodeTransformer):
    """Inserts the budget's checks into a template's syntax tree."""

    def _measured_node(self, node: Any) -> Any:
        """Wraps a node so that its value is measured."""
        return _filter(_MEASURE, self.generic_visit(node))

    visit_List = visit_Dict = _measured_node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        return self._measured_node(node) if node.ctx == "load" else self.generic_visit(node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        return self._measured_node(node) if isinstance(node.arg, nodes.Slice) else self.generic_visit(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter(_JOIN, nodes.List(node.nodes, lineno=node.lineno))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _filter(_MEASURE, node.expr)
        for operand in node.ops:
            operand.expr = _filter(_MEASURE, operand.expr)
        return node

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self._with_body(node)
        if node.test is not None:
            node.test = nodes.And(_steps(node.test, [node.test]), node.test, lineno=node.lineno)
        return node

    def _with_body(self, node: Any) -> Any:
        body = list(node.body)
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_steps(node, body), lineno=node.lineno))
        return node

    visit_Macro = visit_CallBlock = visit_Block = visit_Template = _with_body


def _filter(name: str, value: Any) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None, lineno=value.lineno)


def _steps(at: nodes.Node, body: Sequence[nodes.Node]) -> nodes.Filter:
    """Returns an expression that counts the cost of a body, without nested bodies, and is true."""
    return _filter(_STEPS, nodes.Const(1 + sum(map(_cost, body)), lineno=at.lineno))


def _cost(node: nodes.Node) -> int:
    """Returns the cost of evaluating a node, in steps."""
    if isinstance(node, nodes.TemplateData):
        return 1 + len(node.data) // CHARACTERS
    own_body = isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock | nodes.Block)
    return 1 + sum(map(_cost, node.iter_child_nodes(exclude=("body",) if own_body else ())))


class _Generation(Extension):
    """Keeps the content between `generation` and `endgeneration`, which mark answers for training."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _NoLoader(BaseLoader):
    def get_source(self, environment: Environment, template: str) -> NoReturn:
        raise TemplateNotFound(template, f"it requests another template, {cut(template)}: a chat template is one file")


class _Namespace(Namespace):
    """A namespace with a short repr, because the content may be nested and thus much longer than the template."""

    def __repr__(self) -> str:
        return "<namespace>"


@pass_context
def _finalize(context: Context, value: Any) -> Any:
    """Measures an output value. Due to the context argument, jinja2 calls it at each rendering, and not at compilation."""
    environment = context.environment
    assert isinstance(environment, _Environment)
    environment.budget.count_values(value)
    return value


def _counted_once(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the arguments, with iterators turned into lists for functions with a cost that depends on the length."""
    return tuple(list(it) if isinstance(it, Iterator) else it for it in args) if name in ("join", "sum") else args


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _raise_exception(message: object = "") -> NoReturn:
    raise ModelError(f"the chat template refuses the conversation: {str(message)[:_SHOWN]}")


def _error(template: Template, error: Exception) -> ModelError:
    text = str(error)[:_SHOWN]
    if isinstance(error, RecursionError):
        text = "it is nested too deeply, or it recurses too often"
    elif isinstance(error, SyntaxError):
        text = error.msg  # without the line, which refers to jinja2's generated Python
    elif not isinstance(error, TemplateError):
        text = f"{type(error).__name__}: {text}"
    number = error.lineno if isinstance(error, TemplateSyntaxError) else _line(error.__traceback__)
    lines = template.text.splitlines()
    where = f", in line {number}: {cut(lines[number - 1].strip())}" if 0 < number <= len(lines) else ""
    return ModelError(f"the chat template of {template.path} does not work: {text}{where}")


def _line(trace: TracebackType | None) -> int:
    """Returns the template's line that raised an error, or 0."""
    found = 0
    while trace is not None:
        compiled = trace.tb_frame.f_globals.get("__jinja_template__")
        if compiled is not None:
            found = compiled.get_corresponding_lineno(trace.tb_lineno)
        elif trace.tb_frame.f_code.co_filename == "<template>":  # already rewritten by jinja2
            found = trace.tb_lineno
        trace = trace.tb_next
    return found
