"""Templates of chats: as models have them, such as only grow, and random ones."""

from __future__ import annotations

import random

from jinja2.sandbox import ImmutableSandboxedEnvironment

from onnxruntime_ep_wgpu.api.language.template import LEFT_OUT

# What models have, by their means: roles, loops with first and last, namespaces, macros, reversed lists, JSON of tools.
REAL = [
    r"""
{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
""",
    r"""
{%- if messages[0].role == 'system' %}
    {{- bos_token + messages[0].content|trim + '\n\n' }}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set rest = messages %}
{%- endif %}
{%- for message in rest %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('order') }}{%- endif %}
    {{- '[INST] ' ~ message.content ~ ' [/INST]' if message.role == 'user' else message['content'] + eos_token }}
{%- endfor %}
""",
    r"""
{%- set ns = namespace(last=messages|length - 1, seen=false) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if not ns.seen and message.role == 'user' and message.content is string %}
        {%- set ns.seen = true %}{%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content.split('</think>')[-1].lstrip('\n') if '</think>' in message.content else message.content %}
    {%- if loop.first or loop.last or not loop.previtem.role == message.role %}{{ loop.index0 > ns.last }}{{ content }}
    {%- elif message.tool_calls is defined and message.tool_calls %}
        {{- message.tool_calls | map(attribute='name') | join(', ') }}
    {%- endif %}
{%- endfor %}
""",
    r"""
{%- macro show(m, k=1) %}
    {{- '%s|%d' % (m.role|upper, k) }}:{{ m.content|replace('t', 'T') }}{{ caller() if caller }}
{%- endmacro %}
{% for m in messages|rejectattr('role', 'equalto', 'system') %}
    {% call show(m, k=loop.index) %};{% endcall %}
{% else %}none{% endfor %}
{{ messages|selectattr('role', 'eq', 'user')|list|length }}{{ (messages|map(attribute='role')|list)|tojson }}
""",
    r"""
{% set roles = {'user': 'U', 'assistant': 'A'} %}
{% for m in messages %}
    {{ roles.get(m.role, 'S') }}{{ m.items()|list|length }}
    {{ '{} {:>5}'.format(m.role, loop.index) }}{{ m.content[:2] ~ loop.cycle('x', 'y') }}
{% endfor %}
{{ roles|dictsort }}
{{ 7 // 2, -7 % 3, 2 ** 10, 1.5 * 2, [1] + [2], 'a' * 3, (1, 2) + (3,), 3 | string, '5' | int + 1, x | default('none') }}
""",
]


def filled(template: str, values: str) -> list[str]:
    """The template with each line as its VALUE."""
    return [template.replace("VALUE", it) for it in values.strip().splitlines()]


# A value that is made of itself, of texts and of lists; one that is made again and again, and of large ones.
LONG = "{% set ns = namespace(s='aaaaaaaaaa', x=[1]) %}{% for i in range(100) %}{% set ns.s = VALUE %}{% endfor %}{{ ns.s }}"
NESTED = LONG.replace("ns.s", "ns.x")
MANY = "{% for i in range(99999) %}{% set y = VALUE %}{% endfor %}"
LARGE = "{% set x = 'a' * 15000 %}{% set z = [1] * 1500 %}" + MANY
GROWING = [
    # Steps that are more than the parts of arguments and result.
    "{{ ('a'*9000).strip('b'*9000 ~ 'a') }}",
    "{{ ('a'*9000)|trim('b'*9000 ~ 'a') }}",
    "{{ ('a'*900 ~ '-' ~ 'b'*900).encode('ascii').decode('punycode') }}",
    "{{ ('a'*900).encode('idna') }}",
    "{{ range(900)|sort(attribute='real,' * 90 ~ 'real')|list }}",
    "{{ range(900)|map(attribute='real.' * 90 ~ 'real')|list }}",
    "{% set a = 2**49000-1 %}{% for i in range(99) %}{% set x = a * a %}{% endfor %}",
    "{% set a = 3**10 %}{% for i in range(9999) %}{% set x = a ** 3000 %}{% endfor %}",
    *filled(
        LARGE,
        r"""
x == x ~ 'b'
x[1:]
x|upper
x.strip('a')
x|title
x is upper
x|trim('a')
x in ['b']
x|length
x|list
z|sort
2 in z
z|sum
z is in z
z == [2]
z|tojson
z|reverse|list
z[::-1]
z|unique|list
z.count(2)
(z, z)|length
{'a': z}
x.encode()
'%s' % x
x.split('b')
x|replace('b', 'c')
x|wordcount
x|urlencode
""",
    ),
    *filled(
        MANY,
        r"""
range(9999)|list
range(9999)|sum
range(9999)|max
'x' in range(9999)
range(9999)|join
range(9999)|last
range(9999)|string
range(9999)|unique|list
range(9999).count('x')
dict.fromkeys(range(1500), 1)
range(9999)|map('string')|list
range(9999)|select('odd')|list
range(9999)|batch(1)|list
range(9999)|random
""",
    ),
    *filled(
        NESTED,
        r"""
[ns.x, ns.x]
(ns.x, ns.x)
{'a': ns.x, 'b': ns.x}
dict(a=ns.x, b=ns.x)
ns.x + ns.x
ns.x * 2
[ns.x, ns.x]|list
[ns.x]|sum(start=[ns.x])
[ns.x, ns.x]|batch(2)|list
[ns.x, ns.x]|slice(1)|list
[ns.x, ns.x]|map('list')|list
{'a': ns.x, 'b': ns.x}.items()|list
""",
    ),
    *filled(
        LONG,
        r"""
ns.s ~ ns.s
ns.s + ns.s
ns.s * 10
10 * ns.s
ns.s.replace('a', ns.s)
ns.s|replace('a', ns.s)
ns.s.join(['a'] * 99)
(['a'] * 99)|join(ns.s)
range(99)|map('string')|join(ns.s)
'%s%s' % (ns.s, ns.s)
'{0}{0}'.format(ns.s)
'%s%s'|format(ns.s, ns.s)
'{a}{a}'.format_map({'a': ns.s})
[ns.s, ns.s]|join
[ns.s, ns.s]|string
ns.s.translate({97: ns.s})
('a\n' ~ ns.s)|indent(ns.s)
(ns.s, ns.s)|tojson
ns.s.rjust(ns.s|length * 2)
ns.s|center(ns.s|length * 2)
ns.s[::1] ~ ns.s[1:]
""",
    ),
    *filled(
        "{{ VALUE }}",
        r"""
'a' * 10**10
10**10 * 'a'
[1] * 10**10
10**(10**10)
2**(2**25)
'a'.encode() * 10**10
'a'.ljust(10**10)
'a'['ljust'](10**10)
('a'|attr('ljust'))(10**10)
'a'|center(10**10)
'1'.zfill(10**10)
'%1000000000d' % 1
'%*d' % (10**9, 1)
'%.1000000000f' % 1.5
'{:1000000000}'.format(1)
'{:{}}'.format(1, 10**9)
('{:1000000000}'|attr('format'))(1)
'{a:1000000000}'.format_map({'a': 1})
'%1000000000d'|format(1)
(5).to_bytes(10**10, 'big')
[1]|batch(10**9, 'x')|list
[1]|slice(10**9)|list
1.5|round(10**9)
15|round(-10**9)
1.5|round(10**9, 'floor')
'a\nb'|indent(10**10)
('a\n' * 9000)|indent(9000)
('\t' * 9000).expandtabs(9000)
('a' * 9000).translate({97: 'b' * 9000})
lipsum(n=10**9)
range(9999)|map('center', 9999)|list
range(9999)|map('center', 9999)|join
([[1]] * 1500)|sum(start=[])|length
[1]|tojson(indent=10**9)
([1] * 1500)|tojson(indent=1500)
('f' * 15000)|int(0, 16) * ('f' * 15000)|int(0, 16)
('a' * 15000).rfind('b' + 'a' * 4000)
99999999999 ** 99999999
messages * 10**9
""",
    ),
    *filled(
        "VALUE",
        """
{% set ns = namespace(x=[1]) %}{% macro m() %}{% set ns.x = varargs %}{% endmacro %}MANY{{ m(ns.x, ns.x) }}{% endfor %}{{ ns.x }}
{% set ns = namespace(s='aaaa') %}MANY{% set x %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = x %}{% endfor %}
{% set ns = namespace(s=3) %}MANY{% set ns.s = ns.s * ns.s %}{% endfor %}
{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}{% set ns = namespace(s='aaaa') %}MANY{% set ns.s = m(ns.s) %}{% endfor %}
{% for i in range(99999) %}{% endfor %}{% for j in range(99999) %}{% endfor %}
{% for i in range(999) %}{% for j in range(999) %}{% endfor %}{% endfor %}
{% for i in range(999) %}{% for j in range(999) if false %}{% endfor %}{% endfor %}
{% for i in range(9999) recursive %}{{ loop(range(9999)) if loop.depth < 9 }}{% endfor %}
{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}
{% set x = 'a' * 15000 %}{% for i in range(999) %}{{ x }}{% endfor %}
{% set x = 'a' * 15000 %}{% set y %}{% for i in range(999) %}{{ x }}{% endfor %}{% endset %}
{% filter upper %}{% for i in range(999) %}{{ 'a' * 15000 }}{% endfor %}{% endfilter %}
""".replace("MANY", "{% for i in range(99) %}"),
    ),
    "{% for i in range(999) %}" + "y" * 9000 + "{% endfor %}",
    "{% for i in range(999) %}{% if false %}" + "{{ a.b }}" * 200 + "{% endif %}{% endfor %}",
    "{% macro m(n) %}{% if n %}{{ caller() }}{{ caller() }}{% endif %}{% endmacro %}"
    + "{% call m(1) %}" * 13
    + "a"
    + "{% endcall %}" * 13,
]

PIECES = (
    "ns.s", "ns.x", "messages", "messages[0].content", "i", "10**9", "9999", "'a'", "'%s%99d'", "'{0}{0:{1}}'", "[1, 2]",
    "{'a': 1}", "range(999)", "none", "nothing", "1.5", "-1", "true", "(1, 'a')", "ns",
)  # fmt: skip
FILTERS = sorted({*ImmutableSandboxedEnvironment().filters} - {*LEFT_OUT})
METHODS = sorted({it for kind in (str, bytes, int, float, list, tuple, dict) for it in dir(kind) if it[0] != "_"})


def expression(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(PIECES)

    def inner() -> str:
        return expression(rng, depth - 1)

    arguments = ", ".join(inner() for _ in range(rng.randint(0, 3)))
    return rng.choice([
        lambda: f"({inner()} {rng.choice(['+', '-', '*', '/', '//', '%', '**', '~', '==', '<', 'in', 'and', 'or'])} {inner()})",
        lambda: f"({inner()})|{rng.choice(FILTERS)}({arguments})",
        lambda: f"({inner()}).{rng.choice(METHODS)}({arguments})",
        lambda: f"[{arguments}]", lambda: f"{{'k': {inner()}}}", lambda: f"({inner()})[{inner()}:]",
        lambda: f"({inner()})[{inner()}]",
        lambda: f"({inner()} if {inner()} else {inner()})", lambda: f"({inner()})|list", lambda: f"m({inner()})",
    ])()  # fmt: skip


def template(rng: random.Random) -> str:
    """Statements in each other, which make values from their own values."""
    text = "{% set ns = namespace(s='aaaa', x=[1]) %}{% macro m(i) %}{{ i }}{{ varargs }}{{ caller() if caller }}{% endmacro %}"
    close = []
    for _ in range(rng.randint(1, 4)):
        begin, end = rng.choice([
            (f"{{% for i in {expression(rng, 2)} %}}", "{% endfor %}"), ("{% for i in range(99) %}", "{% endfor %}"),
            (f"{{% if {expression(rng, 1)} %}}", "{% endif %}"), ("{% set ns.s %}", "{% endset %}"),
            (f"{{% filter {rng.choice(FILTERS)} %}}", "{% endfilter %}"), ("{% call m(1) %}", "{% endcall %}"),
        ])  # fmt: skip
        text += begin
        close.append(end)
        for _ in range(rng.randint(1, 3)):
            value = expression(rng, rng.randint(1, 3))
            text += rng.choice([f"{{{{ {value} }}}}", f"{{% set ns.s = {value} %}}", f"{{% set ns.x = {value} %}}"])
    return text + "".join(reversed(close))
