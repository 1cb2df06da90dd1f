"""List, measure or clear the cache of compiled Programs on disk."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..errors import OptionError
from ._output import show_json, show_pairs, show_table

if TYPE_CHECKING:
    from ..kept.folder import Folder, Kept

_ACTIONS = {"list": "every entry", "size": "how many bytes it has", "clear": "removes every entry"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    help_text = "; ".join(f"{name}: {what}" for name, what in _ACTIONS.items())
    parser.add_argument("action", nargs="?", choices=_ACTIONS, default="list", help=help_text)


def main(args: argparse.Namespace) -> int:
    """Runs the action. Raises OptionError if there is no cache."""
    from ..kept.folder import VARIABLE, Folder, folder_path

    path = folder_path()
    if path is None:
        raise OptionError(f"there is no cache: {VARIABLE}=off; unset it, or set it to a folder")
    kept = Folder(path)
    if args.action == "clear":
        removed = kept.clear()
        if kept.problem:
            raise OptionError(f"the cache is not cleared: {kept.problem}")
        facts: dict[str, Any] = {"folder": path, "removed": removed}
        show_json(facts) if args.json else show_pairs(facts)
    elif args.action == "size":
        found = kept.entries()
        facts = {"folder": path, "entries": len(found), "bytes": sum(it.nbytes for it in found), "most": kept.most}
        show_json(facts) if args.json else show_pairs(facts)
    else:
        rows = [_row(kept, it) for it in kept.entries()]
        if args.json:
            show_json(rows)
        else:
            show_table(("used", "kind", "graph", "adapter", "bytes"), [list(it.values())[1:] for it in rows])
    return 0


def _row(kept: Folder, it: Kept) -> dict[str, Any]:
    """Returns the description of an entry. Reading it here does not count as use."""
    from ..kept import entry

    try:
        used = datetime.fromtimestamp(it.used).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):  # a time outside the calendar's range
        used = "unknown"
    try:
        found = entry.read(kept.read(it.name, used=False) or b"", None)
        named = {it: " ".join(str(found.about.get(it, "")).split())[:80] for it in ("graph", "adapter")}
        about = {"kind": found.kind, **named}
    except entry.EntryError as error:
        fault = "of another version" if isinstance(error, entry.FormatError) else "damaged"
        about = {"kind": f"{fault}: {error}", "graph": "", "adapter": ""}
    return {"name": it.name, "used": used, **about, "bytes": it.nbytes}
