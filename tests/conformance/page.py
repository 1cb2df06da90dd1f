"""The parts of the conformance page: the node suite, other suites, differences of the CPU provider.

In: the text of the page and a part that one script wrote. Out: the page with it. Each script leaves the other's parts.
"""

from __future__ import annotations

import re

SUITES, DIFFERENCES = "## Other suites", "## Where the CPU provider differs"
ABOUT = f"""{SUITES}

Cases of other suites, written by `python -m tests.conformance.suite_table NAME FOLDER` from a folder of the suite's files. Their
data is not in the repository. Columns are as above; operators whose cases are all on WebGPU and right share a row.
"""


def with_suite(page: str, name: str, part: str) -> str:
    """The page with this part of a suite in place of that of the same name, in the order of names."""
    return _joined(page, _suites(page) | {name: part})


def with_suites_of(page: str, older: str) -> str:
    """The page with the suites of an older one."""
    return _joined(page, _suites(older))


def _suites(page: str) -> dict[str, str]:
    if SUITES not in page:
        return {}
    text = page[page.index(SUITES) : page.index(DIFFERENCES)]
    pieces = re.split(r"^### (.*)\n", text, flags=re.MULTILINE)
    return {name: f"### {name}\n{rest.rstrip()}\n" for name, rest in zip(pieces[1::2], pieces[2::2], strict=True)}


def _joined(page: str, suites: dict[str, str]) -> str:
    behind = page.index(DIFFERENCES)
    before = page[: page.index(SUITES) if SUITES in page else behind].rstrip("\n") + "\n"
    parts = [ABOUT, *(suites[name] for name in sorted(suites))] if suites else []
    return "\n".join([before, *parts, page[behind:]])
