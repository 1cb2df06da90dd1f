"""Names in models and of files stay text: in the page of a profile, and on terminals."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxruntime_ep_wgpu import cli
from onnxruntime_ep_wgpu.errors import InputError
from onnxruntime_ep_wgpu.profiles.events import Event, Timeline
from onnxruntime_ep_wgpu.profiles.page import page
from onnxruntime_ep_wgpu.tabular import rich_table, text_lines
from onnxruntime_ep_wgpu.tools import _output, info
from onnxruntime_ep_wgpu.trace import GPU_THREAD
from tests import patience

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SCRIPT = "document.documentElement.dataset.entered=1"
PIECES = (
    "{{data}}", "{{title}}", "{{script}}", "{{style}}", "{{digest}}", "{{", "}}", f"<img src=x onerror={SCRIPT}>",
    f"</script><script>{SCRIPT}</script>", "<!--", "<!--<script>", "-->", "</title>", "</style>", "]]>", f'"onload="{SCRIPT}',
    "<", ">", "&lt;b&gt;", "'", "\\", "\\u003c", r"\1", r"\g<0>", "$&", "\u2028", "\u2029", "\ud800", "\0", "\r\n", "__proto__",
    "é", "</SCRIPT\t>", "<svg/onload=1>",
)  # fmt: skip
NAMES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join)


def profile_of(name: str) -> Timeline:
    """Two runs of a kernel, with the name wherever a model or a file can put one."""
    args = {"operators": name, "kernel": name, "nodes": name, name: name, "flops": 1, "bytes": 1, "dispatch": 0}
    events = [Event("run", name, 0, 10, 7, {})]
    events += [Event("run", name, 20, 10, 7, {}), Event(name, name, 21, 2, 7, {"op_name": name, "provider": name})]
    events.append(Event("dispatch", name, 22, 5, GPU_THREAD, args))
    return Timeline(events, {"model": f"{name}.onnx", "device": name, name: name})


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the text of each tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        if self.found:
            self.texts.setdefault(self.found[-1][0], []).append(data)


def data_of(text: str) -> str:
    begin = text.index('id="profile">') + len('id="profile">')
    return text[begin : text.index("</script>", begin)]


@settings(deadline=None, max_examples=200)
@given(NAMES)
def test_a_name_makes_no_element_of_the_page(name: str) -> None:
    text, plain = page(profile_of(name)), page(profile_of("plain"))
    assert Elements(text).found == Elements(plain).found
    written = data_of(text)
    assert not re.search("[<\u2028\u2029]", written)  # of which HTML and older JavaScript make something
    assert json.loads(written)["events"][-1][1] == name
    title = f"{name}.onnx".rpartition("/")[2] + f" on {name}"
    text.encode()  # has no half of a character
    if "\0" not in name and "\r" not in name:  # of which HTML makes other characters
        assert "".join(Elements(text).texts["h1"]).strip() == title.encode(errors="replace").decode().strip()
    assert text.replace(written, "").count("{{") <= 2 * title.count("{{")


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium to draw the page with")
def test_a_browser_draws_a_page_of_hostile_names_and_runs_nothing_of_them(tmp_path: Path) -> None:
    pieces = [it for it in PIECES if it != "\ud800"]  # by which --dump-dom ends
    parts = [profile_of(name) for name in (*pieces, "".join(pieces))]
    facts = {name: value for it in parts for name, value in it.facts.items()}
    facts["model"] = "{{data}}.onnx"
    path = tmp_path / "page.html"
    path.write_text(page(Timeline([event for it in parts for event in it.events], facts)), encoding="utf-8")
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'user'}"]
    command += ["--enable-logging=stderr", "--dump-dom", path.as_uri()]
    result = patience.run(command, check=True)
    assert "CONSOLE" not in result.stderr  # where errors of scripts go
    shown = Elements(result.stdout)
    tags = [tag for tag, _ in shown.found]
    assert not {"img", "svg"} & {*tags} and tags.count("script") == 2
    assert "data-entered" not in {name for _, attributes in shown.found for name, _ in attributes}
    assert "<!--<script>" in shown.texts["td"] and shown.texts["title"][0].startswith("{{data}}.onnx on ")


def test_the_page_allows_its_own_script_alone() -> None:
    policy = dict(Elements(page(profile_of("plain"))).found[3][1])["content"]
    assert policy is not None
    assert (
        policy.startswith("default-src 'none'")
        and "script-src 'sha256-" in policy
        and "script-src 'unsafe" not in policy
    )


@pytest.mark.parametrize("terminal", [False, True])
def test_a_name_steers_no_terminal(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "a\x1b[2J\x07\x9b2J\ud800\u202e\u2066\u200f [red]b[/] \\[x [/nothing]"
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    _output.show_table(["node"], [[name]])
    _output.show_pairs({"model": name}, name)
    _output.show_lines(name)
    _output.show_note(name)
    printed = "".join(capsys.readouterr())
    styles = re.compile(r"\x1b\[[0-9;]*m")  # of rich
    printed = styles.sub("", printed)
    assert not re.search("[\x07\x1b\x9b\ud800\u202e\u2066\u200f]", printed)
    assert printed.count(r"a\x1b[2J\x07\x9b2J\ud800\u202e\u2066\u200f [red]b[/] \[x [/nothing]") == 5
    assert "\x1b" not in "".join(text_lines(["node"], [[name]])) and rich_table(["node"], [[name]]).row_count == 1


def test_an_error_steers_no_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_args: object) -> int:
        raise InputError("node \x1b[2J")

    monkeypatch.setattr(info, "main", fail)
    assert cli.main(["info"]) == 2
    assert capsys.readouterr().err == "error: node \\x1b[2J\n"
