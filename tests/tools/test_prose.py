"""Documents are written in short sentences.

A sentence has at most 30 words. A code span is one word, a link is its text. List items are sentences of their own. Code
blocks, tables, headings and the parts that a generator writes are not looked at. A colon or a semicolon ends no sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MOST_WORDS = 30

GENERATED = {
    "docs/benchmarks.md": "written from the reports of bench.compare by bench/document.py",
    "docs/conformance.md": "written by tests/conformance/table.py",
}
GENERATED_PART = re.compile(r"<!-- written by .*?<!-- end[^>]*-->", re.DOTALL)
HIDDEN = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
CODE = re.compile(r"(`+)(?:(?!\1).)+?\1")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")
NO_END = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|no|fig)\.$", re.IGNORECASE)
END = re.compile(r"[.!?][\"')*_\]]*(?=\s+(?:\[|[\"'(*_]*[A-Z0-9\x01])|\s*$)")
PERSONS = re.compile(r"\b(?:who|whom|whose|nobody|somebody)\b", re.IGNORECASE)
"""Words for persons; things are not persons, and a sentence about people does without them, too."""


class Sentence(NamedTuple):
    line: int
    text: str

    @property
    def words(self) -> int:
        return len([word for word in self.text.split() if re.search(r"\w|\x01", word)])


def _blanked(found: re.Match[str]) -> str:
    """As many lines with nothing on them."""
    return "\n" * found[0].count("\n")


def paragraphs(text: str) -> Iterator[list[tuple[int, str]]]:
    """The numbered lines of each paragraph and list item."""
    held: list[tuple[int, str]] = []
    fence, in_list = "", False
    for number, line in enumerate(HIDDEN.sub(_blanked, GENERATED_PART.sub(_blanked, text)).splitlines(), 1):
        bare = line.strip().lstrip(">").strip()
        marks = re.match(r"(```+|~~~+)", bare)
        if marks and (not fence or bare == fence):
            fence = "" if fence else marks[1]
            apart = True
        else:
            apart = bool(fence) or not bare or bare.startswith(("|", "#", "---"))
        indented = line.startswith("    ") and not in_list and not held
        apart = apart or indented
        item = None if apart else ITEM.match(line)
        in_list = bool(item) or (in_list and line[:1] in ("", " "))
        if held and (apart or item):
            yield held
            held = []
        if not apart:
            held.append((number, line[item.end() :] if item else bare))
    if held:
        yield held


def sentences(text: str) -> Iterator[Sentence]:
    """In the order of the document. A code span stands in them as the character 1."""
    for lines in paragraphs(text):
        starts, joined = [], ""
        for number, line in lines:
            starts.append((len(joined), number))
            joined += line + " "

        def of_same_length(found: re.Match[str]) -> str:
            return "\x01" + "\x02" * (len(found[0]) - 1)

        plain = CODE.sub(of_same_length, joined)
        begin = 0
        for end in [*(it.end() for it in END.finditer(plain)), len(plain)]:
            if NO_END.search(plain[begin:end]) and end < len(plain.rstrip()):
                continue
            part = plain[begin:end]
            if part.strip():
                first = begin + len(part) - len(part.lstrip())
                line = max(number for start, number in starts if start <= first)
                yield Sentence(line, LINK.sub(r"\1", part).replace("\x02", "").strip())
            begin = end


def name(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


def faults(text: str) -> list[str]:
    """What is wrong, each with its line and its sentence."""
    found = []
    for it in sentences(text):
        shown = it.text.replace("\x01", "`...`")
        if it.words > MOST_WORDS:
            found.append(f"line {it.line}: {it.words} words: {shown}")
        if person := PERSONS.search(it.text):
            found.append(f"line {it.line}: a word for persons, {person[0]!r}: {shown}")
    return found


@pytest.mark.parametrize("document", [it for it in DOCUMENTS if name(it) not in GENERATED], ids=name)
def test_sentences_are_short_and_things_are_not_persons(document: Path) -> None:
    found = faults(document.read_text())
    assert not found, "\n".join([name(document), *found])


def test_what_is_generated_is_there() -> None:
    assert GENERATED.keys() <= {name(it) for it in DOCUMENTS}


LONG = "Word " + "word " * MOST_WORDS
FITS = "Word " + "word " * (MOST_WORDS - 2)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"{LONG}.", 1),
        (f"# Heading\n\nShort.\n{LONG}.", 4),
        (f"Short: {LONG}; short.", 1),
        (f"* Short\n* {LONG}", 2),
        (f"One\n{FITS}\nend.", 1),
        (f"* Short\n\n    {LONG}", 3),
        (f"| a table |\n\n> {LONG}", 3),
        (f"{FITS} e.g. Others.", 1),
        ("Short. This is a kernel whose name is long.", 1),
    ],
)
def test_a_long_sentence_is_found_at_its_line(text: str, line: int) -> None:
    (found,) = faults(text)
    assert found.startswith(f"line {line}:")


@pytest.mark.parametrize(
    "text",
    [
        f"{FITS} end. {FITS} end.",
        f"{FITS} end.\n`Code` follows. {FITS}",
        f"* {FITS}\n* {FITS}",
        f"```python\n{LONG}\n```",
        f"Run\n\n    {LONG}",
        f"| {LONG} |",
        f"# {LONG}",
        f"<!-- written by bench.x -->\n{LONG}\n<!-- end of x -->",
        f"{FITS} `{LONG}`.",
        f"{FITS} [one](a-{'-'.join(LONG.split())}.md).",
    ],
)
def test_what_is_no_long_sentence_is_not_found(text: str) -> None:
    assert faults(text) == []
