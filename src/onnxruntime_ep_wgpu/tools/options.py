"""List the provider options: values, defaults and what they do."""

from __future__ import annotations

import argparse
import re

from ..options import OPTIONS, require
from ._output import show_json, show_pairs, show_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", nargs="?", metavar="KEY", help="describe this option in full")


def _plain(text: str) -> str:
    """Returns the text without Markdown links, which the table has for docs/options.md."""
    return re.sub(r"\[[^]]*\]\(([^)]*)\)", r"docs/\1", text)


def main(args: argparse.Namespace) -> int:
    """Raises OptionError with the nearest key for an unknown one."""
    chosen = list(OPTIONS.values()) if args.key is None else [require(args.key)]
    facts = [
        {"key": it.key, "values": it.domain, "default": it.default, "sets": it.help, "effect": it.effect}
        for it in chosen
    ]
    if args.json:
        show_json(facts)
    elif args.key is None:
        show_table(("key", "default", "sets"), [(it["key"], it["default"], it["sets"]) for it in facts])
    else:
        show_pairs({name: _plain(text) for name, text in facts[0].items()})
    return 0
